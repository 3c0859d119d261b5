#include "quant/codec.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/fail.h"
#include "quant/half.h"
#include "quant/iq4_nl.h"
#include "quant/iq4_xs.h"
#include "quant/mxfp4.h"
#include "quant/q2_k.h"
#include "quant/q3_k.h"
#include "quant/q4_0.h"
#include "quant/q4_1.h"
#include "quant/q4_k.h"
#include "quant/q5_0.h"
#include "quant/q5_1.h"
#include "quant/q5_k.h"
#include "quant/q6_k.h"
#include "quant/q8_0.h"

namespace conclave {
namespace {

static_assert(std::endian::native == std::endian::little, "blocks are copied as they lie in a file");

using Decode = void (*)(std::span<const std::byte> blocks, std::span<float> out);
using Encode = void (*)(std::span<const float> values, std::span<std::byte> blocks);

struct Codec {
  DType type;
  std::size_t bytes;      // of one block
  std::size_t per_block;  // values in one block
  Decode decode;
  Encode encode = nullptr;  // null: the format is only read
};

template <class Block>
void decode_blocks(std::span<const std::byte> blocks, std::span<float> out) {
  for (std::size_t b = 0; b * Block::kValues < out.size(); ++b) {
    Block block;  // a copy: the bytes may lie at any address
    std::memcpy(&block, blocks.data() + b * sizeof(Block), sizeof(Block));
    decode(block, out.subspan(b * Block::kValues).template first<Block::kValues>());
  }
}

template <class Block>
void encode_blocks(std::span<const float> values, std::span<std::byte> blocks) {
  for (std::size_t b = 0; b * Block::kValues < values.size(); ++b) {
    Block block;
    encode(values.subspan(b * Block::kValues).template first<Block::kValues>(), block);
    std::memcpy(blocks.data() + b * sizeof(Block), &block, sizeof(Block));
  }
}

template <float (*Widen)(std::uint16_t)>
void decode_halves(std::span<const std::byte> blocks, std::span<float> out) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, blocks.data() + i * sizeof(bits), sizeof(bits));
    out[i] = Widen(bits);
  }
}

template <std::uint16_t (*Narrow)(float)>
void encode_halves(std::span<const float> values, std::span<std::byte> blocks) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint16_t bits = Narrow(values[i]);
    std::memcpy(blocks.data() + i * sizeof(bits), &bits, sizeof(bits));
  }
}

void decode_f32(std::span<const std::byte> blocks, std::span<float> out) {
  if (!out.empty()) std::memcpy(out.data(), blocks.data(), blocks.size());
}

void encode_f32(std::span<const float> values, std::span<std::byte> blocks) {
  if (!values.empty()) std::memcpy(blocks.data(), values.data(), blocks.size());
}

template <class Block>
constexpr Codec reads(DType type) {
  return {.type = type, .bytes = sizeof(Block), .per_block = Block::kValues, .decode = decode_blocks<Block>};
}

template <class Block>
constexpr Codec reads_and_writes(DType type) {
  Codec codec = reads<Block>(type);
  codec.encode = encode_blocks<Block>;
  return codec;
}

constexpr std::array kCodecs = {
    Codec{DType::f32, 4, 1, decode_f32, encode_f32},
    Codec{DType::f16, 2, 1, decode_halves<f16_to_f32>, encode_halves<f32_to_f16>},
    Codec{DType::bf16, 2, 1, decode_halves<bf16_to_f32>, encode_halves<f32_to_bf16>},
    reads_and_writes<BlockQ4_0>(DType::q4_0),
    reads<BlockQ4_1>(DType::q4_1),
    reads_and_writes<BlockQ5_0>(DType::q5_0),
    reads<BlockQ5_1>(DType::q5_1),
    reads_and_writes<BlockQ8_0>(DType::q8_0),
    reads<BlockQ2_K>(DType::q2_k),
    reads<BlockQ3_K>(DType::q3_k),
    reads_and_writes<BlockQ4_K>(DType::q4_k),
    reads_and_writes<BlockQ5_K>(DType::q5_k),
    reads_and_writes<BlockQ6_K>(DType::q6_k),
    reads<BlockIq4_NL>(DType::iq4_nl),
    reads<BlockIq4_XS>(DType::iq4_xs),
    reads_and_writes<BlockMxfp4>(DType::mxfp4),
};

const Codec* find_codec(DType type) {
  for (const Codec& codec : kCodecs) {
    if (codec.type == type) return &codec;
  }
  return nullptr;
}

void check_sizes(const Codec& codec, std::size_t n_values, std::size_t n_bytes) {
  CONCLAVE_CHECK(n_values % codec.per_block == 0 && n_bytes == n_values / codec.per_block * codec.bytes,
                 fmt::format("{}: {} values and {} bytes, a block is {} values in {} bytes",
                             dtype_info(codec.type).name, n_values, n_bytes, codec.per_block, codec.bytes));
}

}  // namespace

void decode(DType type, std::span<const std::byte> blocks, std::span<float> out) {
  const Codec* codec = find_codec(type);
  CONCLAVE_CHECK(codec != nullptr, fmt::format("{} is not a weight format", dtype_info(type).name));
  check_sizes(*codec, out.size(), blocks.size());
  codec->decode(blocks, out);
}

bool can_encode(DType type) {
  const Codec* codec = find_codec(type);
  return codec != nullptr && codec->encode != nullptr;
}

void encode(DType type, std::span<const float> values, std::span<std::byte> blocks) {
  const Codec* codec = find_codec(type);
  CONCLAVE_CHECK(codec != nullptr && codec->encode != nullptr, fmt::format("{} has no encoder", dtype_info(type).name));
  check_sizes(*codec, values.size(), blocks.size());
  if (is_block(type)) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (!std::isfinite(values[i])) {
        fail(ErrorCode::invalid_argument, "encode to {}: value {} is {}, blocks hold finite numbers only",
             dtype_info(type).name, i, values[i]);
      }
    }
  }
  codec->encode(values, blocks);
}

}  // namespace conclave
