#include "report/heat_terminal.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>

#include "report/colour_ramp.h"
#include "report/heat_png.h"

namespace conclave {
namespace {

constexpr std::int64_t kMostSingleRows = 40;  // above: two layers in each row
constexpr std::string_view kShades = ".:-=+*#%@";
constexpr Rgb kUnusedColour = {48, 48, 56};
constexpr int kLabelColumns = 7;        // "   12  "
constexpr int kNumberColumns = 2 + 31;  // what stands beside a row

// The nearest colour of the 256: 6 x 6 x 6 levels from 16 on, 24 greys from 232 on.
int palette256(Rgb c) {
  constexpr int kLevels[] = {0, 95, 135, 175, 215, 255};
  const auto nearest = [&](int x) {
    const auto closer = [x](int a, int b) { return std::abs(a - x) < std::abs(b - x); };
    return static_cast<int>(std::min_element(std::begin(kLevels), std::end(kLevels), closer) - std::begin(kLevels));
  };
  const auto distance = [&](int r, int g, int b) {
    return (r - c.r) * (r - c.r) + (g - c.g) * (g - c.g) + (b - c.b) * (b - c.b);
  };
  const int r = nearest(c.r);
  const int g = nearest(c.g);
  const int b = nearest(c.b);
  const int grey = std::clamp((c.r + c.g + c.b) / 3 - 3, 0, 235) / 10;
  const int level = 8 + 10 * grey;
  if (distance(level, level, level) < distance(kLevels[r], kLevels[g], kLevels[b])) return 232 + grey;
  return 16 + 36 * r + 6 * g + b;
}

std::string colour_code(Rgb c, bool background, Colours colours) {
  const int base = background ? 48 : 38;
  if (colours == Colours::truecolour) return fmt::format("\x1b[{};2;{};{};{}m", base, c.r, c.g, c.b);
  return fmt::format("\x1b[{};5;{}m", base, palette256(c));
}

// How experts become cells: `per_cell` experts in each, each `width` columns wide.
struct Cells {
  std::int64_t count;
  std::int64_t per_cell;
  int width;

  Cells(std::int64_t n_experts, int columns) {
    const std::int64_t room = std::max(columns, 8);
    per_cell = (n_experts + room - 1) / room;
    count = (n_experts + per_cell - 1) / per_cell;
    width = static_cast<int>(std::clamp<std::int64_t>(room / count, 1, 4));
  }
};

// The mean relative load of a cell's experts; nothing where none of them was used.
std::optional<double> cell_load(const LayerStats& s, const Cells& cells, std::int64_t cell) {
  const std::int64_t first = cell * cells.per_cell;
  const std::int64_t end = std::min<std::int64_t>(first + cells.per_cell, static_cast<std::int64_t>(s.load.size()));
  double sum = 0;
  for (std::int64_t e = first; e < end; ++e) sum += s.relative(e);
  if (sum == 0) return std::nullopt;
  return sum / static_cast<double>(end - first);
}

Rgb cell_colour(const LayerStats& s, const RoutingStats& stats, const Cells& cells, std::int64_t cell) {
  const std::optional<double> load = cell_load(s, cells, cell);
  return load ? ramp(heat_position(*load, stats), Ground::dark) : kUnusedColour;
}

char shade(double position) {
  const auto i = static_cast<std::size_t>(std::floor(position * static_cast<double>(kShades.size())));
  return kShades[std::min(i, kShades.size() - 1)];
}

// One layer as coloured blanks; or, with `halves`, two of them as half blocks, of which the lower may be missing. Colour
// codes are written where the colour changes alone.
std::string coloured_row(const LayerStats& top, const LayerStats* bottom, bool halves, const RoutingStats& stats,
                         const Cells& cells, Colours colours) {
  std::string out;
  std::string last;
  for (std::int64_t cell = 0; cell < cells.count; ++cell) {
    std::string code = colour_code(cell_colour(top, stats, cells, cell), !halves, colours);
    if (bottom != nullptr) code += colour_code(cell_colour(*bottom, stats, cells, cell), true, colours);
    if (code != last) out += code;
    last = code;
    for (int i = 0; i < cells.width; ++i) out += halves ? "\u2580" : " ";  // the upper half block
  }
  return out + "\x1b[0m";
}

std::string plain_row(const LayerStats& s, const RoutingStats& stats, const Cells& cells) {
  std::string out;
  for (std::int64_t cell = 0; cell < cells.count; ++cell) {
    const std::optional<double> load = cell_load(s, cells, cell);
    out.append(static_cast<std::size_t>(cells.width), load ? shade(heat_position(*load, stats)) : ' ');
  }
  return out;
}

std::string numbers(const LayerStats& s) {
  return fmt::format("  {:>8.2f} {:>9.3f} {:>11}", s.imbalance, s.evenness, s.unused.size());
}

std::string axis(std::int64_t n_experts, const Cells& cells) {
  std::string out;
  const int label = static_cast<int>(fmt::format("{}", n_experts - 1).size()) + 2;
  std::int64_t step = 1;
  while (step * cells.width < label) step *= 2;
  for (std::int64_t cell = 0; cell < cells.count; cell += step) {
    const auto at = static_cast<std::size_t>(cell * cells.width);
    const std::string text = fmt::format("{}", cell * cells.per_cell);
    if (at + text.size() > static_cast<std::size_t>(cells.count * cells.width)) break;
    out.resize(at, ' ');
    out += text;
  }
  return out;
}

std::string legend(const RoutingStats& stats, Colours colours) {
  constexpr int kSteps = 24;
  std::string out = "never used ";
  if (colours == Colours::none) {
    out += fmt::format("' '   0 {} {:.1f} times an even share", kShades, stats.max_relative);
    return out;
  }
  out += colour_code(kUnusedColour, true, colours) + "  \x1b[0m   0 ";
  for (int i = 0; i < kSteps; ++i) {
    out += colour_code(ramp(static_cast<double>(i) / (kSteps - 1), Ground::dark), true, colours) + " ";
  }
  return out + fmt::format("\x1b[0m {:.1f} times an even share", stats.max_relative);
}

}  // namespace

std::string heat_text(const RoutingTrace& trace, const RoutingStats& stats, const TerminalStyle& style) {
  const bool coloured = style.colours != Colours::none;
  const bool paired = coloured && trace.n_layers > kMostSingleRows;
  const bool beside = !paired && style.columns >= kLabelColumns + kNumberColumns + 8;
  const Cells cells(trace.n_experts, style.columns - kLabelColumns - (beside ? kNumberColumns : 0));
  std::string out = fmt::format("{}\n{}\n{}\n\n", shown_model(trace), facts_text(trace), summary_text(trace, stats));
  const std::string experts = axis(trace.n_experts, cells);
  const auto map_columns = static_cast<std::size_t>(cells.count * cells.width);
  const std::string heading =
      cells.per_cell == 1 ? "expert" : fmt::format("experts, {} in each column", cells.per_cell);
  out += fmt::format("{:>5}  {:<{}}", "layer", heading, map_columns);
  if (beside) out += fmt::format("  {:>8} {:>9} {:>11}", "max/mean", "evenness", "never used");
  out.erase(out.find_last_not_of(' ') + 1);
  out += fmt::format("\n{:>{}}{}\n", "", kLabelColumns, experts);
  const std::int64_t step = paired ? 2 : 1;
  for (std::int64_t layer = 0; layer < trace.n_layers; layer += step) {
    const LayerStats& s = stats.layers[static_cast<std::size_t>(layer)];
    const bool both = paired && layer + 1 < trace.n_layers;
    const LayerStats* next = both ? &stats.layers[static_cast<std::size_t>(layer + 1)] : nullptr;
    out += fmt::format("{:>5}  ", trace.layer_number(layer));
    out += coloured ? coloured_row(s, next, paired, stats, cells, style.colours) : plain_row(s, stats, cells);
    if (beside) out += std::string(std::max(heading.size(), map_columns) - map_columns, ' ') + numbers(s);
    out += '\n';
  }
  return out + "\n" + legend(stats, style.colours) + "\n";
}

}  // namespace conclave
