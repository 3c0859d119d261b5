// How the tensors of a model are stored: one type for every matrix, or a mix that gives more bits to the parts that
// need them. The mixes are those that files of these names have by custom:
//
//   Q4_K_M, Q5_K_M  attn_v and ffn_down in Q6_K in the first and last eighth of the layers and in every third between;
//                   the head in Q6_K
//   Q4_K_S, Q5_K_S  the head in Q6_K; Q4_K_S: attn_v of the first 4 layers and ffn_down of the first eighth in Q5_K
//   MXFP4_MOE       experts in MXFP4, other matrices in Q8_0
//   with 8 experts  in the K mixes, attn_k and attn_v in Q8_0; in Q4_K_M and Q4_K_S, attn_output in Q5_K
//
// The head is output.weight, or token_embd.weight where a file has no head of its own. Norms, biases, routers and other
// vectors are never quantised.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "tensor/dtype.h"

namespace conclave {

enum class FormatMix : std::uint8_t { single, k_small, k_medium, experts_alone };

struct ModelFormat {
  std::string_view name;  // as in "Q4_K_M"
  DType base;             // of most matrices
  FormatMix mix;
  std::uint32_t file_type;  // general.file_type
};

std::span<const ModelFormat> all_model_formats();
const ModelFormat* find_model_format(std::string_view name);  // in any case; null where there is none
// The list of their names, for messages.
std::string model_format_names();

// What the mixes ask about a model.
struct FormatFacts {
  std::int64_t n_layers = 0;
  std::int64_t n_experts = 0;
  bool has_head = true;  // there is an output.weight
};

// Whether a tensor of this name and shape (outermost first) is a matrix that may be quantised at all.
bool is_quantizable(std::string_view name, std::span<const std::int64_t> dims);

class FormatChooser {
 public:
  FormatChooser(const ModelFormat& format, FormatFacts facts) : format_(&format), facts_(facts) {}

  // The type of a quantizable tensor. Where its rows are not whole blocks: Q5_0 instead of Q4_K, Q8_0 instead of
  // Q5_K and Q6_K, F16 where those do not fit either. notes() tells.
  DType choose(std::string_view name, std::span<const std::int64_t> dims);

  // One line for each kind of fallback that happened.
  std::vector<std::string> notes() const;

 private:
  DType wanted(std::string_view name, std::span<const std::int64_t> dims) const;

  struct Fallback {
    std::int64_t count = 0;
    std::string first;  // tensor
  };
  const ModelFormat* format_;
  FormatFacts facts_;
  std::map<std::tuple<std::int64_t, DType, DType>, Fallback> fallbacks_;  // row length, wanted, chosen
};

}  // namespace conclave
