// Any bytes as a GGUF file: open it, and if it opens, read everything in it. Only conclave::Error may come out, in one
// line.
//
// An input that starts with "SET" and a byte is a split set of two: the byte, times 16, is where the second part
// starts.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "base/error.h"
#include "gguf/file.h"

namespace {

using conclave::gguf::File;
using conclave::gguf::KeyValue;
using conclave::gguf::TensorInfo;
using conclave::gguf::Value;

void require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "broken promise: %s\n", what);
  std::abort();
}

volatile std::uint64_t sink;  // so that no read is optimised away

void read_value(const Value& value) {
  std::uint64_t sum = 0;
  for (std::uint64_t i = 0; i < value.size(); ++i) {
    sum += value.u64_at(i).value_or(0) ^ static_cast<std::uint64_t>(value.i64_at(i).value_or(0));
    sum += value.float_at(i).value_or(0) > 1 ? 1 : 0;
    sum += value.bool_at(i).value_or(false) ? 1 : 0;
    if (const auto text = value.string_at(i)) {
      for (const char c : *text) sum += static_cast<unsigned char>(c);
    }
  }
  sum += value.as_u64().value_or(0) + value.as_string().value_or("").size();
  sink = sum;
}

void read_all(const File& file) {
  for (const KeyValue& entry : file.keys()) {
    require(file.find(entry.key) == &entry.value, "find() finds every key");
    read_value(entry.value);
  }
  std::uint64_t sum = 0;
  for (const TensorInfo& tensor : file.tensors()) {
    require(file.find_tensor(tensor.name) == &tensor, "find_tensor() finds every tensor");
    const auto bytes = file.data(tensor);
    require(bytes.size() == tensor.bytes && !bytes.empty(), "a tensor has its bytes");
    for (const std::byte b : bytes) sum += static_cast<std::uint64_t>(b);
  }
  sink = sum;
}

void open_and_read(const std::filesystem::path& path) {
  try {
    read_all(File::open(path));
  } catch (const conclave::Error& error) {
    require(std::string_view(error.what()).find_first_of("\n\r") == std::string_view::npos, "an error is one line");
  }
}

void one_file(std::string_view bytes) {
  // A file of memory: no disk, and a name that leads to it.
  static const int fd = ::memfd_create("gguf_fuzz", MFD_CLOEXEC);
  require(fd >= 0 && ::ftruncate(fd, 0) == 0, "memfd");
  require(::pwrite(fd, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()), "pwrite");
  open_and_read("/proc/self/fd/" + std::to_string(fd));
}

void set_of_two(std::string_view bytes, std::size_t second) {
  static const std::filesystem::path folder = [] {
    const std::filesystem::path memory = "/dev/shm";  // a set needs names, and names in memory are the fastest
    const auto parent = std::filesystem::is_directory(memory) ? memory : std::filesystem::temp_directory_path();
    std::string pattern = (parent / "gguf_fuzz-XXXXXX").string();
    require(::mkdtemp(pattern.data()) != nullptr, "mkdtemp");
    static std::string to_remove = pattern;
    std::atexit([] { std::filesystem::remove_all(to_remove); });
    return std::filesystem::path(pattern);
  }();
  second = std::min(second, bytes.size());
  const auto put = [&](const char* name, std::string_view content) {
    std::ofstream(folder / name, std::ios::binary).write(content.data(), static_cast<std::streamsize>(content.size()));
  };
  put("m-00001-of-00002.gguf", bytes.substr(0, second));
  put("m-00002-of-00002.gguf", bytes.substr(second));
  open_and_read(folder / "m-00002-of-00002.gguf");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (size >= 4 && bytes.starts_with("SET")) {
    set_of_two(bytes.substr(4), std::size_t{data[3]} * 16);
  } else {
    one_file(bytes);
  }
  return 0;
}
