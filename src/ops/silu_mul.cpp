#include "ops/silu_mul.h"

#include <algorithm>

#include "ops/activation.h"
#include "ops/check.h"
#include "ops/host_access.h"
#include "ops/rows.h"

namespace conclave {

GateUpViews gate_up_views(const SiluMul& op) {
  if (op.layout == GateUpLayout::apart) return {op.gate, op.up};
  const Tensor& both = op.gate_up;
  if (op.layout == GateUpLayout::concatenated) {
    const int last = both.rank - 1;
    const std::int64_t d_ff = both.dim(last) / 2;
    return {slice(both, last, 0, d_ff), slice(both, last, d_ff, d_ff)};
  }
  // The dimension of length 2 stands third from the end: take plane 0 or 1 and let it go.
  const int plane = both.rank - 3;
  const auto half = [&](std::int64_t which) {
    Tensor t = slice(both, plane, which, 1);
    const auto from = static_cast<std::size_t>(plane);
    std::copy(t.dims.begin() + from + 1, t.dims.end(), t.dims.begin() + from);
    std::copy(t.strides.begin() + from + 1, t.strides.end(), t.strides.begin() + from);
    --t.rank;
    return t;
  };
  return {half(0), half(1)};
}

void validate(const SiluMul& op) {
  const Check check(op);
  check.rank("out", op.out, 1, kMaxRank);
  const auto same_shape = [&](std::string_view what, const Tensor& t) {
    if (!std::equal(t.shape().begin(), t.shape().end(), op.out.shape().begin(), op.out.shape().end())) {
      check.refuse("{} is {}, out is {}", what, shape_text(t.shape()), shape_text(op.out.shape()));
    }
  };
  const auto is_activation = [&](std::string_view what, const Tensor& t) {
    check.given(what, t);
    if (!is_float(t.dtype)) check.refuse("{} is {}, expected f32, f16, bf16", what, dtype_info(t.dtype).name);
  };
  is_activation("out", op.out);
  if (op.live.defined()) {
    check.tensor("live", op.live, kI32, {1});
    if (op.out.rank != 2 || op.layout == GateUpLayout::stacked) check.refuse("live counts rows of a [n, d_ff] output");
  }
  if (op.layout == GateUpLayout::apart) {
    if (op.gate_up.defined()) check.refuse("gate_up is given, but the layout is apart");
    is_activation("gate", op.gate);
    is_activation("up", op.up);
    same_shape("gate", op.gate);
    same_shape("up", op.up);
    return;
  }
  if (op.gate.defined() || op.up.defined()) check.refuse("gate or up is given, but the layout is {}", name(op.layout));
  is_activation("gate_up", op.gate_up);
  const bool stacked = op.layout == GateUpLayout::stacked;
  check.rank("gate_up", op.gate_up, stacked ? 3 : 1, kMaxRank);
  if (stacked && op.gate_up.dim(op.gate_up.rank - 3) != 2) {
    check.refuse("gate_up is {}, expected [..., 2, n, d_ff]", shape_text(op.gate_up.shape()));
  }
  if (!stacked && op.gate_up.inner() % 2 != 0) {
    check.refuse("gate_up is {}: its columns are two halves", shape_text(op.gate_up.shape()));
  }
  same_shape("one half of gate_up", gate_up_views(op).gate);
}

void reference(const SiluMul& op) {
  const auto [gate, up] = gate_up_views(op);
  const std::int64_t n_rows = op.live.defined() ? live_rows(op.live, op.out.dim(0)) : row_count(op.out);
  for (std::int64_t r = 0; r < n_rows; ++r) {
    const std::vector<float> g = load_row(flat_row(gate, r), {});
    const std::vector<float> u = load_row(flat_row(up, r), {});
    const Tensor out = flat_row(op.out, r);
    for (std::int64_t i = 0; i < out.dim(0); ++i) {
      const auto at = static_cast<std::size_t>(i);
      store(out, {i}, activate(Activation::silu, static_cast<double>(g[at])) * static_cast<double>(u[at]));
    }
  }
}

}  // namespace conclave
