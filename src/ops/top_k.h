// top_k: the k best elements of each row, best first, ranked as a sampler ranks logits: larger first, ties to the LOWER
// index, -0 equal to +0, plus infinity the same as the largest finite float. NaN and minus infinity are never among them:
// where fewer than k are left, the places after them hold index -1 and minus infinity. `values` has the elements
// themselves, as f32, with the largest float for plus infinity and +0 for -0. Rows past `live` are left alone.
#pragma once

#include "ops/members.h"

namespace conclave {

struct TopK {
  static constexpr std::string_view kName = "top_k";
  static constexpr bool kInPlace = false;
  static constexpr std::int64_t kMostPlaces = 256;

  Tensor x;       // f32 | f16 | bf16 [n, d], d at least 1
  Tensor live;    // i32 [1], optional
  Tensor ids;     // i32 [n, k], k from 1 to kMostPlaces
  Tensor values;  // f32 [n, k]

  template <class Self, class Visitor>
  static void members(Self& op, Visitor&& v) {
    using enum Role;
    v.tensor(in, "x", op.x);
    v.tensor(in, "live", op.live);
    v.tensor(out, "ids", op.ids);
    v.tensor(out, "values", op.values);
  }
};

// An element as it is ranked: NaN as minus infinity, plus infinity as the largest float, -0 as +0.
float ranked_value(float x);
// Larger for a better rank, and different for every index; 0 for what is never among the best.
std::uint64_t top_key(float x, std::int32_t index);
std::int32_t index_of_key(std::uint64_t key);  // -1 of 0
float value_of_key(std::uint64_t key);         // minus infinity of 0

void validate(const TopK& op);
void reference(const TopK& op);

}  // namespace conclave
