#include "model/tensor_binding.h"

#include <charconv>
#include <string>

#include "base/fail.h"
#include "base/file_text.h"

namespace conclave {
namespace {

// Layouts of the same models that need another conversion. One tensor of the first layer gives them away.
struct OtherLayout {
  std::string_view tensor;
  std::string_view advice;
};
constexpr OtherLayout kOtherLayouts[] = {
    {"blk.0.ffn_gate.0.weight", "one tensor per expert, as files had it before April 2024: convert the model again"},
    {"blk.0.ffn_gate_up_exps.weight", "gate and up in one tensor: convert the model with the two apart"},
    {"blk.0.attn_qkv.weight", "Q, K and V in one tensor: convert the model with the three apart"},
};

std::span<const std::int64_t> without_leading_ones(std::span<const std::int64_t> dims) {
  while (dims.size() > 1 && dims.front() == 1) dims = dims.subspan(1);
  return dims;
}

class Binder {
 public:
  Binder(const gguf::File& file, const Family& family, const ModelConfig& config)
      : file_(file), family_(family), config_(config), bound_(file.tensors().size(), false) {}

  template <class Owner>
  void bind(const TensorSpec<Owner>& spec, const std::string& name, Owner& owner) {
    if (spec.presence == Presence::with_qkv_bias && !config_.attention.qkv_bias) return;
    const gguf::TensorInfo* tensor = file_.find_tensor(name);
    if (tensor == nullptr) {
      if (spec.presence == Presence::optional) return;
      fail(ErrorCode::bad_file, "tensor {} is missing", name);
    }
    check_shape(*tensor, spec.shape);
    check_type(*tensor, spec.storage);
    owner.*spec.slot = tensor;
    bound_[static_cast<std::size_t>(tensor - file_.tensors().data())] = true;
  }

  void refuse_unbound() const {
    for (std::size_t i = 0; i < bound_.size(); ++i) {
      if (!bound_[i]) refuse_unknown(file_.tensors()[i]);
    }
  }

 private:
  void check_shape(const gguf::TensorInfo& tensor, const SymbolicShape& shape) const {
    std::vector<std::int64_t> expected;
    std::vector<std::string_view> names;
    for (const Dim dim : shape) {
      if (dim == Dim::none) break;
      expected.push_back(dim_value(dim, config_));
      names.push_back(dim_name(dim));
    }
    const auto want = without_leading_ones(expected);
    const auto have = without_leading_ones(tensor.dims);
    if (std::equal(want.begin(), want.end(), have.begin(), have.end())) return;
    fail(ErrorCode::bad_file, "tensor {} is [{}], must be [{}] = [{}]", tensor.name, fmt::join(tensor.dims, ", "),
         fmt::join(names, ", "), fmt::join(expected, ", "));
  }

  void check_type(const gguf::TensorInfo& tensor, Storage storage) const {
    const std::optional<DType> dtype = tensor.type->dtype;
    if (!dtype || is_integer(*dtype)) {
      fail(ErrorCode::bad_file,
           "tensor {} is {}, which conclave does not compute with: quantise the model to another format", tensor.name,
           tensor.type->name);
    }
    if (storage == Storage::floats && !is_float(*dtype)) {
      fail(ErrorCode::bad_file, "tensor {} is {}, must be F32, F16 or BF16", tensor.name, tensor.type->name);
    }
    if (tensor.dims.back() % tensor.type->per_block != 0) {
      fail(ErrorCode::bad_file, "tensor {} has rows of {}, must be a multiple of {} for {}", tensor.name,
           tensor.dims.back(), tensor.type->per_block, tensor.type->name);
    }
  }

  [[noreturn]] void refuse_unknown(const gguf::TensorInfo& tensor) const {
    constexpr std::string_view kLayer = "blk.";
    if (tensor.name.starts_with(kLayer)) {
      const char* end = tensor.name.data() + tensor.name.size();
      std::int64_t layer = -1;
      const auto parsed = std::from_chars(tensor.name.data() + kLayer.size(), end, layer);
      if (parsed.ec == std::errc{} && parsed.ptr != end && *parsed.ptr == '.' && layer >= config_.n_layers) {
        fail(ErrorCode::bad_file, "tensor {} is of layer {}, but {}.block_count is {}", printable(tensor.name), layer,
             family_.architecture, config_.n_layers);
      }
    }
    fail(ErrorCode::bad_file, "tensor {} is not one that {} models have, and leaving it out could change results",
         printable(tensor.name), family_.architecture);
  }

  const gguf::File& file_;
  const Family& family_;
  const ModelConfig& config_;
  std::vector<bool> bound_;
};

}  // namespace

ModelTensors bind_tensors(const gguf::File& file, const Family& family, const ModelConfig& config) {
  for (const OtherLayout& layout : kOtherLayouts) {
    if (file.find_tensor(layout.tensor) != nullptr) {
      fail(ErrorCode::bad_file, "tensor {}: {}", layout.tensor, layout.advice);
    }
  }
  ModelTensors tensors;
  Binder binder(file, family, config);
  for (const ModelTensorSpec& spec : family.model_tensors) binder.bind(spec, std::string(spec.name), tensors);
  if (tensors.output == nullptr) tensors.output = tensors.token_embd;
  for (std::int64_t i = 0; i < config.n_layers; ++i) {
    LayerTensors& layer = tensors.layers.emplace_back();
    for (const auto specs : {family.common_layer_tensors, family.own_layer_tensors}) {
      for (const LayerTensorSpec& spec : specs) binder.bind(spec, fmt::format("blk.{}.{}", i, spec.name), layer);
    }
  }
  binder.refuse_unbound();
  return tensors;
}

}  // namespace conclave
