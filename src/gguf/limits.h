// What a GGUF file may be at most. Reader and writer hold to the same numbers.
#pragma once

#include <bit>
#include <cstdint>
#include <string_view>

namespace conclave::gguf {

inline constexpr std::string_view kMagic = "GGUF";
inline constexpr std::uint32_t kOldestVersion = 2;  // 1 had 32-bit counts and has not been written since 2023
inline constexpr std::uint32_t kNewestVersion = 3;

// The largest vocabularies with all their merges take some 20 MB. Without a bound a sparse file of many gigabytes could
// claim to be one long header.
inline constexpr std::uint64_t kMaxHeaderBytes = 64ULL << 20;
inline constexpr std::uint64_t kMaxKeys = 65'536;
inline constexpr std::uint64_t kMaxTensors = 1ULL << 17;
inline constexpr std::uint64_t kMaxKeyBytes = 65'535;     // the format's own limit
inline constexpr std::uint64_t kMaxTensorNameBytes = 63;  // ggml keeps 64 with the terminating zero
inline constexpr std::uint32_t kMaxDims = 4;
inline constexpr std::uint32_t kMaxParts = 1024;  // of a split set; each keeps a file descriptor

inline constexpr std::string_view kAlignmentKey = "general.alignment";
inline constexpr std::uint64_t kDefaultAlignment = 32;
inline constexpr std::uint64_t kMaxAlignment = 1ULL << 20;

// Powers of two, as ggml has it. (The specification's "multiple of 8" admits 24 and no reader does; the powers below 8
// that ggml admits are harmless here, since a tensor must also lie where its own type can be read.)
constexpr bool is_legal_alignment(std::uint64_t alignment) {
  return std::has_single_bit(alignment) && alignment <= kMaxAlignment;
}

inline constexpr std::string_view kSplitNumberKey = "split.no";
inline constexpr std::string_view kSplitCountKey = "split.count";
inline constexpr std::string_view kSplitTensorsKey = "split.tensors.count";

}  // namespace conclave::gguf
