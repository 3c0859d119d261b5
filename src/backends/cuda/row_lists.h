// The rows of an op as product kernels take them. Host code alone.
#pragma once

#include <string_view>

#include "backends/cuda/row_table.h"
#include "ops/moe_down.h"
#include "ops/moe_gate_up.h"
#include "ops/moe_matmul.h"
#include "ops/scratch.h"

namespace conclave::cuda {

class OpRows {
 public:
  static OpRows every_row(std::int64_t n_rows, const Tensor& live);
  static OpRows of(const MoeMatmul& op, ScratchLayout& scratch);
  // `grouped`: the offsets are known to be moe_group's, so that no output row is named twice.
  static OpRows of(const MoeGateUp& op, bool grouped, ScratchLayout& scratch);
  static OpRows of(const MoeDown& op, bool grouped, ScratchLayout& scratch);

  // Writes the table, where it takes a pass.
  void fill(std::byte* scratch, const Stream& stream, std::string_view op) const;
  RowTable at(std::byte* scratch) const;
  std::int64_t max_active() const;                             // lists that can have a row at all
  std::int64_t max_slots() const { return lists_.max_slots; }  // of one list

 private:
  void add_table(std::int64_t n_slots, std::int64_t n_columns, ScratchLayout& scratch);
  RowTableSpace space(std::byte* scratch) const;

  RowLists lists_;
  RowTable direct_;
  bool takes_pass_ = false;
  std::int64_t n_slots_ = 0;
  std::int64_t n_columns_ = 0;
  std::int64_t owner_at_ = 0;
  std::int64_t lists_at_ = 0;
  std::int64_t slots_at_ = 0;
};

}  // namespace conclave::cuda
