#include "ops/kv_write.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "ops/check.h"
#include "ops/host_access.h"
#include "quant/q8_0.h"

namespace conclave {
namespace {

constexpr std::int64_t kBlock = 32;

// The cache's own q8_0 encoder: plain rounding that every backend can repeat bit for bit, where src/quant/q8_0
// searches.
BlockQ8_0 encode_block(const float* x) {
  float largest = 0;
  bool finite = true;
  for (int i = 0; i < kBlock; ++i) {
    largest = std::max(largest, std::fabs(x[i]));
    finite = finite && std::isfinite(x[i]);
  }
  BlockQ8_0 block{};
  if (!finite) {
    block.d = f32_to_f16(NAN);
    return block;
  }
  const float d = largest / 127.0F;
  const float inverse = d > 0 && std::isfinite(1.0F / d) ? 1.0F / d : 0.0F;
  block.d = f32_to_f16(d);
  for (int i = 0; i < kBlock; ++i) {
    block.qs[i] = static_cast<std::int8_t>(std::clamp(std::nearbyintf(x[i] * inverse), -127.0F, 127.0F));
  }
  return block;
}

void put(const Tensor& pool, Index at, const std::vector<float>& row) {
  std::byte* to = row_address(pool, at);
  if (pool.dtype != DType::q8_0) {
    encode(pool.dtype, row, {to, static_cast<std::size_t>(row_bytes(pool))});
    return;
  }
  for (std::size_t i = 0; i < row.size(); i += kBlock, to += sizeof(BlockQ8_0)) {
    const BlockQ8_0 block = encode_block(&row[i]);
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
