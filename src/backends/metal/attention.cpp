// What has to do with the cache: kv_write, attention.
#include "backends/metal/launch.h"

namespace conclave::metal {
namespace {

constexpr std::int64_t kTiledFrom = 16;  // tokens from which on attention goes by tiles: fewer leave the GPU idle

template <class Args>
void bind(Launch<Args>& launch, const Attention& op) {
  Args& args = launch.args;
  args.q = launch.in(Args::kQ, op.q);
  args.k_pool = launch.in(Args::kKPool, op.kv.k);
  args.v_pool = launch.in(Args::kVPool, op.kv.v);
  args.pages = launch.in(Args::kPages, op.kv.pages);
  args.lengths = launch.in(Args::kLengths, op.lengths);
  args.seqs = launch.in(Args::kSeqs, op.seqs);
  args.positions = launch.in(Args::kPositions, op.positions);
  args.live = launch.in(Args::kLive, op.live);
  args.out = launch.out(Args::kOut, op.out);
  args.scale = op.scale;
}

// Rows of a tile are the heads that share a KV head.
bool takes_tiles(const Attention& op, const Target& target) {
  const std::int64_t heads = op.q.dim(1) / op.kv.n_kv_heads();
  const bool wanted = target.products == Target::Products::by_rows ? op.q.dim(0) >= kTiledFrom
                                                                   : target.products == Target::Products::many_rows;
  return wanted && heads >= 1 && heads <= kAttentionRows && op.out.dim(2) <= kAttentionValues;
}

}  // namespace

MetalOp make_metal_op(const KvWrite& op, const Target&) {
  Launch<KvWriteArgs> launch("kv_write_tokens");
  KvWriteArgs& args = launch.args;
  args.k = launch.in(KvWriteArgs::kK, op.k);
  args.v = launch.in(KvWriteArgs::kV, op.v);
  args.seqs = launch.in(KvWriteArgs::kSeqs, op.seqs);
  args.positions = launch.in(KvWriteArgs::kPositions, op.positions);
  args.live = launch.in(KvWriteArgs::kLive, op.live);
  args.k_pool = launch.out(KvWriteArgs::kKPool, op.kv.k);
  args.v_pool = launch.out(KvWriteArgs::kVPool, op.kv.v);
  args.pages = launch.in(KvWriteArgs::kPages, op.kv.pages);
  return op_of(launch.over({groups_of(op.k.dim(0))}, row_threads(op.k.dim(1) * op.k.dim(2) / 2), kReduceBytes));
}

MetalOp make_metal_op(const Attention& op, const Target& target) {
  MetalOp made;
  if (element_count(op.out) == 0) return made;
  if (takes_tiles(op, target)) {
    Launch<AttentionArgs> launch("attention_tiles");
    launch.needs_all_threads();
    bind(launch, op);
    const std::int64_t tokens = kAttentionRows / (op.q.dim(1) / op.kv.n_kv_heads());
    launch.args.tile_tokens = static_cast<int>(tokens);
    made.steps.push_back(launch.over({groups_of(ceil_div(op.q.dim(0), tokens)), groups_of(op.kv.n_kv_heads())},
                                     kAttentionThreads, kAttentionSharedBytes));
    return made;
  }
  const std::int64_t d_k = op.q.dim(2);
  const std::int64_t d_v = op.out.dim(2);
  const auto shared_bytes = [&](std::int64_t simds) { return (d_k + simds * (d_v + 2)) * 4; };
  std::int64_t simds = 8;
  while (simds > 1 && shared_bytes(simds) > target.max_shared_bytes) simds /= 2;
  if (shared_bytes(simds) > target.max_shared_bytes) {
    fail(ErrorCode::unsupported, "heads of {} and {} elements do not fit into {} bytes of threadgroup memory", d_k, d_v,
         target.max_shared_bytes);
  }
  Launch<AttentionArgs> launch("attention_heads");
  bind(launch, op);
  made.steps.push_back(launch.over({groups_of(op.q.dim(0) * op.q.dim(1))},
                                   static_cast<std::uint32_t>(simds * kSimdWidth), shared_bytes(simds)));
  return made;
}

}  // namespace conclave::metal
