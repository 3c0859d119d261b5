// Which rows of activations meet which weights, as the ops' index tensors say: none of them is trusted.
//
// A list is a run of slots for one expert; a slot names a row of the bank and a row of the output, or nothing. Ops whose
// lists may name one output row twice say so: the last list that names it wins, whatever the threads do.
#pragma once

#include <cstdint>
#include <memory>

#include "ops/matmul.h"
#include "ops/moe_down.h"
#include "ops/moe_gate_up.h"
#include "ops/moe_matmul.h"

namespace conclave {

struct RowSlot {
  std::int64_t from = -1;  // row of the bank; -1: nothing
  std::int64_t to = -1;    // row of the output
};

class RowLists {
 public:
  virtual ~RowLists() = default;
  // At most: known before anything runs.
  virtual std::int64_t max_lists() const = 0;
  virtual std::int64_t n_outputs() const = 0;
  // These read the index tensors.
  virtual std::int64_t expert(std::int64_t list) const = 0;
  virtual std::int64_t begin(std::int64_t list) const = 0;
  virtual std::int64_t end(std::int64_t list) const = 0;  // below begin() where the list is empty
  virtual RowSlot slot(std::int64_t list, std::int64_t i) const = 0;
  // Columns of the output that are computed.
  virtual std::int64_t columns(std::int64_t all) const { return all; }
  // Whether the rows below this one are all that can be asked for.
  virtual std::int64_t used_rows(std::int64_t n_rows) const { return n_rows; }
  virtual bool may_repeat_outputs() const { return true; }
};

// One list: every live row with the one weight matrix.
std::unique_ptr<RowLists> every_row(std::int64_t n_rows, const Tensor& live);
std::unique_ptr<RowLists> rows_of(const MoeMatmul& op);
// `grouped`: the offsets are known to be moe_group's, so that no output row is named twice.
std::unique_ptr<RowLists> rows_of(const MoeGateUp& op, bool grouped = false);
std::unique_ptr<RowLists> rows_of(const MoeDown& op, bool grouped = false);

}  // namespace conclave
