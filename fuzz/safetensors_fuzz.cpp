// Any bytes as a safetensors file: open it, and if it opens, read every tensor. Only conclave::Error may come out, in
// one line.
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/error.h"
#include "convert/safetensors.h"

namespace {

using conclave::SafeTensor;
using conclave::SafetensorsFile;

void require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "broken promise: %s\n", what);
  std::abort();
}

volatile std::uint64_t sink;  // so that no read is optimised away

void read_all(const SafetensorsFile& file) {
  std::uint64_t sum = 0;
  std::uint64_t end = 0;
  for (const SafeTensor& tensor : file.tensors()) {
    const auto bytes = file.data(tensor);
    require(bytes.size() == tensor.bytes, "a tensor has its bytes");
    require(tensor.bytes == 0 || tensor.offset >= end, "tensors lie in order, apart");
    if (tensor.bytes > 0) end = tensor.offset + tensor.bytes;
    for (const std::byte b : bytes) sum += static_cast<std::uint64_t>(b);
    for (const std::int64_t dim : tensor.dims) require(dim >= 0, "no dimension is negative");
  }
  sink = sum;
}

void open_and_read(std::string_view header, std::string_view rest) {
  // A file of memory: no disk, and a name that leads to it.
  static const int fd = ::memfd_create("safetensors_fuzz", MFD_CLOEXEC);
  require(fd >= 0 && ::ftruncate(fd, 0) == 0, "memfd");
  std::string bytes(header);
  bytes += rest;
  require(::pwrite(fd, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()), "pwrite");
  try {
    read_all(SafetensorsFile::open("/proc/self/fd/" + std::to_string(fd)));
  } catch (const conclave::Error& error) {
    require(std::string_view(error.what()).find_first_of("\n\r") == std::string_view::npos, "an error is one line");
  }
}

}  // namespace

// An input that starts with '{' is a header alone: its length goes before it and 64 bytes of data after it, so that a
// change of its text does not need a change of the length.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (bytes.starts_with('{')) {
    const std::uint64_t length = size;
    open_and_read(std::string(reinterpret_cast<const char*>(&length), sizeof length) + std::string(bytes),
                  std::string(64, 'x'));
  } else {
    open_and_read("", bytes);
  }
  return 0;
}
