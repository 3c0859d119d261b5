#include "support/bounds.h"

#include <algorithm>
#include <cmath>

#include "ops/host_access.h"
#include "ops/rows.h"

namespace conclave::test {
namespace {

using Errors = std::vector<double>;  // dense, one per element of a tensor

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

double magnitude(float x) {
  return std::isfinite(x) ? std::fabs(static_cast<double>(x)) : 0;
}

// Every element gets the rounding of its own storage, on top of `relative` times its magnitude.
Errors relative_errors(const Tensor& out, double relative) {
  Errors errors;
  for (std::int64_t r = 0; r < row_count(out); ++r) {
    for (const float y : load_row(flat_row(out, r), {})) {
      errors.push_back(storage_error(out.dtype, magnitude(y)) + relative * magnitude(y));
    }
  }
  return errors;
}

// Error of sum over k of x[k] w[k] where x is known to within dx[k].
struct ProductRow {
  std::vector<float> x;
  std::vector<double> dx;
};

ProductRow exact_row(std::vector<float> x, const Arithmetic& a) {
  double largest = 0;
  for (const float value : x) largest = std::max(largest, magnitude(value));
  std::vector<double> dx(x.size(), a.activation * largest);
  return {std::move(x), std::move(dx)};
}

double dot_error(const ProductRow& row, const std::vector<float>& w, const Arithmetic& a) {
  double absolute = 0;
  double carried = 0;
  for (std::size_t k = 0; k < w.size(); ++k) {
    absolute += magnitude(row.x[k]) * magnitude(w[k]);
    carried += row.dx[k] * magnitude(w[k]);
  }
  return carried + (static_cast<double>(w.size()) + 2) * a.unit * absolute;
}

// act(g) * u with errors dg and du; |act'| stays below 1.13 for both activations.
double gated_error(Activation act, double g, double dg, double u, double du, const Arithmetic& a) {
  const double value = std::fabs(activate(act, g));
  return 1.13 * dg * (std::fabs(u) + du) + value * du + 16 * a.unit * value * std::fabs(u);
}

// Errors of act(x gate^T) * (x up^T) for one row, into out[first ..].
void gated_row(const ProductRow& row, const Tensor& gate, const Tensor& up, Activation act, const Arithmetic& a,
               DType stored, double* out) {
  const auto value = [&](const std::vector<float>& w) {
    double sum = 0;
    for (std::size_t k = 0; k < w.size(); ++k) sum += static_cast<double>(row.x[k]) * static_cast<double>(w[k]);
    return sum;
  };
  for (std::int64_t n = 0; n < gate.dim(0); ++n) {
    const std::vector<float> wg = load_row(gate, {n});
    const std::vector<float> wu = load_row(up, {n});
    const double g = value(wg);
    const double u = value(wu);
    const double dg = dot_error(row, wg, a) + storage_error(DType::f32, g);
    const double du = dot_error(row, wu, a) + storage_error(DType::f32, u);
    out[n] = gated_error(act, g, dg, u, du, a) + storage_error(stored, activate(act, g) * u);
  }
}

// Packed rows of expert e, held to what there is, as the ops hold them.
std::int64_t first_row(const Tensor& offsets, std::int64_t e) {
  return std::max<std::int64_t>(load_i32(offsets, {e}), 0);
}
std::int64_t last_row(const Tensor& offsets, std::int64_t e, std::int64_t n_rows) {
  return std::min<std::int64_t>(load_i32(offsets, {e + 1}), n_rows);
}

Errors gate_up_errors(const MoeGateUp& op, const Arithmetic& a) {
  const std::int64_t d_ff = op.out.dim(1);
  Errors errors(at(op.out.dim(0) * d_ff), 0.0);
  for (std::int64_t e = 0; e < op.gate.dim(0); ++e) {
    for (std::int64_t r = first_row(op.offsets, e); r < last_row(op.offsets, e, op.out.dim(0)); ++r) {
      const std::int64_t pair = load_i32(op.row_pair, {r});
      if (pair < 0 || pair >= op.row_pair.dim(0)) continue;
      gated_row(exact_row(load_row(op.x, {pair / op.top_k}), a), select_outer(op.gate, e), select_outer(op.up, e),
                op.act, a, op.out.dtype, &errors[at(r * d_ff)]);
    }
  }
  return errors;
}

// `x_errors` is empty where x is an input of the op.
Errors down_errors(const MoeDown& op, const Errors& x_errors, const Arithmetic& a) {
  const std::int64_t d_model = op.out.dim(1);
  Errors errors(at(op.out.dim(0) * d_model), 0.0);
  for (std::int64_t e = 0; e < op.down.dim(0); ++e) {
    const Tensor w = select_outer(op.down, e);
    for (std::int64_t r = first_row(op.offsets, e); r < last_row(op.offsets, e, op.out.dim(0)); ++r) {
      ProductRow row = exact_row(load_row(op.x, {r}), a);
      for (std::size_t k = 0; k < row.dx.size() && !x_errors.empty(); ++k)
        row.dx[k] += x_errors[at(r) * row.dx.size() + k];
      for (std::int64_t n = 0; n < d_model; ++n) {
        errors[at(r * d_model + n)] =
            dot_error(row, load_row(w, {n}), a) + storage_error(op.out.dtype, magnitude(load(op.out, {r, n})));
      }
    }
  }
  return errors;
}

Errors shared_errors(const MoeSharedExpert& op, const Arithmetic& a) {
  const std::int64_t d_model = op.out.dim(1);
  Errors errors(at(op.out.dim(0) * d_model), 0.0);
  for (std::int64_t t = 0; t < live_rows(op.live, op.x.dim(0)); ++t) {
    const ProductRow x = exact_row(load_row(op.x, {t}), a);
    Errors hidden(at(op.hidden.dim(1)));
    gated_row(x, op.gate, op.up, op.act, a, op.hidden.dtype, hidden.data());
    ProductRow row = exact_row(load_row(op.hidden, {t}), a);
    for (std::size_t k = 0; k < hidden.size(); ++k) row.dx[k] += hidden[k];
    // sigmoid' is at most 1/4, and the share at most 1.
    const double share = op.gate_inp.defined() ? dot_error(x, load_row(op.gate_inp, {}), a) / 4 + 16 * a.unit : 0;
    for (std::int64_t n = 0; n < d_model; ++n) {
      const std::vector<float> w = load_row(op.down, {n});
      double absolute = 0;
      for (std::size_t k = 0; k < w.size(); ++k) absolute += magnitude(row.x[k]) * magnitude(w[k]);
      errors[at(t * d_model + n)] = dot_error(row, w, a) + absolute * share + storage_error(DType::f32, absolute) +
                                    storage_error(op.out.dtype, magnitude(load(op.out, {t, n})));
    }
  }
  return errors;
}

// What the inputs of a combine may be off by; empty where they are given exactly.
struct CombineErrors {
  Errors rows;
  Errors weights;
  Errors shared;
};

// Errors of the f32 sum before it is stored or added.
Errors combine_errors(const CombineInput& from, std::int64_t n_tokens, std::int64_t d_model, const CombineErrors& input,
                      const Arithmetic& a) {
  const std::int64_t top_k = from.weights.dim(1);
  Errors errors(at(n_tokens * d_model), 0.0);
  for (std::int64_t t = 0; t < live_rows(from.live, n_tokens); ++t) {
    for (std::int64_t d = 0; d < d_model; ++d) {
      double absolute = 0;
      double carried = 0;
      for (std::int64_t s = 0; s < top_k; ++s) {
        const Tensor row = combined_row(from, t, s);
        if (!row.defined()) continue;
        const double y = magnitude(load(row, {d}));
        const double w = magnitude(load(from.weights, {t, s}));
        absolute += w * y;
        if (!input.rows.empty()) carried += w * input.rows[at(load_i32(from.pair_row, {t, s}) * d_model + d)];
        if (!input.weights.empty()) carried += input.weights[at(t * top_k + s)] * y;
      }
      if (from.shared.defined()) absolute += magnitude(load(from.shared, {t, d}));
      if (!input.shared.empty()) carried += input.shared[at(t * d_model + d)];
      errors[at(t * d_model + d)] =
          carried + (static_cast<double>(top_k) + 3) * a.unit * absolute + storage_error(DType::f32, absolute);
    }
  }
  return errors;
}

Errors stored_residual_errors(const Tensor& residual, const Tensor& live, const Errors& sum, const Arithmetic& a) {
  Errors errors(sum.size(), 0.0);
  const std::int64_t d_model = residual.dim(1);
  for (std::int64_t t = 0; t < live_rows(live, residual.dim(0)); ++t) {
    for (std::int64_t d = 0; d < d_model; ++d) {
      const double y = magnitude(load(residual, {t, d}));
      errors[at(t * d_model + d)] = sum[at(t * d_model + d)] + a.unit * y + storage_error(residual.dtype, y);
    }
  }
  return errors;
}

// `x_errors` is empty where x is an input.
Errors norm_errors(const RmsNorm& op, const Errors& x_errors, const Arithmetic& a) {
  const std::int64_t heads = op.x.rank == 3 ? op.x.dim(1) : 1;
  const std::int64_t d = op.x.inner();
  Errors errors(at(element_count(op.out)), 0.0);
  for (std::int64_t r = 0; r < live_rows(op.live, op.x.dim(0)) * heads; ++r) {
    const bool in_place = op.x == op.out;
    const std::vector<float> out = load_row(flat_row(op.out, r), {});
    const std::vector<float> x = in_place ? std::vector<float>(out.size(), 0.0F) : load_row(flat_row(op.x, r), {});
    double squares = 0;
    double moved = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      squares += magnitude(x[i]) * magnitude(x[i]);
      if (!x_errors.empty()) moved += x_errors[at(r * d) + i] * x_errors[at(r * d) + i];
    }
    const double inverse = 1 / std::sqrt(squares / static_cast<double>(d) + static_cast<double>(op.eps));
    // The norm itself moves by at most the norm of the errors.
    const double shift = squares > 0 ? std::sqrt(moved / squares) : 0;
    for (std::int64_t i = 0; i < d; ++i) {
      const double y = magnitude(out[at(i)]);
      double error = ((static_cast<double>(d) + 8) * a.unit + shift) * y + storage_error(op.out.dtype, y);
      if (!x_errors.empty()) error += x_errors[at(r * d + i)] * inverse * magnitude(load(op.weight, {i}));
      errors[at(r * d + i)] = error;
    }
  }
  return errors;
}

// Weights from exponentials: each argument is a rounded difference, the normaliser a sum over the experts.
Errors route_errors(const MoeRoute& op, const Arithmetic& a) {
  const std::int64_t n_experts = op.logits.dim(1);
  Errors errors;
  for (std::int64_t t = 0; t < op.out.weights.dim(0); ++t) {
    double largest = 0;
    for (const float l : load_row(op.logits, {t})) largest = std::max(largest, std::min(magnitude(l), 128.0));
    for (std::int64_t s = 0; s < op.rule.top_k; ++s) {
      const double w = t < live_rows(op.live, op.logits.dim(0)) ? magnitude(load(op.out.weights, {t, s})) : 0;
      const double steps = static_cast<double>(n_experts + op.rule.top_k) + 32 + 4 * largest;
      errors.push_back(storage_error(DType::f32, w) + steps * a.unit * w);
    }
  }
  return errors;
}

Bounds bounds(const MoeRoute& op, const Arithmetic& a) {
  return {{"weights", route_errors(op, a)}};
}
Bounds bounds(const MoeRouteToHost& op, const Arithmetic& a) {
  return {{"weights", route_errors(op.route(), a)}};
}
Bounds bounds(const MoeRoutingUpload& op, const Arithmetic&) {
  if (!op.to.weights.defined()) return {};
  return {{"weights", Errors(at(element_count(op.to.weights)), 0.0)}};
}
Bounds bounds(const MoeMatmul& op, const Arithmetic& a) {
  Errors errors(at(element_count(op.out)), 0.0);
  const std::int64_t top_k = op.out.dim(1);
  std::int64_t expert = 0;
  for (const auto& pairs : listed_pairs(op)) {
    for (const std::int64_t pair : pairs) {
      const ProductRow row = exact_row(load_row(op.x, {pair / top_k, op.x.dim(1) == 1 ? 0 : pair % top_k}), a);
      for (std::int64_t n = 0; n < covered_columns(op); ++n) {
        errors[at(pair * op.out.dim(2) + n)] =
            dot_error(row, load_row(select_outer(op.w, expert), {n}), a) +
            storage_error(op.out.dtype, magnitude(load(op.out, {pair / top_k, pair % top_k, n})));
      }
    }
    ++expert;
  }
  return {{"out", errors}};
}
Bounds bounds(const MoeGateUp& op, const Arithmetic& a) {
  return {{"out", gate_up_errors(op, a)}};
}
Bounds bounds(const MoeDown& op, const Arithmetic& a) {
  return {{"out", down_errors(op, {}, a)}};
}
Bounds bounds(const MoeSharedExpert& op, const Arithmetic& a) {
  return {{"out", shared_errors(op, a)}};
}
Bounds bounds(const SiluMul& op, const Arithmetic& a) {
  return {{"out", relative_errors(op.out, 16 * a.unit)}};
}
Bounds bounds(const MoeCombine& op, const Arithmetic& a) {
  Errors errors = combine_errors(op.from, op.out.dim(0), op.out.dim(1), {}, a);
  const Errors stored = relative_errors(op.out, 0);
  for (std::size_t i = 0; i < errors.size(); ++i) errors[i] += stored[i];
  return {{"out", errors}};
}
Bounds bounds(const MoeCombineResidual& op, const Arithmetic& a) {
  const Errors sum = combine_errors(op.from, op.residual.dim(0), op.residual.dim(1), {}, a);
  return {{"residual", stored_residual_errors(op.residual, op.from.live, sum, a)}};
}

RmsNorm next_norm(const Tensor& residual, const Tensor& live, const NextNorm& next) {
  return {.x = residual, .weight = next.weight, .live = live, .eps = next.eps, .out = next.out};
}

Bounds bounds(const MoeCombineResidualNorm& op, const Arithmetic& a) {
  Bounds all = bounds(MoeCombineResidual{.from = op.from, .residual = op.residual}, a);
  all["normed"] = norm_errors(next_norm(op.residual, op.from.live, op.next), all["residual"], a);
  return all;
}
Bounds bounds(const MoeFfn& op, const Arithmetic& a) {
  const MoeFfnSequence ops = sequence_of(op);
  const CombineErrors input{.rows = down_errors(ops.down, gate_up_errors(ops.gate_up, a), a),
                            .weights = route_errors(ops.route, a),
                            .shared = ops.shared ? shared_errors(*ops.shared, a) : Errors{}};
  const CombineInput& from =
      std::visit([](const auto& combine) -> const CombineInput& { return combine.from; }, ops.combine);
  const Errors sum = combine_errors(from, op.residual.dim(0), op.residual.dim(1), input, a);
  Bounds all;
  all["weights"] = input.weights;
  all["residual"] = stored_residual_errors(op.residual, op.live, sum, a);
  if (op.next.weight.defined()) {
    all["normed"] = norm_errors(next_norm(op.residual, op.live, op.next), all["residual"], a);
  }
  return all;
}
Bounds bounds(const Embed& op, const Arithmetic&) {
  return {{"out", relative_errors(op.out, 0)}};
}
Bounds bounds(const RmsNorm& op, const Arithmetic& a) {
  return {{"out", norm_errors(op, {}, a)}};
}
Bounds bounds(const Matmul& op, const Arithmetic& a) {
  Errors errors(at(element_count(op.out)), 0.0);
  if (op.order == Order::canonical) return {{"out", errors}};  // one order, one result: the bits are equal
  for (std::int64_t m = 0; m < live_rows(op.live, op.x.dim(0)); ++m) {
    const ProductRow row = exact_row(load_row(op.x, {m}), a);
    for (std::int64_t n = 0; n < op.w.dim(0); ++n) {
      const double y = magnitude(load(op.out, {m, n}));
      const double b = op.bias.defined() ? magnitude(load(op.bias, {n})) : 0;
      errors[at(m * op.w.dim(0) + n)] =
          dot_error(row, load_row(op.w, {n}), a) + (y + b) * a.unit + storage_error(op.out.dtype, y);
    }
  }
  return {{"out", errors}};
}
Bounds bounds(const Rope& op, const Arithmetic& a) {
  // A rotation keeps the length of a pair; the angle is a rounded product, its sine and cosine are rounded functions.
  const std::vector<double> frequencies = rope_frequencies(op);
  const std::int64_t half = op.n_rot / 2;
  Errors errors(at(element_count(op.out)), 0.0);
  for (std::int64_t t = 0; t < live_rows(op.live, op.x.dim(0)); ++t) {
    const double position = std::fabs(static_cast<double>(load_i32(op.positions, {t})));
    for (std::int64_t h = 0; h < op.x.dim(1); ++h) {
      const std::vector<float> out = load_row(op.out, {t, h});
      double* row = &errors[at((t * op.x.dim(1) + h) * op.x.dim(2))];
      for (std::int64_t d = 0; d < op.x.dim(2); ++d) row[d] = storage_error(op.out.dtype, magnitude(out[at(d)]));
      for (std::int64_t i = 0; i < half; ++i) {
        const std::int64_t first = op.style == RopeStyle::neox ? i : 2 * i;
        const std::int64_t second = op.style == RopeStyle::neox ? i + half : 2 * i + 1;
        const double length = std::hypot(magnitude(out[at(first)]), magnitude(out[at(second)]));
        const double error = length * (8 + 8 * position * frequencies[at(i)]) * a.unit;
        row[first] += error;
        row[second] += error;
      }
    }
  }
  return {{"out", errors}};
}
Bounds bounds(const KvWrite& op, const Arithmetic&) {
  return {{"k_pool", Errors(at(element_count(op.kv.k)), 0.0)}, {"v_pool", Errors(at(element_count(op.kv.v)), 0.0)}};
}
Bounds bounds(const Attention& op, const Arithmetic& a) {
  const std::int64_t n_heads = op.q.dim(1);
  Errors errors(at(element_count(op.out)), 0.0);
  for (std::int64_t t = 0; t < live_rows(op.live, op.q.dim(0)); ++t) {
    const std::int64_t seq = load_i32(op.seqs, {t});
    const std::int64_t end = visible_end(op, t);
    for (std::int64_t h = 0; h < n_heads; ++h) {
      const ProductRow q = exact_row(load_row(op.q, {t, h}), a);
      const std::int64_t kv_head = h / (n_heads / op.kv.n_kv_heads());
      double score_error = 0;
      std::vector<double> largest(at(op.out.dim(2)), 0.0);
      for (std::int64_t p = 0; p < end; ++p) {
        const KvPlace place = kv_place(op.kv, seq, p);
        if (place.page < 0) continue;
        const std::vector<float> k = load_row(op.kv.k, {place.page, place.slot, kv_head});
        const std::vector<float> v = load_row(op.kv.v, {place.page, place.slot, kv_head});
        score_error = std::max(score_error, static_cast<double>(op.scale) * 2 * dot_error(q, k, a));
        for (std::size_t d = 0; d < v.size(); ++d) largest[d] = std::max(largest[d], magnitude(v[d]));
      }
      // Every weight moves by at most exp(2 score_error) - 1, relatively; the output is their mean of values.
      const double relative =
          std::expm1(2 * score_error) + (2 * static_cast<double>(std::max<std::int64_t>(end, 0)) + 32) * a.unit;
      for (std::int64_t d = 0; d < op.out.dim(2); ++d) {
        errors[at((t * n_heads + h) * op.out.dim(2) + d)] =
            relative * largest[at(d)] + storage_error(op.out.dtype, magnitude(load(op.out, {t, h, d})));
      }
    }
  }
  return {{"out", errors}};
}
Bounds bounds(const Add& op, const Arithmetic& a) {
  return {{"out", relative_errors(op.out, a.unit)}};
}
Bounds bounds(const Softmax& op, const Arithmetic& a) {
  return {{"out", relative_errors(op.out, (static_cast<double>(op.x.dim(1)) + 32 + 4 * 128) * a.unit)}};
}
template <class IntegersOnly>
Bounds bounds(const IntegersOnly&, const Arithmetic&) {
  return {};
}

}  // namespace

double storage_error(DType type, double value) {
  const double size = std::fabs(value);
  switch (type) {
    case DType::f16:
      return 2 * (size * 0x1p-11 + 0x1p-25);
    case DType::bf16:
      return 2 * (size * 0x1p-8 + 0x1p-133);
    default:
      return 2 * (size * 0x1p-24 + 0x1p-149);
  }
}

Bounds bounds_of(const Op& op, const Arithmetic& arithmetic) {
  return std::visit([&](const auto& o) { return bounds(o, arithmetic); }, op);
}

}  // namespace conclave::test
