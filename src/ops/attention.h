// attention: causal, grouped heads, over the paged cache of several sequences in one call.
//
// For token t of sequence q = seqs[t] at position p = positions[t], head h, with its KV head g = h * n_kv_heads / n_heads
// (heads share KV heads in equal runs):
//
//   score[j] = scale * (q[t,h,:] . K[q, j, g, :])        for cached positions j <= p, j < lengths[q]
//   out[t,h,:] = sum over j of softmax(score)[j] * V[q, j, g, :]
//
// K and V are read as cached. A token without a sequence (seqs[t] out of range) or without any cached position gets
// zeros. Rows past `live` are left alone.
#pragma once

#include "ops/kv_view.h"
#include "ops/phase.h"

namespace conclave {

struct Attention {
  static constexpr std::string_view kName = "attention";
  static constexpr bool kInPlace = false;

  Tensor q;  // f32 | f16 | bf16 [n_tokens, n_heads, d_k]
  KvView kv;
  Tensor lengths;    // i32 [n_seqs]: cached positions of each sequence
  Tensor seqs;       // i32 [n_tokens]
  Tensor positions;  // i32 [n_tokens]
  Tensor live;       // i32 [1], optional
  float scale = 1.0F;
  Phase phase = Phase::decode;
  Tensor out;  // f32 | f16 | bf16 [n_tokens, n_heads, d_v]

  template <class Self, class Visitor>
  static void members(Self& op, Visitor&& v) {
    using enum Role;
    v.tensor(in, "q", op.q);
    v.tensor(in, "k_pool", op.kv.k);
    v.tensor(in, "v_pool", op.kv.v);
    v.tensor(in, "pages", op.kv.pages);
    v.tensor(in, "lengths", op.lengths);
    v.tensor(in, "seqs", op.seqs);
    v.tensor(in, "positions", op.positions);
    v.tensor(in, "live", op.live);
    v.param("scale", op.scale);
    v.tensor(Role::out, "out", op.out);
  }
};

void validate(const Attention& op);
void reference(const Attention& op);

// Token t sees the cached positions before this one: up to its own, below the sequence's length, within its pages. 0 where
// the token has no sequence.
std::int64_t visible_end(const Attention& op, std::int64_t t);

}  // namespace conclave
