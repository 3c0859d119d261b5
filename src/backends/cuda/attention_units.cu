// `units` of attention_mma_plan.h: a block has one token and up to 16 heads, and a warp one unit of each range by
// itself. What the units come to lies in shared memory then, and all threads merge it, each for its own pieces of the
// rows.
#include "backends/cuda/attention_bank.cuh"
#include "backends/cuda/attention_few.cuh"
#include "backends/cuda/launch.cuh"

namespace conclave::cuda {
namespace {

static_assert(kUnitWarps == kRangeUnits);

// RowPlaces of a unit in words of 16 bytes; 0 for what is not there: any row will do.
struct SmallPlaces {
  unsigned k[kUnit];
  unsigned v[kUnit];
};

// A slot of a warp's ring has half of a unit's keys, all positions and half of d, or half of its values, positions and
// all of d. They come in this order: keys, keys, values, values, keys of the next range ... Where the last values were,
// the unit's result is left: it is as large as they.
template <int width>
struct UnitsShared {
  uint4 q[2][kTileRows * width / 8];  // high and low parts
  uint4 ring[kRangeUnits][kUnitSlots][kHalfUnit * width / 8];
  SmallPlaces places[kRangeUnits];
  float2 sums[kRangeUnits][kTileRows];  // maximum, sum
  float factor[kTileRows];
  int last[4];
};
static_assert(sizeof(UnitsShared<64>) == units_attention_shared(64));
static_assert(sizeof(UnitsShared<128>) == units_attention_shared(128));
static_assert(kTileRows * 4 == kHalfUnit * 2);

// Of a row of a result, in pieces of 16 bytes; a warp's writes and its reads go through all banks.
template <int width>
__device__ __forceinline__ int result_piece(int row, int piece) {
  return row * (width / 4) + (piece ^ (row & 7) * 2);
}

// A slot of keys has short rows; the same piece of eight of them lies in different banks.
template <int width>
__device__ __forceinline__ int key_piece(int row, int piece) {
  return row * (width / 16) + (piece ^ (width == 64 ? row / 2 & 3 : row & 7));
}

// A warp brings a slot, each lane a piece of neighbouring rows.
template <int width, bool keys>
__device__ __forceinline__ void bring_half(const View& pool, const unsigned (&places)[kUnit], int half, uint4* to) {
  constexpr int kRowPieces = keys ? width / 16 : width / 8;
  constexpr int kLaneRows = width / 8;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int piece = lane % kRowPieces;
  const int row = lane / kRowPieces * kLaneRows;  // of the slot
  const unsigned* place = places + row + (keys ? 0 : half * kHalfUnit);
  const std::byte* from = pool.data + (piece + (keys ? half * kRowPieces : 0)) * 16;
  asm("" : "+l"(from));  // one number, not added up again for each row
  to += row * kRowPieces;
#pragma unroll
  for (int i = 0; i < kLaneRows; i += 4) {
    const auto four = *reinterpret_cast<const uint4*>(place + i);
    const unsigned words[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      copy_16(to + (keys ? key_piece<width>(i + j, piece) : tile_piece<width>(i + j, piece)),
              from + static_cast<std::uint64_t>(words[j]) * 16);
    }
  }
}

// Values of positions that are not there become zeros: bit i for the ith of the slot. Of keys nothing is left in
// scores.
template <int width>
__device__ __forceinline__ void clear_values(unsigned missing, uint4* values) {
  if (missing == 0) return;
  const unsigned lane = threadIdx.x % kWarp;
  if ((missing >> lane & 1U) != 0) {
#pragma unroll 4
    for (int i = 0; i < width / 8; ++i) values[static_cast<int>(lane) * (width / 8) + i] = {0, 0, 0, 0};
  }
  __syncwarp();
}

// High and low parts of q . k over half of d, for all positions of a unit.
template <int width>
__device__ __forceinline__ void add_scores(const uint4 (&q)[2][kTileRows * width / 8], int half, const uint4* keys,
                                           float (&high)[2 * kSteps][4], float (&low)[2 * kSteps][4]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
  for (int step = 0; step < width / 32; ++step) {
    unsigned q_high[4];
    unsigned q_low[4];
    const int q_at = tile_piece<width>(lane % 16, half * (width / 16) + 2 * step + lane / 16);
    load_tiles(q_high, q[0] + q_at);
    load_tiles(q_low, q[1] + q_at);
#pragma unroll
    for (int t = 0; t < 2 * kSteps; t += 2) {
      unsigned k[4];
      load_tiles(k, keys + key_piece<width>(t * 8 + lane % 8 + lane / 16 * 8, 2 * step + lane / 8 % 2));
      add_mma_f16_k16(high[t], q_high, k[0], k[1]);
      add_mma_f16_k16(high[t + 1], q_high, k[2], k[3]);
      add_mma_f16_k16(low[t], q_low, k[0], k[1]);
      add_mma_f16_k16(low[t + 1], q_low, k[2], k[3]);
    }
  }
}

// Half of a unit's positions: weights times values.
template <int width>
__device__ __forceinline__ void add_values_of(const unsigned (&p)[kSteps][4], int half, const uint4* values,
                                              float (&acc)[width / 8][4]) {
#pragma unroll
  for (int step = 0; step < kSteps / 2; ++step) {
#pragma unroll
    for (int n = 0; n < width / 8; n += 2) {
      unsigned v[4];
      load_tiles_turned(v, values + step * 2 * width + (value_at<width>() ^ n));
      add_mma_f16_k16(acc[n], p[half * kSteps / 2 + step], v[0], v[1]);
      add_mma_f16_k16(acc[n + 1], p[half * kSteps / 2 + step], v[2], v[3]);
    }
  }
}

// The units of a range.
template <int width>
__device__ __forceinline__ MergedPiece merge_units(const UnitsShared<width>& shared, int slot, int row, int piece) {
  float2 sums[kRangeUnits];
  float4 accs[kRangeUnits];
#pragma unroll
  for (int i = 0; i < kRangeUnits; ++i) {
    sums[i] = shared.sums[i][row];
    accs[i] = reinterpret_cast<const float4*>(shared.ring[i][slot])[result_piece<width>(row, piece)];
  }
  MergedPiece units;
#pragma unroll
  for (int i = 0; i < kRangeUnits; ++i) units.add(sums[i].x, sums[i].y, accs[i]);
  return units;
}

template <int width>
__global__ void __launch_bounds__(kTokenThreads, 1)
    units_kernel(const __grid_constant__ AttentionArgs args, const __grid_constant__ AttentionCut cut,
                 const __grid_constant__ KeptRanges kept) {
  extern __shared__ __align__(16) unsigned char memory[];
  auto& shared = *reinterpret_cast<UnitsShared<width>*>(memory);
  static_assert(kUnitSlots * kMergeAhead<width> * kTokenThreads * 16 == sizeof(shared.ring));
  const int tid = static_cast<int>(threadIdx.x);
  const int warp = tid / kWarp;
  const int lane = tid % kWarp;
  const int workers = static_cast<int>(cut.workers);
  const Rows rows = rows_of_token(args, cut, blockIdx.x);
  begin_unless(args.early);
  // Asked for together, before anything is waited for.
  const std::int32_t seq = __ldcg(&int_at(args.seqs, rows.first_token));
  const std::int32_t position = __ldcg(&int_at(args.positions, rows.first_token));
  const std::int64_t n_live = live_rows(args.live, args.q.dims[0]);

  // The same: the length, and where the warp's unit lies, two positions a lane.
  const bool is_seq = seq >= 0 && seq < args.lengths.dims[0];
  std::int32_t length = 0;
  if (is_seq) length = __ldcg(&int_at(args.lengths, seq));
  SmallPlaces& places = shared.places[warp];
  DevicePlace asked[2];
  const auto position_of = [&](int range, int half) {
    return static_cast<unsigned>(range * kRangeUnits + warp) * kUnit + half * kHalfUnit + lane;
  };
  const auto ask_places = [&](int range, std::int64_t before) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      asked[half] = {};
      if (position_of(range, half) < before) asked[half] = ask_place(args.kv, seq, position_of(range, half));
    }
  };
  ask_places(rows.worker, args.context);
  const auto end = seen_positions<unsigned>(args, is_seq, position, length);
  const int n_units = static_cast<int>((end + kUnit - 1) / kUnit);
  const int n_ranges = (n_units + kRangeUnits - 1) / kRangeUnits;
  begin_if(args.early);
  if (rows.first_token >= n_live || (rows.worker > 0 && rows.worker >= n_ranges)) return;
  OwnQueries<width> own_queries;
  own_queries.ask(args, rows, warp);
  const bool keep = workers > 1 && n_ranges > 1;

  // By the whole warp, which reads no places before these. `there`: bit i for the ith position; where none is, nothing
  // is brought.
  unsigned long long there = 0;
  const auto set_places = [&](int range) {
    unsigned bits[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const bool is = asked[half].page < args.kv.n_pages && position_of(range, half) < end;
      const RowPlace place = is ? rows_at(args, rows.kv_head, asked[half]) : RowPlace{};
      bits[half] = __ballot_sync(kAllLanes, place.k >= 0);
      places.k[half * kHalfUnit + lane] = place.k >= 0 ? static_cast<unsigned>(place.k / 16) : 0;
      places.v[half * kHalfUnit + lane] = place.k >= 0 ? static_cast<unsigned>(place.v / 16) : 0;
    }
    there = static_cast<unsigned long long>(bits[1]) << 32U | bits[0];
    __syncwarp();
  };
  int slot = 0;  // of the first keys of this range
  const auto slot_of = [&](int later) { return shared.ring[warp][(slot + later) % kUnitSlots]; };
  const auto is_unit = [&](int range) { return range * kRangeUnits + warp < n_units; };
  const auto ask_keys = [&](int half, int later) {
    if (there != 0) bring_half<width, true>(args.k, places.k, half, slot_of(later));
    end_copies();
  };
  const auto ask_values = [&](int half, int later) {
    if (there != 0) bring_half<width, false>(args.v, places.v, half, slot_of(later));
    end_copies();
  };
  // The oldest of three copies is there.
  const auto await_part = [] {
    await_copies<kUnitSlots - 1>();
    __syncwarp();
  };
  set_places(rows.worker);
#pragma unroll 1
  for (int half = 0; half < 2; ++half) ask_keys(half, half);
  ask_values(0, 2);
  own_queries.write(args, warp, lane, shared);
  __syncthreads();
  const float factors[2] = {shared.factor[lane / 4], shared.factor[lane / 4 + 8]};

  const int d_v = static_cast<int>(args.out.dims[2]);
  constexpr int kRowPieces = width / 4;
  constexpr int kOwn = kTileRows * kRowPieces / kTokenThreads;  // pieces that a thread merges
  static_assert(kOwn <= 2);
  const auto own_row = [&](int e) { return (tid + e * kTokenThreads) / kRowPieces; };
  const int own_piece = tid % kRowPieces;
  const auto is_own = [&](int e) { return own_row(e) < rows.n; };
  const std::int64_t first_row = rows.first_token * args.q.dims[1] + rows.first_head;
  MergedPiece total[kOwn];
#pragma unroll 1
  for (int range = rows.worker; range < n_ranges; range += workers) {
    const int next = range + workers;
    float max[2] = {-INFINITY, -INFINITY};
    float sum[2] = {0, 0};
    if (is_unit(range)) {
      ask_places(next, end);
      const unsigned long long bits[2] = {there, there};
      float scores[2 * kSteps][4] = {};
      float low[2 * kSteps][4] = {};
#pragma unroll 1
      for (int half = 0; half < 2; ++half) {
        await_part();
        add_scores<width>(shared.q, half, slot_of(half), scores, low);
        __syncwarp();
        if (half == 0) ask_values(1, 3);
      }
      there = 0;
      if (next < n_ranges) set_places(next);
      ask_keys(0, 4);
#pragma unroll
      for (int i = 0; i < 8 * kSteps; ++i) scores[i / 4][i % 4] += low[i / 4][i % 4];
      unsigned p[kSteps][4];
      soften<true>(scores, factors, bits, max, p);
      sum_weights(p, sum);
      float acc[width / 8][4] = {};
      await_part();
      clear_values<width>(~static_cast<unsigned>(bits[0]), slot_of(2));
      add_values_of<width>(p, 0, slot_of(2), acc);
      __syncwarp();
      ask_keys(1, 5);
      await_part();
      clear_values<width>(~static_cast<unsigned>(bits[0] >> kHalfUnit), slot_of(3));
      add_values_of<width>(p, 1, slot_of(3), acc);
      __syncwarp();
      auto* result = reinterpret_cast<float2*>(slot_of(3));
#pragma unroll
      for (int i = 0; i < width / 4; ++i) {
        const int row = lane / 4 + i % 2 * 8;
        result[result_piece<width>(row, i / 2 * 2) * 2 + lane % 4] = {acc[i / 2][i % 2 * 2], acc[i / 2][i % 2 * 2 + 1]};
      }
    }
    if (lane % 4 == 0) {
      shared.sums[warp][lane / 4] = {max[0], sum[0]};
      shared.sums[warp][lane / 4 + 8] = {max[1], sum[1]};
    }
    __syncthreads();
#pragma unroll 1
    for (int e = 0; e < kOwn; ++e) {
      MergedPiece upto = total[0];
      if (is_own(e)) {
        const MergedPiece units = merge_units<width>(shared, slot, own_row(e), own_piece);
        if (!keep) {
          upto.add(units.max, units.sum, units.acc);
        } else {
          const std::int64_t at = (first_row + own_row(e)) * kept.n_ranges + range;
          *reinterpret_cast<float4*>(kept.acc + at * d_v + own_piece * 4) = units.acc;
          if (own_piece == 0) *reinterpret_cast<float2*>(kept.sums + at * 2) = {units.max, units.sum};
        }
      }
      if (kOwn > 1) total[0] = total[kOwn - 1];  // in turns
      total[kOwn - 1] = upto;
    }
    if (next >= n_ranges) break;
    __syncthreads();  // the results have been read
    ask_values(0, 3);
    slot = (slot + 4) % kUnitSlots;
  }
  if (keep) {
    merge_if_last<width, kTokenThreads, kUnitSlots>(args, kept, rows, min(workers, n_ranges), n_ranges, shared.last[0],
                                                    shared.ring[0][0]);
    if (shared.last[0] == 0) return;
  } else {
#pragma unroll
    for (int e = 0; e < kOwn; ++e) {
      if (!is_own(e)) continue;
      std::byte* out = row_of(args.out, rows.first_token, rows.first_head + own_row(e));
      store_mean(args.out.type, out, own_piece * 4, total[e].max, total[e].sum, total[e].acc);
    }
  }
  if (args.bank.q != nullptr) leave_in_bank(args, rows);
}

}  // namespace

int launch_attention_units(const AttentionArgs& args, const MmaPlan& plan, const KeptRanges& kept,
                           const Stream& stream) {
  return launch(plan.width == 64 ? units_kernel<64> : units_kernel<128>, plan.few_launch, stream, args, plan.few, kept);
}

}  // namespace conclave::cuda
