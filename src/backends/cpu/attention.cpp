// attention on the CPU. Items are (block of tokens of one sequence, heads that share a KV head, splits of the context).
//
// With few of them for the threads there are, each split of the context is an item of its own: it leaves its state in
// shared scratch, and the splits of a row are merged afterwards. Otherwise an item goes through all splits of its rows
// and merges as it goes: the same arithmetic in the same order, so the choice (which depends on the number of threads)
// shows in no bit.
#include <algorithm>
#include <array>
#include <limits>

#include "backends/cpu/cpu_op.h"
#include "base/checked.h"
#include "base/fail.h"
#include "ops/host_access.h"

namespace conclave {
namespace {

constexpr std::int64_t kLanes = 16;
constexpr std::int64_t kMaxRows = 128;  // of a block: what is read of the cache is made f32 once for so many
constexpr std::int64_t kMinRows = 16;   // a block is not made smaller than this for the sake of more items
constexpr std::int64_t kItemsEach = 4;  // items that a thread should have, so that none waits for long
constexpr std::int64_t kPartialsMax = std::int64_t{32} << 20;  // bytes of shared scratch

constexpr std::int64_t round_up(std::int64_t n, std::int64_t to) {
  return (n + to - 1) / to * to;
}

// Sizes of scratch, each part aligned to 64 bytes.
class Layout {
 public:
  // Where a part of n * each elements begins, in bytes.
  std::int64_t add(std::int64_t n, std::int64_t each, std::int64_t element = sizeof(float)) {
    const std::int64_t at = bytes_;
    const auto count = checked_mul(n, each);
    const auto size = checked_mul(count.value_or(kNone), element);
    const auto end = checked_add(at, size.value_or(kNone));
    const auto padded = checked_add(end.value_or(kNone), std::int64_t{63});
    if (!padded) fail(ErrorCode::out_of_memory, "attention: its scratch does not fit into 64 bits");
    bytes_ = *padded / 64 * 64;
    return at;
  }
  std::int64_t bytes() const { return bytes_; }

 private:
  static constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();
  std::int64_t bytes_ = 0;
};

// Consecutive tokens of one sequence.
struct Block {
  std::int64_t first_token;
  std::int64_t n_tokens;
  std::int64_t end;         // none of them sees further
  std::int64_t first_item;  // of its items
  std::int64_t partials;    // where its states lie in shared scratch, in floats; -1 where it merges as it goes
  std::int64_t first_row;   // of its rows, among those of blocks that have partials

  std::int64_t n_splits() const { return (end + kAttentionSplit - 1) / kAttentionSplit; }
};

struct Plan {
  const Block* blocks;
  std::int64_t n_blocks;
  std::int64_t n_items;
  std::int64_t n_rows;  // to be merged in the end
};

// Rows of a block that share a KV head, or as many of them as go together.
struct HeadGroup {
  std::int64_t kv_head;
  std::int64_t first_head;
  std::int64_t n_heads;
};

// Where the keys and values of a tile lie.
struct TilePlaces {
  std::array<const std::byte*, kAttentionTile> k;
  std::array<const std::byte*, kAttentionTile> v;
  std::array<float, kAttentionTile> order;  // j where position j is there
  std::int64_t n;                           // positions before the end
  std::int64_t first;                       // the first that is there; 64: none is
  bool whole;                               // all 64 are there
};

// The first tile of an item is the one that nobody has asked for. Its keys are read at once; its values can be on their way.
void ask_for_values(const TilePlaces& rows, std::int64_t bytes) {
  for (std::int64_t j = 0; j < rows.n; ++j) {
    for (std::int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(rows.v[static_cast<std::size_t>(j)] + i, 0, 2);
  }
}

class CpuAttention final : public CpuOp {
 public:
  CpuAttention(const Attention& op, const AttentionKernels& kernels);

  std::int64_t shared_bytes() const override { return shared_bytes_; }
  std::int64_t local_bytes() const override { return local_.bytes(); }
  void run(const CpuRun& run) const override;

 private:
  struct Local;

  Plan plan(const CpuRun& run, Block* blocks) const;
  HeadGroup head_group(std::int64_t g) const;
  void attend(const Local& local, const Block& block, const HeadGroup& heads) const;
  void attend_split(const Local& local, const Block& block, const HeadGroup& heads, std::int64_t split,
                    const AttentionState& state) const;
  void pack_queries(const Local& local, const Block& block, const HeadGroup& heads) const;
  void store_rows(const Local& local, const Block& block, const HeadGroup& heads, const AttentionState& state) const;
  void merge_row(const Local& local, const Block& block, std::int64_t row, float* partials) const;
  TilePlaces locate(const Local& local, const Block& block, const HeadGroup& heads, std::int64_t begin,
                    std::int64_t end) const;

  // The state of n_rows rows: accumulators, maxima, sums.
  std::int64_t state_floats(std::int64_t n_rows) const { return n_rows * width_ + 2 * round_up(n_rows, kLanes); }
  AttentionState state_at(float* at, std::int64_t n_rows) const {
    return {.max = at + n_rows * width_, .sum = at + n_rows * width_ + round_up(n_rows, kLanes), .acc = at};
  }
  void reset(const AttentionState& state, std::int64_t n_rows) const;

  const Attention op_;
  const AttentionKernels kernels_;
  std::int64_t n_tokens_ = 0;
  std::int64_t d_k_ = 0;
  std::int64_t d_v_ = 0;
  std::int64_t width_ = 0;        // d_v up to a multiple of 16
  std::int64_t heads_ = 0;        // query heads of a group
  std::int64_t n_groups_ = 0;     // of heads
  std::int64_t per_kv_head_ = 0;  // groups of one KV head
  std::int64_t max_tokens_ = 0;   // of a block
  std::int64_t max_rows_ = 0;
  std::int64_t k_bytes_ = 0;  // of a row of the cache
  std::int64_t v_bytes_ = 0;
  std::int64_t shared_bytes_ = 0;
  Layout local_;
  struct {
    std::int64_t blocks, ends, counts, pointers, zeros, q, k, v, lines, scores, rescale, weight, split, total;
  } at_{};
};

// Scratch of one rank.
struct CpuAttention::Local {
  Block* blocks;               // [n_tokens]
  std::int64_t* ends;          // [max_tokens]: what each token of the block sees
  std::int32_t* counts;        // [max_rows]
  const std::byte** pointers;  // [max_rows]
  std::byte* zeros;            // a row of the cache
  float* q;
  float* k;
  float* v;
  float* lines;
  float* scores;
  float* rescale;
  float* weight;
  float* split;  // a state
  float* total;  // another

  Local(std::byte* base, const decltype(CpuAttention::at_)& at)
      : blocks(reinterpret_cast<Block*>(base + at.blocks)),
        ends(reinterpret_cast<std::int64_t*>(base + at.ends)),
        counts(reinterpret_cast<std::int32_t*>(base + at.counts)),
        pointers(reinterpret_cast<const std::byte**>(base + at.pointers)),
        zeros(base + at.zeros),
        q(reinterpret_cast<float*>(base + at.q)),
        k(reinterpret_cast<float*>(base + at.k)),
        v(reinterpret_cast<float*>(base + at.v)),
        lines(reinterpret_cast<float*>(base + at.lines)),
        scores(reinterpret_cast<float*>(base + at.scores)),
        rescale(reinterpret_cast<float*>(base + at.rescale)),
        weight(reinterpret_cast<float*>(base + at.weight)),
        split(reinterpret_cast<float*>(base + at.split)),
        total(reinterpret_cast<float*>(base + at.total)) {}
};

CpuAttention::CpuAttention(const Attention& op, const AttentionKernels& kernels) : op_(op), kernels_(kernels) {
  const std::int64_t n_heads = op.q.dim(1);
  if (op.q.dim(0) == 0 || n_heads == 0 || op.out.dim(2) == 0) return;  // nothing to write: n_tokens_ stays 0
  n_tokens_ = op.q.dim(0);
  d_k_ = op.q.dim(2);
  d_v_ = op.out.dim(2);
  const std::int64_t shared_by = n_heads / op.kv.n_kv_heads();
  heads_ = std::min(shared_by, kMaxRows);
  per_kv_head_ = (shared_by + heads_ - 1) / heads_;
  n_groups_ = op.kv.n_kv_heads() * per_kv_head_;
  max_tokens_ = std::min(n_tokens_, std::max<std::int64_t>(1, kMaxRows / heads_));
  max_rows_ = max_tokens_ * heads_;

  k_bytes_ = row_bytes(op.kv.k);
  v_bytes_ = row_bytes(op.kv.v);

  const auto padded = [](std::int64_t d) {
    const auto sum = checked_add(d, kLanes - 1);
    if (!sum) fail(ErrorCode::out_of_memory, "attention: {} wide heads", d);
    return *sum / kLanes * kLanes;
  };
  const std::int64_t k_width = padded(d_k_);
  width_ = padded(d_v_);
  const std::int64_t rows = round_up(max_rows_, kLanes);
  at_.blocks = local_.add(n_tokens_, 1, sizeof(Block));
  at_.ends = local_.add(max_tokens_, 1, sizeof(std::int64_t));
  at_.counts = local_.add(rows, 1, sizeof(std::int32_t));
  at_.pointers = local_.add(rows, 1, sizeof(std::byte*));
  at_.zeros = local_.add(std::max(k_bytes_, v_bytes_), 1, 1);
  at_.q = local_.add(max_rows_, d_k_);
  at_.k = local_.add(kAttentionTile, k_width);
  at_.v = local_.add(kAttentionTile + 1, 4 * kLanes);
  at_.lines = local_.add(kLanes, k_width);
  at_.scores = local_.add(rows, kAttentionTile);
  at_.rescale = local_.add(rows, 1);
  at_.weight = local_.add(rows, 1);
  at_.split = local_.add(rows, width_ + 2);
  at_.total = local_.add(rows, width_ + 2);

  // Positions are 32 bits, so no context is longer than 2^31. A block's states take no more room than its tokens' own
  // would, one by one.
  const std::int64_t context = std::min(
      checked_mul(op.kv.pages.dim(1), op.kv.page_size()).value_or(std::int64_t{1} << 31), std::int64_t{1} << 31);
  const std::int64_t splits = (context + kAttentionSplit - 1) / kAttentionSplit;
  if (splits > 1) {
    const auto states = checked_mul(n_tokens_, n_groups_);
    const auto floats = checked_mul(states.value_or(kPartialsMax), state_floats(heads_));
    const auto all = checked_mul(floats.value_or(kPartialsMax), splits);
    const auto bytes = checked_mul(all.value_or(kPartialsMax), std::int64_t{sizeof(float)});
    shared_bytes_ = std::min(bytes.value_or(kPartialsMax), kPartialsMax);
  }
}

HeadGroup CpuAttention::head_group(std::int64_t g) const {
  const std::int64_t shared_by = op_.q.dim(1) / op_.kv.n_kv_heads();
  const std::int64_t kv_head = g / per_kv_head_;
  const std::int64_t first = g % per_kv_head_ * heads_;
  return {
      .kv_head = kv_head, .first_head = kv_head * shared_by + first, .n_heads = std::min(heads_, shared_by - first)};
}

// Every rank makes the same plan for itself: that is cheaper than waiting for one of them.
Plan CpuAttention::plan(const CpuRun& run, Block* blocks) const {
  const std::int64_t n_live = live_rows(op_.live, n_tokens_);
  const std::int64_t wanted = kItemsEach * run.region.size();
  const std::int64_t at_least = std::min(std::max<std::int64_t>(1, kMinRows / heads_), max_tokens_);
  const std::int64_t n_tokens = std::clamp(n_live * n_groups_ / wanted, at_least, max_tokens_);

  Plan plan{.blocks = blocks};
  std::int32_t seq = 0;
  for (std::int64_t t = 0; t < n_live; ++t) {
    const std::int32_t own = load_i32(op_.seqs, {t});
    if (t == 0 || own != seq || blocks[plan.n_blocks - 1].n_tokens == n_tokens) {
      blocks[plan.n_blocks++] = {.first_token = t, .partials = -1};
      seq = own;
    }
    Block& block = blocks[plan.n_blocks - 1];
    ++block.n_tokens;
    block.end = std::max(block.end, visible_end(op_, t));
  }

  const bool split = run.region.size() > 1 && plan.n_blocks * n_groups_ < wanted;
  std::int64_t left = shared_bytes_ / static_cast<std::int64_t>(sizeof(float));
  std::int64_t used = 0;
  for (std::int64_t i = 0; i < plan.n_blocks; ++i) {
    Block& block = blocks[i];
    block.first_item = plan.n_items;
    block.first_row = plan.n_rows;
    const std::int64_t splits = block.n_splits();
    const std::int64_t state = state_floats(block.n_tokens * heads_);
    if (split && splits > 1 && splits <= left / state / n_groups_) {
      block.partials = used;
      used += splits * n_groups_ * state;
      left -= splits * n_groups_ * state;
      plan.n_rows += block.n_tokens * op_.q.dim(1);
      plan.n_items += splits * n_groups_;
    } else {
      plan.n_items += n_groups_;
    }
  }
  return plan;
}

// The last block whose first item (or row) is not after i.
const Block& block_of(const Plan& plan, std::int64_t Block::*first, std::int64_t i) {
  return *(std::upper_bound(plan.blocks, plan.blocks + plan.n_blocks, i,
                            [first](std::int64_t at, const Block& block) { return at < block.*first; }) -
           1);
}

void CpuAttention::run(const CpuRun& run) const {
  if (n_tokens_ == 0) return;
  const Local local(run.local, at_);
  std::fill_n(local.zeros, std::max(k_bytes_, v_bytes_), std::byte{0});
  const Plan plan = this->plan(run, local.blocks);
  auto* partials = reinterpret_cast<float*>(run.shared);
  run.region.for_each(plan.n_items, [&](std::int64_t i) {
    const std::int64_t item = plan.n_items - 1 - i;  // later tokens see more: the long items first
    const Block& block = block_of(plan, &Block::first_item, item);
    const std::int64_t nth = item - block.first_item;
    if (block.partials < 0) {
      attend(local, block, head_group(nth));
      return;
    }
    const HeadGroup heads = head_group(nth / block.n_splits());
    const std::int64_t n_rows = block.n_tokens * heads.n_heads;
    const std::int64_t each = state_floats(block.n_tokens * heads_);
    pack_queries(local, block, heads);
    attend_split(local, block, heads, nth % block.n_splits(), state_at(partials + block.partials + nth * each, n_rows));
  });
  run.region.for_each(plan.n_rows, [&](std::int64_t i) {
    const Block& block = block_of(plan, &Block::first_row, i);
    merge_row(local, block, i - block.first_row, partials);
  });
}

void CpuAttention::reset(const AttentionState& state, std::int64_t n_rows) const {
  std::fill_n(state.max, n_rows, -std::numeric_limits<float>::infinity());
  std::fill_n(state.sum, n_rows, 0.0F);
  std::fill_n(state.acc, n_rows * width_, 0.0F);
}

void CpuAttention::pack_queries(const Local& local, const Block& block, const HeadGroup& heads) const {
  std::int64_t row = 0;
  for (std::int64_t t = 0; t < block.n_tokens; ++t) {
    local.ends[t] = visible_end(op_, block.first_token + t);
    const std::byte* at = row_address(op_.q, {block.first_token + t, heads.first_head});
    for (std::int64_t h = 0; h < heads.n_heads; ++h) local.pointers[row++] = at + h * op_.q.stride(1);
  }
  kernels_.pack_q(op_.q.dtype, local.pointers, row, d_k_, local.lines, local.q);
}

TilePlaces CpuAttention::locate(const Local& local, const Block& block, const HeadGroup& heads, std::int64_t begin,
                                std::int64_t end) const {
  TilePlaces rows{.n = std::clamp<std::int64_t>(end - begin, 0, kAttentionTile), .first = kAttentionTile};
  const std::int64_t seq = load_i32(op_.seqs, {block.first_token});
  const std::int64_t page_size = op_.kv.page_size();
  std::int64_t there = 0;
  for (std::int64_t j = 0; j < kAttentionTile;) {
    const KvPlace place = j < rows.n ? kv_place(op_.kv, seq, begin + j) : KvPlace{};
    const std::int64_t to = std::min(j < rows.n ? rows.n : kAttentionTile, j + page_size - (begin + j) % page_size);
    const bool found = place.page >= 0;
    const std::byte* k = found ? row_address(op_.kv.k, {place.page, place.slot, heads.kv_head}) : local.zeros;
    const std::byte* v = found ? row_address(op_.kv.v, {place.page, place.slot, heads.kv_head}) : local.zeros;
    if (found) {
      rows.first = std::min(rows.first, j);
      there += to - j;
    }
    for (; j < to; ++j) {
      const auto at = static_cast<std::size_t>(j);
      rows.k[at] = k;
      rows.v[at] = v;
      rows.order[at] = static_cast<float>(found ? j : kAttentionTile);
      k += found ? op_.kv.k.stride(1) : 0;
      v += found ? op_.kv.v.stride(1) : 0;
    }
  }
  rows.whole = there == kAttentionTile;
  return rows;
}

void CpuAttention::attend_split(const Local& local, const Block& block, const HeadGroup& heads, std::int64_t split,
                                const AttentionState& state) const {
  const std::int64_t n_rows = block.n_tokens * heads.n_heads;
  const std::int64_t end = std::min(block.end, (split + 1) * kAttentionSplit);
  reset(state, n_rows);
  TilePlaces next = locate(local, block, heads, split * kAttentionSplit, end);
  if (split == 0 || block.partials >= 0) ask_for_values(next, v_bytes_);
  for (std::int64_t begin = split * kAttentionSplit; begin < end; begin += kAttentionTile) {
    const TilePlaces rows = next;
    next = locate(local, block, heads, begin + kAttentionTile, block.partials < 0 ? block.end : end);
    if (rows.first == kAttentionTile) continue;
    for (std::int64_t row = 0, t = 0; t < block.n_tokens; ++t) {
      const std::int64_t seen = std::min(local.ends[t] - begin, rows.n);
      const auto count = static_cast<std::int32_t>(seen > rows.first ? seen : 0);
      for (std::int64_t h = 0; h < heads.n_heads; ++h) local.counts[row++] = count;
    }
    kernels_.add_tile({.n_rows = n_rows,
                       .d_k = d_k_,
                       .d_v = d_v_,
                       .scale = op_.scale,
                       .q = local.q,
                       .count = local.counts,
                       .state = state,
                       .k_type = op_.kv.k.dtype,
                       .v_type = op_.kv.v.dtype,
                       .k = rows.k.data(),
                       .v = rows.v.data(),
                       .n = rows.n,
                       .order = rows.order.data(),
                       .whole = rows.whole,
                       .next_k = next.k.data(),
                       .next_v = next.v.data(),
                       .n_next = next.n,
                       .k_bytes = k_bytes_,
                       .v_bytes = v_bytes_,
                       .lines = local.lines,
                       .k_floats = local.k,
                       .v_floats = local.v,
                       .scores = local.scores,
                       .rescale = local.rescale,
                       .weight = local.weight});
  }
}

void CpuAttention::attend(const Local& local, const Block& block, const HeadGroup& heads) const {
  const std::int64_t n_rows = block.n_tokens * heads.n_heads;
  const AttentionState total = state_at(local.total, n_rows);
  const AttentionState part = state_at(local.split, n_rows);
  pack_queries(local, block, heads);
  reset(total, n_rows);
  for (std::int64_t split = 0; split < block.n_splits(); ++split) {
    attend_split(local, block, heads, split, split == 0 ? total : part);
    if (split > 0) kernels_.merge(part, total, n_rows, d_v_);
  }
  store_rows(local, block, heads, total);
}

void CpuAttention::store_rows(const Local& local, const Block& block, const HeadGroup& heads,
                              const AttentionState& state) const {
  auto** out = const_cast<std::byte**>(local.pointers);
  std::int64_t row = 0;
  for (std::int64_t t = 0; t < block.n_tokens; ++t) {
    std::byte* at = row_address(op_.out, {block.first_token + t, heads.first_head});
    for (std::int64_t h = 0; h < heads.n_heads; ++h) out[row++] = at + h * op_.out.stride(1);
  }
  kernels_.finish(state, row, d_v_, op_.out.dtype, out);
}

void CpuAttention::merge_row(const Local& local, const Block& block, std::int64_t row, float* partials) const {
  const std::int64_t t = row / op_.q.dim(1);
  const std::int64_t head = row % op_.q.dim(1);
  const std::int64_t shared_by = op_.q.dim(1) / op_.kv.n_kv_heads();
  const std::int64_t g = head / shared_by * per_kv_head_ + head % shared_by / heads_;
  const HeadGroup heads = head_group(g);
  const std::int64_t nth = t * heads.n_heads + head - heads.first_head;
  const std::int64_t each = state_floats(block.n_tokens * heads_);
  const AttentionState total = state_at(local.total, 1);
  reset(total, 1);
  for (std::int64_t split = 0; split < block.n_splits(); ++split) {
    float* at = partials + block.partials + (g * block.n_splits() + split) * each;
    const AttentionState part = state_at(at, block.n_tokens * heads.n_heads);
    kernels_.merge({.max = part.max + nth, .sum = part.sum + nth, .acc = part.acc + nth * width_}, total, 1, d_v_);
  }
  std::byte* out = row_address(op_.out, {block.first_token + t, head});
  kernels_.finish(total, 1, d_v_, op_.out.dtype, &out);
}

}  // namespace

std::unique_ptr<CpuOp> make_cpu_op(const Attention& op, const CpuKernels& kernels) {
  return std::make_unique<CpuAttention>(op, kernels.attention);
}

}  // namespace conclave
