// Tiny models of every family with random weights, in a file of their own.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "conclave/session.h"
#include "model/model_fixture.h"
#include "quant/codec.h"
#include "support/rng.h"

namespace conclave::testing {

inline constexpr const char* kFamilies[] = {"qwen3moe", "qwen2moe", "llama", "olmoe"};

// Every tensor that may be in blocks is of this type.
inline void retype_blocks(ModelFixture& model, DType type) {
  for (FixtureTensor& t : model.tensors) {
    const bool floats = t.dims.size() == 1 || t.name.find("ffn_gate_inp") != std::string::npos;
    t.type = floats ? DType::f32 : type;
  }
}

// Norms near 1; the rest with a standard deviation that keeps activations near 1.
inline void random_weights(const FixtureTensor& t, std::vector<std::byte>& bytes, test::Rng& rng) {
  std::int64_t n = 1;
  for (const std::int64_t d : t.dims) n *= d;
  const bool norm = t.name.find("norm") != std::string::npos;
  const double spread = norm ? 0.2 : 1.5 / std::sqrt(static_cast<double>(t.dims.back()));
  // Encoders take their time: a large tensor is made of a few blocks, drawn again and again.
  constexpr std::int64_t kPool = 4096;
  std::vector<float> values(static_cast<std::size_t>(std::min(n, kPool)));
  for (float& value : values) value = static_cast<float>((norm ? 1.0 : 0.0) + spread * rng.normal());
  const auto block = static_cast<std::size_t>(dtype_info(t.type).bytes);
  std::vector<std::byte> pool(values.size() / static_cast<std::size_t>(dtype_info(t.type).per_block) * block);
  encode(t.type, values, pool);
  if (n <= kPool) {
    bytes = pool;
    return;
  }
  const auto last = static_cast<std::int64_t>(pool.size() / block) - 1;
  for (std::size_t at = 0; at < bytes.size(); at += block) {
    std::memcpy(&bytes[at], &pool[static_cast<std::size_t>(rng.integer(0, last)) * block], block);
  }
}

inline void write_random(const ModelFixture& model, const std::filesystem::path& path, std::uint64_t seed,
                         gguf::WriterOptions options = {}) {
  test::Rng rng(seed);
  model.write(path, options,
              [&](const FixtureTensor& t, std::vector<std::byte>& bytes) { random_weights(t, bytes, rng); });
}

// A file that is there as long as the object.
class RandomModel {
 public:
  RandomModel(const std::string& family, DType type, std::uint64_t seed = 1) {
    // Superblocks of 256 need wider tensors.
    const bool wide = dtype_info(type).per_block == 256;
    ModelFixture model = tiny_model(
        family, wide ? TinyShape{.d_model = 256, .d_ff = 256, .d_ff_shared = 512, .d_wide_head = 64} : TinyShape{});
    retype_blocks(model, type);
    write_random(model, path(), seed);
  }
  std::filesystem::path path() const { return folder_.path() / "model.gguf"; }
  Model open(const std::string& device = "cpu", int threads = 2) const {
    return Model::open(path(), {.device = device, .threads = threads});
  }

 private:
  TempDir folder_;
};

using Tokens = std::vector<std::int32_t>;

inline Tokens random_tokens(std::size_t n, std::uint64_t seed = 5) {
  test::Rng rng(seed);
  Tokens tokens(n);
  for (std::int32_t& id : tokens) id = static_cast<std::int32_t>(rng.integer(0, kTinyVocab - 1));
  return tokens;
}

// The logits of every token of one input.
using Rows = std::vector<std::vector<float>>;

inline Rows all_logits(Session& session, SequenceId sequence, std::span<const std::int32_t> tokens) {
  Rows rows;
  const StepInput input{.sequence = sequence, .tokens = tokens, .logits = LogitRows::all};
  session.step({&input, 1},
               {.logits = [&](const LogitRow& row) { rows.emplace_back(row.logits.begin(), row.logits.end()); }});
  return rows;
}

// Mean squared error over mean square, row by row, ascending.
inline std::vector<double> row_errors(const Rows& got, const Rows& want) {
  std::vector<double> errors;
  for (std::size_t i = 0; i < want.size(); ++i) {
    double error = 0;
    double size = 0;
    for (std::size_t j = 0; j < want[i].size(); ++j) {
      const double difference = static_cast<double>(got[i][j]) - static_cast<double>(want[i][j]);
      error += difference * difference;
      size += static_cast<double>(want[i][j]) * static_cast<double>(want[i][j]);
    }
    errors.push_back(error / size);
  }
  std::sort(errors.begin(), errors.end());
  return errors;
}
inline double worst_error(const Rows& got, const Rows& want) {
  return row_errors(got, want).back();
}
// Where activations are rounded, a token now and then goes to another expert than it does in exact arithmetic: such a
// row says little, so it is the middle one that is judged.
inline double median_error(const Rows& got, const Rows& want) {
  const std::vector<double> errors = row_errors(got, want);
  return errors[errors.size() / 2];
}

}  // namespace conclave::testing
