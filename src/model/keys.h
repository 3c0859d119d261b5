// Typed reads of a file's key-values. What is absent where it must be there, of the wrong type, or out of its range is
// refused with one line that names the key, what it holds and what it must hold.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "gguf/file.h"

namespace conclave {

struct IntegerRange {
  std::int64_t min;
  std::int64_t max;
};

// What a float key may hold once it is rounded to f32; always finite.
struct FloatRange {
  float above = 0.0F;  // exclusive, unless `or_equal`
  float below = std::numeric_limits<float>::infinity();
  bool or_equal = false;
};

class Keys {
 public:
  // `prefix` is put before every key with a dot: Keys(file, "tokenizer.ggml").find_string("model").
  Keys(const gguf::File& file, std::string_view prefix) : file_(&file), prefix_(prefix) {}

  std::string full(std::string_view key) const { return prefix_ + "." + std::string(key); }
  const gguf::Value* find(std::string_view key) const { return file_->find(full(key)); }

  std::int64_t integer(std::string_view key, IntegerRange range) const;
  std::optional<std::int64_t> find_integer(std::string_view key, IntegerRange range) const;
  // One integer, or an array with the same integer for each of `n_layers` layers.
  std::optional<std::int64_t> find_layer_integer(std::string_view key, IntegerRange range, std::int64_t n_layers) const;

  float number(std::string_view key, FloatRange range) const;
  std::optional<float> find_number(std::string_view key, FloatRange range) const;
  std::optional<bool> find_flag(std::string_view key) const;
  std::optional<std::string_view> find_string(std::string_view key) const;
  std::string_view string(std::string_view key) const;
  // An array of `element` type; any length.
  const gguf::Value* find_array(std::string_view key, gguf::ValueType element) const;

  [[noreturn]] void missing(std::string_view key) const;
  [[noreturn]] void wrong_type(std::string_view key, const gguf::Value& value, std::string_view expected) const;

 private:
  const gguf::File* file_;
  std::string prefix_;
};

}  // namespace conclave
