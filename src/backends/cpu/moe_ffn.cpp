// moe_ffn in as few passes as its dependencies allow:
//
//   route each token and quantise its x          | per token
//   group the pairs, cut the work                | one thread
//   pack the rows of an expert together          | per 16 rows, where the kernels want that
//   gate, up, the activation; quantise hidden    | (expert, rows, columns); hidden is packed at once
//   down, combine and the residual               | a few pairs: per block of columns, all experts in it, so that each
//                                                | expert's weights are read once and no expert output is stored
//                                                | many: down per (expert, rows, columns), then combine per token
//   the next norm                                | per token
//
// Each step computes what the op that it replaces computes, in the same order: the bits are those of the sequence.
#include <algorithm>
#include <optional>

#include "backends/cpu/combine.h"
#include "backends/cpu/expert_product.h"
#include "backends/cpu/moe_group.h"
#include "backends/cpu/moe_route.h"
#include "ops/host_access.h"

namespace conclave {
namespace {

class Ffn final : public CpuOp {
 public:
  Ffn(const MoeFfn& op, const CpuKernels& kernels)
      : op_(op),
        ops_(sequence_of(op)),
        row_(kernels.row),
        router_(ops_.route, kernels.row),
        gate_up_({.x = op.x, .w = op.gate, .up = op.up, .act = op.act, .out = op.hidden},
                 rows_of(ops_.gate_up, kGrouped), kernels),
        down_({.x = op.hidden, .w = op.down, .out = op.expert_out}, rows_of(ops_.down, kGrouped), kernels),
        unusable_at_(shared_.add<std::int32_t>(n_tokens())),
        counts_at_(shared_.add<std::int32_t>(n_experts())),
        n_chosen_at_(shared_.add<std::int64_t>(1)),
        chosen_at_(shared_.add<Chosen>(few_pairs() ? std::min(n_pairs(), n_experts()) : 0)),
        gate_up_at_(shared_.add(1, gate_up_.shared_bytes())),
        down_at_(shared_.add(1, down_.shared_bytes())),
        router_at_(local_.add(1, router_.scratch_bytes())),
        gate_up_local_at_(local_.add(1, gate_up_.local_bytes())),
        down_local_at_(local_.add(1, down_.local_bytes())),
        sum_at_(local_.add<float>(d_model())),
        row_at_(local_.add<float>(d_model())),
        tile_at_(local_.add<float>(TileRows::kMaxRows * kTileColumns)),
        pairs_at_(local_.add<float>(few_pairs() ? n_pairs() * kMaxColumns : 0)) {
    if (ops_.shared) {
      shared_expert_ = make_cpu_op(*ops_.shared, kernels);
      shared_expert_at_ = shared_.add(1, shared_expert_->shared_bytes());
      shared_expert_local_at_ = local_.add(1, shared_expert_->local_bytes());
    }
  }

  std::int64_t shared_bytes() const override { return shared_.bytes(); }
  std::int64_t local_bytes() const override { return local_.bytes(); }

  void run(const CpuRun& run) const override {
    const Region& region = run.region;
    const std::int64_t n_live = live_rows(op_.live, n_tokens());
    const CpuRun gate_up{run.region, run.shared + gate_up_at_, run.local + gate_up_local_at_};
    const CpuRun down{run.region, run.shared + down_at_, run.local + down_local_at_};

    auto* unusable = scratch_at<std::int32_t>(run.shared, unusable_at_);
    region.for_each(n_live, [&](std::int64_t t) {
      unusable[t] = router_.route(t, run.local + router_at_) ? 0 : 1;
      gate_up_.fill(gate_up, t);
    });
    if (region.rank() == 0) {
      std::int64_t rows = 0;
      for (std::int64_t t = 0; t < n_live; ++t) rows += unusable[t];
      count_unusable(op_.routing.no_finite, rows);
      group_pairs(ops_.group, scratch_at<std::int32_t>(run.shared, counts_at_));
      for (std::int64_t e = 0; op_.routing.counts.defined() && e < n_experts(); ++e) {
        count_chosen(op_.routing.counts, e, load_i32(op_.groups.offsets, {e + 1}) - load_i32(op_.groups.offsets, {e}));
      }
      gate_up_.plan(gate_up);
      few_pairs() ? list_experts(run) : down_.plan(down);
    }
    region.barrier();
    gate_up_.pack(gate_up);
    const bool packed = gate_up_.multiply_and_fill(gate_up, down_, down, !few_pairs());
    if (shared_expert_) {
      shared_expert_->run({run.region, run.shared + shared_expert_at_, run.local + shared_expert_local_at_});
    }
    if (few_pairs()) {
      const std::int64_t columns = columns_per_item(region.size());
      const std::int64_t n_items = (d_model() + columns - 1) / columns;
      region.for_each_ahead(n_items, [&](std::int64_t item, std::int64_t next) {
        down_and_combine(run, down, n_live, item * columns, columns, next < n_items ? next * columns : -1);
      });
      if (op_.next.out.defined()) region.for_each(n_live, [&](std::int64_t t) { norm(run, t); });
    } else {
      if (!packed) down_.pack(down);
      down_.multiply(down);
      region.for_each(n_live, [&](std::int64_t t) {
        auto* sum = scratch_at<float>(run.local, sum_at_);
        auto* row = scratch_at<float>(run.local, row_at_);
        combine_token(from(), t, row_, sum, row);
        add_to_residual(op_.residual, t, row_, sum, row);
        if (op_.next.out.defined()) norm(run, t);
      });
    }
  }

 private:
  static constexpr bool kGrouped = true;
  static constexpr std::int64_t kFewPairs = 128;   // 16 tokens of top 8
  static constexpr std::int64_t kMaxColumns = 64;  // of an item of down_and_combine
  static constexpr std::int64_t kBytesAhead = 12288;

  std::int64_t n_tokens() const { return op_.x.dim(0); }
  std::int64_t n_experts() const { return op_.logits.dim(1); }
  std::int64_t n_pairs() const { return op_.hidden.dim(0); }
  std::int64_t d_model() const { return op_.x.dim(1); }
  bool few_pairs() const { return n_pairs() <= kFewPairs; }
  const CombineInput& from() const {
    return std::visit([](const auto& combine) -> const CombineInput& { return combine.from; }, ops_.combine);
  }
  // At least a few items for each thread.
  std::int64_t columns_per_item(int threads) const {
    const std::int64_t tiles = d_model() / kTileColumns / (threads * 32);
    return std::clamp<std::int64_t>(tiles * kTileColumns, kTileColumns, kMaxColumns);
  }

  // The experts that have rows, and their packed rows.
  struct Chosen {
    std::int64_t expert;
    std::int64_t begin;
    std::int64_t end;
  };
  void list_experts(const CpuRun& run) const {
    auto* chosen = scratch_at<Chosen>(run.shared, chosen_at_);
    std::int64_t n = 0;
    for (std::int64_t e = 0; e < n_experts(); ++e) {
      const Chosen one{e, load_i32(op_.groups.offsets, {e}), load_i32(op_.groups.offsets, {e + 1})};
      if (one.begin < one.end) chosen[n++] = one;
    }
    *scratch_at<std::int64_t>(run.shared, n_chosen_at_) = n;
  }

  // Some columns of every token's result, from all experts' down weights to the residual. `next`: the first column that
  // this thread will be asked for afterwards, or -1.
  void down_and_combine(const CpuRun& run, const CpuRun& down, std::int64_t n_live, std::int64_t first,
                        std::int64_t columns, std::int64_t next) const {
    const std::int64_t end = std::min(first + columns, d_model());
    auto* pairs = scratch_at<float>(run.local, pairs_at_);  // [packed row][columns]
    auto* tile = scratch_at<float>(run.local, tile_at_);
    const auto* chosen = scratch_at<Chosen>(run.shared, chosen_at_);
    const std::int64_t n_chosen = *scratch_at<std::int64_t>(run.shared, n_chosen_at_);
    // Tiles in the order in which they are multiplied, those of the next item behind this one's. Each asks for the one
    // that comes kBytesAhead later: tiles of short columns are done before the next one could have come.
    const std::int64_t tiles = (columns + kTileColumns - 1) / kTileColumns;
    const std::int64_t distance = 1 + kBytesAhead / std::max<std::int64_t>(kTileColumns * op_.down.stride(1), 1);
    const auto tile_at = [&](std::int64_t index) -> TileRows::Ahead {
      const bool here = index < n_chosen * tiles;
      const std::int64_t left = here ? index : index - n_chosen * tiles;
      if ((!here && next < 0) || left >= n_chosen * tiles) return {};
      const std::int64_t of_item = here ? first : next;
      const std::int64_t n = of_item + left % tiles * kTileColumns;
      return TileRows::ahead(select_outer(op_.down, chosen[left / tiles].expert), n,
                             std::min({n + kTileColumns, of_item + columns, d_model()}));
    };
    TileRows rows = down_.rows(down);
    for (std::int64_t i = 0; i < n_chosen; ++i) {
      rows.clear();
      for (std::int64_t r = chosen[i].begin; r < chosen[i].end; ++r) rows.add(r);
      rows.ready();
      const Tensor w = select_outer(op_.down, chosen[i].expert);
      for (std::int64_t n = first; n < end; n += kTileColumns) {
        const std::int64_t count = std::min<std::int64_t>(kTileColumns, end - n);
        const TileRows::Ahead ahead = tile_at(i * tiles + (n - first) / kTileColumns + distance);
        rows.multiply(w, n, count, ahead, tile);
        for (std::int64_t r = chosen[i].begin; r < chosen[i].end; ++r) {
          std::copy_n(tile + (r - chosen[i].begin) * kTileColumns, count, pairs + r * kMaxColumns + n - first);
        }
      }
    }
    for (std::int64_t t = 0; t < n_live; ++t) combine(run, t, first, end - first, pairs);
  }

  // What combine_token() and add_to_residual() do, for some columns.
  void combine(const CpuRun& run, std::int64_t t, std::int64_t first, std::int64_t count, float* pairs) const {
    auto* sum = scratch_at<float>(run.local, sum_at_);
    auto* row = scratch_at<float>(run.local, row_at_);
    std::fill_n(sum, count, 0.0F);
    for (std::int64_t s = 0; s < op_.rule.top_k; ++s) {
      const std::int32_t r = load_i32(op_.groups.pair_row, {t, s});
      if (r < 0) continue;
      float* y = pairs + r * kMaxColumns;
      if (op_.expert_out.dtype != DType::f32) {  // rounded as it would have been stored
        auto* stored = reinterpret_cast<std::byte*>(row);
        row_.store(op_.expert_out.dtype, y, stored, count);
        row_.load(op_.expert_out.dtype, stored, y, count);
      }
      row_.axpy(load(op_.routing.weights, {t, s}), y, sum, count);
    }
    const auto columns = [&](const Tensor& x) { return row_address(x, {t}) + first * x.stride(1); };
    if (op_.shared_out.defined()) {
      row_.load(op_.shared_out.dtype, columns(op_.shared_out), row, count);
      row_.add(sum, row, sum, count);
    }
    row_.load(op_.residual.dtype, columns(op_.residual), row, count);
    row_.add(row, sum, row, count);
    row_.store(op_.residual.dtype, row, columns(op_.residual), count);
  }

  void norm(const CpuRun& run, std::int64_t t) const {
    norm_residual(op_.residual, op_.next, t, row_, scratch_at<float>(run.local, sum_at_),
                  scratch_at<float>(run.local, row_at_));
  }

  MoeFfn op_;
  MoeFfnSequence ops_;
  const RowKernels& row_;
  TokenRouter router_;
  ExpertProduct gate_up_;
  ExpertProduct down_;
  std::unique_ptr<CpuOp> shared_expert_;
  ScratchLayout shared_;
  std::int64_t unusable_at_;
  std::int64_t counts_at_;
  std::int64_t n_chosen_at_;
  std::int64_t chosen_at_;
  std::int64_t gate_up_at_;
  std::int64_t down_at_;
  std::int64_t shared_expert_at_ = 0;
  ScratchLayout local_;
  std::int64_t router_at_;
  std::int64_t gate_up_local_at_;
  std::int64_t down_local_at_;
  std::int64_t shared_expert_local_at_ = 0;
  std::int64_t sum_at_;
  std::int64_t row_at_;
  std::int64_t tile_at_;
  std::int64_t pairs_at_;
};

}  // namespace

std::unique_ptr<CpuOp> make_cpu_op(const MoeFfn& op, const CpuKernels& kernels) {
  return std::make_unique<Ffn>(op, kernels);
}

}  // namespace conclave
