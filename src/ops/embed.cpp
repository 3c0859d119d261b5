#include "ops/embed.h"

#include "ops/check.h"
#include "ops/host_access.h"

namespace conclave {

void validate(const Embed& op) {
  const Check check(op);
  check.tensor("ids", op.ids, kI32, {kAny});
  check.tensor("table", op.table, kWeight, {kAny, kAny});
  check.optional("live", op.live, kI32, {1});
  check.tensor("out", op.out, kFloat, {op.ids.dim(0), op.table.dim(1)});
}

void reference(const Embed& op) {
  const std::int64_t n_live = live_rows(op.live, op.ids.dim(0));
  std::vector<float> row;
  for (std::int64_t t = 0; t < n_live; ++t) {
    const std::int32_t id = load_i32(op.ids, {t});
    if (id >= 0 && id < op.table.dim(0)) {
      load_row(op.table, {id}, row);
    } else {
      row.assign(static_cast<std::size_t>(op.out.dim(1)), 0.0F);
    }
    for (std::int64_t d = 0; d < op.out.dim(1); ++d) {
      store(op.out, {t, d}, static_cast<double>(row[static_cast<std::size_t>(d)]));
    }
  }
}

}  // namespace conclave
