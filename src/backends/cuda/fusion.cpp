#include "backends/cuda/fusion.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <optional>

#include "backends/cuda/attention_bank.h"
#include "backends/cuda/cuda_buffer.h"
#include "backends/cuda/dense_rows.h"
#include "backends/cuda/fused_heads.h"
#include "backends/cuda/half_rows.h"
#include "backends/cuda/launch_op.h"
#include "backends/cuda/lone_row.h"
#include "backends/cuda/moe_ffn.h"
#include "backends/cuda/moe_pairs.h"
#include "backends/cuda/moe_route.h"
#include "backends/cuda/normed_router.h"
#include "backends/cuda/one_row.h"
#include "backends/cuda/prefill.h"

namespace conclave::cuda {
namespace {

using Ops = std::span<const Op>;
using Found = std::optional<FusedOps>;

// Products of the same rows side by side: one row at a time, alone or three of them, or all rows together. Those with
// weights of 16 bits take rows as they are: nobody has to leave them in another form.
enum class Kernel { one_row, half, dense, prefill };
static_assert(kHalfMatrices == kSideBySide);
struct Products {
  std::array<const Matmul*, kSideBySide> of{};
  std::size_t count = 0;
  Kernel by = Kernel::one_row;

  const Tensor& x() const { return of[0]->x; }
  BankForm form() const { return by == Kernel::prefill ? prefill_form(of[0]->w.dtype) : BankForm::int8; }
};
std::optional<Kernel> kernel_of(const Matmul& op, const Target& target) {
  if (takes_prefill(op, target)) return Kernel::prefill;
  const bool dense = takes_dense(op, target);
  if (one_row_of(op) && (op.x.dim(0) == 1 || !dense)) return Kernel::one_row;  // two rows are better off together
  if (goes_beside_halves(op)) return Kernel::half;
  return dense ? std::optional(Kernel::dense) : std::nullopt;
}
std::optional<Products> products(Ops ops, std::size_t first, const Target& target) {
  Products found;
  for (std::size_t i = 0; i < kSideBySide; ++i) {
    const auto* op = op_at<Matmul>(ops, first + i);
    if (op == nullptr || overlap(op->out, op->x)) break;
    const auto kernel = kernel_of(*op, target);
    if (!kernel) break;
    if (i == 0) found.by = *kernel;
    const auto beside = [&](const Matmul& other) {
      return op->x == other.x && op->live == other.live &&
             !overlap_any(op->out, {&other.out, &other.w, &other.bias, &other.live}) &&
             !overlap_any(other.out, {&op->w, &op->bias});
    };
    bool fits = found.by == *kernel;
    if (fits && i > 0 && found.by == Kernel::one_row) {
      fits = goes_side_by_side(*one_row_of(*op)) && goes_side_by_side(*one_row_of(*found.of[0]));
    }
    if (i > 0 && found.by == Kernel::half) fits = fits && op->w.dtype == found.of[0]->w.dtype;
    if (i > 0 && found.by == Kernel::prefill) fits = fits && prefill_form(op->w.dtype) == found.form();
    for (std::size_t j = 0; j < i; ++j) fits = fits && beside(*found.of[j]);
    if (!fits) break;
    found.of[i] = op;
    found.count = i + 1;
  }
  if (found.count == 0) return std::nullopt;
  if (found.count < kSideBySide && (found.by == Kernel::one_row || found.by == Kernel::half)) found.count = 1;
  return found;
}

// `sum`: what comes next and the kernel adds up, or null. `experts`: those that come next, or null.
FusedOps make_products(const Products& found, std::size_t first, const Target& target, const BankOut& bank,
                       const Add* sum = nullptr, const MoeFfn* experts = nullptr) {
  const auto ops = std::span(found.of).first(found.count);
  if (found.by == Kernel::prefill) return {first, found.count, make_prefill(ops, target, bank)};
  if (found.by == Kernel::half) return {first, found.count, make_half_matrices(ops)};
  if (found.by == Kernel::dense) {
    return {first, found.count + (sum != nullptr ? 1U : 0U), make_dense(ops, target, bank, sum, experts)};
  }
  OneRowsArgs args;
  for (std::size_t i = 0; i < found.count; ++i) {
    args.of[i] = *one_row_of(*found.of[i]);
    args.of[i].q = bank.q;
    args.of[i].scale = bank.scale;
  }
  const std::string what = "matmul of " + shape_text(found.x().shape());
  if (found.count == 1) return {first, 1, launch_op(launch_one_row, args.of[0], what)};
  return {first, kSideBySide, launch_op(launch_one_rows, args, what)};
}

// Tokens routed, and what they chose sorted by expert.
Found routed_groups(Ops ops, std::size_t first, const Target& target) {
  const auto* route = op_at<MoeRoute>(ops, first);
  const auto* group = op_at<MoeGroup>(ops, first + 1);
  if (route == nullptr || group == nullptr) return std::nullopt;
  for (const Tensor* written : {&group->out.offsets, &group->out.row_pair, &group->out.pair_row}) {
    if (overlap_any(*written, {&route->logits, &route->bias, &route->expert_scale, &route->live, &route->out.experts,
                               &route->out.weights, &route->out.no_finite, &route->out.counts})) {
      return std::nullopt;
    }
  }
  auto both = make_route_group(*route, *group, target, nullptr);
  if (both == nullptr) return std::nullopt;
  return FusedOps{first, 2, std::move(both)};
}

// A norm of whole rows, of a sum before it where there is one, that leaves `out` as f32.
Found norm(Ops ops, std::size_t first, const BankOut& bank) {
  const auto* add = op_at<Add>(ops, first);
  const auto* norm = op_at<RmsNorm>(ops, add != nullptr ? first + 1 : first);
  if (norm == nullptr || norm->x.rank != 2 || row_passes(norm->x.dim(1)) > kKeptPasses) return std::nullopt;
  if (overlap_any(norm->weight, {&norm->x, &norm->out}) || (norm->out != norm->x && overlap(norm->out, norm->x))) {
    return std::nullopt;
  }
  RmsNormArgs args{.x = view_of(norm->x),
                   .weight = view_of(norm->weight),
                   .out = view_of(norm->out),
                   .live = ints_of(norm->live),
                   .eps = norm->eps,
                   .bank = bank};
  if (add != nullptr) {
    if (add->out != add->a || norm->x != add->out || add->b.rank != 2 || norm->live != add->live ||
        overlap_any(add->b, {&norm->x, &norm->out})) {
      return std::nullopt;
    }
    args.add = view_of(add->b);
  }
  const bool vectors =
      takes_vectors(args.x) && takes_vectors(args.add) && takes_vectors(args.weight) && takes_vectors(args.out);
  if (bank.given() && !vectors) return std::nullopt;
  return FusedOps{first, add != nullptr ? 2U : 1U,
                  launch_op(launch_rms_norm, args, "rms_norm " + shape_text(norm->x.shape()))};
}

Found ffn(Ops ops, std::size_t first, const Target& target, const BankOut& bank, const BankOut& made) {
  const auto* op = op_at<MoeFfn>(ops, first);
  if (op == nullptr || !op->next.weight.defined() || row_passes(op->x.dim(1)) > kKeptPasses) return std::nullopt;
  const Tensor& shared = op->shared_out;
  for (const Tensor* t : {&op->expert_out, &op->residual, &op->next.weight, &op->next.out, &shared}) {
    if (t->defined() && !takes_vectors(view_of(*t))) return std::nullopt;
  }
  return FusedOps{first, 1, make_ffn(*op, target, bank, made)};
}

bool can_be_banked(const Tensor& t, BankForm form) {
  if (form == BankForm::plain_f16 || form == BankForm::plain_bf16) return false;
  const bool whole = t.rank == 2 && t.dtype == DType::f32 && t.dim(1) % kChunk == 0;
  return whole && (form == BankForm::bf16 || (t.dim(0) <= kBankedRows && t.dim(1) <= kBankedChunks * kChunk));
}

// Whether the op before writes queries, keys and values alone, of what attention reads.
bool follows_its_heads(Ops ops, std::size_t i, const Attention& op) {
  const auto* write = i > 0 ? op_at<KvWrite>(ops, i - 1) : nullptr;
  if (write == nullptr) return false;
  const auto apart = [&](const Tensor& input) {
    return !overlap_any(input, {&op.q, &write->k, &write->kv.k, &write->kv.v});
  };
  return apart(op.kv.pages) && apart(op.lengths) && apart(op.seqs) && apart(op.positions) && apart(op.live);
}

// Whether products are of the rows that attention writes, all heads of a token together.
bool are_rows_of(const Attention& op, const Products& after) {
  const Tensor& x = after.x();
  const Tensor& out = op.out;
  return x.buffer == out.buffer && x.byte_offset == out.byte_offset && x.dtype == out.dtype && x.rank == 2 &&
         x.dim(0) == out.dim(0) && x.dim(1) == out.dim(1) * out.dim(2) && x.stride(0) == out.stride(0) &&
         out.stride(1) == out.dim(2) * 4 && takes_vectors(view_of(x)) && after.of[0]->live == op.live;
}

// Where experts two ops on want the rows that are normed: in which form. Between them the router has its product.
std::optional<BankForm> feeds_experts(Ops ops, std::size_t last, const Normed& rows, const Target& target) {
  const auto* router = op_at<Matmul>(ops, last + 1);
  const auto* experts = op_at<MoeFfn>(ops, last + 2);
  if (router == nullptr || experts == nullptr || overlap(router->out, *rows.out) || experts->x != *rows.out ||
      experts->live != *rows.live || goes_by_pairs(*experts, target)) {
    return std::nullopt;
  }
  const MoeGateUp gate_up = sequence_of(*experts).gate_up;
  const BankForm form = takes_prefill(gate_up, target) ? prefill_form(gate_up.gate.dtype) : BankForm::int8;
  return can_be_banked(*rows.out, form) ? std::optional(form) : std::nullopt;
}

// Where the norm at `i` and the router after it go by one launch.
std::optional<NormedRouterArgs> normed_router_at(Ops ops, std::size_t i, const Target& target) {
  const auto* norm = op_at<RmsNorm>(ops, i);
  const auto* router = op_at<Matmul>(ops, i + 1);
  return norm != nullptr && router != nullptr ? normed_router_of(*norm, *router, target) : std::nullopt;
}

// The sum after a product where the kernel of the product adds it up, and such a router comes next.
const Add* added_for_router(Ops ops, std::size_t product, const Products& of, const Target& target) {
  const auto* sum = op_at<Add>(ops, product + 1);
  const bool adds = sum != nullptr && of.by == Kernel::dense && of.count == 1 && adds_dense(*of.of[0], *sum, target) &&
                    normed_router_at(ops, product + 2, target);
  return adds ? sum : nullptr;
}

// The experts after a product: between them are a sum, a norm and a router.
const MoeFfn* experts_after(Ops ops, std::size_t product) {
  const MoeFfn* experts = nullptr;
  for (std::size_t i = product + 1; experts == nullptr && i <= product + 4; ++i) experts = op_at<MoeFfn>(ops, i);
  return experts;
}

// The bank as rows of t in that form.
BankOut bank_of(std::byte* bytes, BankForm form, const Tensor& t) {
  if (form == BankForm::bf16) {
    return {.bf16 = reinterpret_cast<std::uint16_t*>(bytes), .bf16_stride = prefill_bank_stride(t.dim(1))};
  }
  constexpr std::int64_t kPlaces = kBankedRows * kBankedChunks;
  return {.q = reinterpret_cast<std::int8_t*>(bytes),
          .scale = reinterpret_cast<float*>(bytes + kPlaces * kChunk),
          .sums = reinterpret_cast<std::uint16_t*>(bytes + kPlaces * (kChunk + 4))};
}

}  // namespace

Normed normed(const Op& op) {
  if (const auto* norm = std::get_if<RmsNorm>(&op)) return {&norm->out, &norm->live};
  if (const auto* ffn = std::get_if<MoeFfn>(&op)) return {&ffn->next.out, &ffn->live};
  return {};
}

std::int64_t hand_over_bytes(Ops ops, const Target& target) {
  std::int64_t bytes = kBankBytes;
  if (prefill_multiprocessors(target) == 0) return bytes;
  for (const Op& op : ops) {
    const auto* attention = std::get_if<Attention>(&op);
    const Tensor* rows = attention != nullptr ? &attention->out : normed(op).out;
    if (rows == nullptr) continue;
    std::int64_t width = 1;
    for (int i = 1; i < rows->rank; ++i) width *= rows->dim(i);
    bytes = std::max(bytes, prefill_bank_bytes(ceil_div(rows->dim(0), kBankRows) * kBankRows, width));
  }
  return bytes;
}

std::vector<FusedOps> fuse(Ops ops, const Target& target, std::byte* bytes) {
  std::vector<FusedOps> fused;
  std::size_t fed = ops.size();  // experts whose rows are in the bank
  BankOut fed_rows;
  for (std::size_t i = 0; i < ops.size();) {
    if (std::vector<FusedOps> lone = fuse_lone(ops, i, target); !lone.empty()) {
      for (FusedOps& one : lone) {
        i += one.count;
        fused.push_back(std::move(one));
      }
      continue;
    }
    // A norm, and the products of what it gives.
    const std::size_t last = std::holds_alternative<Add>(ops[i]) ? i + 1 : i;
    const Normed rows = last < ops.size() ? normed(ops[last]) : Normed{};
    const auto after = rows.out != nullptr ? products(ops, last + 1, target) : std::nullopt;
    if (after && after->by != Kernel::half && can_be_banked(*rows.out, after->form()) && after->x() == *rows.out &&
        std::get<Matmul>(ops[last + 1]).live == *rows.live) {
      const BankOut bank = bank_of(bytes, after->form(), *rows.out);
      Found before = norm(ops, i, bank);
      if (!before) before = ffn(ops, i, target, bank, i == fed ? fed_rows : BankOut{});
      if (before) {
        fused.push_back(std::move(*before));
        fused.push_back(make_products(*after, last + 1, target, bank));
        i = last + 1 + after->count;
        continue;
      }
    }
    // Attention, and the product of its rows.
    if (const auto* attention = op_at<Attention>(ops, i)) {
      const bool early = follows_its_heads(ops, i, *attention);
      const auto then = products(ops, i + 1, target);
      if (then && (then->by == Kernel::dense || then->by == Kernel::prefill) &&
          can_be_banked(then->x(), then->form()) && are_rows_of(*attention, *then)) {
        const BankOut bank = bank_of(bytes, then->form(), then->x());
        if (auto op = make_attention(*attention, target, early, bank)) {
          fused.push_back({i, 1, std::move(op)});
          fused.push_back(make_products(*then, i + 1, target, bank, added_for_router(ops, i + 1, *then, target),
                                        experts_after(ops, i + 1)));
          i += 1 + fused.back().count;
          continue;
        }
      }
      if (auto op = early ? make_attention(*attention, target, true, {}) : nullptr) {
        fused.push_back({i, 1, std::move(op)});
        ++i;
        continue;
      }
    }
    Found found = fuse_heads(ops, i, target);
    if (!found) found = routed_groups(ops, i, target);
    if (const auto router = !found ? normed_router_at(ops, i, target) : std::nullopt) {
      NormedRouterArgs args = *router;
      if (const auto form = feeds_experts(ops, last, rows, target)) {
        fed = last + 2;
        fed_rows = args.bank = bank_of(bytes, *form, *rows.out);
      }
      found = FusedOps{i, 2, launch_op(launch_normed_router, args, "router of " + shape_text(rows.out->shape()))};
    }
    if (const auto form = !found && rows.out != nullptr ? feeds_experts(ops, last, rows, target) : std::nullopt) {
      const BankOut bank = bank_of(bytes, *form, *rows.out);
      found = norm(ops, i, bank);
      if (found) {
        fed = last + 2;
        fed_rows = bank;
      }
    }
    if (!found && i == fed) found = FusedOps{i, 1, make_ffn(*op_at<MoeFfn>(ops, i), target, {}, fed_rows)};
    if (!found && std::holds_alternative<Add>(ops[i])) found = norm(ops, i, {});
    if (!found) {
      if (const auto some = products(ops, i, target); some && some->count > 1) {
        found = make_products(*some, i, target, {});
      }
    }
    i += found ? found->count : 1;
    if (found) fused.push_back(std::move(*found));
  }
  return fused;
}

}  // namespace conclave::cuda
