// What the hand-written tests of the ops share: tensors made from lists and read back as lists, and refusals.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <initializer_list>
#include <limits>
#include <source_location>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "ops/op.h"
#include "support/case.h"
#include "support/poison.h"

namespace conclave::test {

// What an i32 output holds where no op wrote. Float outputs hold kPoisonF32, as dense_bits() shows it.
inline constexpr auto kUntouched = static_cast<std::int32_t>(kPoisonInt);

inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Tensors in host memory, alive as long as this is. CaseBuilder's values(), weights(), integers() and live() serve too.
class Host : public CaseBuilder {
 public:
  explicit Host(std::uint64_t seed = 1, Layout layout = Layout::dense) : CaseBuilder(seed, layout) {}

  Tensor f32(const Dims& dims, const std::vector<float>& v) { return floats(DType::f32, dims, v); }
  Tensor f16(const Dims& dims, const std::vector<float>& v) { return floats(DType::f16, dims, v); }
  Tensor bf16(const Dims& dims, const std::vector<float>& v) { return floats(DType::bf16, dims, v); }
  Tensor i32(const Dims& dims, const std::vector<std::int32_t>& v) { return ints(DType::i32, dims, v); }
  Tensor u32(const Dims& dims, const std::vector<std::int32_t>& v) { return ints(DType::u32, dims, v); }
  // Poison, for an op to write.
  Tensor out_f32(const Dims& dims) { return output(DType::f32, dims); }
  Tensor out_i32(const Dims& dims) { return output(DType::i32, dims); }
  Tensor out_u32(const Dims& dims) { return output(DType::u32, dims); }
};

inline std::vector<float> floats_of(const Tensor& t) {
  std::vector<float> values;
  for (const std::uint32_t bits : dense_bits(t)) values.push_back(std::bit_cast<float>(bits));
  return values;
}

inline std::vector<std::int32_t> ints_of(const Tensor& t) {
  std::vector<std::int32_t> values;
  for (const std::uint32_t bits : dense_bits(t)) values.push_back(static_cast<std::int32_t>(bits));
  return values;
}

inline bool untouched(const Tensor& t) {
  const std::uint32_t poison = is_integer(t.dtype) ? kPoisonInt : kPoisonF32;
  const std::vector<std::uint32_t> bits = dense_bits(t);
  return std::all_of(bits.begin(), bits.end(), [&](std::uint32_t b) { return b == poison; });
}

// The first row `n` times, without memory for them: an input of any height.
inline Tensor repeated(Tensor t, std::int64_t n) {
  t.dims[0] = n;
  t.strides[0] = 0;
  return t;
}

// Validates, then runs the reference.
inline void run(const Op& op) {
  validate(op);
  reference(op);
}

// The one line that validate() refuses the op with, or "(accepted)".
inline std::string refusal_of(const Op& op) {
  try {
    validate(op);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << error.what();
    return error.what();
  }
  return "(accepted)";
}

inline void expect_refusal(const Op& op, std::string_view fragment,
                           const std::source_location& where = std::source_location::current()) {
  const std::string text = refusal_of(op);
  if (text.find(fragment) == std::string::npos || text.find('\n') != std::string::npos) {
    ADD_FAILURE_AT(where.file_name(), static_cast<int>(where.line()))
        << "expected: " << fragment << "\n     got: " << text;
  }
}

// The op as it would be after `edit`.
template <class AnyOp, class Edit>
void expect_refusal(AnyOp op, Edit&& edit, std::string_view fragment,
                    const std::source_location& where = std::source_location::current()) {
  edit(op);
  expect_refusal(Op(op), fragment, where);
}

// The op with the tensor of this name edited.
template <class AnyOp, class Edit>
AnyOp with_member(AnyOp op, std::string_view name, Edit&& edit) {
  for_each_tensor(op, [&](Role, std::string_view member, Tensor& t) {
    if (member == name) edit(t);
  });
  return op;
}

// Every tensor of a good op, one after the other: missing (refused, unless it is in `optional`).
template <class AnyOp>
void expect_all_needed_but(const AnyOp& op, const std::vector<std::string_view>& optional) {
  ASSERT_EQ(refusal_of(op), "(accepted)");
  for (const Access& access : accesses(op)) {
    const std::string text = refusal_of(with_member(op, access.name, [](Tensor& t) { t = Tensor{}; }));
    const bool may_be_missing = std::find(optional.begin(), optional.end(), access.name) != optional.end();
    const std::string expected = may_be_missing ? "(accepted)" : std::string(access.name) + " is missing";
    EXPECT_NE(text.find(expected), std::string::npos) << "without " << access.name << ": " << text;
  }
}

// Every tensor of a good op, one after the other: views that cannot be, and outputs that share bytes with another
// member. All tensors of `op` must have elements.
template <class AnyOp>
void expect_bad_views_refused(const AnyOp& op) {
  ASSERT_EQ(refusal_of(op), "(accepted)");
  const auto expect = [&](std::string_view name, const std::string& fault, const auto& edit) {
    const std::string text = refusal_of(with_member(op, name, edit));
    const std::string expected = std::string(AnyOp::kName) + ": " + std::string(name) + " " + fault;
    EXPECT_EQ(text.substr(0, expected.size()), expected) << text;
  };
  for (const Access& access : accesses(op)) {
    const Tensor& good = access.tensor;
    const std::string end = std::to_string(good.buffer->bytes());
    const auto last = static_cast<std::size_t>(good.rank - 1);
    expect(access.name, "has rank 5", [](Tensor& t) { t.rank = 5; });
    expect(access.name, "is [-1", [](Tensor& t) { t.dims[0] = -1; });
    expect(access.name, "has an inner stride of 0 bytes", [&](Tensor& t) { t.strides[last] = 0; });
    expect(access.name, "starts at byte -64", [](Tensor& t) { t.byte_offset = -64; });
    expect(access.name, "is " + shape_text(good.shape()) + " of ",
           [](Tensor& t) { t.byte_offset = t.buffer->bytes(); });
    if (dtype_info(good.dtype).alignment > 1) {
      expect(access.name, "starts at byte 65, which is not a multiple of", [](Tensor& t) { t.byte_offset = 65; });
    }
    if (good.rank < 2) continue;
    const auto long_and = [&](std::int64_t stride) {
      return [stride](Tensor& t) {
        t.dims[0] = std::numeric_limits<std::int64_t>::max();
        t.strides[0] = stride;
      };
    };
    expect(access.name, "is [9223372036854775807,", long_and(std::max<std::int64_t>(good.stride(0), 2)));
    expect(access.name, "has a stride of -4 bytes in dimension 0", long_and(-4));
    if (writes(access.role)) {
      expect(access.name, "is written, but its rows overlap", [](Tensor& t) {
        t.dims[0] = std::max<std::int64_t>(t.dims[0], 2);
        t.strides[0] = 0;
      });
    }
  }

  // Two members in one buffer: refused where the last bytes of the written one are the first of the other, fine where
  // the other starts right after.
  for (const Access& written : accesses(op)) {
    if (!writes(written.role)) continue;
    for (const Access& other : accesses(op)) {
      if (other.name == written.name) continue;
      const auto size = [](const Tensor& t) { return byte_range(t).end - byte_range(t).begin; };
      const std::int64_t seam = (size(written.tensor) + 3) / 4 * 4;
      const auto buffer = HostBuffer::make(seam + size(other.tensor));
      const auto placed = [&](std::int64_t at) {
        AnyOp both = with_member(op, written.name, [&](Tensor& t) { t.buffer = buffer.get(), t.byte_offset = 0; });
        return with_member(both, other.name, [&](Tensor& t) { t.buffer = buffer.get(), t.byte_offset = at; });
      };
      const std::string w(written.name), o(other.name);
      EXPECT_EQ(refusal_of(placed(seam)), "(accepted)") << w << " and " << o << " side by side";
      const std::string text = refusal_of(placed(seam - 4));
      EXPECT_TRUE(text.find(w + " is written and overlaps " + o) != std::string::npos ||
                  text.find(o + " is written and overlaps " + w) != std::string::npos)
          << w << " on " << o << ": " << text;
    }
  }
}

// Memory that the host cannot address.
class DeviceOnlyBuffer final : public Buffer {
 public:
  explicit DeviceOnlyBuffer(std::int64_t bytes) : Buffer(nullptr, bytes) {}
};

}  // namespace conclave::test
