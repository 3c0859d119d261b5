#include <cmath>

#include "backends/cuda/attention_prefill_copy.cuh"
#include "backends/cuda/attention_prefill_ranges.cuh"
#include "backends/cuda/launch.cuh"

namespace conclave::cuda {
namespace {

#if CONCLAVE_HOPPER

// The kernel starts with 168 for every thread.
constexpr int copying_registers_for(int d) {
  return d == 128 ? 40 : 56;
}
constexpr int attending_registers(int d) {
  return d == 128 ? 232 : 224;
}
static_assert(copying_registers_for(128) + kPrefillGroups * attending_registers(128) <= 3 * 168);
static_assert(copying_registers_for(64) + kPrefillGroups * attending_registers(64) <= 3 * 168);

// Barriers by number: of each warpgroup, and of each one's turn.
constexpr int kGroupBarrier = 1;
constexpr int kTurnBarrier = kGroupBarrier + kPrefillGroups;

// One warpgroup's share of a run.
template <int d>
class Attending {
 public:
  using Stage = StageCount<prefill_stages(d)>;

  __device__ __forceinline__ Attending(const AttentionArgs& args, const KeptRanges& kept, const PrefillRun& run,
                                       int group, PrefillShared<d>& shared, float2 by)
      : args_(args), kept_(kept), run_(run), shared_(shared), group_(group), state_(by) {}

  // Where both warpgroups have rows they take turns at the matrix instruction.
  __device__ __forceinline__ void attend(Stage& stage) {
    const bool both = run_.rows.n > kPrefillGroupRows;
    const int n_units = run_.n_units();
    int unit = run_.first_unit();
    if (n_units > 0) {
      float s[64];
      await_keys(stage);
      wgmma_fence();
      multiply_keys(stage, s);
      wgmma_commit();
      wgmma_wait<0>();
      hold_sums(s);
      hide(stage, s, unit);
      release(shared_.no_keys, stage);
      weigh(s, state_);
      pack(s);
      // While weights of one unit are multiplied with values, those of the next are made.
#pragma unroll 1
      for (int next = run_.unit_after(unit); next < n_units; next = run_.unit_after(unit)) {
        restore(stage, unit);
        const Stage next_stage{stage.n + 1};
        await_keys(next_stage);
        if (both) wait_for_turn(kTurnBarrier + group_);
        wgmma_fence();
        multiply_keys(next_stage, s);
        wgmma_commit();
        await_values(stage);
        wgmma_fence();
        multiply_values(stage);
        wgmma_commit();
        if (both) give_turn(kTurnBarrier + (group_ ^ 1));
        wgmma_wait<1>();
        hold_sums(s);
        const bool ends = next % kPrefillRangeUnits == 0;
        if (ends) close(unit);
        hide(next_stage, s, next);
        release(shared_.no_keys, next_stage);
        const float2 by = weigh(s, state_);
        // Only then are the values waited for: branches keep the compiler from waiting earlier. All warps wait in the same
        // place; whether there is something to shrink is each one's own matter.
        hold_sums(s);
        if (ends) {
          wgmma_wait<0>();
          hold_sums(acc_);
          put(unit);
        } else {
          wgmma_wait<0>();
          hold_sums(acc_);
          if (__all_sync(kAllLanes, by.x == 1 && by.y == 1) == 0) shrink(by);
        }
        release(shared_.no_values, stage);
        pack(s);
        stage = next_stage;
        unit = next;
      }
      restore(stage, unit);
      await_values(stage);
      wgmma_fence();
      multiply_values(stage);
      wgmma_commit();
      wgmma_wait<0>();
      hold_sums(acc_);
      release(shared_.no_values, stage);
      ++stage.n;
    }
    finish(unit);
  }

 private:
  static constexpr int kHalf = kPrefillUnit * 128;  // bytes to the second 64 numbers of a unit's rows

  __device__ static int lane() {
    return static_cast<int>(threadIdx.x) % kWarp;
  }
  __device__ __forceinline__ int row(int r) const {
    return group_ * kPrefillGroupRows + static_cast<int>(threadIdx.x) % kPrefillGroup / kWarp * 16 + lane() / 4 + 8 * r;
  }
  __device__ __forceinline__ void await_keys(Stage stage) const {
    barrier_wait(&shared_.has_keys[stage.place()], stage.parity());
    shared_for_wgmma();
  }
  __device__ __forceinline__ void await_values(Stage stage) const {
    barrier_wait(&shared_.has_values[stage.place()], stage.parity());
    shared_for_wgmma();
  }
  __device__ __forceinline__ void release(std::uint64_t* barriers, Stage stage) const {
    __syncwarp();
    if (lane() == 0) barrier_arrive(&barriers[stage.place()]);
  }
  __device__ __forceinline__ void multiply_keys(Stage stage, float (&s)[64]) const {
    const std::uint64_t q = rows_descriptor(shared_address(shared_.queries[group_]));
    const std::uint64_t k = rows_descriptor(shared_address(shared_.keys[stage.place()]));
    wgmma_scores<false>(s, q, k);
#pragma unroll
    for (int step = 1; step < d / 16; ++step) {
      const int on = step % 4 * 32;
      wgmma_scores<true>(s, descriptor_at(q, step / 4 * (kPrefillGroupRows * 128) + on),
                         descriptor_at(k, step / 4 * kHalf + on));
    }
  }
  __device__ __forceinline__ void multiply_values(Stage stage) {
    const std::uint64_t v = values_descriptor(shared_address(shared_.values[stage.place()]), kHalf);
#pragma unroll
    for (int step = 0; step < kPrefillUnit / 16; ++step) {
      add_wgmma_values(acc_, p_[step], descriptor_at(v, step * 16 * 128));
    }
  }
  // What the copying warps say of a place: read by the lane that gives the place back, and told to the others.
  __device__ __forceinline__ static uint4 told(const uint4& of_place) {
    uint4 words = {};
    if (lane() == 0) words = of_place;
    return {__shfl_sync(kAllLanes, words.x, 0), __shfl_sync(kAllLanes, words.y, 0), __shfl_sync(kAllLanes, words.z, 0),
            __shfl_sync(kAllLanes, words.w, 0)};
  }
  __device__ __forceinline__ void hide(Stage stage, float (&s)[64], int unit) {
    const uint4 there = told(shared_.there[stage.place()]);
    if (run_.all_see(unit) && (there.x & there.y & there.z & there.w) == 0xFFFFFFFFU) {
      state_.seen = 3;
    } else {
      hide_unseen(s, state_, shared_.ends + row(0), static_cast<unsigned>(unit) * kPrefillUnit, there);
    }
  }
  __device__ __forceinline__ void pack(const float (&s)[64]) {
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      const __half2 pair = __floats2half2_rn(s[2 * i], s[2 * i + 1]);
      p_[i / 4][i % 4] = *reinterpret_cast<const unsigned*>(&pair);
    }
  }
  __device__ __forceinline__ void shrink(float2 by) {
#pragma unroll
    for (int i = 0; i < d / 2; ++i) acc_[i] = acc_[i] * (i % 4 < 2 ? by.x : by.y);
  }
  // Adds what was replaced among a unit's values, for the rows that see it.
  __device__ __forceinline__ void restore(Stage stage, int unit) {
    if (run_.all_see(unit)) return;
    barrier_wait(&shared_.has_values[stage.place()], stage.parity());
    const uint4 changed = told(shared_.changed[stage.place()]);
    if ((changed.x | changed.y | changed.z | changed.w) == 0) return;
    const unsigned begin = static_cast<unsigned>(unit) * kPrefillUnit;
    const unsigned end = min(run_.most - begin, unsigned{kPrefillUnit});
#pragma unroll 1
    for (unsigned j = run_.least > begin ? run_.least - begin : 0; j < end; ++j) {
      const RowPlace at = locate(args_, run_.rows.seq, run_.rows.kv_head, begin + j, run_.most);
      if (at.k < 0) continue;
      float p[2];
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        unsigned word = 0;
#pragma unroll
        for (unsigned n = 0; n < 16; ++n) word |= p_[n / 2][n % 2 * 2 + r] & (n == j / 8 ? 0xFFFFFFFFU : 0U);
        word = __shfl_sync(kAllLanes, word, (lane() & ~3) + static_cast<int>(j % 8 / 2));
        p[r] = half_at(word, j % 2 != 0);
      }
#pragma unroll
      for (int n = 0; n < d / 8; ++n) {
        const unsigned pair = *reinterpret_cast<const unsigned*>(args_.v.data + at.v + (8 * n + lane() % 4 * 2) * 2);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float v = half_at(pair, i % 2 != 0);
          const bool counts = begin + j < shared_.ends[row(i / 2)] && !(fabsf(v) <= PrefillState::kMost);
          if (counts) acc_[4 * n + i] = fmaf(p[i / 2], v, acc_[4 * n + i]);
        }
      }
    }
  }
  __device__ static float half_at(unsigned pair, bool second) {
    return __half2float(__ushort_as_half(static_cast<unsigned short>(second ? pair >> 16 : pair)));
  }
  // Whether other blocks have ranges of these rows.
  __device__ __forceinline__ bool shares() const {
    return run_.workers > 1 && run_.n_ranges() > 1;
  }
  __device__ __forceinline__ float4* own_totals() const {
    return shared_.totals[group_] + static_cast<int>(threadIdx.x) % kPrefillGroup;
  }
  // A range ends with `unit`; its accumulators come later.
  __device__ __forceinline__ void close(int unit) {
    const RangeSums range = end_range(state_);
    if (shares()) {
      put_sums(args_, kept_, run_.rows, row(0), unit / kPrefillRangeUnits, range);
    } else {
      totals_.add(range, unit < kPrefillRangeUnits);
    }
  }
  __device__ __forceinline__ void put(int unit) {
    if (shares()) {
      put_acc<d>(args_, kept_, run_.rows, row(0), unit / kPrefillRangeUnits, acc_);
    } else {
      totals_.template add_to<d>(own_totals(), unit < kPrefillRangeUnits, acc_);
#pragma unroll
      for (int n = 0; n < d / 8; ++n) {
        own_totals()[n * kPrefillGroup] = {acc_[4 * n], acc_[4 * n + 1], acc_[4 * n + 2], acc_[4 * n + 3]};
      }
    }
#pragma unroll
    for (int i = 0; i < d / 2; ++i) acc_[i] = 0;
  }
  // The last range ends.
  __device__ __forceinline__ void finish(int unit) {
    close(unit);
    if (!shares()) {
      totals_.template add_to<d>(own_totals(), unit < kPrefillRangeUnits, acc_);
      store();
      return;
    }
    put_acc<d>(args_, kept_, run_.rows, row(0), unit / kPrefillRangeUnits, acc_);
    // Who comes last merges; the order in which they come decides nothing else.
    const int first = group_ * kPrefillGroupRows;
    std::int32_t* ticket = kept_.tickets + run_.rows.token(first) * args_.q.dims[1] + run_.rows.head(first);
    const bool tells = threadIdx.x % kPrefillGroup == 0;
    __threadfence();
    group_barrier(kGroupBarrier + group_);
    if (tells) shared_.last[group_] = atomicAdd(ticket, 1) + 1 == min(run_.workers, run_.n_ranges()) ? 1 : 0;
    group_barrier(kGroupBarrier + group_);
    if (__any_sync(kAllLanes, shared_.last[group_] != 0) == 0) return;  // warps stay together
    __threadfence();
    merge_put_ranges<d>(args_, kept_, run_.rows, first, min(run_.rows.n, first + kPrefillGroupRows), run_.n_ranges());
    if (tells) *ticket = 0;
  }
  __device__ __forceinline__ void store() const {
    const bool odd = lane() % 2 != 0;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float max = totals_.max(r);
      const float by = 1.0F / totals_.sum(r);
      const bool there = row(r) < run_.rows.n;
      const int of = there ? row(r) : 0;
      std::byte* out = row_of(args_.out, run_.rows.token(of), run_.rows.head(of));
      const bool pairs = args_.out.type == DType::f32 && reinterpret_cast<std::uintptr_t>(out) % 8 == 0;
      std::uint16_t* bank = nullptr;
      if (args_.bank.bf16 != nullptr) {
        bank = bank_row(args_.bank, run_.rows.token(of)) + bank_start(run_.rows.head(of) * d) +
               bank_place(4) * (lane() % 4 / 2) + (odd ? bank_place(1) : 0);
      }
#pragma unroll
      for (int n = 0; n < d / 8; ++n) {
        const float x = attended(acc_[4 * n + 2 * r], max, by);
        const float y = attended(acc_[4 * n + 2 * r + 1], max, by);
        const int at = 8 * n + lane() % 4 * 2;
        if (there && pairs) {
          reinterpret_cast<float2*>(out)[at / 2] = {x, y};
        } else if (there) {
          store_float(args_.out.type, out, at, x);
          store_float(args_.out.type, out, at + 1, y);
        }
        if (args_.bank.bf16 == nullptr) continue;
        // Of four elements, two lanes have two each: one makes a word of the first and the third, one of the others.
        const float other = __shfl_xor_sync(kAllLanes, odd ? x : y, 1);
        const unsigned word = odd ? bf16_pair(other, y) : bf16_pair(x, other);
        if (there) *reinterpret_cast<unsigned*>(bank + bank_place(8 * n)) = word;
      }
    }
  }

  const AttentionArgs& args_;
  const KeptRanges& kept_;
  const PrefillRun& run_;
  PrefillShared<d>& shared_;
  int group_;
  PrefillState state_;
  RangeTotals totals_;
  float acc_[d / 2] = {};
  unsigned p_[kPrefillUnit / 16][4];  // weights, as the left operand
};

// A warpgroup without rows: units go by.
template <int d>
__device__ __forceinline__ void pass_units(const PrefillRun& run, PrefillShared<d>& shared,
                                           StageCount<prefill_stages(d)>& count) {
  const bool tells = threadIdx.x % kWarp == 0;
#pragma unroll 1
  for (int unit = run.first_unit(); unit < run.n_units(); unit = run.unit_after(unit), ++count.n) {
    barrier_wait(&shared.has_keys[count.place()], count.parity());
    __syncwarp();
    if (tells) barrier_arrive(&shared.no_keys[count.place()]);
    barrier_wait(&shared.has_values[count.place()], count.parity());
    __syncwarp();
    if (tells) barrier_arrive(&shared.no_values[count.place()]);
  }
}

#endif

// Where it has no body, launch bounds tell (attention_prefill_built).
template <int d>
__global__ void __launch_bounds__(CONCLAVE_HOPPER ? kPrefillThreads : kWarp, 1)
    prefill_kernel(const __grid_constant__ AttentionArgs args, const __grid_constant__ AttentionCut cut,
                   const __grid_constant__ KeptRanges kept, PrefillScale scale) {
  begin_unless(args.early);
#if !CONCLAVE_HOPPER
  begin_if(args.early);
  static_cast<void>(scale);
#else
  extern __shared__ std::byte prefill_memory[];
  auto& shared =
      *reinterpret_cast<PrefillShared<d>*>(prefill_memory + (1024U - shared_address(prefill_memory) % 1024U) % 1024U);
  static_assert(sizeof(PrefillShared<d>) + 1024 == prefill_attention_shared(d));
  constexpr int kWarps = kPrefillGroup / kWarp;
  if (threadIdx.x == 0) {
    for (int i = 0; i < prefill_stages(d); ++i) {
      barrier_init(&shared.has_keys[i], kPrefillGroup + kWarps);
      barrier_init(&shared.no_keys[i], kPrefillGroups * kWarps);
      barrier_init(&shared.has_values[i], kPrefillGroup);
      barrier_init(&shared.no_values[i], kPrefillGroups * kWarps);
    }
  }
  __syncthreads();
  StageCount<prefill_stages(d)> count;
  if (threadIdx.x >= kPrefillGroups * kPrefillGroup) {
    fewer_registers<copying_registers_for(d)>();
    for_each_run(args, cut, kept.n_ranges > 0,
                 [&](const PrefillRun& run) { Copying<d>(args, run, shared).copy(count); });
    end_copies();
    await_copies<0>();
    begin_if(args.early);  // where there was no run
  } else {
    more_registers<attending_registers(d)>();
    const int group = __shfl_sync(kAllLanes, static_cast<int>(threadIdx.x) / kPrefillGroup, 0);
    if (group == 1) give_turn(kTurnBarrier);
    for_each_run(args, cut, kept.n_ranges > 0, [&](const PrefillRun& run) {
      const int first = group * kPrefillGroupRows;
      begin_if(args.early);
      if (run.rows.n <= first) {
        pass_units<d>(run, shared, count);
        return;
      }
      group_barrier(kGroupBarrier + group);  // nobody still reads what was there before
      const float2 by = put_queries<d>(args, scale, run.rows, first, shared.queries[group]);
      if (const int t = static_cast<int>(threadIdx.x) % kPrefillGroup; t < kPrefillGroupRows) {
        // A row that is none sees what the others see.
        const int row = first + t;
        shared.ends[row] = row < run.rows.n ? static_cast<unsigned>(visible_end(args, run.rows.token(row))) : run.most;
      }
      shared_for_wgmma();
      group_barrier(kGroupBarrier + group);
      Attending<d>(args, kept, run, group, shared, by).attend(count);
    });
    begin_if(args.early);
  }
#endif
}

}  // namespace

PrefillScale prefill_scale(float scale) {
  int exponent = 0;
  const float half = std::frexp(scale * 0x1.715476p+0F, &exponent);
  return {.factor = 2 * half, .power = std::ldexp(1.0F, exponent - 1)};
}

bool attention_prefill_built() {
  cudaFuncAttributes attributes{};
  return cudaFuncGetAttributes(&attributes, prefill_kernel<128>) == cudaSuccess &&
         attributes.maxThreadsPerBlock >= kPrefillThreads;
}

int launch_attention_prefill(const AttentionArgs& args, const PrefillPlan& plan, const KeptRanges& kept,
                             const Stream& stream) {
  const auto kernel = plan.d == 64 ? prefill_kernel<64> : prefill_kernel<128>;
  return launch(kernel, plan.launch, stream, args, plan.cut, kept, plan.scale);
}

}  // namespace conclave::cuda
