#include "bench/kernels/check.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <memory>

#include "base/fail.h"
#include "ops/host_access.h"
#include "ops/rows.h"
#include "support/case.h"
#include "support/compare.h"

namespace conclave::bench {
namespace {

template <class Visit>
void for_each_row(const Tensor& t, Visit&& visit) {
  for (std::int64_t r = 0; r < row_count(t); ++r) visit(row_address(flat_row(t, r), {}));
}

// All ones: a NaN in every float type, -1 as an integer.
void poison(const Op& op) {
  for (const Access& access : accesses(op)) {
    if (access.role != Role::out && access.role != Role::host_out) continue;
    const auto bytes = static_cast<std::size_t>(row_bytes(access.tensor));
    for_each_row(access.tensor, [&](std::byte* row) { std::memset(row, 0xFF, bytes); });
  }
}

// Names the first f32 output that has a NaN or an infinity left in it.
std::string not_finite(const Op& op) {
  for (const Access& access : accesses(op)) {
    const bool written = writes(access.role) && access.role != Role::scratch;
    if (!written || access.tensor.dtype != DType::f32) continue;
    bool finite = true;
    for_each_row(access.tensor, [&](const std::byte* row) {
      for (std::int64_t i = 0; i < access.tensor.inner(); ++i) {
        float value;
        std::memcpy(&value, row + i * std::int64_t{sizeof value}, sizeof value);
        finite = finite && std::isfinite(value);
      }
    });
    if (!finite) return fmt::format("{}: not every element is a finite number", access.name);
  }
  return {};
}

// A sample with copies of its own of everything it writes, as they are now.
struct PrivateSample {
  explicit PrivateSample(const Op& from) : op(from) {
    std::visit([&](auto& o) { for_each_tensor(o, [&](Role role, std::string_view, Tensor& t) { own(role, t); }); }, op);
  }

  void own(Role role, Tensor& t) {
    if (!writes(role)) return;
    const auto bytes = static_cast<std::size_t>(row_bytes(t));
    buffers.push_back(HostBuffer::make(std::max<std::int64_t>(dense_bytes(t.dtype, t.shape()), 1)));
    const Tensor copy = dense(*buffers.back(), 0, t.dtype, t.shape());
    for (std::int64_t r = 0; r < row_count(t) && role != Role::scratch; ++r) {
      std::memcpy(row_address(flat_row(copy, r), {}), row_address(flat_row(t, r), {}), bytes);
    }
    t = copy;
  }

  Op op;
  std::vector<std::shared_ptr<HostBuffer>> buffers;
};

double reference_us(const Op& op) {
  const auto start = std::chrono::steady_clock::now();
  reference(op);
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
}

// Every output of the sample as the device left it against the reference's.
test::Comparison compare(const Op& got, const Op& expected, const test::Arithmetic& arithmetic) {
  const test::Bounds bounds = test::bounds_of(expected, arithmetic);
  const std::vector<Access> device = accesses(got);
  const std::vector<Access> ours = accesses(expected);
  test::Comparison all;
  for (std::size_t i = 0; i < ours.size(); ++i) {
    if (!writes(ours[i].role) || ours[i].role == Role::scratch) continue;
    const auto is = test::dense_bits(device[i].tensor);
    const auto want = test::dense_bits(ours[i].tensor);
    const auto bound = bounds.find(ours[i].name);
    test::Comparison one =
        is_integer(ours[i].tensor.dtype)
            ? test::compare_ints(is, want)
            : test::compare_floats(
                  is, want,
                  {.bound = bound == bounds.end() ? std::vector<double>{} : bound->second, .nmse = arithmetic.nmse});
    if (!one.ok) one.message = fmt::format("{}: {}", ours[i].name, one.message);
    all.include(one);
  }
  return all;
}

}  // namespace

Checked check_op(Device& device, const Op& op, std::span<const Sample> samples, const test::Arithmetic& arithmetic) {
  poison(op);
  std::vector<PrivateSample> expected;
  for (const Sample& sample : samples) expected.emplace_back(sample.op);  // before the run: what is added to, too
  device.run(op);

  Checked checked;
  checked.message = not_finite(op);
  double share = 0;
  double us = 0;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    double one_us = reference_us(expected[i].op);
    const test::Comparison result = compare(samples[i].op, expected[i].op, arithmetic);
    if (!result.ok && checked.message.empty()) checked.message = result.message;
    if (samples[i].share == 0) continue;
    constexpr double kShort = 20e3;  // what one run cannot time well is run again, on the copies that no one needs now
    for (int again = 0; again < 3 && one_us < kShort; ++again) one_us = std::min(one_us, reference_us(expected[i].op));
    share += samples[i].share;
    us += one_us;
  }
  checked.ok = checked.message.empty();
  checked.scaled = share < 0.999;
  checked.reference_us = share > 0 ? us / share : 0;
  return checked;
}

}  // namespace conclave::bench
