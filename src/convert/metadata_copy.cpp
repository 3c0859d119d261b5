#include "convert/metadata_copy.h"

#include <string>
#include <vector>

#include "base/error.h"

namespace conclave {
namespace {

template <class T, class Read>
gguf::Metadata scalar_or_array(const gguf::Value& value, const Read& read) {
  if (value.type() != gguf::ValueType::array) return static_cast<T>(*read(value, 0));
  std::vector<T> list;
  list.reserve(value.size());
  for (std::uint64_t i = 0; i < value.size(); ++i) list.push_back(static_cast<T>(*read(value, i)));
  return list;
}

}  // namespace

gguf::Metadata copy_of(const gguf::Value& value) {
  // The readers give what they were asked for: the type is the value's own. A bool that is neither 0 nor 1 is true.
  const auto whole = [](const gguf::Value& v, std::uint64_t i) { return v.u64_at(i); };
  const auto integer = [](const gguf::Value& v, std::uint64_t i) { return v.i64_at(i); };
  const auto number = [](const gguf::Value& v, std::uint64_t i) { return v.float_at(i); };
  const auto flag = [](const gguf::Value& v, std::uint64_t i) { return std::optional(v.bool_at(i).value_or(true)); };
  const auto text = [](const gguf::Value& v, std::uint64_t i) { return v.string_at(i); };
  using enum gguf::ValueType;
  switch (value.element_type()) {
    case u8:
      return scalar_or_array<std::uint8_t>(value, whole);
    case i8:
      return scalar_or_array<std::int8_t>(value, integer);
    case u16:
      return scalar_or_array<std::uint16_t>(value, whole);
    case i16:
      return scalar_or_array<std::int16_t>(value, integer);
    case u32:
      return scalar_or_array<std::uint32_t>(value, whole);
    case i32:
      return scalar_or_array<std::int32_t>(value, integer);
    case u64:
      return scalar_or_array<std::uint64_t>(value, whole);
    case i64:
      return scalar_or_array<std::int64_t>(value, integer);
    case f32:
      return scalar_or_array<float>(value, number);
    case f64:
      return scalar_or_array<double>(value, number);
    case boolean:
      return scalar_or_array<bool>(value, flag);
    case string:
      return scalar_or_array<std::string>(value, text);
    case array:
      break;
  }
  CONCLAVE_CHECK(false, "an array of arrays, which gguf::File does not open");
  return false;
}

}  // namespace conclave
