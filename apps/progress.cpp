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

std::string amount_text(ProgressUnit unit, std::uint64_t done, std::uint64_t total) {
  if (unit == ProgressUnit::tokens) return fmt::format("{} of {} tokens", done, total);
  return fmt::format("{:.2f} of {:.2f} GB", static_cast<double>(done) / 1e9, static_cast<double>(total) / 1e9);
}

}  // namespace

ProgressBar::ProgressBar(std::string label, ProgressUnit unit)
    : label_(std::move(label)), unit_(unit), on_terminal_(::isatty(STDERR_FILENO) == 1) {}

void ProgressBar::show(std::uint64_t done, std::uint64_t total, std::string_view detail) {
  if (!on_terminal_) return;
  const auto now = std::chrono::steady_clock::now();
  if (drawn_ && now - last_ < std::chrono::milliseconds(100) && done < total) return;
  last_ = now;
  const double share = total == 0 ? 1.0 : static_cast<double>(done) / static_cast<double>(total);
  const auto filled = std::min(kBarWidth, static_cast<std::size_t>(share * static_cast<double>(kBarWidth)));
  std::string line = fmt::format("{}  [{:<{}}] {:3.0f}%  {}  {}", label_, std::string(filled, '#'), kBarWidth,
                                 100 * share, amount_text(unit_, done, total), printable(detail));
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
