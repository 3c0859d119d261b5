#include "gguf/header_parser.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>
#include <utility>

#include "base/checked.h"
#include "base/fail.h"
#include "base/file_text.h"
#include "gguf/limits.h"
#include "gguf/tensor_layout.h"

namespace conclave::gguf {
namespace {

static_assert(std::endian::native == std::endian::little, "values are read as they lie in the file");
static_assert(kMaxHeaderBytes < (1ULL << 31));

// The fewest bytes that one more of each can take, even a refused one: what a believable count is held against.
constexpr std::uint64_t kLeastKeyBytes = 8 + 4 + 1;
constexpr std::uint64_t kLeastTensorBytes = 8 + 4 + 4 + 8;
constexpr std::uint64_t kLengthBytes = 8;  // in front of every string

}  // namespace

const KeyValue* find_key(const Header& header, std::string_view key) {
  const auto found =
      std::lower_bound(header.key_order.begin(), header.key_order.end(), key,
                       [&](std::uint32_t place, std::string_view wanted) { return header.keys[place].key < wanted; });
  if (found == header.key_order.end() || header.keys[*found].key != key) return nullptr;
  return &header.keys[*found];
}

Header HeaderParser::parse() {
  read_preamble();

  // Room for what the rest of the file could hold, never for what a count claims.
  keys_.reserve(std::min(n_keys_, left() / kLeastKeyBytes));
  item_ = Item::key;
  for (item_index_ = 0; item_index_ < n_keys_; ++item_index_) read_key();
  item_ = Item::file;
  sort_keys();
  if (header_.alignment == 0) header_.alignment = kDefaultAlignment;

  header_.tensors.reserve(std::min(n_tensors_, left() / kLeastTensorBytes));
  item_ = Item::tensor;
  for (item_index_ = 0; item_index_ < n_tensors_; ++item_index_) read_tensor();
  item_ = Item::file;

  point_into_bytes();
  if (n_tensors_ == 0) return std::move(header_);  // such a file may end without the padding
  // No overflow: the position is within the header's bound, the alignment within its own.
  const std::uint64_t data_start = *checked_align_up(position_, header_.alignment);
  for (TensorInfo& tensor : header_.tensors) {
    const auto offset = checked_add(data_start, tensor.offset);
    if (!offset) {
      fail(ErrorCode::bad_file, "{}: tensor '{}': its offset {} is past the end of the file", file_.shown_path(),
           printable(tensor.name), tensor.offset);
    }
    tensor.offset = *offset;
  }
  check_layout({file_.shown_path(), data_start, file_.size(), header_.alignment}, header_.tensors);
  return std::move(header_);
}

void HeaderParser::read_preamble() {
  if (file_.size() == 0) refuse("the file is empty");
  const std::string_view magic = text(take_bytes(kMagic.size(), "the magic"));
  if (magic != kMagic) {
    if (std::equal(magic.begin(), magic.end(), kMagic.rbegin())) {
      refuse("the byte order is big endian; only little-endian GGUF can be read");
    }
    refuse(fmt::format("not a GGUF file: it starts with '{}'", printable(magic)));
  }
  header_.version = take<std::uint32_t>("the version");
  if (header_.version != 0 && (header_.version & 0xFFFFU) == 0) {
    refuse("the byte order is big endian; only little-endian GGUF can be read");
  }
  if (header_.version < kOldestVersion || header_.version > kNewestVersion) {
    refuse(fmt::format("GGUF version {} is not supported; versions {} and {} are", header_.version, kOldestVersion,
                       kNewestVersion));
  }
  n_tensors_ = take<std::uint64_t>("the number of tensors");
  n_keys_ = take<std::uint64_t>("the number of keys");
  if (n_tensors_ > kMaxTensors) refuse(fmt::format("{} tensors; at most {} are read", n_tensors_, kMaxTensors));
  if (n_keys_ > kMaxKeys) refuse(fmt::format("{} keys; at most {} are read", n_keys_, kMaxKeys));
  // Both counts are bounded, so the sum cannot overflow.
  if (n_keys_ * kLeastKeyBytes + n_tensors_ * kLeastTensorBytes > left()) {
    refuse(fmt::format("{} keys and {} tensors cannot be in the {} bytes left: the file is truncated or corrupt",
                       n_keys_, n_tensors_, left()));
  }
}

void HeaderParser::read_key() {
  item_named_ = false;
  PendingKey key;
  const auto length = take<std::uint64_t>("the length of its name");
  if (length == 0) refuse("the key is empty");
  if (length > kMaxKeyBytes && length <= left()) {
    refuse(fmt::format("a key of {} bytes; at most {} are allowed", length, kMaxKeyBytes));
  }
  key.name = take_bytes(length, "its name");
  item_name_ = key.name;
  item_named_ = true;
  if (!is_printable_utf8(text(key.name))) refuse("the key is not printable UTF-8");

  key.value.type_ = take_value_type("its type");
  if (key.value.type_ == ValueType::array) {
    read_array(key);
  } else {
    read_scalar(key);
  }
  if (text(key.name) == kAlignmentKey) note_alignment(key);
  keys_.push_back(key);
}

void HeaderParser::read_scalar(PendingKey& key) {
  const ValueType type = key.value.type_;
  key.value.element_type_ = type;
  if (type == ValueType::string) {
    key.data = take_string("its value");
    key.value.text_bytes_ = key.data.bytes;
    return;
  }
  key.data = take_bytes(value_type_bytes(type), "its value");
  if (type == ValueType::boolean) check_bools(key.data);
}

void HeaderParser::read_array(PendingKey& key) {
  const ValueType type = take_value_type("its element type");
  if (type == ValueType::array) refuse("arrays of arrays cannot be read");
  const auto count = take<std::uint64_t>("its length");
  key.value.element_type_ = type;
  key.value.size_ = count;
  const std::uint64_t least = type == ValueType::string ? kLengthBytes : value_type_bytes(type);
  if (count > left() / least) {
    refuse(fmt::format("an array of {} {} runs past the end of the file: {} bytes are left", count,
                       value_type_name(type), left()));
  }
  if (type != ValueType::string) {
    key.data = take_bytes(count * least, "its value");
    if (type == ValueType::boolean) check_bools(key.data);
    return;
  }
  // Kept: where each text starts, counted from the first text, and one more as if another string followed. A text then
  // ends kLengthBytes before the next start.
  key.data.begin = static_cast<std::uint32_t>(position_);
  need_room(count * least, "its strings");
  std::vector<std::uint32_t> starts;
  starts.reserve(count + 1);  // the file is long enough for so many, and half of its length suffices
  for (std::uint64_t i = 0; i < count; ++i) {
    const Range string = take_string("its strings");
    starts.push_back(string.begin - key.data.begin);
  }
  starts.push_back(static_cast<std::uint32_t>(position_ + kLengthBytes) - key.data.begin);
  key.starts = static_cast<std::uint32_t>(header_.string_starts.size());
  header_.string_starts.push_back(std::move(starts));
}

void HeaderParser::check_bools(const Range& bytes) {
  for (const char byte : text(bytes)) {
    if (byte != 0 && byte != 1) {
      refuse(fmt::format("a bool is stored as {}; only 0 and 1 are allowed", static_cast<unsigned char>(byte)));
    }
  }
}

void HeaderParser::note_alignment(const PendingKey& key) {
  if (key.value.type_ != ValueType::u32) {
    refuse(fmt::format("the alignment is of type {}; it must be u32", value_type_name(key.value.type_)));
  }
  std::uint32_t alignment = 0;
  std::memcpy(&alignment, header_.bytes.at(key.data.begin), sizeof alignment);
  if (!is_legal_alignment(alignment)) {
    refuse(fmt::format("the alignment is {}; it must be a power of two up to {}", alignment, kMaxAlignment));
  }
  header_.alignment = alignment;
}

// Sorting, not hashing: no file can make it slower than n log n.
void HeaderParser::sort_keys() {
  const auto name = [&](std::uint32_t place) { return text(keys_[place].name); };
  header_.key_order.resize(keys_.size());
  std::iota(header_.key_order.begin(), header_.key_order.end(), 0U);
  std::sort(header_.key_order.begin(), header_.key_order.end(),
            [&](std::uint32_t a, std::uint32_t b) { return name(a) < name(b); });
  const auto twice = std::adjacent_find(header_.key_order.begin(), header_.key_order.end(),
                                        [&](std::uint32_t a, std::uint32_t b) { return name(a) == name(b); });
  if (twice != header_.key_order.end()) refuse(fmt::format("duplicate key '{}'", printable(name(*twice))));
}

void HeaderParser::read_tensor() {
  item_named_ = false;
  const auto length = take<std::uint64_t>("the length of its name");
  if (length == 0) refuse("its name is empty");
  if (length > kMaxTensorNameBytes && length <= left()) {
    refuse(fmt::format("a name of {} bytes; at most {} are allowed", length, kMaxTensorNameBytes));
  }
  const Range name = take_bytes(length, "its name");
  item_name_ = name;
  item_named_ = true;
  if (!is_printable_utf8(text(name))) refuse("its name is not printable UTF-8");

  TensorInfo tensor;
  read_tensor_dims(tensor);
  const auto code = take<std::uint32_t>("its type");
  tensor.type = tensor_type(code);
  if (tensor.type == nullptr) refuse(fmt::format("tensor type {} is unknown or was removed from the format", code));
  const TensorBytes size = tensor_bytes(*tensor.type, tensor.dims);
  if (!size.refusal.empty()) refuse(size.refusal);
  tensor.bytes = size.bytes;
  tensor.offset = take<std::uint64_t>("its offset");  // from the start of the data, until that is known
  tensor_names_.push_back(name);
  header_.tensors.push_back(std::move(tensor));
}

void HeaderParser::read_tensor_dims(TensorInfo& tensor) {
  const auto n_dims = take<std::uint32_t>("its number of dimensions");
  if (n_dims < 1 || n_dims > kMaxDims) refuse(fmt::format("{} dimensions; 1 to {} are allowed", n_dims, kMaxDims));
  tensor.dims.resize(n_dims);
  for (std::uint32_t i = 0; i < n_dims; ++i) {
    const auto dim = static_cast<std::int64_t>(take<std::uint64_t>("its dimensions"));
    if (dim < 1) refuse(fmt::format("dimension {} is {}; it must be at least 1", i, dim));
    tensor.dims[n_dims - 1 - i] = dim;  // the one place where GGUF's order is turned around
  }
}

// The last byte has been read: positions become pointers.
void HeaderParser::point_into_bytes() {
  header_.bytes.shrink_to(position_);
  header_.keys.reserve(keys_.size());
  for (PendingKey& key : keys_) {
    key.value.data_ = header_.bytes.at(key.data.begin);
    if (key.starts != kNoStarts) key.value.string_starts_ = header_.string_starts[key.starts].data();
    header_.keys.push_back({text(key.name), key.value});
  }
  for (std::size_t i = 0; i < tensor_names_.size(); ++i) header_.tensors[i].name = text(tensor_names_[i]);
}

void HeaderParser::need_room(std::uint64_t bytes, std::string_view what) const {
  if (bytes > left()) {
    refuse(fmt::format("{} ({} bytes) runs past the end of the file: {} bytes are left; truncated or corrupt", what,
                       bytes, left()));
  }
  if (position_ + bytes > kMaxHeaderBytes) {
    refuse(fmt::format("{} ({} bytes) makes the header longer than {} bytes", what, bytes, kMaxHeaderBytes));
  }
}

void HeaderParser::need(std::uint64_t bytes, std::string_view what) {
  need_room(bytes, what);
  if (!header_.bytes.load(position_ + bytes)) refuse("the file became shorter while it was read");
}

template <class T>
T HeaderParser::take(std::string_view what) {
  need(sizeof(T), what);
  T value;
  std::memcpy(&value, header_.bytes.at(position_), sizeof value);
  position_ += sizeof value;
  return value;
}

HeaderParser::Range HeaderParser::take_bytes(std::uint64_t bytes, std::string_view what) {
  need(bytes, what);
  const Range range{static_cast<std::uint32_t>(position_), static_cast<std::uint32_t>(bytes)};
  position_ += bytes;
  return range;
}

HeaderParser::Range HeaderParser::take_string(std::string_view what) {
  const auto length = take<std::uint64_t>(what);
  return take_bytes(length, what);
}

ValueType HeaderParser::take_value_type(std::string_view what) {
  const auto code = take<std::uint32_t>(what);
  if (code >= kValueTypeCount) refuse(fmt::format("value type {} is unknown", code));
  return static_cast<ValueType>(code);
}

std::string_view HeaderParser::text(const Range& range) const {
  return {reinterpret_cast<const char*>(header_.bytes.at(range.begin)), range.bytes};
}

void HeaderParser::refuse(const std::string& reason) const {
  if (item_ == Item::file) fail(ErrorCode::bad_file, "{}: {}", file_.shown_path(), reason);
  const std::string_view kind = item_ == Item::key ? "key" : "tensor";
  if (item_named_) {
    fail(ErrorCode::bad_file, "{}: {} '{}': {}", file_.shown_path(), kind, printable(text(item_name_)), reason);
  }
  fail(ErrorCode::bad_file, "{}: {} {} of {}: {}", file_.shown_path(), kind, item_index_ + 1,
       item_ == Item::key ? n_keys_ : n_tensors_, reason);
}

}  // namespace conclave::gguf
