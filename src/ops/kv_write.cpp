#include "ops/kv_write.h"

#include <cstring>

#include "ops/check.h"
#include "ops/host_access.h"
#include "ops/kv_block.h"

namespace conclave {
namespace {

void put(const Tensor& pool, Index at, const std::vector<float>& row) {
  std::byte* to = row_address(pool, at);
  if (pool.dtype != DType::q8_0) {
    encode(pool.dtype, row, {to, static_cast<std::size_t>(row_bytes(pool))});
    return;
  }
  for (std::size_t i = 0; i < row.size(); i += kKvBlock, to += sizeof(BlockQ8_0)) {
    const BlockQ8_0 block = encode_kv_block(&row[i]);
    std::memcpy(to, &block, sizeof block);
  }
}

}  // namespace

void validate(const KvWrite& op) {
  const Check check(op);
  check_kv(check, op.kv);
  check.tensor("k", op.k, kFloat, {kAny, op.kv.n_kv_heads(), op.kv.k.dim(3)});
  check.tensor("v", op.v, kFloat, {op.k.dim(0), op.kv.n_kv_heads(), op.kv.v.dim(3)});
  check.tensor("seqs", op.seqs, kI32, {op.k.dim(0)});
  check.tensor("positions", op.positions, kI32, {op.k.dim(0)});
  check.optional("live", op.live, kI32, {1});
}

void reference(const KvWrite& op) {
  const std::int64_t n_live = live_rows(op.live, op.k.dim(0));
  for (std::int64_t t = 0; t < n_live; ++t) {
    const KvPlace at = kv_place(op.kv, load_i32(op.seqs, {t}), load_i32(op.positions, {t}));
    if (at.page < 0) continue;
    for (std::int64_t h = 0; h < op.kv.n_kv_heads(); ++h) {
      put(op.kv.k, {at.page, at.slot, h}, load_row(op.k, {t, h}));
      put(op.kv.v, {at.page, at.slot, h}, load_row(op.v, {t, h}));
    }
  }
}

}  // namespace conclave
