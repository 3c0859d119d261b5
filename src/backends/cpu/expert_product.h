// ExpertProduct: rows of activations times the weights that their lists name, one product or gate and up with their
// activation: what matmul, moe_matmul, moe_gate_up, moe_down and the shared expert are made of.
//
// Work is cut into (row block, column block) items that any thread may take: an expert with most of the rows becomes
// many items. Each output element is computed by one item, the same way whatever the cut.
#pragma once

#include <atomic>

#include "backends/cpu/cpu_op.h"
#include "backends/cpu/row_lists.h"
#include "backends/cpu/tile_rows.h"

namespace conclave {

struct ProductSpec {
  Tensor x;   // the bank's rows
  Tensor w;   // [n_experts, n, k]
  Tensor up;  // the same shape, optional: the result is then act(x w) * (x up)
  Activation act = Activation::silu;
  Tensor bias;  // [n], optional
  Tensor out;   // innermost rows in index order
};

// A single matrix [n, k] as a stack of one.
Tensor as_stack(const Tensor& w);

class ExpertProduct {
 public:
  ExpertProduct(const ProductSpec& spec, std::unique_ptr<RowLists> lists, const CpuKernels& kernels);

  std::int64_t shared_bytes() const { return shared_.bytes(); }
  std::int64_t local_bytes() const { return local_.bytes(); }

  // All of it. `factor`, where given, has one number per output row: it multiplies the row's results last.
  void run(const CpuRun& run, const float* factor = nullptr) const;

  // In steps, for ops that do other things in between. fill() makes one row of x ready; plan() reads the lists, on one
  // thread; pack() and multiply(), on all, come after both.
  std::int64_t rows_to_fill() const { return lists_->used_rows(bank_.n_rows()); }
  void fill(const CpuRun& run, std::int64_t row) const;
  void plan(const CpuRun& run) const;
  // The plan of a product over the same lists of moe_group's, from `other`'s.
  void plan_as(const ExpertProduct& other, const CpuRun& other_run, const CpuRun& run) const;
  void pack(const CpuRun& run) const;
  void multiply(const CpuRun& run, const float* factor = nullptr) const;
  // multiply() item by item, each by any thread. `next`: which one it will have after that, or -1.
  std::int64_t n_items(const CpuRun& run) const { return scratch_at<Plan>(run.shared, plan_at_)->n_items; }
  void multiply_item(const CpuRun& run, std::int64_t index, std::int64_t next, const float* factor = nullptr) const;
  // multiply() of moe_group's lists whose output is the x of `next`, row for row: fills them, while they are near.
  // Where kernels want them packed, also packs them, and says so: then `out` has only those of the packed rows that must
  // be multiplied in floating point.
  bool multiply_and_fill(const CpuRun& run, const ExpertProduct& next, const CpuRun& next_run) const;

 private:
  // How the work is cut, made by one thread before the items are handed out.
  struct Plan {
    std::int64_t n_columns;
    std::int64_t tiles_per_item;
    std::int64_t items_per_block;
    std::int64_t n_items;
    std::int64_t n_packs;         // 16 rows of a list each; 0: whoever multiplies packs for itself
    std::int64_t chunks_at_once;  // of a pack, by one thread
    std::atomic<bool> has_plain;  // whether a row that pack_results() has seen must be multiplied in floating point
  };
  // One item: some columns for a block of rows of a list.
  struct Item {
    std::int64_t list;
    std::int64_t first_slot;
    std::int64_t end_slot;
    std::int64_t first_column;
    std::int64_t end_column;
  };
  Item item_at(const CpuRun& run, std::int64_t index) const;
  // Gives the rows that the slots name; those that another slot writes, or that are none, are left out.
  template <class Visit>
  void for_slots(const CpuRun& run, std::int64_t list, std::int64_t first, std::int64_t end, Visit&& visit) const;
  // The products of an item: give(rows, n, count, results) for `count` columns at a time, from column n on.
  template <class Give>
  void multiply_columns(const CpuRun& run, const Item& item, std::int64_t next, Give&& give) const;
  // Results of a strip that are a chunk of x in rows first_slot .. end_slot - 1: quantised and packed.
  void pack_results(const CpuRun& run, const Item& item, const float* results, std::int64_t tile_stride) const;
  // Whether an item's rows are multiplied as they are packed. (Fewer than a strip takes can be left over of a list.)
  bool is_packed(const CpuRun& run, const Item& item) const {
    return item.end_slot - item.first_slot >= kernels_.product.strips->from_rows &&
           pack_at(run, item.list, item.first_slot) != nullptr;
  }
  bool has_plain(const CpuRun& run, const Item& item) const;
  // Cuts the blocks of rows into items.
  void cut(const CpuRun& run) const;
  std::int64_t plan_packs(const CpuRun& run) const;
  // Where the pack is that starts with this slot of a list; null where there is none.
  std::byte* pack_at(const CpuRun& run, std::int64_t list, std::int64_t slot) const;
  TileRows rows(const CpuRun& run) const;
  // Fills these columns of a row of x, whole chunks but at its end.
  void fill_part(const CpuRun& run, std::int64_t row, std::int64_t first, std::int64_t end) const;
  // The columns that these rows take at a time.
  std::int64_t columns_at_once(const TileRows& rows) const;
  // `count` results of a tile, from column `first` on, to the row of `out` that starts at `row`.
  void store(std::byte* row, std::int64_t first, std::int64_t count, float* values) const;

  ProductSpec spec_;
  bool stores_tiles_;
  bool past_caches_;  // `out` is too large to be in a cache when it is read
  std::unique_ptr<RowLists> lists_;
  const CpuKernels& kernels_;
  RowBank bank_;
  TileRows::Scratch tile_rows_;

  ScratchLayout shared_;
  std::int64_t bank_at_;
  std::int64_t plan_at_;
  std::int64_t blocks_at_;  // [max_lists + 1]: row blocks before each list
  std::int64_t owner_at_;   // [n_outputs]: the slot that writes it
  std::int64_t max_packs_;
  std::int64_t packs_before_at_;  // [max_lists + 1]
  std::int64_t packs_at_;
  ScratchLayout local_;
  std::int64_t tile_rows_at_;
  std::int64_t to_at_;      // [rows]: indices of the output rows
  std::int64_t rows_at_;    // [rows]: where they are
  std::int64_t first_at_;   // [tiles][rows up to 16][16]: the product, or gate's
  std::int64_t second_at_;  // up's
};

}  // namespace conclave
