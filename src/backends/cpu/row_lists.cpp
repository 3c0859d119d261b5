#include "backends/cpu/row_lists.h"

#include <algorithm>

#include "ops/host_access.h"

namespace conclave {
namespace {

class EveryRow final : public RowLists {
 public:
  EveryRow(std::int64_t n_rows, const Tensor& live) : n_rows_(n_rows), live_(live) {}
  std::int64_t max_lists() const override { return 1; }
  std::int64_t n_outputs() const override { return n_rows_; }
  std::int64_t expert(std::int64_t) const override { return 0; }
  std::int64_t begin(std::int64_t) const override { return 0; }
  std::int64_t end(std::int64_t) const override { return live_rows(live_, n_rows_); }
  RowSlot slot(std::int64_t, std::int64_t i) const override { return {i, i}; }
  std::int64_t used_rows(std::int64_t n_rows) const override { return live_rows(live_, n_rows); }
  bool may_repeat_outputs() const override { return false; }

 private:
  std::int64_t n_rows_;
  Tensor live_;
};

// What the forms of moe_matmul share: a slot names a pair, which is a row of the output.
class PairLists : public RowLists {
 public:
  explicit PairLists(const MoeMatmul& op)
      : n_experts_(op.w.dim(0)), top_k_(op.out.dim(1)), n_pairs_(op.out.dim(0) * top_k_), per_token_(op.x.dim(1)) {}
  std::int64_t n_outputs() const override { return n_pairs_; }

 protected:
  RowSlot of_pair(std::int64_t pair) const {
    if (pair < 0 || pair >= n_pairs_) return {};
    return {.from = per_token_ == 1 ? pair / top_k_ : pair, .to = pair};
  }
  std::int64_t n_experts_;
  std::int64_t top_k_;
  std::int64_t n_pairs_;
  std::int64_t per_token_;
};

class Grouped final : public PairLists {
 public:
  Grouped(const MoeMatmul& op, const GroupedRows& rows) : PairLists(op), rows_(rows) {}
  std::int64_t max_lists() const override { return n_experts_; }
  std::int64_t expert(std::int64_t list) const override { return list; }
  std::int64_t begin(std::int64_t e) const override { return std::max<std::int64_t>(load_i32(rows_.offsets, {e}), 0); }
  std::int64_t end(std::int64_t e) const override {
    return std::min<std::int64_t>(load_i32(rows_.offsets, {e + 1}), n_pairs_);
  }
  RowSlot slot(std::int64_t, std::int64_t i) const override { return of_pair(load_i32(rows_.row_pair, {i})); }

 private:
  GroupedRows rows_;
};

std::int64_t grid_reach(const Tensor& grid, std::int64_t axis, std::int64_t step) {
  return static_cast<std::int64_t>(static_cast<std::uint32_t>(load_i32(grid, {axis}))) * step;
}

class Listed final : public PairLists {
 public:
  Listed(const MoeMatmul& op, const ListedRows& rows) : PairLists(op), rows_(rows) {}
  std::int64_t max_lists() const override { return n_experts_; }
  std::int64_t expert(std::int64_t list) const override { return list; }
  std::int64_t begin(std::int64_t) const override { return 0; }
  std::int64_t end(std::int64_t e) const override {
    std::int64_t reach = rows_.ids.dim(1);
    if (rows_.grid.defined()) {
      if (e >= grid_reach(rows_.grid, 2, 1)) return 0;
      reach = std::min(reach, grid_reach(rows_.grid, 0, rows_.nr1));
    }
    return std::min<std::int64_t>(load_i32(rows_.tpe, {e}), reach);
  }
  RowSlot slot(std::int64_t e, std::int64_t i) const override { return of_pair(load_i32(rows_.ids, {e, i})); }
  std::int64_t columns(std::int64_t all) const override {
    return rows_.grid.defined() ? std::min(all, grid_reach(rows_.grid, 1, rows_.nr0)) : all;
  }

 private:
  ListedRows rows_;
};

class Blocks final : public PairLists {
 public:
  Blocks(const MoeMatmul& op, const BlockRows& rows) : PairLists(op), rows_(rows) {}
  std::int64_t max_lists() const override {
    return std::min(rows_.blocks.block_expert.dim(0),
                    (rows_.blocks.sorted_ids.dim(0) + rows_.block_size - 1) / rows_.block_size);
  }
  std::int64_t expert(std::int64_t block) const override { return load_i32(rows_.blocks.block_expert, {block}); }
  std::int64_t begin(std::int64_t block) const override { return block * rows_.block_size; }
  std::int64_t end(std::int64_t block) const override {
    const std::int64_t e = expert(block);
    if (e < 0 || e >= n_experts_) return 0;
    const std::int64_t padded =
        std::min<std::int64_t>(load_i32(rows_.blocks.n_padded, {0}), rows_.blocks.sorted_ids.dim(0));
    return std::min((block + 1) * rows_.block_size, padded);
  }
  RowSlot slot(std::int64_t, std::int64_t i) const override {
    const std::int64_t id = load_i32(rows_.blocks.sorted_ids, {i});
    if (id < 0 || id >= n_pairs_) return {};
    return of_pair(rows_.ids == RowIds::packed ? load_i32(rows_.row_pair, {id}) : id);
  }

 private:
  BlockRows rows_;
};

// Packed rows: the rows offsets[e] .. offsets[e+1]-1 are expert e's.
class Packed : public RowLists {
 public:
  Packed(const Tensor& offsets, std::int64_t n_pairs, bool grouped)
      : offsets_(offsets), n_pairs_(n_pairs), grouped_(grouped) {}
  std::int64_t max_lists() const override { return offsets_.dim(0) - 1; }
  std::int64_t n_outputs() const override { return n_pairs_; }
  std::int64_t expert(std::int64_t list) const override { return list; }
  std::int64_t begin(std::int64_t e) const override { return std::max<std::int64_t>(load_i32(offsets_, {e}), 0); }
  std::int64_t end(std::int64_t e) const override {
    return std::min<std::int64_t>(load_i32(offsets_, {e + 1}), n_pairs_);
  }
  RowSlot slot(std::int64_t, std::int64_t i) const override { return {i, i}; }
  bool may_repeat_outputs() const override { return !grouped_; }

 private:
  Tensor offsets_;
  std::int64_t n_pairs_;
  bool grouped_;
};

class PackedFromTokens final : public Packed {
 public:
  PackedFromTokens(const MoeGateUp& op, bool grouped)
      : Packed(op.offsets, op.row_pair.dim(0), grouped), row_pair_(op.row_pair), top_k_(op.top_k) {}
  RowSlot slot(std::int64_t, std::int64_t i) const override {
    const std::int64_t pair = load_i32(row_pair_, {i});
    if (pair < 0 || pair >= n_outputs()) return {};
    return {.from = pair / top_k_, .to = i};
  }

 private:
  Tensor row_pair_;
  std::int64_t top_k_;
};

}  // namespace

std::unique_ptr<RowLists> every_row(std::int64_t n_rows, const Tensor& live) {
  return std::make_unique<EveryRow>(n_rows, live);
}

std::unique_ptr<RowLists> rows_of(const MoeMatmul& op) {
  struct Make {
    const MoeMatmul& op;
    std::unique_ptr<RowLists> operator()(const GroupedRows& rows) const { return std::make_unique<Grouped>(op, rows); }
    std::unique_ptr<RowLists> operator()(const ListedRows& rows) const { return std::make_unique<Listed>(op, rows); }
    std::unique_ptr<RowLists> operator()(const BlockRows& rows) const { return std::make_unique<Blocks>(op, rows); }
  };
  return std::visit(Make{op}, op.rows);
}

std::unique_ptr<RowLists> rows_of(const MoeGateUp& op, bool grouped) {
  return std::make_unique<PackedFromTokens>(op, grouped);
}

std::unique_ptr<RowLists> rows_of(const MoeDown& op, bool grouped) {
  return std::make_unique<Packed>(op.offsets, op.x.dim(0), grouped);
}

}  // namespace conclave
