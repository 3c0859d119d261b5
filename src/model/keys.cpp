#include "model/keys.h"

#include <cmath>

#include "base/fail.h"

namespace conclave {
namespace {

std::string type_text(const gguf::Value& value) {
  if (value.type() != gguf::ValueType::array) return std::string(gguf::value_type_name(value.type()));
  return fmt::format("array of {}", gguf::value_type_name(value.element_type()));
}

bool is_integer_type(gguf::ValueType type) {
  using enum gguf::ValueType;
  return type == u8 || type == i8 || type == u16 || type == i16 || type == u32 || type == i32 || type == u64 ||
         type == i64;
}

// The integer in both signednesses: one of the two is there, whatever the width.
struct AnyInteger {
  std::optional<std::int64_t> narrow;
  std::optional<std::uint64_t> wide;
};

std::int64_t in_range(const std::string& key, AnyInteger value, IntegerRange range) {
  if (value.narrow && *value.narrow >= range.min && *value.narrow <= range.max) return *value.narrow;
  const std::string held = value.narrow ? fmt::format("{}", *value.narrow) : fmt::format("{}", value.wide.value_or(0));
  if (range.min == range.max) fail(ErrorCode::bad_file, "{} is {}, must be {}", key, held, range.min);
  fail(ErrorCode::bad_file, "{} is {}, must be {} to {}", key, held, range.min, range.max);
}

}  // namespace

void Keys::missing(std::string_view key) const {
  fail(ErrorCode::bad_file, "{} is missing", full(key));
}

void Keys::wrong_type(std::string_view key, const gguf::Value& value, std::string_view expected) const {
  fail(ErrorCode::bad_file, "{} has the type {}, must be {}", full(key), type_text(value), expected);
}

std::optional<std::int64_t> Keys::find_integer(std::string_view key, IntegerRange range) const {
  const gguf::Value* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!is_integer_type(value->type())) wrong_type(key, *value, "an integer");
  return in_range(full(key), {value->as_i64(), value->as_u64()}, range);
}

std::int64_t Keys::integer(std::string_view key, IntegerRange range) const {
  const auto value = find_integer(key, range);
  if (!value) missing(key);
  return *value;
}

std::optional<std::int64_t> Keys::find_layer_integer(std::string_view key, IntegerRange range,
                                                     std::int64_t n_layers) const {
  const gguf::Value* value = find(key);
  if (value == nullptr || value->type() != gguf::ValueType::array) return find_integer(key, range);
  if (!is_integer_type(value->element_type())) wrong_type(key, *value, "an integer, or one for each layer");
  if (value->size() != static_cast<std::uint64_t>(n_layers)) {
    fail(ErrorCode::bad_file, "{} has {} values, must have one for each of {} layers", full(key), value->size(),
         n_layers);
  }
  std::optional<std::int64_t> common;
  for (std::uint64_t i = 0; i < value->size(); ++i) {
    const std::int64_t item = in_range(full(key), {value->i64_at(i), value->u64_at(i)}, range);
    if (common && *common != item) {
      fail(ErrorCode::bad_file, "{} is {} in layer 0 and {} in layer {}: layers that differ are not supported",
           full(key), *common, item, i);
    }
    common = item;
  }
  return common;
}

std::optional<float> Keys::find_number(std::string_view key, FloatRange range) const {
  const gguf::Value* value = find(key);
  if (value == nullptr) return std::nullopt;
  const std::optional<double> held = value->type() == gguf::ValueType::array ? std::nullopt : value->as_float();
  if (!held) wrong_type(key, *value, "f32");
  const float rounded = static_cast<float>(*held);
  const bool enough = range.or_equal ? rounded >= range.above : rounded > range.above;
  if (std::isfinite(rounded) && enough && rounded < range.below) return rounded;
  const std::string_view least = range.or_equal ? "at least" : "above";
  if (std::isinf(range.below)) {
    fail(ErrorCode::bad_file, "{} is {}, must be finite and {} {}", full(key), *held, least, range.above);
  }
  fail(ErrorCode::bad_file, "{} is {}, must be {} {} and below {}", full(key), *held, least, range.above, range.below);
}

float Keys::number(std::string_view key, FloatRange range) const {
  const auto value = find_number(key, range);
  if (!value) missing(key);
  return *value;
}

std::optional<bool> Keys::find_flag(std::string_view key) const {
  const gguf::Value* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->type() != gguf::ValueType::boolean) wrong_type(key, *value, "bool");
  const std::optional<bool> held = value->as_bool();
  if (!held) fail(ErrorCode::bad_file, "{} is a bool that is neither 0 nor 1", full(key));
  return held;
}

std::optional<std::string_view> Keys::find_string(std::string_view key) const {
  const gguf::Value* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->type() != gguf::ValueType::string) wrong_type(key, *value, "string");
  return value->as_string();
}

std::string_view Keys::string(std::string_view key) const {
  const auto value = find_string(key);
  if (!value) missing(key);
  return *value;
}

const gguf::Value* Keys::find_array(std::string_view key, gguf::ValueType element) const {
  const gguf::Value* value = find(key);
  if (value == nullptr) return nullptr;
  if (value->type() != gguf::ValueType::array || value->element_type() != element) {
    wrong_type(key, *value, fmt::format("array of {}", gguf::value_type_name(element)));
  }
  return value;
}

}  // namespace conclave
