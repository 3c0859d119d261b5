// GGUF files put together byte by byte, right or wrong, without the writer under test.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "gguf/file.h"

namespace conclave::gguf::raw {

template <class T>
std::string num(T value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}
inline std::string u8(std::uint8_t v) {
  return num(v);
}
inline std::string u32(std::uint32_t v) {
  return num(v);
}
inline std::string u64(std::uint64_t v) {
  return num(v);
}
inline std::string str(std::string_view text) {
  return u64(text.size()) + std::string(text);
}

// A key with its type and whatever bytes are to follow.
inline std::string key(std::string_view name, std::uint32_t type, const std::string& value) {
  return str(name) + u32(type) + value;
}
inline std::string key_u16(std::string_view name, std::uint16_t v) {
  return key(name, 2, num(v));
}
inline std::string key_u32(std::string_view name, std::uint32_t v) {
  return key(name, 4, u32(v));
}
inline std::string key_i32(std::string_view name, std::int32_t v) {
  return key(name, 5, num(v));
}
inline std::string key_str(std::string_view name, std::string_view v) {
  return key(name, 8, str(v));
}
inline std::string array(std::uint32_t type, std::uint64_t count, const std::string& elements) {
  return u32(type) + u64(count) + elements;
}

// dims as the file has them: innermost first.
inline std::string tensor(std::string_view name, const std::vector<std::uint64_t>& dims, std::uint32_t type,
                          std::uint64_t offset) {
  std::string bytes = str(name) + u32(static_cast<std::uint32_t>(dims.size()));
  for (const std::uint64_t dim : dims) bytes += u64(dim);
  return bytes + u32(type) + u64(offset);
}

struct Spec {
  std::string magic = "GGUF";
  std::uint32_t version = 3;
  std::optional<std::uint64_t> n_tensors;  // where they are to lie about the lists
  std::optional<std::uint64_t> n_keys;
  std::vector<std::string> keys;
  std::vector<std::string> tensors;
  std::uint64_t alignment = 32;  // of the padding; 0 for none
  std::size_t data_bytes = 0;
};

inline std::string build(const Spec& spec) {
  std::string bytes = spec.magic + u32(spec.version) + u64(spec.n_tensors.value_or(spec.tensors.size())) +
                      u64(spec.n_keys.value_or(spec.keys.size()));
  for (const std::string& k : spec.keys) bytes += k;
  for (const std::string& t : spec.tensors) bytes += t;
  while (spec.alignment != 0 && bytes.size() % spec.alignment != 0) bytes += '\0';
  for (std::size_t i = 0; i < spec.data_bytes; ++i) bytes += static_cast<char>(i * 7 + 1);
  return bytes;
}

// One of everything that a header can have, and three tensors.
inline std::string small_valid_file() {
  return build(
      {.keys = {key_str("general.architecture", "test"), key("a.u8", 0, u8(200)), key("a.bool", 7, u8(1)),
                key("a.f32", 6, num(1.5F)),
                key("a.u16s", 9, array(2, 3, num<std::uint16_t>(1) + num<std::uint16_t>(2) + num<std::uint16_t>(3))),
                key("a.bools", 9, array(7, 2, u8(0) + u8(1))),
                key("a.texts", 9, array(8, 3, str("one") + str("") + str("three")))},
       .tensors = {tensor("f", {3, 2}, 0, 0), tensor("q", {32, 2}, 8, 32), tensor("h", {5}, 1, 128)},
       .data_bytes = 128 + 10});
}

class TempDir {
 public:
  TempDir() {
    std::string pattern = (std::filesystem::temp_directory_path() / "conclave-gguf-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) std::abort();
    path_ = pattern;
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }
  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path put(const std::string& name, std::string_view bytes) const {
    std::ofstream(path_ / name, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return path_ / name;
  }
  std::size_t entries() const {
    std::size_t count = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(path_)) ++count;
    return count;
  }

 private:
  std::filesystem::path path_;
};

inline std::string read_all(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// The message with which `path` is refused; empty (and a failure) where it opens.
inline std::string refusal(const std::filesystem::path& path) {
  try {
    File::open(path);
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_EQ(text.find_first_of("\n\r"), std::string::npos) << text;
    EXPECT_NE(text.find(".gguf"), std::string::npos) << "does not name the file: " << text;
    EXPECT_LT(text.size(), 600U) << text;
    return text;
  }
  ADD_FAILURE() << path << " was opened";
  return "";
}

// Reads everything there is to read, so that a sanitizer sees it; the sum keeps the reads alive.
inline std::uint64_t walk(const File& file) {
  std::uint64_t sum = 0;
  for (const KeyValue& entry : file.keys()) {
    sum += entry.key.size();
    if (file.find(entry.key) != &entry.value) ADD_FAILURE() << "find() does not find " << entry.key;
    const Value& value = entry.value;
    for (std::uint64_t i = 0; i < value.size(); ++i) {
      sum += value.u64_at(i).value_or(1) + static_cast<std::uint64_t>(value.i64_at(i).value_or(1));
      sum += value.float_at(i).value_or(0.0) > 0.5 ? 1 : 0;
      sum += value.bool_at(i).value_or(false) ? 1 : 0;
      if (const auto text = value.string_at(i)) {
        for (const char c : *text) sum += static_cast<unsigned char>(c);
      }
    }
  }
  for (const TensorInfo& info : file.tensors()) {
    if (file.find_tensor(info.name) != &info) ADD_FAILURE() << "find_tensor() does not find " << info.name;
    for (const std::byte b : file.data(info)) sum += static_cast<std::uint64_t>(b);
  }
  return sum;
}

}  // namespace conclave::gguf::raw
