// Products of prefill's rows with weights of a block format, on Hopper: bf16 operands, sums in f32.
//
// A weight is decoded to bf16 with its scale and minimum in it, rounded once; a row is rounded to bf16. wgmma adds 16
// products at a time to an f32 sum, over all of k in one order: that of the bank below, superblock by superblock.
//
//   q4_k q5_k   w = bf16(level * bf16(d * scale) - bf16(dmin * min))
//   q6_k        w = bf16((level - 32) * bf16(d * scale))
//   q8_0 q4_0   w = bf16(level * bf16(d)), bf16((level - 8) * bf16(d))
//   mxfp4       w = level * 2^(e - 127); e up to 156, larger ones count as 156
//
// So an output depends on its row and its column alone. act(gate) * up is within 2^-16 of itself (activation.cuh).
// Everything here is made 2^28 times smaller, which is exact, and larger again when it is stored: a level can then stay
// the bits it is, a small multiple of bf16's smallest number, and one fused multiply-add does the rest.
//
// One block a multiprocessor takes tile after tile: 192 columns of weights (of gate_up: 96 of gate and the same of up)
// for up to 160 rows of a list, or where that is faster 256 columns for up to 48. Three or four warpgroups multiply, a
// warp 16 columns: they decode weights straight into the registers that wgmma takes, and while one multiplies, others
// decode. Of four more warps, some gather rows, half a superblock at a time, or have the copy engine do it where rows
// lie one after another; the others copy weights as stored, a superblock after another, and may begin while the kernel
// before still runs. Both have a ring. Whole matrices with the same rows may share a launch.
//
// What 64 columns and 256 of k take of a multiprocessor, in cycles, with Q4_K: tensor cores 8 a row; a scheduler's
// issue slots 300 to 330; memory 450 for the weights, if they are read once.
#pragma once

#include "backends/cuda/few_rows_plan.h"
#include "backends/cuda/weight_planes.h"

namespace conclave::cuda {

// A bank: rows of bf16, padded with zeros to whole superblocks of 256, each superblock in an order of its own. Sixteen
// neighbours are a step of wgmma, of which a lane has four: with this order the four are neighbours in the weights'
// row, too, and all that a lane has of a superblock are 64 neighbours. Of those, q4_k keeps two groups in 32 bytes.
constexpr int bank_element(int place) {
  const int step = place / 16;
  return place % 8 / 2 * 64 + step % 2 * 32 + step / 2 * 4 + place % 2 * 2 + place % 16 / 8;
}
constexpr int bank_place(int element) {
  return (element % 32 / 4 * 2 + element / 32 % 2) * 16 + element % 2 * 8 + element / 64 * 2 + element % 4 / 2;
}
constexpr bool bank_is_one_to_one() {
  for (int i = 0; i < kChunk; ++i) {
    if (bank_element(bank_place(i)) != i) return false;
  }
  return true;
}
static_assert(bank_is_one_to_one());
static_assert(bank_place(0) == 0 && bank_place(2) == 1 && bank_place(1) == 8 && bank_place(3) == 9);
static_assert(bank_place(64) == 2 && bank_place(32) == 16 && bank_place(4) == 32 && bank_place(255) == 255);
// Of a row, in elements: from row to row, at the least. A bank begins at a multiple of 16 bytes.
constexpr std::int64_t prefill_bank_stride(std::int64_t k) {
  return chunks_of(k) * kChunk;
}
constexpr std::int64_t prefill_bank_bytes(std::int64_t rows, std::int64_t k) {
  return rows * prefill_bank_stride(k) * 2;
}
static_assert(prefill_bank_stride(2048) == 2048 && prefill_bank_stride(2880) == 3072 &&
              prefill_bank_bytes(3, 768) == 4608);

// A product of the rows. Whole matrices of one type may stand side by side.
inline constexpr int kPrefillSides = 3;
struct PrefillSide {
  const std::byte* w = nullptr;  // gate, where `up` is given
  std::int64_t w_expert = 0;     // bytes from expert to expert
  std::int64_t w_column = 0;     // bytes from column to column
  std::byte* out = nullptr;
  std::int64_t out_stride = 0;  // bytes
  const std::byte* bias = nullptr;
  std::int32_t n = 0;  // columns; 0: no product
  DType out_type = DType::f32;
  DType bias_type = DType::f32;
};

struct PrefillArgs {
  RowTable table;
  PrefillSide side[kPrefillSides];
  const std::byte* up = nullptr;  // then out = act(gate) * up
  std::int64_t up_expert = 0;
  std::int64_t up_column = 0;
  const std::uint16_t* x = nullptr;   // a bank
  std::int64_t x_stride = 0;          // elements, a multiple of 8
  std::uint16_t* bank_out = nullptr;  // where outputs become a bank, in place of `out`
  std::int64_t bank_out_stride = 0;   // elements, a multiple of 8
  std::int32_t k = 0;
  std::int32_t chunks = 0;
  DType type = DType::q4_k;  // of the weights: q4_k or q5_k as stored, others in planes
  Activation act = Activation::silu;
  bool early = false;  // the kernel before does not write the table: weights may be copied while it runs
};

// Weights of 16 bits: half_prefill_plan.h has a kernel of its own for them, which cuts products in the same way.
constexpr bool is_plain_half(DType type) {
  return type == DType::f16 || type == DType::bf16;
}

// Room for rows, of a tile: of long lists, and of short ones.
inline constexpr int kPrefillRows = 160;
inline constexpr int kPrefillShortRows = 48;
constexpr int prefill_long_rows(DType type) {  // q8_0 leaves less room
  return type == DType::q8_0 ? 128 : kPrefillRows;
}
constexpr int prefill_groups(int room) {  // that multiply
  return room == kPrefillShortRows ? 4 : 3;
}
// Warps that do not multiply: some gather rows, the others copy weights. Of long lists rows are most of what is copied;
// those that lie one after another, as boxes, take one warp.
inline constexpr int kPrefillHelpers = 4;
constexpr int prefill_gathering(int room, bool boxes) {
  return boxes ? 1 : room == kPrefillShortRows ? 2 : 3;
}
constexpr int prefill_warps(int room) {  // that multiply
  return prefill_groups(room) * 4;
}
// Steps of wgmma that are decoded, and then multiplied, together. Rows that are gathered in long lists keep the
// multiprocessor busy enough with single ones.
constexpr int prefill_steps(int room, bool gate_up) {
  return room == kPrefillShortRows ? 4 : gate_up ? 1 : 2;
}
constexpr int prefill_threads(int room) {
  return (prefill_warps(room) + kPrefillHelpers) * kWarp;
}
constexpr int prefill_columns(int room) {
  return prefill_groups(room) * 64;
}
// A block begins with so many registers for every thread; those that copy leave some of them to the others.
constexpr int prefill_copying_registers(int room) {
  return room == kPrefillShortRows ? 64 : 56;
}
constexpr int prefill_multiplying_registers(int room) {
  return room == kPrefillShortRows ? 104 : 152;
}
constexpr bool prefill_registers_fit(int room) {
  const int first = 65536 / prefill_threads(room) / 8 * 8;
  return prefill_groups(room) * prefill_multiplying_registers(room) + prefill_copying_registers(room) <=
         (prefill_groups(room) + 1) * first;
}
static_assert(prefill_registers_fit(kPrefillRows) && prefill_registers_fit(kPrefillShortRows));

// The two rings. Rows of half a superblock are two slices as wgmma.cuh wants them, 64 of k each. Strides of columns
// keep eight columns' words in different banks.
constexpr int prefill_slice(int room) {
  return room * 128;
}
constexpr int prefill_half_bytes(int room) {
  return 2 * prefill_slice(room);
}
constexpr int prefill_halves(DType type, int room) {
  if (is_plain_half(type)) return room == kPrefillShortRows ? 3 : 2;
  return room == kPrefillShortRows && type != DType::q6_k ? 4 : 3;
}
constexpr int prefill_column_stride(DType type) {
  if (is_plain_half(type)) return 128;  // 64 of k, as half_prefill_plan.h has them
  return is_block_32(type) ? 16 + 8 * level_bytes(type) : is_affine(type) ? block_bytes(type) : 208;
}
// q6_k: behind the columns, words that hold their d.
constexpr int prefill_weight_bytes(DType type, int room) {
  return prefill_columns(room) * (prefill_column_stride(type) + (type == DType::q6_k ? 4 : 0));
}
constexpr int prefill_weight_stages(DType type, int room) {
  if (is_plain_half(type)) return 5;
  if (room != kPrefillShortRows || type == DType::q8_0) return 2;
  return prefill_column_stride(type) == 144 ? 4 : 3;
}
// Behind the rings: outputs on their way to memory, where columns and rows begin, what is known of tiles, barriers.
//
// A warpgroup has room for twice so many rows of its 64 columns as bf16, 16 bytes further apart than they are long, so
// that eight rows' words are in different banks.
constexpr int prefill_out_rows(DType type, int room) {
  return room == kPrefillShortRows || type == DType::q6_k || type == DType::q8_0 || is_plain_half(type) ? 16 : 32;
}
inline constexpr int kPrefillOutStride = 64 * 2 + 16;
constexpr int prefill_out_bytes(DType type, int room) {
  return 2 * prefill_out_rows(type, room) * kPrefillOutStride;
}
inline constexpr int kPrefillTold = 3;
constexpr int prefill_other_bytes(DType type, int room) {
  return prefill_groups(room) * prefill_out_bytes(type, room) + prefill_columns(room) * 8 + room * 8 +
         kPrefillTold * (room * 8 + 32) + 256;
}
constexpr std::int64_t prefill_shared_bytes(DType type, int room) {
  return 1023 + prefill_halves(type, room) * prefill_half_bytes(room) +
         prefill_weight_stages(type, room) * prefill_weight_bytes(type, room) + prefill_other_bytes(type, room);
}
constexpr bool prefill_shared_fits(DType type) {
  return prefill_shared_bytes(type, prefill_long_rows(type)) <= 227 * 1024 &&
         prefill_shared_bytes(type, kPrefillShortRows) <= 227 * 1024;
}
static_assert(prefill_shared_fits(DType::q4_k) && prefill_shared_fits(DType::q5_k) && prefill_shared_fits(DType::q6_k));
static_assert(prefill_shared_fits(DType::f16) && prefill_shared_fits(DType::q8_0) && prefill_shared_fits(DType::q4_0) &&
              prefill_shared_fits(DType::mxfp4));

// Columns of products side by side.
struct PrefillWidths {
  std::int64_t n[kPrefillSides] = {};

  constexpr PrefillWidths(std::int64_t alone) : n{alone} {}
  constexpr PrefillWidths(const PrefillSide (&side)[kPrefillSides]) : n{side[0].n, side[1].n, side[2].n} {}
};

// How products are cut. Lists have n_rows rows together.
struct PrefillCut {
  int room;
  int rows;                               // of a tile
  std::int64_t across;                    // tiles side by side
  std::int32_t tiles_end[kPrefillSides];  // of each product and those before it
  std::int64_t time;                      // in units of its own
};
// Outputs that become a bank go on to whole superblocks.
constexpr std::int64_t prefill_across(int room, std::int64_t n, bool gate_up, bool bank) {
  return ceil_div(bank ? prefill_bank_stride(n) : n, gate_up ? prefill_columns(room) / 2 : prefill_columns(room));
}
// A superblock of a tile takes about so long, in units of 18 ns (H200, Q4_K). Weights of 16 bits, four times as many
// bytes, are mostly waited for.
constexpr std::int64_t prefill_tile_time(DType type, int room, std::int64_t height) {
  if (is_plain_half(type)) {
    const std::int64_t bytes = prefill_columns(room) * 2 / 3;
    const std::int64_t products = 10 + 5 * height / 8 * prefill_groups(room) / 3;
    return bytes > products ? bytes : products;
  }
  return (room == kPrefillShortRows ? 64 : 78) + 5 * height / 8;
}
// Tiles that give the shortest time, if lists were a little longer than the mean.
constexpr PrefillCut prefill_cut(DType type, std::int64_t n_rows, std::int64_t n_lists, const PrefillWidths& widths,
                                 bool gate_up, bool bank, int multiprocessors) {
  const std::int64_t lists = n_rows < n_lists ? n_rows : n_lists;
  const std::int64_t mean = lists == 0 ? 0 : ceil_div(n_rows, lists);
  const std::int64_t length = lists <= 1 ? mean : mean + mean / 8;
  PrefillCut best{};
  for (const int room : {kPrefillShortRows, prefill_long_rows(type)}) {
    PrefillCut cut{.room = room};
    for (int i = 0; i < kPrefillSides; ++i) {
      cut.across += prefill_across(room, widths.n[i], gate_up, bank);
      cut.tiles_end[i] = static_cast<std::int32_t>(cut.across);
    }
    for (const int rows : {160, 144, 128, 112, 96, 64, 48, 32, 16}) {
      if (rows > room) continue;
      const std::int64_t tiles = length == 0 ? 1 : ceil_div(length, rows);  // of a list, equal ones
      const std::int64_t height = ceil_div(ceil_div(length, tiles), 16) * 16;
      cut.rows = rows;
      cut.time = ceil_div(lists * tiles * cut.across, multiprocessors) * prefill_tile_time(type, room, height);
      if (best.rows == 0 || cut.time < best.time) best = cut;
    }
  }
  return best;
}
static_assert(prefill_cut(DType::q4_k, 4096, 128, 768, true, true, 132).rows == 48);    // 512 tokens, 8 of 128 experts
static_assert(prefill_cut(DType::q4_k, 4096, 128, 768, true, true, 132).across == 6);   // 128 outputs each
static_assert(prefill_cut(DType::q4_k, 16384, 128, 768, true, true, 132).rows == 160);  // 2,048
static_assert(prefill_cut(DType::q4_k, 16384, 128, 2048, false, false, 132).across == 11);
static_assert(prefill_cut(DType::q4_k, 512, 1, 4096, false, false, 132).rows == 96 &&
              prefill_cut(DType::q4_k, 1, 1, 512, false, false, 132).rows == 48);
static_assert(prefill_cut(DType::q4_k, 512, 1, 512, false, false, 132).rows == 16);
static_assert(prefill_cut(DType::q4_k, 512, 1, 2048, false, false, 132).room == kPrefillShortRows);
static_assert(prefill_cut(DType::q4_k, 2048, 1, 4096, false, false, 132).room == kPrefillRows);

constexpr LaunchPlan prefill_rows_plan(DType type, std::int64_t n_rows, std::int64_t n_lists, const PrefillCut& cut,
                                       int multiprocessors) {
  const std::int64_t lists = n_rows < n_lists ? n_rows : n_lists;
  const std::int64_t tiles = (n_rows / cut.rows + lists) * cut.across;
  return {.blocks = tiles < multiprocessors ? tiles : multiprocessors,
          .threads = prefill_threads(cut.room),
          .shared_bytes = prefill_shared_bytes(type, cut.room)};
}
static_assert(
    prefill_rows_plan(DType::q4_k, 0, 128, prefill_cut(DType::q4_k, 0, 128, 768, true, true, 132), 132).blocks == 0);

// Whether these products of all of n_rows rows are better begun together: a launch takes as long as so many units.
constexpr bool prefill_goes_together(DType type, std::int64_t n_rows, const PrefillSide (&side)[kPrefillSides],
                                     int multiprocessors) {
  constexpr std::int64_t kLaunch = 60;
  std::int64_t apart = 0;
  for (const PrefillSide& one : side) {
    if (one.n > 0) apart += kLaunch + prefill_cut(type, n_rows, 1, one.n, false, false, multiprocessors).time;
  }
  return kLaunch + prefill_cut(type, n_rows, 1, side, false, false, multiprocessors).time <= apart;
}
// Queries, keys and values of Qwen3-30B-A3B.
static_assert(prefill_goes_together(DType::q4_k, 128, {{.n = 4096}, {.n = 512}, {.n = 512}}, 132));
static_assert(prefill_goes_together(DType::q4_k, 512, {{.n = 4096}, {.n = 512}, {.n = 512}}, 132));

// Whether this build has the kernel for the current GPU.
bool prefill_rows_built();
// Whether it takes weights of this type, laid out and aligned as units_fit() or blocks_fit() want them.
constexpr bool prefill_fits(DType type) {
  return is_affine(type) || type == DType::q6_k || is_block_32(type);
}
int launch_prefill_rows(const PrefillArgs& args, int multiprocessors, const Stream& stream);

// Rows of x (f32, f16 or bf16; rank 2 or 3: all innermost rows, in index order) into a bank. `live`: how many of its
// first dimension count; others are left alone.
struct PrefillBankArgs {
  View x;
  std::uint16_t* bank = nullptr;
  std::int64_t stride = 0;  // elements
  const std::int32_t* live = nullptr;
};
// All innermost rows of x: how many, and whether four elements are a 16-byte word of each.
struct BankedRows {
  std::int64_t count = 1;
  bool in_fours = false;
};
inline BankedRows banked_rows(const View& x) {
  BankedRows rows;
  rows.in_fours =
      x.type == DType::f32 && reinterpret_cast<std::uintptr_t>(x.data) % 16 == 0 && x.dims[x.rank - 1] % 4 == 0;
  for (int i = 0; i + 1 < x.rank; ++i) {
    rows.count *= x.dims[i];
    rows.in_fours = rows.in_fours && (x.dims[i] <= 1 || x.strides[i] % 16 == 0);
  }
  return rows;
}
int launch_fill_prefill_bank(const PrefillBankArgs& args, const Stream& stream);

}  // namespace conclave::cuda
