#include "convert/hf_tensors.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "base/fail.h"
#include "base/file_text.h"

namespace conclave {
namespace {

// Names in the checkpoint of what the file calls `gguf`. Of a layer's tensor: what follows "model.layers.N.".
struct Source {
  std::string_view gguf;
  std::string_view name;
  std::string_view or_name = {};
};
constexpr Source kModelSources[] = {
    {"token_embd.weight", "model.embed_tokens.weight"},
    {"output_norm.weight", "model.norm.weight"},
    {"output.weight", "lm_head.weight"},
};
constexpr Source kLayerSources[] = {
    {"attn_norm.weight", "input_layernorm.weight"},
    {"attn_q.weight", "self_attn.q_proj.weight"},
    {"attn_k.weight", "self_attn.k_proj.weight"},
    {"attn_v.weight", "self_attn.v_proj.weight"},
    {"attn_output.weight", "self_attn.o_proj.weight"},
    {"attn_q.bias", "self_attn.q_proj.bias"},
    {"attn_k.bias", "self_attn.k_proj.bias"},
    {"attn_v.bias", "self_attn.v_proj.bias"},
    {"attn_q_norm.weight", "self_attn.q_norm.weight"},
    {"attn_k_norm.weight", "self_attn.k_norm.weight"},
    {"ffn_norm.weight", "post_attention_layernorm.weight"},
    {"ffn_gate_inp.weight", "mlp.gate.weight", "block_sparse_moe.gate.weight"},
    {"ffn_gate_inp_shexp.weight", "mlp.shared_expert_gate.weight"},
    {"ffn_gate_shexp.weight", "mlp.shared_expert.gate_proj.weight"},
    {"ffn_up_shexp.weight", "mlp.shared_expert.up_proj.weight"},
    {"ffn_down_shexp.weight", "mlp.shared_expert.down_proj.weight"},
};

// Experts come one by one, or all in one tensor: gate above up in the rows of each expert, or down alone.
struct ExpertSource {
  std::string_view gguf;
  std::string_view each;          // mlp.experts.N.EACH.weight
  std::string_view mixtral_each;  // block_sparse_moe.experts.N.EACH.weight
  std::string_view fused;         // mlp.experts.FUSED
  int part;                       // of the fused tensor's rows
  int parts;
};
constexpr ExpertSource kExpertSources[] = {
    {"ffn_gate_exps.weight", "gate_proj", "w1", "gate_up_proj", 0, 2},
    {"ffn_up_exps.weight", "up_proj", "w3", "gate_up_proj", 1, 2},
    {"ffn_down_exps.weight", "down_proj", "w2", "down_proj", 0, 1},
};

// Buffers that some versions saved although they follow from config.json.
constexpr std::string_view kDerived = "rotary_emb.inv_freq";

constexpr std::string_view kHead = "output.weight";
constexpr std::string_view kRopeFactors = "rope_freqs.weight";

std::vector<std::int64_t> without_leading_ones(std::vector<std::int64_t> dims) {
  while (dims.size() > 1 && dims.front() == 1) dims.erase(dims.begin());
  return dims;
}

std::int64_t product(const std::vector<std::int64_t>& dims) {
  std::int64_t n = 1;  // of dimensions that passed config.json's limits: at most 2^12 * 2^20 * 2^20
  for (const std::int64_t dim : dims) n *= dim;
  return n;
}

class Planner {
 public:
  Planner(const Checkpoint& checkpoint, HfModel& model) : checkpoint_(checkpoint), model_(model) {}

  TensorPlan run() {
    const bool head_is_there = checkpoint_.find(source_of(kModelSources, kHead)->name) != nullptr;
    tied_ = model_.tied.value_or(!head_is_there);
    model_.config.attention.qkv_bias =
        model_.family->qkv_bias &&
        model_.qkv_bias.value_or(checkpoint_.find("model.layers.0.self_attn.q_proj.bias") != nullptr);
    for (const ModelTensorSpec& spec : model_.family->model_tensors) plan_model_tensor(spec);
    for (std::int64_t layer = 0; layer < model_.config.n_layers; ++layer) {
      for (const auto specs : {model_.family->common_layer_tensors, model_.family->own_layer_tensors}) {
        for (const LayerTensorSpec& spec : specs) plan_layer_tensor(spec, layer);
      }
    }
    refuse_unused();
    return std::move(plan_);
  }

 private:
  template <class List>
  static const Source* source_of(const List& list, std::string_view gguf) {
    for (const Source& source : list) {
      if (source.gguf == gguf) return &source;
    }
    return nullptr;
  }

  template <class Spec>
  std::vector<std::int64_t> shape_of(const Spec& spec) const {
    std::vector<std::int64_t> dims;
    for (const Dim dim : spec.shape) {
      if (dim != Dim::none) dims.push_back(dim_value(dim, model_.config));
    }
    return dims;
  }

  void plan_model_tensor(const ModelTensorSpec& spec) {
    if (spec.name == kRopeFactors) return plan_rope_factors();
    std::string_view from = source_of(kModelSources, spec.name)->name;
    if (spec.name == kHead && tied_) {
      plan_.has_head = spec.presence != Presence::optional;
      if (!plan_.has_head) return;
      from = source_of(kModelSources, "token_embd.weight")->name;  // the family always has a head of its own
    }
    PlannedTensor planned = begin(std::string(spec.name), shape_of(spec), spec.storage);
    planned.job.pieces = {take(std::string(from), {}, planned.dims)};
    finish(std::move(planned));
  }

  void plan_rope_factors() {
    if (model_.rope_factors.empty()) return;
    PlannedTensor planned =
        begin(std::string(kRopeFactors), {static_cast<std::int64_t>(model_.rope_factors.size())}, Storage::floats);
    plan_.rope_factors = model_.rope_factors;  // its heap stays where it is when the plan moves
    planned.job.pieces = {{DType::f32, std::as_bytes(std::span(plan_.rope_factors))}};
    finish(std::move(planned));
  }

  void plan_layer_tensor(const LayerTensorSpec& spec, std::int64_t layer) {
    if (spec.presence == Presence::with_qkv_bias && !model_.config.attention.qkv_bias) return;
    const std::string prefix = fmt::format("model.layers.{}.", layer);
    PlannedTensor planned = begin(fmt::format("blk.{}.{}", layer, spec.name), shape_of(spec), spec.storage);
    const auto* experts = std::find_if(std::begin(kExpertSources), std::end(kExpertSources),
                                       [&](const ExpertSource& item) { return item.gguf == spec.name; });
    if (experts != std::end(kExpertSources)) {
      planned.job.pieces = take_experts(*experts, prefix, planned.dims);
    } else {
      const Source* source = source_of(kLayerSources, spec.name);
      CONCLAVE_CHECK(source != nullptr, std::string(spec.name));
      planned.job.pieces = {take(prefix + std::string(source->name),
                                 source->or_name.empty() ? "" : prefix + std::string(source->or_name), planned.dims)};
    }
    if (model_.architecture->interleaved_rope) {
      const AttentionConfig& attention = model_.config.attention;
      if (spec.name == "attn_q.weight") interleave(planned, attention.n_heads);
      if (spec.name == "attn_k.weight") interleave(planned, attention.n_kv_heads);
    }
    finish(std::move(planned));
  }

  static PlannedTensor begin(std::string name, std::vector<std::int64_t> dims, Storage storage) {
    PlannedTensor planned{.dims = std::move(dims), .floats = storage == Storage::floats};
    planned.job.name = std::move(name);
    return planned;
  }

  void finish(PlannedTensor planned) {
    RecodeJob& job = planned.job;
    job.piece_elements = product(planned.dims) / static_cast<std::int64_t>(job.pieces.size());
    planned.source = job.pieces.front().type;
    for (const SourcePiece& piece : job.pieces) {
      if (piece.type != planned.source) planned.source = DType::f32;
    }
    plan_.tensors.push_back(std::move(planned));
  }

  // The tensor `name`, or `or_name` where that is not empty and the other is not there.
  SourcePiece take(const std::string& name, const std::string& or_name, const std::vector<std::int64_t>& dims) {
    const Checkpoint::Entry* entry = checkpoint_.find(name);
    if (entry == nullptr && !or_name.empty()) entry = checkpoint_.find(or_name);
    if (entry == nullptr) {
      fail(ErrorCode::bad_file, "{}: tensor {}{} is missing", checkpoint_.config().shown(), name,
           or_name.empty() ? "" : " (or " + or_name + ")");
    }
    const SafeTensor& tensor = *entry->tensor;
    if (without_leading_ones(tensor.dims) != without_leading_ones(dims)) {
      fail(ErrorCode::bad_file, "{}: tensor {} is [{}], must be [{}]", entry->file->shown_path(), tensor.name,
           fmt::join(tensor.dims, ", "), fmt::join(dims, ", "));
    }
    if (!tensor.type) {
      fail(ErrorCode::unsupported, "{}: tensor {} is {}, supported: F32, F16, BF16", entry->file->shown_path(),
           tensor.name, tensor.dtype);
    }
    used_.insert(entry->tensor);
    return {*tensor.type, entry->data()};
  }

  std::vector<SourcePiece> take_experts(const ExpertSource& source, const std::string& prefix,
                                        const std::vector<std::int64_t>& dims) {
    const std::int64_t n_experts = dims[0];
    std::vector<SourcePiece> pieces;
    const std::string fused = fmt::format("{}mlp.experts.{}", prefix, source.fused);
    if (checkpoint_.find(fused) != nullptr) {
      const SourcePiece all = take(fused, {}, {n_experts, source.parts * dims[1], dims[2]});
      const std::size_t bytes = all.bytes.size() / static_cast<std::size_t>(n_experts * source.parts);
      for (std::int64_t i = 0; i < n_experts; ++i) {
        pieces.push_back(
            {all.type, all.bytes.subspan(static_cast<std::size_t>(i * source.parts + source.part) * bytes, bytes)});
      }
      return pieces;
    }
    for (std::int64_t i = 0; i < n_experts; ++i) {
      pieces.push_back(take(fmt::format("{}mlp.experts.{}.{}.weight", prefix, i, source.each),
                            fmt::format("{}block_sparse_moe.experts.{}.{}.weight", prefix, i, source.mixtral_each),
                            {dims[1], dims[2]}));
    }
    return pieces;
  }

  // Row 2i + s of a head from row s * d_head/2 + i: the two rows of a rotation, half a head apart in the checkpoint, go
  // side by side.
  static void interleave(PlannedTensor& planned, std::int64_t n_heads) {
    const SourcePiece whole = planned.job.pieces.front();
    const std::int64_t n_rows = planned.dims[0];
    const std::int64_t d_head = n_rows / n_heads;
    const std::size_t row_bytes = whole.bytes.size() / static_cast<std::size_t>(n_rows);
    planned.job.pieces.clear();
    for (std::int64_t row = 0; row < n_rows; ++row) {
      const std::int64_t in_head = row % d_head;
      const std::int64_t from = row - in_head + in_head % 2 * (d_head / 2) + in_head / 2;
      planned.job.pieces.push_back(
          {whole.type, whole.bytes.subspan(static_cast<std::size_t>(from) * row_bytes, row_bytes)});
    }
  }

  void refuse_unused() const {
    for (const Checkpoint::Entry& entry : checkpoint_.entries()) {
      const std::string& name = entry.tensor->name;
      if (used_.count(entry.tensor) > 0 || name.ends_with(kDerived)) continue;
      if (tied_ && name == source_of(kModelSources, kHead)->name) continue;  // the embedding again
      fail(ErrorCode::unsupported,
           "{}: tensor {} is not one that {} models have, and leaving it out could change results",
           entry.file->shown_path(), printable(name), model_.family->architecture);
    }
  }

  const Checkpoint& checkpoint_;
  HfModel& model_;
  bool tied_ = false;
  TensorPlan plan_;
  std::unordered_set<const SafeTensor*> used_;
};

}  // namespace

TensorPlan plan_tensors(const Checkpoint& checkpoint, HfModel& model) {
  return Planner(checkpoint, model).run();
}

}  // namespace conclave
