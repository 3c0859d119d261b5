#include "support/case.h"

#include <bit>
#include <cstring>

#include "base/fail.h"
#include "ops/host_access.h"
#include "ops/rows.h"
#include "support/poison.h"

namespace conclave::test {
namespace {

constexpr std::int64_t kGuard = 64;

void put_f16(std::byte* block, std::int64_t at, double value) {
  const std::uint16_t bits = f32_to_f16(static_cast<float>(value));
  std::memcpy(block + at, &bits, sizeof bits);
}

// Random bits everywhere, then scales that give weights of about 0.1.
void random_block(DType type, std::byte* block, Rng& rng) {
  for (std::int64_t i = 0; i < dtype_info(type).bytes; ++i) block[i] = static_cast<std::byte>(rng.bits());
  const double d = 0.5 + rng.uniform();
  switch (type) {
    case DType::q4_0:
      put_f16(block, 0, 0.022 * d);
      break;
    case DType::q4_1:
      put_f16(block, 0, 0.022 * d), put_f16(block, 2, -0.17 * d);
      break;
    case DType::q5_0:
      put_f16(block, 0, 0.011 * d);
      break;
    case DType::q5_1:
      put_f16(block, 0, 0.011 * d), put_f16(block, 2, -0.17 * d);
      break;
    case DType::q8_0:
      put_f16(block, 0, 0.0014 * d);
      break;
    case DType::q2_k:
      put_f16(block, 80, 0.012 * d), put_f16(block, 82, 0.018 * d);
      break;
    case DType::q3_k:
      put_f16(block, 108, 0.0025 * d);
      break;
    case DType::q4_k:
      put_f16(block, 0, 0.0006 * d), put_f16(block, 2, 0.0045 * d);
      break;
    case DType::q5_k:
      put_f16(block, 0, 0.0003 * d), put_f16(block, 2, 0.0045 * d);
      break;
    case DType::q6_k:
      put_f16(block, 208, 0.00008 * d);
      break;
    case DType::iq4_nl:
      put_f16(block, 0, 0.0015 * d);
      break;
    case DType::iq4_xs:
      put_f16(block, 0, 0.00008 * d);
      break;
    case DType::mxfp4:
      block[0] = static_cast<std::byte>(rng.integer(122, 124));
      break;
    default:
      CONCLAVE_CHECK(false, std::string(dtype_info(type).name));
  }
}

std::uint32_t poison_shown(DType type, std::uint32_t bits) {
  if (type == DType::f16 && bits == kPoisonF16) return kPoisonF32;
  if (type == DType::bf16 && bits == kPoisonBf16) return kPoisonF32;
  return std::bit_cast<std::uint32_t>(type == DType::f16 ? f16_to_f32(static_cast<std::uint16_t>(bits))
                                                         : bf16_to_f32(static_cast<std::uint16_t>(bits)));
}

template <class Fill>
void for_each_row(const Tensor& t, Fill&& fill) {
  for (std::int64_t r = 0; r < row_count(t); ++r) fill(row_address(flat_row(t, r), {}));
}

}  // namespace

Tensor CaseBuilder::allocate(DType type, const Dims& dims) {
  const DTypeInfo& info = dtype_info(type);
  const bool padded = layout_ == Layout::padded;
  const auto gap = [&] { return padded ? info.alignment * layout_rng_.integer(0, 5) : 0; };

  Tensor shape{.dtype = type, .rank = static_cast<int>(dims.size())};
  std::int64_t stride = info.bytes;
  for (int i = shape.rank - 1; i >= 0; --i) {
    const auto at = static_cast<std::size_t>(i);
    shape.dims[at] = dims[at];
    shape.strides[at] = stride;
    const std::int64_t steps = i == shape.rank - 1 ? dims[at] / info.per_block : dims[at];
    stride = steps * stride + gap();
    if (padded) stride = (stride + info.alignment - 1) / info.alignment * info.alignment;
  }
  shape.byte_offset = kGuard + (padded ? info.alignment * layout_rng_.integer(1, 17) : 0);
  const std::int64_t bytes = shape.byte_offset + stride + kGuard;
  buffers_.push_back(HostBuffer::make(bytes));
  shape.buffer = buffers_.back().get();
  for (std::int64_t i = 0; i < bytes; ++i) shape.buffer->host()[i] = static_cast<std::byte>(guard_byte(i));
  return shape;
}

Tensor CaseBuilder::values(DType type, const Dims& dims, double scale) {
  std::vector<float> content(static_cast<std::size_t>(dense_bytes(DType::f32, dims) / 4));
  for (float& x : content) x = static_cast<float>(rng.normal() * scale);
  return floats(type, dims, content);
}

Tensor CaseBuilder::weights(DType type, const Dims& dims) {
  if (is_float(type)) return values(type, dims, 0.1);
  const Tensor t = allocate(type, dims);
  const DTypeInfo& info = dtype_info(type);
  for_each_row(t, [&](std::byte* row) {
    for (std::int64_t b = 0; b < t.inner() / info.per_block; ++b) random_block(type, row + b * info.bytes, rng);
  });
  return t;
}

Tensor CaseBuilder::integers(const Dims& dims, std::int64_t low, std::int64_t high) {
  std::vector<std::int32_t> content(static_cast<std::size_t>(dense_bytes(DType::i32, dims) / 4));
  for (std::int32_t& x : content) x = static_cast<std::int32_t>(rng.integer(low, high));
  return ints(DType::i32, dims, content);
}

Tensor CaseBuilder::floats(DType type, const Dims& dims, const std::vector<float>& content) {
  const Tensor t = allocate(type, dims);
  CONCLAVE_CHECK(element_count(t) == static_cast<std::int64_t>(content.size()), shape_text(t.shape()));
  const float* from = content.data();
  for_each_row(t, [&](std::byte* row) {
    encode(type, {from, static_cast<std::size_t>(t.inner())}, {row, static_cast<std::size_t>(row_bytes(t))});
    from += t.inner();
  });
  return t;
}

Tensor CaseBuilder::ints(DType type, const Dims& dims, const std::vector<std::int32_t>& content) {
  const Tensor t = allocate(type, dims);
  CONCLAVE_CHECK(element_count(t) == static_cast<std::int64_t>(content.size()), shape_text(t.shape()));
  const std::int32_t* from = content.data();
  for_each_row(t, [&](std::byte* row) {
    if (t.inner() == 0) return;
    std::memcpy(row, from, static_cast<std::size_t>(row_bytes(t)));
    from += t.inner();
  });
  return t;
}

Tensor CaseBuilder::output(DType type, const Dims& dims) {
  const Tensor t = allocate(type, dims);
  CONCLAVE_CHECK(!is_block(type), std::string(dtype_info(type).name));
  const std::uint32_t poison = type == DType::f16    ? kPoisonF16
                               : type == DType::bf16 ? kPoisonBf16
                               : type == DType::f32  ? kPoisonF32
                                                     : kPoisonInt;
  const auto bytes = static_cast<std::size_t>(dtype_info(type).bytes);
  for_each_row(t, [&](std::byte* row) {
    for (std::int64_t i = 0; i < t.inner(); ++i) std::memcpy(row + static_cast<std::size_t>(i) * bytes, &poison, bytes);
  });
  return t;
}

void CaseList::add(std::string name, std::function<Op(CaseBuilder&)> build) {
  const std::uint64_t seed = fnv1a(name, fnv1a(op_));
  specs_.push_back({std::move(name), seed, false, std::move(build)});
}

void CaseList::add_small(std::string name, std::function<Op(CaseBuilder&)> build) {
  add(std::move(name), std::move(build));
  specs_.back().small = true;
}

CaseSpec random_spec(const OpCases& cases, std::uint64_t seed, std::int64_t index) {
  const std::uint64_t own = fnv1a(std::to_string(index), fnv1a(cases.op, seed * 0x9E3779B97F4A7C15U + 1));
  return {fmt::format("random seed={} #{}", seed, index), own, false, cases.random};
}

std::vector<std::uint32_t> dense_bits(const Tensor& t) {
  std::vector<std::uint32_t> bits;
  bits.reserve(static_cast<std::size_t>(element_count(t)));
  std::vector<float> decoded;
  for_each_row(t, [&](const std::byte* row) {
    if (is_block(t.dtype)) {
      decoded.resize(static_cast<std::size_t>(t.inner()));
      decode(t.dtype, {row, static_cast<std::size_t>(row_bytes(t))}, decoded);
      for (const float x : decoded) bits.push_back(std::bit_cast<std::uint32_t>(x));
      return;
    }
    const auto size = static_cast<std::size_t>(dtype_info(t.dtype).bytes);
    for (std::int64_t i = 0; i < t.inner(); ++i) {
      std::uint32_t element = 0;
      std::memcpy(&element, row + static_cast<std::size_t>(i) * size, size);
      bits.push_back(size == 2 ? poison_shown(t.dtype, element) : element);
    }
  });
  return bits;
}

}  // namespace conclave::test
