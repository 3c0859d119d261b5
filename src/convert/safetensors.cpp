#include "convert/safetensors.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <nlohmann/json.hpp>
#include <unordered_set>
#include <utility>

#include "base/checked.h"
#include "base/fail.h"
#include "base/file_text.h"

namespace conclave {
namespace {

static_assert(std::endian::native == std::endian::little, "the header's length is read as it lies in the file");

using Json = nlohmann::json;

constexpr std::size_t kMaxDims = 8;
constexpr std::size_t kMaxTensors = 1 << 20;

struct ElementType {
  std::string_view name;
  std::uint64_t bits;
  std::optional<DType> type;
};
constexpr ElementType kElementTypes[] = {
    {"F32", 32, DType::f32}, {"F16", 16, DType::f16}, {"BF16", 16, DType::bf16}, {"F64", 64, {}},
    {"I64", 64, {}},         {"U64", 64, {}},         {"C64", 64, {}},           {"I32", 32, {}},
    {"U32", 32, {}},         {"I16", 16, {}},         {"U16", 16, {}},           {"I8", 8, {}},
    {"U8", 8, {}},           {"BOOL", 8, {}},         {"F8_E4M3", 8, {}},        {"F8_E5M2", 8, {}},
    {"F8_E8M0", 8, {}},      {"F6_E2M3", 6, {}},      {"F6_E3M2", 6, {}},        {"F4", 4, {}},
};

// Reads the header's three levels as they come, so that a header of many megabytes never becomes a tree.
class HeaderReader final : public nlohmann::json_sax<Json> {
 public:
  explicit HeaderReader(const std::string& shown) : shown_(shown) {}

  std::vector<SafeTensor> tensors;

  bool key(string_t& text) override {
    if (depth_ == 1) {
      begin_entry(text);
    } else if (!in_metadata_) {
      begin_member(text);
    }
    return true;
  }

  bool start_object(std::size_t /*elements*/) override {
    if (depth_ == 0 || (depth_ == 1 && !in_array_)) {
      ++depth_;
      return true;
    }
    refuse("an object stands where none may be");
  }

  bool end_object() override {
    if (--depth_ == 1 && !in_metadata_) finish_tensor();
    in_metadata_ = false;
    return true;
  }

  bool start_array(std::size_t /*elements*/) override {
    if (depth_ != 2 || in_array_ || in_metadata_ || (member_ != Member::shape && member_ != Member::data_offsets)) {
      refuse("an array stands where none may be");
    }
    in_array_ = true;
    return true;
  }

  bool end_array() override {
    in_array_ = false;
    return true;
  }

  bool number_unsigned(number_unsigned_t value) override {
    if (!in_array_) refuse("a number stands where none may be");
    auto& list = member_ == Member::shape ? shape_ : offsets_;
    if (list.size() == kMaxDims) refuse("a list has more than {} numbers", kMaxDims);
    list.push_back(value);
    return true;
  }

  bool string(string_t& text) override {
    if (in_metadata_) return true;
    if (depth_ != 2 || member_ != Member::dtype) refuse("a string stands where none may be");
    dtype_ = text;
    return true;
  }

  bool null() override { return other(); }
  bool boolean(bool /*value*/) override { return other(); }
  bool number_integer(number_integer_t /*value*/) override { return other(); }
  bool number_float(number_float_t /*value*/, const string_t& /*text*/) override { return other(); }
  bool binary(binary_t& /*value*/) override { return other(); }

  bool parse_error(std::size_t position, const std::string& /*token*/, const Json::exception& /*why*/) override {
    fail(ErrorCode::bad_file, "{}: its header is not JSON: wrong at byte {}", shown_, position);
  }

 private:
  enum class Member { none, dtype, shape, data_offsets };

  template <class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    const std::string place = name_.empty() ? "its header" : fmt::format("tensor {}", printable(name_));
    fail(ErrorCode::bad_file, "{}: {}: {}", shown_, place, fmt::format(format, std::forward<Args>(args)...));
  }

  bool other() const { refuse("a value of a type that none has"); }

  void begin_entry(const std::string& text) {
    name_ = text;
    in_metadata_ = text == "__metadata__";
    if (!names_.insert(text).second) refuse("it is there twice");
    if (names_.size() > kMaxTensors) refuse("more than {} tensors", kMaxTensors);
    dtype_.reset();
    shape_.clear();
    offsets_.clear();
    seen_ = {};
    member_ = Member::none;
  }

  void begin_member(const std::string& text) {
    member_ = text == "dtype"          ? Member::dtype
              : text == "shape"        ? Member::shape
              : text == "data_offsets" ? Member::data_offsets
                                       : Member::none;
    if (member_ == Member::none) refuse("'{}' is unknown", printable(text));
    bool& seen = seen_[static_cast<std::size_t>(member_)];
    if (seen) refuse("{} is there twice", text);
    seen = true;
  }

  void finish_tensor() {
    if (!dtype_ || !seen_[static_cast<std::size_t>(Member::shape)] || offsets_.size() != 2) {
      refuse("it must have a dtype, a shape and two data_offsets");
    }
    const auto* element = std::find_if(std::begin(kElementTypes), std::end(kElementTypes),
                                       [&](const ElementType& item) { return item.name == *dtype_; });
    if (element == std::end(kElementTypes)) refuse("dtype '{}' is unknown", printable(*dtype_));
    SafeTensor tensor{.name = name_, .dtype = element->name, .type = element->type};
    std::optional<std::uint64_t> bits = element->bits;
    for (const std::uint64_t dim : shape_) {
      if (dim > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) bits.reset();
      if (bits) bits = checked_mul(*bits, dim);
      tensor.dims.push_back(static_cast<std::int64_t>(dim));
    }
    if (!bits) refuse("its shape has more elements than 64 bits can count");
    if (offsets_[1] < offsets_[0]) refuse("its data ends at {} before it begins at {}", offsets_[1], offsets_[0]);
    tensor.offset = offsets_[0];
    tensor.bytes = offsets_[1] - offsets_[0];
    if (*bits / 8 != tensor.bytes || *bits % 8 != 0) {
      refuse("{} of shape [{}] take {} bytes, but its data has {}", *dtype_, fmt::join(shape_, ", "),
             *bits / 8 + (*bits % 8 != 0), tensor.bytes);
    }
    tensors.push_back(std::move(tensor));
    name_.clear();
  }

  const std::string& shown_;
  int depth_ = 0;
  bool in_metadata_ = false;
  bool in_array_ = false;
  std::string name_;
  Member member_ = Member::none;
  std::optional<std::string> dtype_;
  std::vector<std::uint64_t> shape_;
  std::vector<std::uint64_t> offsets_;
  std::array<bool, 4> seen_{};
  std::unordered_set<std::string> names_;
};

void check_places(std::vector<SafeTensor>& tensors, std::uint64_t data_bytes, const std::string& shown) {
  std::stable_sort(tensors.begin(), tensors.end(),
                   [](const SafeTensor& a, const SafeTensor& b) { return a.offset < b.offset; });
  const SafeTensor* last = nullptr;  // the last one that has bytes
  for (const SafeTensor& tensor : tensors) {
    if (tensor.offset > data_bytes || tensor.bytes > data_bytes - tensor.offset) {
      fail(ErrorCode::bad_file,
           "{}: tensor {} ends at byte {} of the data, but there are only {}: the file is cut short", shown,
           printable(tensor.name), tensor.offset + tensor.bytes, data_bytes);
    }
    if (tensor.bytes == 0) continue;
    if (last != nullptr && last->offset + last->bytes > tensor.offset) {
      fail(ErrorCode::bad_file, "{}: tensors {} and {} overlap", shown, printable(last->name), printable(tensor.name));
    }
    last = &tensor;
  }
}

}  // namespace

std::vector<SafeTensor> parse_safetensors_header(std::string_view header, std::uint64_t data_bytes,
                                                 const std::string& shown) {
  if (!header.starts_with('{')) fail(ErrorCode::bad_file, "{}: its header is not a JSON object", shown);
  HeaderReader reader(shown);
  try {
    Json::sax_parse(header.begin(), header.end(), &reader);
  } catch (const Json::exception&) {
    fail(ErrorCode::bad_file, "{}: its header is not JSON that can be read", shown);
  }
  check_places(reader.tensors, data_bytes, shown);
  return std::move(reader.tensors);
}

SafetensorsFile SafetensorsFile::open(const std::filesystem::path& path) {
  SafetensorsFile result(MappedFile::open(path));
  MappedFile& file = result.file_;
  std::uint64_t header_bytes = 0;
  if (file.read_at(0, std::as_writable_bytes(std::span(&header_bytes, 1))) != sizeof header_bytes) {
    fail(ErrorCode::bad_file, "{}: {} bytes are too few for a safetensors file", file.shown_path(), file.size());
  }
  if (header_bytes > kMaxSafetensorsHeader || header_bytes > file.size() - sizeof header_bytes) {
    fail(ErrorCode::bad_file, "{}: not a safetensors file, or cut short: a header of {} bytes in a file of {}",
         file.shown_path(), header_bytes, file.size());
  }
  result.data_start_ = sizeof header_bytes + header_bytes;
  std::string header(static_cast<std::size_t>(header_bytes), '\0');
  if (file.read_at(sizeof header_bytes, std::as_writable_bytes(std::span(header))) != header.size()) {
    fail(ErrorCode::io, "{}: it became shorter while it was read", file.shown_path());
  }
  result.tensors_ = parse_safetensors_header(header, file.size() - result.data_start_, file.shown_path());
  file.map();
  return result;
}

std::span<const std::byte> SafetensorsFile::data(const SafeTensor& tensor) const {
  file_.require_not_shrunk();
  return file_.mapped().subspan(data_start_ + tensor.offset, tensor.bytes);
}

}  // namespace conclave
