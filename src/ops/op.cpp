#include "ops/op.h"

#include <algorithm>

namespace conclave {
namespace {

double stored_bytes(const Tensor& t) {
  return static_cast<double>(row_bytes(t)) * static_cast<double>(row_count(t));
}

double product_flops(const Tensor& w, double rows) {  // w [..., n, k]
  return 2.0 * rows * static_cast<double>(w.dim(w.rank - 2)) * static_cast<double>(w.inner());
}

double flops_of(const MoeMatmul& op) {
  return product_flops(op.w, static_cast<double>(op.out.dim(0) * op.out.dim(1)));
}
double flops_of(const MoeGateUp& op) {
  return 2 * product_flops(op.gate, static_cast<double>(op.out.dim(0)));
}
double flops_of(const MoeDown& op) {
  return product_flops(op.down, static_cast<double>(op.out.dim(0)));
}
double flops_of(const Matmul& op) {
  return product_flops(op.w, static_cast<double>(op.x.dim(0)));
}
double flops_of(const MoeSharedExpert& op) {
  const auto n_tokens = static_cast<double>(op.x.dim(0));
  return 2 * product_flops(op.gate, n_tokens) + product_flops(op.down, n_tokens);
}
double flops_of(const MoeFfn& op) {
  const MoeFfnSequence ops = sequence_of(op);
  return flops_of(ops.gate_up) + flops_of(ops.down) + (ops.shared ? flops_of(*ops.shared) : 0.0);
}
double flops_of(const Attention& op) {
  const double keys = static_cast<double>(op.kv.pages.dim(1) * op.kv.page_size());
  return 2.0 * static_cast<double>(op.q.dim(0) * op.q.dim(1) * (op.q.dim(2) + op.out.dim(2))) * keys;
}
template <class Other>
double flops_of(const Other&) {
  return 0;
}

// The share of a weight tensor that an op can touch: one expert per pair, one embedding row per token.
template <class AnyOp>
double touched_share(const AnyOp&, std::string_view) {
  return 1;
}
double share(std::int64_t rows, const Tensor& stack) {
  return std::min(1.0, static_cast<double>(rows) / static_cast<double>(std::max<std::int64_t>(stack.dim(0), 1)));
}
double touched_share(const MoeMatmul& op, std::string_view name) {
  return name == "w" ? share(op.out.dim(0) * op.out.dim(1), op.w) : 1;
}
double touched_share(const MoeGateUp& op, std::string_view name) {
  return name == "gate" || name == "up" ? share(op.out.dim(0), op.gate) : 1;
}
double touched_share(const MoeDown& op, std::string_view name) {
  return name == "down" ? share(op.out.dim(0), op.down) : 1;
}
double touched_share(const MoeFfn& op, std::string_view name) {
  return name == "gate" || name == "up" || name == "down" ? share(op.hidden.dim(0), op.gate) : 1;
}
double touched_share(const Embed& op, std::string_view name) {
  return name == "table" ? share(op.ids.dim(0), op.table) : 1;
}

}  // namespace

std::vector<Access> accesses(const Op& op) {
  std::vector<Access> list;
  std::visit(
      [&](const auto& o) {
        for_each_tensor(o, [&](Role role, std::string_view name, const Tensor& t) { list.push_back({role, name, t}); });
      },
      op);
  return list;
}

Cost cost_of(const Op& op) {
  return std::visit(
      [](const auto& o) {
        Cost cost{.bytes = 0, .flops = flops_of(o)};
        for_each_tensor(o, [&](Role role, std::string_view name, const Tensor& t) {
          const double passes = role == Role::inout || role == Role::scratch ? 2 : 1;
          cost.bytes += passes * stored_bytes(t) * touched_share(o, name);
        });
        return cost;
      },
      op);
}

}  // namespace conclave
