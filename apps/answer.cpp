#include "answer.h"

#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <iterator>

#include "base/fail.h"
#include "base/utf8.h"
#include "report/routing_stats.h"

namespace conclave {
namespace {

// U+FFFD for each control character but line break and tab.
std::string without_controls(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const Utf8Character c = first_character(text);
    const std::size_t length = c.length == 0 ? 1 : c.length;
    const bool control =
        c.length != 0 && ((c.code < 0x20 && c.code != '\n' && c.code != '\t') || (c.code >= 0x7F && c.code < 0xA0));
    out += control ? std::string_view("\xEF\xBF\xBD") : text.substr(0, length);
    text.remove_prefix(length);
  }
  return out;
}

}  // namespace

AnswerOutput::AnswerOutput() : on_terminal_(::isatty(STDOUT_FILENO) == 1) {
  std::signal(SIGPIPE, SIG_IGN);
}

bool AnswerOutput::write(std::string_view text) {
  if (text.empty() || !open_) return open_;
  at_line_start_ = text.ends_with('\n');
  const std::string shown = on_terminal_ ? without_controls(text) : std::string(text);
  if (std::fwrite(shown.data(), 1, shown.size(), stdout) == shown.size() && std::fflush(stdout) == 0) return true;
  if (errno != EPIPE) fail(ErrorCode::io, "cannot write the output: {}", std::strerror(errno));
  open_ = false;
  return false;
}

void AnswerOutput::end_line() {
  if (!at_line_start_) write("\n");
}

std::string long_context_note(const Session& session) {
  const std::int64_t trained = session.model().facts().n_context;
  if (session.context() <= trained) return {};
  return fmt::format("note: a context of {} tokens; the model was trained for {}", session.context(), trained);
}

std::function<bool(std::int64_t, std::int64_t)> prompt_hook(ProgressBar& bar, const InterruptGuard& interrupt) {
  return [&](std::int64_t done, std::int64_t total) {
    if (done == total) {
      bar.clear();
    } else {
      bar.show(static_cast<std::uint64_t>(done), static_cast<std::uint64_t>(total));
    }
    return interrupt.signal() == 0;
  };
}

std::string_view name_of(StopReason reason) {
  switch (reason) {
    case StopReason::end:
      return "end";
    case StopReason::length:
      return "length";
    case StopReason::context:
      return "context";
    case StopReason::hook:
      return "interrupted";
  }
  return "";
}

std::string summary(const Generation& g, std::uint64_t seed) {
  const auto tokens = [](std::int64_t n) { return fmt::format("{} token{}", n, n == 1 ? "" : "s"); };
  // A first token comes with the prompt, and the prompt may be cached: then there is no speed to tell.
  const auto speed = [](double x) { return x > 0 ? fmt::format(", {:.1f} tokens/s", x) : std::string(); };
  const std::string cached = g.n_cached > 0 ? fmt::format(" ({} cached)", g.n_cached) : "";
  return fmt::format("prompt: {}{}{}; answer: {}{}; seed {}", tokens(g.n_prompt), cached, speed(g.prompt_speed()),
                     tokens(std::ssize(g.tokens)), speed(g.step_speed()), seed);
}

std::string load_summary(Session& session) {
  const std::vector<std::int64_t> counts = session.expert_counts();
  const auto n_experts = static_cast<std::ptrdiff_t>(session.model().facts().n_experts);
  const std::ptrdiff_t n_layers = std::ssize(counts) / n_experts;
  LayerStats worst;
  std::ptrdiff_t worst_layer = 0;
  double evenness = 0;
  std::size_t unused = 0;
  for (std::ptrdiff_t layer = 0; layer < n_layers; ++layer) {
    const auto first = counts.begin() + layer * n_experts;
    LayerStats stats = load_stats({first, first + n_experts});
    evenness += stats.evenness / static_cast<double>(n_layers);
    unused += stats.unused.size();
    if (stats.imbalance <= worst.imbalance) continue;
    worst = std::move(stats);
    worst_layer = layer;
  }
  return fmt::format(
      "experts: the busiest has {:.2f} times an even share ({} of layer {}); evenness {:.3f}; {} of {} were never "
      "chosen",
      worst.imbalance, worst.busiest, worst_layer, evenness, unused, counts.size());
}

}  // namespace conclave
