// What tests of the CUDA backend share.
#pragma once

#include <bit>
#include <cmath>
#include <map>

#include "backends/cuda/cuda_device.h"
#include "support/execute.h"

namespace conclave::test {

// NaNs of any kind are alike.
inline std::vector<std::uint32_t> without_payloads(std::vector<std::uint32_t> bits) {
  for (std::uint32_t& b : bits) {
    if (std::isnan(std::bit_cast<float>(b))) b = 0x7FC00000U;
  }
  return bits;
}

// Of the tokens first .. first+count-1, what a run of more of them gave.
inline std::vector<std::uint32_t> rows_of(const Outcome& outcome, const std::string& name, std::int64_t first,
                                          std::int64_t count, std::int64_t width) {
  const std::vector<std::uint32_t>& all = outcome.outputs.at(name);
  return {all.begin() + first * width, all.begin() + (first + count) * width};
}

// A case whose tensors lie on the device.
struct OnDevice {
  OnDevice(const Case& from, CudaDevice& on) : device(on), op(from.op) {
    std::map<const Buffer*, Buffer*> moved;
    for (const auto& buffer : from.buffers) {
      buffers.push_back(device.allocate(buffer->bytes()));
      device.upload(*buffers.back(), 0, {buffer->host(), static_cast<std::size_t>(buffer->bytes())});
      moved[buffer.get()] = buffers.back().get();
    }
    op = rebind(op, moved);
  }
  void put(const Tensor& t, std::span<const std::byte> bytes) { device.upload(*t.buffer, t.byte_offset, bytes); }
  std::vector<float> floats(const Tensor& t) {
    std::vector<float> values(static_cast<std::size_t>(element_count(t)));
    device.download(*t.buffer, t.byte_offset, std::as_writable_bytes(std::span(values)));
    return values;
  }

  CudaDevice& device;
  std::vector<std::shared_ptr<Buffer>> buffers;
  Op op;
};

// The mean squared error of what came out, of the bits that were wanted, as a share of their mean square.
inline double off_by(std::span<const float> got, std::span<const std::uint32_t> want) {
  double off = 0;
  double size = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const auto expected = static_cast<double>(std::bit_cast<float>(want[i]));
    off += (static_cast<double>(got[i]) - expected) * (static_cast<double>(got[i]) - expected);
    size += expected * expected;
  }
  return off / size;
}

}  // namespace conclave::test
