// A bar on stderr while something long is done: drawn over itself on a terminal, nothing where stderr is a file or a
// pipe.
//
//   converting  [############            ]  48%  3.21 of 6.70 GB  blk.23.ffn_up_exps.weight
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace conclave {

enum class ProgressUnit { gigabytes, tokens };  // how the numbers are shown

class ProgressBar {
 public:
  explicit ProgressBar(std::string label, ProgressUnit unit = ProgressUnit::gigabytes);
  ~ProgressBar() { clear(); }
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // Draws at most ten times a second. `detail` stands at the end of the line and is cut where the line is full.
  void show(std::uint64_t done, std::uint64_t total, std::string_view detail = {});
  void clear();  // wipes the line, so that other text can be written

 private:
  std::string label_;
  ProgressUnit unit_;
  bool on_terminal_;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point last_{};
};

}  // namespace conclave
