// Weights of experts fetched into the L2 before the router has said which of them are wanted: of so many tokens nearly
// all are. The products of experts wait for memory, and what comes between them leaves it idle.
//
// dense_tall's blocks do it, a warp that has nothing else to do, when their own weights are there: each for two runs of
// gate's and up's weights, which lie evenly apart, as the blocks that read them begin.
// H200, 2026-11-16, 64 tokens of 12 layers: 32,420 to 33,110 tokens/s with 16 MiB, as many with 32. Lost: by the kernels
// of up to 32 rows (no gain at 32, 2% slower at 8), by the heads before attention (2% slower), `down`'s weights, too.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace conclave::cuda {

inline constexpr std::int64_t kAheadBytes = std::int64_t{16} << 20;  // of both
inline constexpr int kAheadRuns = 2;                                 // of a block, of each
inline constexpr int kAheadPieces = 2;                               // of a run
inline constexpr int kAheadLanes = 2 * kAheadRuns * kAheadPieces;    // a piece each
inline constexpr std::int64_t kAheadPairs = 2;                       // of token and expert, for each expert, at least

struct FetchAhead {
  const std::byte* from[2] = {};  // gate, up
  std::int64_t step = 0;          // bytes from run to run
  std::int32_t bytes = 0;         // of a piece; 0: nothing is fetched
};

// Of all experts, at multiples of 16.
struct AheadWeights {
  const std::byte* gate = nullptr;
  const std::byte* up = nullptr;
  std::int64_t bytes = 0;  // of each; 0: there are none
};
constexpr FetchAhead fetch_ahead_by(std::int64_t blocks, const AheadWeights& of) {
  constexpr std::int64_t kLine = 128;
  const std::int64_t step = of.bytes / (blocks * kAheadRuns) / kLine * kLine;
  const std::int64_t piece = std::min(kAheadBytes / (blocks * kAheadLanes), step / kAheadPieces) / kLine * kLine;
  return {.from = {of.gate, of.up}, .step = step, .bytes = static_cast<std::int32_t>(piece)};
}
static_assert(fetch_ahead_by(128, {.bytes = std::int64_t{108} << 20}).bytes == 16384);
static_assert(fetch_ahead_by(128, {.bytes = 1 << 20}).bytes == 2048 && fetch_ahead_by(128, {}).bytes == 0);

}  // namespace conclave::cuda
