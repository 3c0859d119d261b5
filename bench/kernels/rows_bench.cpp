// What is done to rows of activations: rms_norm, add, silu_mul, softmax, argmax, top_k.
#include "bench/kernels/kinds.h"

namespace conclave::bench {
namespace {

constexpr std::int64_t kSampledElements = 1 << 20;

// A sample of whole rows: op_of(rows) is the op on those alone.
template <class OpOf>
BenchCase by_rows(CaseMaker& maker, std::int64_t n_rows, std::int64_t width, OpOf&& op_of) {
  const Op op = op_of(Window{.first = 0, .count = n_rows});
  const Window rows = window(n_rows, std::max<std::int64_t>(kSampledElements / width, 1), maker.rng);
  const double share = static_cast<double>(rows.count) / static_cast<double>(n_rows);
  return maker.finish(
      {.slots = {op}, .samples = {{.op = op_of(rows), .share = share}}, .work = {.bytes = moved_bytes(op)}});
}

}  // namespace

BenchCase rms_norm_case(CaseMaker& maker) {
  const std::int64_t d = maker.shape.d_model;
  const Tensor x = maker.values({maker.n_tokens, d});
  const Tensor weight = maker.values({d});
  const Tensor out = maker.blank(DType::f32, {maker.n_tokens, d});
  return by_rows(maker, maker.n_tokens, d, [&](const Window& rows) {
    return RmsNorm{.x = slice(x, 0, rows), .weight = weight, .out = slice(out, 0, rows)};
  });
}

BenchCase add_case(CaseMaker& maker) {
  const std::int64_t d = maker.shape.d_model;
  const Tensor a = maker.values({maker.n_tokens, d});
  const Tensor b = maker.values({maker.n_tokens, d});
  const Tensor out = maker.blank(DType::f32, {maker.n_tokens, d});
  return by_rows(maker, maker.n_tokens, d, [&](const Window& rows) {
    return Add{.a = slice(a, 0, rows), .b = slice(b, 0, rows), .out = slice(out, 0, rows)};
  });
}

BenchCase silu_mul_case(CaseMaker& maker) {
  const std::int64_t d = maker.shape.d_ff;
  const std::int64_t n_rows = maker.n_tokens * maker.shape.top_k;
  const Tensor gate = maker.values({n_rows, d});
  const Tensor up = maker.values({n_rows, d});
  const Tensor out = maker.blank(DType::f32, {n_rows, d});
  return by_rows(maker, n_rows, d, [&](const Window& rows) {
    return SiluMul{.gate = slice(gate, 0, rows), .up = slice(up, 0, rows), .out = slice(out, 0, rows)};
  });
}

BenchCase softmax_case(CaseMaker& maker) {
  const std::int64_t d = maker.shape.n_vocab;
  const Tensor x = maker.values({maker.n_tokens, d}, 3);
  const Tensor out = maker.blank(DType::f32, {maker.n_tokens, d});
  return by_rows(maker, maker.n_tokens, d,
                 [&](const Window& rows) { return Softmax{.x = slice(x, 0, rows), .out = slice(out, 0, rows)}; });
}

BenchCase argmax_case(CaseMaker& maker) {
  const std::int64_t d = maker.shape.n_vocab;
  const Tensor x = maker.values({maker.n_tokens, d}, 3);
  const Tensor ids = maker.blank(DType::i32, {maker.n_tokens});
  return by_rows(maker, maker.n_tokens, d,
                 [&](const Window& rows) { return Argmax{.x = slice(x, 0, rows), .ids = slice(ids, 0, rows)}; });
}

BenchCase top_k_case(CaseMaker& maker) {
  constexpr std::int64_t kPlaces = 64;
  const std::int64_t d = maker.shape.n_vocab;
  const Tensor x = maker.values({maker.n_tokens, d}, 3);
  const Tensor ids = maker.blank(DType::i32, {maker.n_tokens, kPlaces});
  const Tensor values = maker.blank(DType::f32, {maker.n_tokens, kPlaces});
  return by_rows(maker, maker.n_tokens, d, [&](const Window& rows) {
    return TopK{.x = slice(x, 0, rows), .ids = slice(ids, 0, rows), .values = slice(values, 0, rows)};
  });
}

}  // namespace conclave::bench
