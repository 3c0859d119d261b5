#include "ops/attention.h"

#include <algorithm>
#include <cmath>

#include "base/checked.h"
#include "ops/check.h"
#include "ops/host_access.h"
#include "ops/product.h"

namespace conclave {
namespace {

// The cached positions that token t sees, in order.
std::vector<KvPlace> visible(const Attention& op, std::int64_t t) {
  std::vector<KvPlace> places;
  const std::int64_t seq = load_i32(op.seqs, {t});
  const std::int64_t end = visible_end(op, t);
  for (std::int64_t position = 0; position < end; ++position) {
    const KvPlace place = kv_place(op.kv, seq, position);
    if (place.page >= 0) places.push_back(place);
  }
  return places;
}

void attend(const Attention& op, std::int64_t t, std::int64_t head, const std::vector<KvPlace>& places) {
  const std::int64_t kv_head = head / (op.q.dim(1) / op.kv.n_kv_heads());
  const std::vector<float> query = load_row(op.q, {t, head});
  std::vector<double> scores;
  scores.reserve(places.size());
  for (const KvPlace& at : places) {
    scores.push_back(static_cast<double>(op.scale) * dot(query, load_row(op.kv.k, {at.page, at.slot, kv_head})));
  }
  const double max = scores.empty() ? 0.0 : *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  std::vector<double> out(static_cast<std::size_t>(op.out.dim(2)), 0.0);
  for (std::size_t j = 0; j < places.size(); ++j) {
    const double weight = std::exp(scores[j] - max);
    const std::vector<float> value = load_row(op.kv.v, {places[j].page, places[j].slot, kv_head});
    for (std::size_t d = 0; d < out.size(); ++d) out[d] += weight * static_cast<double>(value[d]);
    sum += weight;
  }
  for (std::size_t d = 0; d < out.size(); ++d) {
    store(op.out, {t, head, static_cast<std::int64_t>(d)}, places.empty() ? 0.0 : out[d] / sum);
  }
}

}  // namespace

std::int64_t visible_end(const Attention& op, std::int64_t t) {
  const std::int64_t seq = load_i32(op.seqs, {t});
  if (seq < 0 || seq >= op.lengths.dim(0)) return 0;
  const std::int64_t own = load_i32(op.positions, {t});
  const auto in_pages = checked_mul(op.kv.pages.dim(1), op.kv.page_size());
  return std::min<std::int64_t>({own + 1, load_i32(op.lengths, {seq}), in_pages.value_or(own + 1)});
}

void validate(const Attention& op) {
  const Check check(op);
  check_kv(check, op.kv);
  check.tensor("q", op.q, kFloat, {kAny, kAny, op.kv.k.dim(3)});
  const std::int64_t n_tokens = op.q.dim(0);
  const std::int64_t n_heads = op.q.dim(1);
  if (op.kv.n_kv_heads() < 1 || n_heads % op.kv.n_kv_heads() != 0) {
    check.refuse("{} KV heads do not divide {} heads", op.kv.n_kv_heads(), n_heads);
  }
  check.tensor("lengths", op.lengths, kI32, {op.kv.pages.dim(0)});
  check.tensor("seqs", op.seqs, kI32, {n_tokens});
  check.tensor("positions", op.positions, kI32, {n_tokens});
  check.optional("live", op.live, kI32, {1});
  check.positive("scale", static_cast<double>(op.scale));
  check.tensor("out", op.out, kFloat, {n_tokens, n_heads, op.kv.v.dim(3)});
}

void reference(const Attention& op) {
  const std::int64_t n_live = live_rows(op.live, op.q.dim(0));
  for (std::int64_t t = 0; t < n_live; ++t) {
    const std::vector<KvPlace> places = visible(op, t);
    for (std::int64_t head = 0; head < op.q.dim(1); ++head) attend(op, t, head, places);
  }
}

}  // namespace conclave
