// matmul: out[m, n] = sum over k of x[m, k] * w[n, k], plus bias[n].
//
// Order::canonical is for router products: with f32 x and out and plain float weights, the sum is 32 chains of fused
// multiply-adds over k mod 32, ascending, folded in halves (scoring.h), then the bias is added, all in f32. Equal
// inputs then give equal logits, hence equal experts, on every backend. Order::any leaves the order to the backend,
// within the derived bound. Rows past `live` are left alone.
#pragma once

#include "ops/members.h"
#include "ops/phase.h"

namespace conclave {

enum class Order { any, canonical };
constexpr std::string_view name(Order order) {
  return order == Order::any ? "any" : "canonical";
}

struct Matmul {
  static constexpr std::string_view kName = "matmul";
  static constexpr bool kInPlace = false;

  Tensor x;     // f32 | f16 | bf16 [m, k]
  Tensor w;     // any weight type [n, k]
  Tensor bias;  // f32 | f16 | bf16 [n], optional
  Tensor live;  // i32 [1], optional
  Order order = Order::any;
  Phase phase = Phase::decode;
  Tensor out;  // f32 | f16 | bf16 [m, n]

  template <class Self, class Visitor>
  static void members(Self& op, Visitor&& v) {
    using enum Role;
    v.tensor(in, "x", op.x);
    v.tensor(weight, "w", op.w);
    v.tensor(weight, "bias", op.bias);
    v.tensor(in, "live", op.live);
    v.param("order", name(op.order));
    v.param("phase", name(op.phase));
    v.tensor(Role::out, "out", op.out);
  }
};

void validate(const Matmul& op);
void reference(const Matmul& op);

}  // namespace conclave
