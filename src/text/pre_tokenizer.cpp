#include "text/pre_tokenizer.h"

#include <utility>

namespace conclave {
namespace {

constexpr Step kDefault[] = {cut_out_punctuation_runs, cut_words, cut_out_number_runs, cut_out_digit_triples};
constexpr Step kGpt2[] = {cut_words};
constexpr Step kQwen2[] = {cut_words_and_lines_1};
constexpr Step kLlama3[] = {cut_words_and_lines_3};
constexpr Step kStarcoder[] = {cut_out_numbers, cut_words};
constexpr Step kFalcon[] = {cut_out_punctuation_and_ticks, cut_words, cut_out_digit_triples};
constexpr Step kDeepseekLlm[] = {cut_out_newlines,    cut_out_cased_letters, cut_out_ascii_and_wide_marks,
                                 cut_out_final_space, cut_out_east_asian,    cut_out_number_runs};
constexpr Step kDeepseekCoder[] = {cut_out_newlines, cut_out_spaced_letters, cut_out_spaced_punctuation,
                                   cut_out_east_asian, cut_out_numbers};

constexpr PreTokenizer kPreTokenizers[] = {
    {"default", kDefault},
    {"gpt-2", kGpt2},
    {"qwen2", kQwen2},
    {"llama-bpe", kLlama3, true},
    {"deepseek-llm", kDeepseekLlm},
    {"deepseek-coder", kDeepseekCoder},
    {"starcoder", kStarcoder},
    {"refact", kStarcoder},
    {"falcon", kFalcon},
    {"olmo", kGpt2},
    {"dbrx", kLlama3},
};

}  // namespace

const PreTokenizer* find_pre_tokenizer(std::string_view name) {
  for (const PreTokenizer& pre : kPreTokenizers) {
    if (pre.name == name) return &pre;
  }
  return nullptr;
}

std::span<const PreTokenizer> pre_tokenizers() {
  return kPreTokenizers;
}

Cuts cut(const PreTokenizer& pre, const Chars& chars) {
  Cuts cuts;
  if (chars.size() == 0) return cuts;
  cuts.push_back(chars.size());
  Cuts finer;
  for (const Step step : pre.steps) {
    finer.clear();
    std::uint32_t first = 0;
    for (const std::uint32_t last : cuts) {
      step(chars, {first, last}, finer);
      first = last;
    }
    std::swap(cuts, finer);
  }
  return cuts;
}

}  // namespace conclave
