// Products of few rows of f32 with weights of f16 or bf16, in the canonical order (product_plan.h): bound by the bytes
// of the weights. Runs on every GPU from sm_80 on.
//
// Four lanes share a column, with eight of an output's 32 chains each: 16 bytes of a column are one weight of each of a
// lane's chains, and nothing has to change places. A warp has eight columns side by side, or twice eight that meet the
// same values of x: of gate and up, eight of each. A lane copies its weights to a ring in shared memory, where nobody
// else reads them, so that many are on their way and no barrier is in the loop.
//
// A block takes up to four rows of a list into shared memory, and a tile of columns, some of them a warp's. Longer
// lists go to several blocks, which run at about the same time: their weights then come from the cache.
#pragma once

#include "backends/cuda/few_rows_plan.h"

namespace conclave::cuda {

inline constexpr int kHalfThreads = 128;
inline constexpr int kHalfWarps = kHalfThreads / kWarp;
inline constexpr int kHalfColumns = 8;              // side by side
inline constexpr int kHalfStep = 64;                // values of k that are copied together
inline constexpr int kHalfRows = 4;                 // at a time, at most
inline constexpr int kHalfRing = 8192;              // bytes of weights, of a warp
inline constexpr int kHalfFound = 1024;             // bytes for which rows they are
inline constexpr std::int64_t kHalfShared = 65536;  // bytes of rows, at most
static_assert(3 * (kHalfWarps * kHalfRing + kHalfFound + kHalfRows * 2048 * 4 + 1024) <= 227 * 1024,
              "three blocks on a multiprocessor, of rows of 2048");
static_assert(kHalfWarps * kHalfRing + kHalfFound + kHalfShared <= 99 * 1024, "every GPU has room for a block");
// Of whole matrices: more rows are worth larger tiles, fewer columns a warp each. Where warps would be fewer than these
// with twice eight columns, they have eight.
inline constexpr std::int64_t kHalfMatrixRows = 16;
inline constexpr std::int64_t kHalfMatrixColumns = 2048;
inline constexpr std::int64_t kHalfWanted = 132 * 8;

// Steps that a ring holds.
constexpr int half_stages(int sets) {
  return kHalfRing / (sets * kHalfColumns * kHalfStep * 2);
}
static_assert(half_stages(1) == 8 && half_stages(2) == 4);

// Rows that a block has: 0 where not one fits.
constexpr int half_batch(std::int64_t rows, std::int64_t k) {
  const std::int64_t fit = kHalfShared / (4 * k) < kHalfRows ? kHalfShared / (4 * k) : kHalfRows;
  return static_cast<int>(rows < fit ? rows : fit);
}
static_assert(half_batch(9, 4096) == 4 && half_batch(1, 768) == 1 && half_batch(3, 7168) == 2);
static_assert(half_batch(1, 16448) == 0);

struct HalfRowsPlan {
  int sets = 2;   // of eight columns, of a warp
  int batch = 0;  // rows of a block
  int tiles = 0;  // of columns
  LaunchPlan launch;
};
// `max_active`: lists that can have a row at all, 0 for one matrix. `rows`: of one of them, at most.
constexpr HalfRowsPlan half_rows_plan(std::int64_t max_active, std::int64_t rows, std::int64_t n, std::int64_t k,
                                      bool gate_up) {
  HalfRowsPlan plan{.batch = half_batch(rows, k)};
  const bool one_matrix = max_active == 0;
  const std::int64_t batches = one_matrix ? ceil_div(rows, plan.batch) : max_active;
  if (one_matrix && !gate_up && n < kHalfWanted * 2 * kHalfColumns) plan.sets = 1;
  plan.tiles = static_cast<int>(ceil_div(n, kHalfWarps * kHalfColumns * (gate_up ? 1 : plan.sets)));
  plan.launch = {.blocks = batches * plan.tiles,
                 .threads = kHalfThreads,
                 .shared_bytes = kHalfWarps * kHalfRing + kHalfFound + plan.batch * k * 4};
  return plan;
}
static_assert(half_rows_plan(8, 1, 768, 2048, true).launch.blocks == 192);
static_assert(half_rows_plan(128, 64, 768, 2048, true).launch.blocks == 3072);
static_assert(half_rows_plan(0, 1, 4096, 2048, false).launch.blocks == 128);
static_assert(half_rows_plan(0, 8, 151936, 2048, false).launch.blocks == 2 * 2374);

// Whether the kernel can take such weights and rows: their types, layout and alignment.
bool half_rows_fit(const View& w, const View& x, const View& out);
// Whether a whole matrix is for it.
bool takes_half_rows(const View& w, const View& x, const View& out);
// `max_active`: lists that can have a row at all.
int launch_half_rows(const UnitArgs& args, std::int64_t max_active, const Stream& stream);

// Matrices that the same rows meet, each with a set of eight columns a warp: queries, keys and values.
inline constexpr int kHalfMatrices = 3;
struct HalfMatricesArgs {
  UnitArgs of[kHalfMatrices];
};
int launch_half_matrices(const HalfMatricesArgs& args, const Stream& stream);

}  // namespace conclave::cuda
