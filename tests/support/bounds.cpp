#include "support/bounds.h"

#include <algorithm>
#include <cmath>

#include "ops/host_access.h"
#include "ops/product.h"
#include "ops/rows.h"

namespace conclave::test {
namespace {

struct Deviation {
  double bound = 0;
  Noise noise = {};

  // The same noise, and a bound that is larger by `more`.
  Deviation plus(double more) const { return {bound + more, noise}; }
};
using Errors = std::vector<Deviation>;  // dense, one per element of a tensor
using NamedErrors = std::map<std::string, Errors, std::less<>>;

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

double magnitude(float x) {
  return std::isfinite(x) ? std::fabs(static_cast<double>(x)) : 0;
}

double square(double x) {
  return x * x;
}

// Every element gets the rounding of its own storage, on top of `relative` times its magnitude.
Errors relative_errors(const Tensor& out, double relative) {
  Errors errors;
  for (std::int64_t r = 0; r < row_count(out); ++r) {
    for (const float y : load_row(flat_row(out, r), {})) {
      errors.push_back({storage_error(out.dtype, magnitude(y)) + relative * magnitude(y)});
    }
  }
  return errors;
}

// One operand of a product: a row of activations.
struct ProductRow {
  std::vector<float> x;
  std::int64_t index = 0;  // of the row
  Errors carried = {};     // what x is already off by; empty: nothing
};

// The other operand: a row of weights.
struct WeightRow {
  DType type;
  std::vector<float> w;
  std::vector<double> off = {};  // by how much each may be rounded before the product; empty: not at all
  double row_rounding = 0;       // of plain weights that want rows of 16 bits: by what share of a row's largest
};

// Weights of a block are scale * level - minimum. Where scale and minimum are rounded, and then the weight, it moves by
// that share of |scale level| + |minimum| + |weight|, at most 2 (|weight| + |minimum|).
WeightRow weight_row(const Tensor& w, std::int64_t n, Phase phase, const Arithmetic& a) {
  WeightRow row{.type = w.dtype, .w = load_row(w, {n})};
  if (phase == Phase::decode || a.prefill_weight == 0) return row;
  if (w.dtype == DType::f16) row.row_rounding = 0x1p-11;
  if (w.dtype == DType::bf16) row.row_rounding = 0x1p-8;
  if (!is_block(w.dtype)) return row;
  std::vector<float> minimums(row.w.size(), 0.0F);
  if (w.dtype == DType::q4_k || w.dtype == DType::q5_k) {  // all levels 0: the minimums are left
    constexpr std::size_t kHeader = 16;
    const DTypeInfo& info = dtype_info(w.dtype);
    const auto size = static_cast<std::size_t>(info.bytes);
    const std::byte* from = row_address(w, {n});
    std::vector<std::byte> blocks(from, from + row.w.size() / static_cast<std::size_t>(info.per_block) * size);
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      if (i % size >= kHeader) blocks[i] = std::byte{0};
    }
    decode(w.dtype, blocks, minimums);
  }
  for (std::size_t k = 0; k < row.w.size(); ++k) {
    row.off.push_back(2 * a.prefill_weight * (magnitude(row.w[k]) + magnitude(minimums[k])));
  }
  return row;
}

// Error of sum over k of x[k] w[k]. Rounding x to a grid of 2 dx is an error uniform in +-dx,
// which has the variance dx^2 / 3; the errors of different k are independent.
Deviation dot_error(const ProductRow& row, const WeightRow& weights, const Arithmetic& a) {
  const std::vector<float>& w = weights.w;
  double largest = 0;
  for (const float value : row.x) largest = std::max(largest, magnitude(value));
  const bool as_blocks = is_block(weights.type) || a.rounds_for_plain_weights;
  const double dx = (as_blocks ? a.activation : weights.row_rounding) * largest;
  double absolute = 0;
  double carried = 0;
  double variance = 0;
  for (std::size_t k = 0; k < w.size(); ++k) {
    const Deviation before = row.carried.empty() ? Deviation{} : row.carried[k];
    const double dw = weights.off.empty() ? 0 : weights.off[k];
    absolute += magnitude(row.x[k]) * magnitude(w[k]);
    carried += (dx + before.bound) * (magnitude(w[k]) + dw) + magnitude(row.x[k]) * dw;
    variance += (dx * dx / 3 + before.noise.variance) * square(magnitude(w[k]) + dw) + square(magnitude(row.x[k]) * dw);
  }
  return {carried + (static_cast<double>(w.size()) + 2) * a.unit * absolute, {variance, row.index}};
}

// act(g) * u with errors dg and du; |act'| stays below 1.13 for both activations.
Deviation gated_error(Activation act, double g, const Deviation& dg, double u, const Deviation& du,
                      const Arithmetic& a) {
  const double value = std::fabs(activate(act, g));
  const double bound =
      1.13 * dg.bound * (std::fabs(u) + du.bound) + value * du.bound + 16 * a.unit * value * std::fabs(u);
  const double variance =
      square(1.13) * dg.noise.variance * (u * u + du.noise.variance) + value * value * du.noise.variance;
  return {bound, {variance, dg.noise.row}};
}

// Errors of act(x gate^T) * (x up^T) for one row, into out[first ..].
void gated_row(const ProductRow& row, const Tensor& gate, const Tensor& up, Activation act, Phase phase,
               const Arithmetic& a, DType stored, Deviation* out) {
  for (std::int64_t n = 0; n < gate.dim(0); ++n) {
    const WeightRow wg = weight_row(gate, n, phase, a);
    const WeightRow wu = weight_row(up, n, phase, a);
    const double g = dot(row.x, wg.w);
    const double u = dot(row.x, wu.w);
    const Deviation dg = dot_error(row, wg, a).plus(storage_error(DType::f32, g));
    const Deviation du = dot_error(row, wu, a).plus(storage_error(DType::f32, u));
    out[n] = gated_error(act, g, dg, u, du, a).plus(storage_error(stored, activate(act, g) * u));
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
  Errors errors(at(op.out.dim(0) * d_ff));
  for (std::int64_t e = 0; e < op.gate.dim(0); ++e) {
    for (std::int64_t r = first_row(op.offsets, e); r < last_row(op.offsets, e, op.out.dim(0)); ++r) {
      const std::int64_t pair = load_i32(op.row_pair, {r});
      if (pair < 0 || pair >= op.row_pair.dim(0)) continue;
      const std::int64_t token = pair / op.top_k;
      gated_row({.x = load_row(op.x, {token}), .index = token}, select_outer(op.gate, e), select_outer(op.up, e),
                op.act, op.phase, a, op.out.dtype, &errors[at(r * d_ff)]);
    }
  }
  return errors;
}

// `x_errors` is empty where x is an input of the op.
Errors down_errors(const MoeDown& op, const Errors& x_errors, const Arithmetic& a) {
  const std::int64_t d_model = op.out.dim(1);
  Errors errors(at(op.out.dim(0) * d_model));
  for (std::int64_t e = 0; e < op.down.dim(0); ++e) {
    const Tensor w = select_outer(op.down, e);
    for (std::int64_t r = first_row(op.offsets, e); r < last_row(op.offsets, e, op.out.dim(0)); ++r) {
      ProductRow row{.x = load_row(op.x, {r}), .index = r};
      if (!x_errors.empty()) {
        const auto first = x_errors.begin() + r * op.x.dim(1);
        row.carried.assign(first, first + op.x.dim(1));
      }
      for (std::int64_t n = 0; n < d_model; ++n) {
        errors[at(r * d_model + n)] = dot_error(row, weight_row(w, n, op.phase, a), a)
                                          .plus(storage_error(op.out.dtype, magnitude(load(op.out, {r, n}))));
      }
    }
  }
  return errors;
}

Errors shared_errors(const MoeSharedExpert& op, const Arithmetic& a) {
  const std::int64_t d_model = op.out.dim(1);
  Errors errors(at(op.out.dim(0) * d_model));
  for (std::int64_t t = 0; t < live_rows(op.live, op.x.dim(0)); ++t) {
    const ProductRow x{.x = load_row(op.x, {t}), .index = t};
    ProductRow row{.x = load_row(op.hidden, {t}), .index = t, .carried = Errors(at(op.hidden.dim(1)))};
    gated_row(x, op.gate, op.up, op.act, op.phase, a, op.hidden.dtype, row.carried.data());
    double share = 1;
    Deviation argument;  // of the sigmoid; its own slope is share (1 - share), at most 1/4
    double share_error = 0;
    if (op.gate_inp.defined()) {
      const std::vector<float> gate_inp = load_row(op.gate_inp, {});
      share = sigmoid(dot(x.x, gate_inp));
      argument = dot_error(x, {.type = op.gate_inp.dtype, .w = gate_inp}, a);
      share_error = argument.bound / 4 + 16 * a.unit;
    }
    for (std::int64_t n = 0; n < d_model; ++n) {
      const WeightRow w = weight_row(op.down, n, op.phase, a);
      const double out = magnitude(load(op.out, {t, n}));
      double absolute = 0;
      for (std::size_t k = 0; k < w.w.size(); ++k) absolute += magnitude(row.x[k]) * magnitude(w.w[k]);
      const Deviation y = dot_error(row, w, a);
      // The bound takes the share as 1, its most.
      errors[at(t * d_model + n)] = {
          y.bound + absolute * share_error + storage_error(DType::f32, absolute) + storage_error(op.out.dtype, out),
          {square(share) * y.noise.variance + square(out * (1 - share)) * argument.noise.variance, t}};
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
  Errors errors(at(n_tokens * d_model));
  for (std::int64_t t = 0; t < live_rows(from.live, n_tokens); ++t) {
    for (std::int64_t d = 0; d < d_model; ++d) {
      double absolute = 0;
      double carried = 0;
      double variance = 0;
      for (std::int64_t s = 0; s < top_k; ++s) {
        const Tensor row = combined_row(from, t, s);
        if (!row.defined()) continue;
        const double y = magnitude(load(row, {d}));
        const double w = magnitude(load(from.weights, {t, s}));
        absolute += w * y;
        if (!input.rows.empty()) {
          const Deviation& dy = input.rows[at(load_i32(from.pair_row, {t, s}) * d_model + d)];
          carried += w * dy.bound;
          variance += w * w * dy.noise.variance;
        }
        if (!input.weights.empty()) carried += input.weights[at(t * top_k + s)].bound * y;
      }
      if (from.shared.defined()) absolute += magnitude(load(from.shared, {t, d}));
      if (!input.shared.empty()) {
        carried += input.shared[at(t * d_model + d)].bound;
        variance += input.shared[at(t * d_model + d)].noise.variance;
      }
      errors[at(t * d_model + d)] = {
          carried + (static_cast<double>(top_k) + 3) * a.unit * absolute + storage_error(DType::f32, absolute),
          {variance, t}};
    }
  }
  return errors;
}

Errors stored_residual_errors(const Tensor& residual, const Tensor& live, const Errors& sum, const Arithmetic& a) {
  Errors errors(sum.size());
  const std::int64_t d_model = residual.dim(1);
  for (std::int64_t t = 0; t < live_rows(live, residual.dim(0)); ++t) {
    for (std::int64_t d = 0; d < d_model; ++d) {
      const double y = magnitude(load(residual, {t, d}));
      errors[at(t * d_model + d)] = sum[at(t * d_model + d)].plus(a.unit * y + storage_error(residual.dtype, y));
    }
  }
  return errors;
}

// `x_errors` is empty where x is an input.
Errors norm_errors(const RmsNorm& op, const Errors& x_errors, const Arithmetic& a) {
  const std::int64_t heads = op.x.rank == 3 ? op.x.dim(1) : 1;
  const std::int64_t d = op.x.inner();
  Errors errors(at(element_count(op.out)));
  for (std::int64_t r = 0; r < live_rows(op.live, op.x.dim(0)) * heads; ++r) {
    const bool in_place = op.x == op.out;
    const std::vector<float> out = load_row(flat_row(op.out, r), {});
    const std::vector<float> x = in_place ? std::vector<float>(out.size(), 0.0F) : load_row(flat_row(op.x, r), {});
    double squares = 0;
    double moved = 0;
    double moved_variance = 0;  // of half the sum of squares
    for (std::size_t i = 0; i < x.size(); ++i) {
      squares += square(magnitude(x[i]));
      if (x_errors.empty()) continue;
      moved += square(x_errors[at(r * d) + i].bound);
      moved_variance += square(magnitude(x[i])) * x_errors[at(r * d) + i].noise.variance;
    }
    const double inverse = 1 / std::sqrt(squares / static_cast<double>(d) + static_cast<double>(op.eps));
    // The norm itself moves by at most the norm of the errors.
    const double shift = squares > 0 ? std::sqrt(moved / squares) : 0;
    const double shift_variance = squares > 0 ? moved_variance / square(squares) : 0;
    for (std::int64_t i = 0; i < d; ++i) {
      const double y = magnitude(out[at(i)]);
      Deviation& error = errors[at(r * d + i)];
      error.bound = ((static_cast<double>(d) + 8) * a.unit + shift) * y + storage_error(op.out.dtype, y);
      if (x_errors.empty()) continue;
      const Deviation& dx = x_errors[at(r * d + i)];
      const double factor = inverse * magnitude(load(op.weight, {i}));
      error.bound += dx.bound * factor;
      error.noise = {dx.noise.variance * square(factor) + shift_variance * square(y), dx.noise.row};
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
      errors.push_back({storage_error(DType::f32, w) + steps * a.unit * w});
    }
  }
  return errors;
}

NamedErrors errors_of(const MoeRoute& op, const Arithmetic& a) {
  return {{"weights", route_errors(op, a)}};
}
NamedErrors errors_of(const MoeRouteToHost& op, const Arithmetic& a) {
  return {{"weights", route_errors(op.route(), a)}};
}
NamedErrors errors_of(const MoeRoutingUpload& op, const Arithmetic&) {
  if (!op.to.weights.defined()) return {};
  return {{"weights", Errors(at(element_count(op.to.weights)))}};
}
NamedErrors errors_of(const MoeMatmul& op, const Arithmetic& a) {
  Errors errors(at(element_count(op.out)));
  const std::int64_t top_k = op.out.dim(1);
  std::int64_t expert = 0;
  for (const auto& pairs : listed_pairs(op)) {
    for (const std::int64_t pair : pairs) {
      const bool per_token = op.x.dim(1) == 1;
      const ProductRow row{.x = load_row(op.x, {pair / top_k, per_token ? 0 : pair % top_k}),
                           .index = per_token ? pair / top_k : pair};
      for (std::int64_t n = 0; n < covered_columns(op); ++n) {
        errors[at(pair * op.out.dim(2) + n)] =
            dot_error(row, weight_row(select_outer(op.w, expert), n, op.phase, a), a)
                .plus(storage_error(op.out.dtype, magnitude(load(op.out, {pair / top_k, pair % top_k, n}))));
      }
    }
    ++expert;
  }
  return {{"out", errors}};
}
NamedErrors errors_of(const MoeGateUp& op, const Arithmetic& a) {
  return {{"out", gate_up_errors(op, a)}};
}
NamedErrors errors_of(const MoeDown& op, const Arithmetic& a) {
  return {{"out", down_errors(op, {}, a)}};
}
NamedErrors errors_of(const MoeSharedExpert& op, const Arithmetic& a) {
  return {{"out", shared_errors(op, a)}};
}
NamedErrors errors_of(const SiluMul& op, const Arithmetic& a) {
  return {{"out", relative_errors(op.out, 16 * a.unit)}};
}
NamedErrors errors_of(const MoeCombine& op, const Arithmetic& a) {
  Errors errors = combine_errors(op.from, op.out.dim(0), op.out.dim(1), {}, a);
  const Errors stored = relative_errors(op.out, 0);
  for (std::size_t i = 0; i < errors.size(); ++i) errors[i] = errors[i].plus(stored[i].bound);
  return {{"out", errors}};
}
NamedErrors errors_of(const MoeCombineResidual& op, const Arithmetic& a) {
  const Errors sum = combine_errors(op.from, op.residual.dim(0), op.residual.dim(1), {}, a);
  return {{"residual", stored_residual_errors(op.residual, op.from.live, sum, a)}};
}

RmsNorm next_norm(const Tensor& residual, const Tensor& live, const NextNorm& next) {
  return {.x = residual, .weight = next.weight, .live = live, .eps = next.eps, .out = next.out};
}

NamedErrors errors_of(const MoeCombineResidualNorm& op, const Arithmetic& a) {
  NamedErrors all = errors_of(MoeCombineResidual{.from = op.from, .residual = op.residual}, a);
  all["normed"] = norm_errors(next_norm(op.residual, op.from.live, op.next), all["residual"], a);
  return all;
}
NamedErrors errors_of(const MoeFfn& op, const Arithmetic& a) {
  const MoeFfnSequence ops = sequence_of(op);
  const CombineErrors input{.rows = down_errors(ops.down, gate_up_errors(ops.gate_up, a), a),
                            .weights = route_errors(ops.route, a),
                            .shared = ops.shared ? shared_errors(*ops.shared, a) : Errors{}};
  const CombineInput& from =
      std::visit([](const auto& combine) -> const CombineInput& { return combine.from; }, ops.combine);
  const Errors sum = combine_errors(from, op.residual.dim(0), op.residual.dim(1), input, a);
  NamedErrors all;
  all["weights"] = input.weights;
  all["residual"] = stored_residual_errors(op.residual, op.live, sum, a);
  if (op.next.weight.defined()) {
    all["normed"] = norm_errors(next_norm(op.residual, op.live, op.next), all["residual"], a);
  }
  return all;
}
NamedErrors errors_of(const Embed& op, const Arithmetic&) {
  return {{"out", relative_errors(op.out, 0)}};
}
NamedErrors errors_of(const RmsNorm& op, const Arithmetic& a) {
  return {{"out", norm_errors(op, {}, a)}};
}
NamedErrors errors_of(const Matmul& op, const Arithmetic& a) {
  Errors errors(at(element_count(op.out)));
  if (op.order == Order::canonical) return {{"out", errors}};  // one order, one result: the bits are equal
  for (std::int64_t m = 0; m < live_rows(op.live, op.x.dim(0)); ++m) {
    const ProductRow row{.x = load_row(op.x, {m}), .index = m};
    for (std::int64_t n = 0; n < op.w.dim(0); ++n) {
      const double y = magnitude(load(op.out, {m, n}));
      const double b = op.bias.defined() ? magnitude(load(op.bias, {n})) : 0;
      errors[at(m * op.w.dim(0) + n)] =
          dot_error(row, weight_row(op.w, n, op.phase, a), a).plus((y + b) * a.unit + storage_error(op.out.dtype, y));
    }
  }
  return {{"out", errors}};
}
NamedErrors errors_of(const Rope& op, const Arithmetic& a) {
  // A rotation keeps the length of a pair; the angle is a rounded product, its sine and cosine are rounded functions.
  const std::vector<double> frequencies = rope_frequencies(op);
  const std::int64_t half = op.n_rot / 2;
  Errors errors(at(element_count(op.out)));
  for (std::int64_t t = 0; t < live_rows(op.live, op.x.dim(0)); ++t) {
    const double position = std::fabs(static_cast<double>(load_i32(op.positions, {t})));
    for (std::int64_t h = 0; h < op.x.dim(1); ++h) {
      const std::vector<float> out = load_row(op.out, {t, h});
      Deviation* row = &errors[at((t * op.x.dim(1) + h) * op.x.dim(2))];
      for (std::int64_t d = 0; d < op.x.dim(2); ++d) row[d].bound = storage_error(op.out.dtype, magnitude(out[at(d)]));
      for (std::int64_t i = 0; i < half; ++i) {
        const std::int64_t first = op.style == RopeStyle::neox ? i : 2 * i;
        const std::int64_t second = op.style == RopeStyle::neox ? i + half : 2 * i + 1;
        const double length = std::hypot(magnitude(out[at(first)]), magnitude(out[at(second)]));
        const double error = length * (8 + 8 * position * frequencies[at(i)]) * a.unit;
        row[first].bound += error;
        row[second].bound += error;
      }
    }
  }
  return {{"out", errors}};
}
NamedErrors errors_of(const KvWrite& op, const Arithmetic&) {
  return {{"k_pool", Errors(at(element_count(op.kv.k)))}, {"v_pool", Errors(at(element_count(op.kv.v)))}};
}

// The variance of each column of `values` [n][d] under softmax(scores).
std::vector<double> weighted_variance(const std::vector<double>& scores, const Rows& values, std::size_t d) {
  const double largest = scores.empty() ? 0 : *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  std::vector<double> mean(d, 0.0);
  std::vector<double> variance(d, 0.0);
  for (std::size_t j = 0; j < scores.size(); ++j) {
    // Weights are added one by one, as Welford does: no difference of large sums.
    const double weight = std::exp(scores[j] - largest);
    sum += weight;
    for (std::size_t i = 0; i < d; ++i) {
      const double distance = static_cast<double>(values[j][i]) - mean[i];
      mean[i] += distance * weight / sum;
      variance[i] += weight * distance * (static_cast<double>(values[j][i]) - mean[i]);
    }
  }
  for (double& v : variance) v /= std::max(sum, 1.0);
  return variance;
}

NamedErrors errors_of(const Attention& op, const Arithmetic& a) {
  const std::int64_t n_heads = op.q.dim(1);
  const bool halves = op.kv.k.dtype == DType::f16 && op.kv.v.dtype == DType::f16;
  const double query = op.phase == Phase::prefill ? std::max(a.query, a.prefill_query) : a.query;
  Errors errors(at(element_count(op.out)));
  for (std::int64_t t = 0; t < live_rows(op.live, op.q.dim(0)); ++t) {
    const std::int64_t seq = load_i32(op.seqs, {t});
    const std::int64_t end = visible_end(op, t);
    for (std::int64_t h = 0; h < n_heads; ++h) {
      const ProductRow q{.x = load_row(op.q, {t, h}), .index = t * n_heads + h};
      const std::int64_t kv_head = h / (n_heads / op.kv.n_kv_heads());
      double score_error = 0;
      double score_variance = 0;
      std::vector<double> scores;
      Rows values;
      std::vector<double> largest(at(op.out.dim(2)), 0.0);
      for (std::int64_t p = 0; p < end; ++p) {
        const KvPlace place = kv_place(op.kv, seq, p);
        if (place.page < 0) continue;
        const std::vector<float> k = load_row(op.kv.k, {place.page, place.slot, kv_head});
        const std::vector<float> v = load_row(op.kv.v, {place.page, place.slot, kv_head});
        const auto scale = static_cast<double>(op.scale);
        const Deviation score =
            dot_error(q, {.type = DType::f32, .w = k}, a);  // a cache of blocks is decoded: plain weights
        double rounded = 0;                                 // from the rounding of q
        for (std::size_t d = 0; d < k.size() && halves; ++d) rounded += query * magnitude(q.x[d]) * magnitude(k[d]);
        score_error = std::max(score_error, scale * 2 * (score.bound + rounded));
        score_variance = std::max(score_variance, square(scale) * score.noise.variance);
        scores.push_back(scale * dot(q.x, k));
        values.push_back(v);
        for (std::size_t d = 0; d < v.size(); ++d) largest[d] = std::max(largest[d], magnitude(v[d]));
      }
      // Every weight moves by at most exp(2 score_error) - 1, relatively; the output is their mean of values.
      double relative =
          std::expm1(2 * score_error) + (2 * static_cast<double>(std::max<std::int64_t>(end, 0)) + 32) * a.unit;
      // A rounded weight is off by that much of itself, or by 2^-25 where it is small beside the largest, 1, of its 64.
      // The sum is that of the rounded ones, so the output moves by the mean of that times |v - out|, and the mean
      // distance from a mean is no more than the largest |v|. In the prefill phase the sum is that of the others, so
      // the output moves by the mean of that times |v|; and the largest, 2^7 there, is that of a range, for which the
      // steps of the sum above make up.
      if (halves) relative += a.softmax_weight * (1 + 64 * 0x1p-14);
      // out = sum p v moves by sum p (v - out) dscore: by Cauchy, its variance is at most that of the scores times that
      // of the values.
      std::vector<double> variance(largest.size(), 0.0);
      if (score_variance > 0) variance = weighted_variance(scores, values, variance.size());
      for (std::int64_t d = 0; d < op.out.dim(2); ++d) {
        errors[at((t * n_heads + h) * op.out.dim(2) + d)] = {
            relative * largest[at(d)] + storage_error(op.out.dtype, magnitude(load(op.out, {t, h, d}))),
            {score_variance * variance[at(d)], q.index}};
      }
    }
  }
  return {{"out", errors}};
}
NamedErrors errors_of(const Add& op, const Arithmetic& a) {
  return {{"out", relative_errors(op.out, a.unit)}};
}
NamedErrors errors_of(const Softmax& op, const Arithmetic& a) {
  return {{"out", relative_errors(op.out, (static_cast<double>(op.x.dim(1)) + 32 + 4 * 128) * a.unit)}};
}
NamedErrors errors_of(const TopK& op, const Arithmetic&) {
  return {{"values", Errors(at(element_count(op.values)))}};
}
template <class IntegersOnly>
NamedErrors errors_of(const IntegersOnly&, const Arithmetic&) {
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

Tolerances tolerances_of(const Op& op, const Arithmetic& arithmetic) {
  Tolerances tolerances;
  for (const auto& [name, errors] : std::visit([&](const auto& o) { return errors_of(o, arithmetic); }, op)) {
    Tolerance& tolerance = tolerances[name];
    for (const Deviation& error : errors) {
      tolerance.bound.push_back(error.bound);
      tolerance.noise.push_back(error.noise);
    }
  }
  return tolerances;
}

Bounds bounds_of(const Op& op, const Arithmetic& arithmetic) {
  Bounds bounds;
  for (auto& [name, tolerance] : tolerances_of(op, arithmetic)) bounds[name] = std::move(tolerance.bound);
  return bounds;
}

}  // namespace conclave::test
