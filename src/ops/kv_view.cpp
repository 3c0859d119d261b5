#include "ops/kv_view.h"

#include "ops/check.h"
#include "ops/host_access.h"

namespace conclave {

void check_kv(const Check& check, const KvView& kv) {
  check.tensor("k_pool", kv.k, kKvCache, {kAny, kAny, kAny, kAny});
  check.tensor("v_pool", kv.v, kKvCache, {kv.k.dim(0), kv.k.dim(1), kv.k.dim(2), kAny});
  if (kv.page_size() < 1) check.refuse("page_size is 0");
  check.tensor("pages", kv.pages, kI32, {kAny, kAny});
}

KvPlace kv_place(const KvView& kv, std::int64_t seq, std::int64_t position) {
  if (seq < 0 || seq >= kv.pages.dim(0) || position < 0) return {};
  const std::int64_t nth = position / kv.page_size();
  if (nth >= kv.pages.dim(1)) return {};
  const std::int32_t page = load_i32(kv.pages, {seq, nth});
  if (page < 0 || page >= kv.k.dim(0)) return {};
  return {.page = page, .slot = position % kv.page_size()};
}

}  // namespace conclave
