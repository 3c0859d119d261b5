#include "progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/file_text.h"

namespace conclave {
namespace {

constexpr std::size_t kBarWidth = 24;

std::size_t terminal_width() {
  winsize size{};
  const bool known = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : 80;
}

}  // namespace

ProgressBar::ProgressBar(std::string label) : label_(std::move(label)), on_terminal_(::isatty(STDERR_FILENO) == 1) {}

void ProgressBar::show(std::uint64_t done_bytes, std::uint64_t total_bytes, std::string_view detail) {
  if (!on_terminal_) return;
  const auto now = std::chrono::steady_clock::now();
  if (drawn_ && now - last_ < std::chrono::milliseconds(100) && done_bytes < total_bytes) return;
  last_ = now;
  const double share = total_bytes == 0 ? 1.0 : static_cast<double>(done_bytes) / static_cast<double>(total_bytes);
  const auto filled = std::min(kBarWidth, static_cast<std::size_t>(share * static_cast<double>(kBarWidth)));
  std::string line = fmt::format("{}  [{:<{}}] {:3.0f}%  {:.2f} of {:.2f} GB  {}", label_, std::string(filled, '#'),
                                 kBarWidth, 100 * share, static_cast<double>(done_bytes) / 1e9,
                                 static_cast<double>(total_bytes) / 1e9, printable(detail));
  line.resize(std::min(line.size(), terminal_width() - 1));
  std::fputs(("\r\x1b[K" + line).c_str(), stderr);
  std::fflush(stderr);
  drawn_ = true;
}

void ProgressBar::clear() {
  if (!drawn_) return;
  std::fputs("\r\x1b[K", stderr);
  std::fflush(stderr);
  drawn_ = false;
}

}  // namespace conclave
