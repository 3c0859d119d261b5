// Reads golden logits, as tools/golden/logits.py writes them.
#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace conclave::testing {

// 1e-6 is what is promised; f32 on both sides gives 1e-11, and a small mistake would hide between the two.
inline constexpr double kMaxGoldenError = 1e-10;

struct GoldenPrompt {
  std::string text;  // may be empty: ids alone
  std::vector<std::int32_t> ids;
  std::vector<std::uint32_t> positions;
  std::vector<std::vector<float>> logits;  // of those positions, [n_vocab] each
};

struct GoldenLogits {
  std::uint32_t n_vocab = 0;
  std::vector<GoldenPrompt> prompts;
};

class GoldenLogitsReader {
 public:
  explicit GoldenLogitsReader(const std::filesystem::path& path) : path_(path.string()) {
    std::ifstream file(path, std::ios::binary);
    if (!file) throw std::runtime_error("cannot open " + path_);
    std::ostringstream all;
    all << file.rdbuf();
    bytes_ = all.str();
  }

  GoldenLogits read() {
    if (take(4) != "CLG1") throw std::runtime_error(path_ + " has no golden logits");
    GoldenLogits golden{.n_vocab = number(), .prompts = {}};
    golden.prompts.resize(number());
    for (GoldenPrompt& prompt : golden.prompts) {
      prompt.text = take(number());
      prompt.ids = list<std::int32_t>(number());
      prompt.positions = list<std::uint32_t>(number());
      for (std::size_t i = 0; i < prompt.positions.size(); ++i) prompt.logits.push_back(list<float>(golden.n_vocab));
    }
    if (at_ != bytes_.size()) throw std::runtime_error(path_ + " has bytes left over");
    return golden;
  }

 private:
  std::string take(std::size_t n) {
    if (n > bytes_.size() - at_) throw std::runtime_error(path_ + " ends early");
    at_ += n;
    return bytes_.substr(at_ - n, n);
  }
  std::uint32_t number() { return list<std::uint32_t>(1).front(); }
  template <class T>
  std::vector<T> list(std::size_t n) {
    const std::string bytes = take(n * sizeof(T));
    std::vector<T> values(n);
    if (n > 0) std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }

  std::string path_;
  std::string bytes_;
  std::size_t at_ = 0;
};

inline GoldenLogits read_golden_logits(const std::filesystem::path& path) {
  return GoldenLogitsReader(path).read();
}

}  // namespace conclave::testing
