// KvView: the paged key-value cache of several sequences, as attention and kv_write see it.
//
// Position p of sequence q lies in page pages[q, p / page_size], slot p % page_size. What cannot be found (a sequence,
// page or position out of range) is not there: nothing is read or written for it.
#pragma once

#include "ops/members.h"

namespace conclave {

struct KvView {
  Tensor k;      // f32 | f16 | bf16 | q8_0 [n_pages, page_size, n_kv_heads, d_k]
  Tensor v;      // f32 | f16 | bf16 | q8_0 [n_pages, page_size, n_kv_heads, d_v]
  Tensor pages;  // i32 [n_seqs, max_pages]

  std::int64_t page_size() const { return k.dim(1); }
  std::int64_t n_kv_heads() const { return k.dim(2); }
};

class Check;
void check_kv(const Check& check, const KvView& kv);

// Where a position lies. `page` is -1 where it is not there.
struct KvPlace {
  std::int64_t page = -1;
  std::int64_t slot = 0;
};
KvPlace kv_place(const KvView& kv, std::int64_t seq, std::int64_t position);

}  // namespace conclave
