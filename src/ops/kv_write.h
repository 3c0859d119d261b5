// kv_write: puts the keys and values of new tokens into the paged cache, in the cache's type.
//
// Token t goes to position positions[t] of sequence seqs[t]; one that has no place there is dropped. If two tokens name
// one place, the later token's value stands. Tokens past `live` are dropped.
//
// f16 and bf16 round to nearest even. q8_0, per block of 32, all in f32: d = max|x| / 127; q = x * (1 / d) rounded to
// nearest even and held to -127 .. 127 (0 where 1 / d is not finite); the stored scale is d as f16. A block with a NaN
// or an infinity in it is stored with a NaN scale: it reads as NaN, and no other block changes.
#pragma once

#include "ops/kv_view.h"

namespace conclave {

struct KvWrite {
  static constexpr std::string_view kName = "kv_write";
  static constexpr bool kInPlace = false;

  Tensor k;          // f32 | f16 | bf16 [n_tokens, n_kv_heads, d_k]
  Tensor v;          // f32 | f16 | bf16 [n_tokens, n_kv_heads, d_v]
  Tensor seqs;       // i32 [n_tokens]
  Tensor positions;  // i32 [n_tokens]
  Tensor live;       // i32 [1], optional
  KvView kv;         // written at the tokens' places, else left alone

  template <class Self, class Visitor>
  static void members(Self& op, Visitor&& v) {
    using enum Role;
    v.tensor(in, "k", op.k);
    v.tensor(in, "v", op.v);
    v.tensor(in, "seqs", op.seqs);
    v.tensor(in, "positions", op.positions);
    v.tensor(in, "live", op.live);
    v.tensor(inout, "k_pool", op.kv.k);
    v.tensor(inout, "v_pool", op.kv.v);
    v.tensor(in, "pages", op.kv.pages);
  }
};

void validate(const KvWrite& op);
void reference(const KvWrite& op);

}  // namespace conclave
