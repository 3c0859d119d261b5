#include "report/heat_png.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/file_text.h"
#include "base/utf8.h"
#include "report/picture_text.h"

namespace conclave {
namespace {

// The palette.
constexpr std::uint8_t kBackground = 0;
constexpr std::uint8_t kUnusedIndex = 1;
constexpr std::uint8_t kMark = 3;
constexpr Ink kInk = {0, 4, 5, 6, 7};
constexpr Ink kMuted = {0, 8, 9, 10, 11};
constexpr int kFirstHeat = 12;
constexpr int kHeatColours = 240;

constexpr Rgb kWhite = {255, 255, 255};
constexpr Rgb kInkColour = {28, 28, 36};
constexpr Rgb kMutedColour = {96, 96, 110};

constexpr int kMargin = 28;
constexpr int kLineStep = 24;  // from one line of text to the next
constexpr int kGap = 14;
constexpr int kLegendHeight = 18;

struct NumberColumn {
  std::string_view title;
  std::string (*value)(const LayerStats&);
};

constexpr NumberColumn kColumns[] = {
    {"max/mean", [](const LayerStats& s) { return fmt::format("{:.2f}", s.imbalance); }},
    {"entropy, bits", [](const LayerStats& s) { return fmt::format("{:.2f}", s.entropy); }},
    {"evenness", [](const LayerStats& s) { return fmt::format("{:.3f}", s.evenness); }},
    {"never used", [](const LayerStats& s) { return fmt::format("{}", s.unused.size()); }},
};

Rgb mixed(Rgb from, Rgb to, double share) {
  const auto part = [&](int a, int b) { return static_cast<std::uint8_t>(std::lround(a + (b - a) * share)); };
  return {part(from.r, to.r), part(from.g, to.g), part(from.b, to.b)};
}

std::vector<Rgb> palette() {
  std::vector<Rgb> colours = {kWhite, {236, 236, 240}, {200, 200, 208}, {150, 150, 162}};
  for (const Rgb ink : {kInkColour, kMutedColour}) {
    for (int level = 1; level < kInkLevels; ++level) {
      colours.push_back(mixed(kWhite, ink, static_cast<double>(level) / (kInkLevels - 1)));
    }
  }
  for (int i = 0; i < kHeatColours; ++i) {
    colours.push_back(ramp(static_cast<double>(i) / (kHeatColours - 1), Ground::light));
  }
  return colours;
}

std::uint8_t heat_colour(double position) {
  return static_cast<std::uint8_t>(kFirstHeat + std::lround(position * (kHeatColours - 1)));
}

// What the font can draw: one question mark for each character it cannot.
std::string ascii_of(std::string_view text) {
  std::string ascii;
  while (!text.empty()) {
    const Utf8Character c = first_character(text);
    ascii += c.length == 1 ? text[0] : '?';
    text.remove_prefix(std::max<std::size_t>(c.length, 1));
  }
  return ascii;
}

// Sizes in pixels, from the number of layers and experts.
struct Layout {
  int cell_width, cell_height;
  int map_width, map_height;
  int map_x, map_y;
  int numbers_x;
  int legend_y;
  int width, height;

  Layout(const RoutingTrace& trace, std::size_t title_length) {
    const auto n_experts = static_cast<int>(trace.n_experts);
    const auto n_layers = static_cast<int>(trace.n_layers);
    cell_width = std::clamp(1536 / n_experts, 2, 44);
    cell_height = std::clamp(760 / n_layers, 20, 40);
    map_width = cell_width * n_experts;
    map_height = cell_height * n_layers;
    map_x = kMargin + std::max(text_pixels("layer"), text_pixels(fmt::format("{}", trace.layer_number(n_layers - 1)))) +
            kGap;
    map_y = kMargin + 3 * kLineStep + kGap + kLineStep;
    numbers_x = map_x + map_width + 2 * kGap;
    int right = numbers_x;
    for (const NumberColumn& column : kColumns) right += text_pixels(column.title) + 2 * kGap;
    right -= 2 * kGap;
    legend_y = map_y + map_height + 3 * kLineStep + kGap;
    constexpr int kLegendWidth = 940;
    width = std::max({right, kMargin + static_cast<int>(title_length) * kTextAdvance, map_x + kLegendWidth}) + kMargin;
    height = legend_y + kLegendHeight + 2 * kLineStep + kMargin;
  }
};

void draw_right(Picture& picture, int right, int y, std::string_view text, const Ink& ink) {
  draw_text(picture, right - text_pixels(text), y, text, ink);
}

void draw_centred(Picture& picture, int x, int y, std::string_view text, const Ink& ink) {
  draw_text(picture, x - text_pixels(text) / 2, y, text, ink);
}

void draw_bold(Picture& picture, int x, int y, std::string_view text, const Ink& ink) {
  draw_text(picture, x, y, text, ink);
  draw_text(picture, x + 1, y, text, ink);
}

void draw_cells(Picture& picture, const Layout& at, const RoutingTrace& trace, const RoutingStats& stats) {
  const int line = at.cell_width >= 6 ? 1 : 0;  // the background between cells
  for (int layer = 0; layer < trace.n_layers; ++layer) {
    const LayerStats& s = stats.layers[static_cast<std::size_t>(layer)];
    const int y = at.map_y + layer * at.cell_height;
    for (int expert = 0; expert < trace.n_experts; ++expert) {
      const bool used = s.load[static_cast<std::size_t>(expert)] > 0;
      picture.fill(at.map_x + expert * at.cell_width, y, at.cell_width - line, at.cell_height - 1,
                   used ? heat_colour(heat_position(s.relative(expert), stats)) : kUnusedIndex);
    }
    const int text_y = y + (at.cell_height - 1 - kTextHeight) / 2;
    draw_right(picture, at.map_x - kGap, text_y, fmt::format("{}", trace.layer_number(layer)), kInk);
    int x = at.numbers_x;
    for (const NumberColumn& column : kColumns) {
      x += text_pixels(column.title);
      draw_right(picture, x, text_y, column.value(s), kInk);
      x += 2 * kGap;
    }
  }
}

void draw_axes(Picture& picture, const Layout& at, const RoutingTrace& trace) {
  const int header_y = at.map_y - kLineStep;
  draw_right(picture, at.map_x - kGap, header_y, "layer", kMuted);
  int x = at.numbers_x;
  for (const NumberColumn& column : kColumns) {
    draw_text(picture, x, header_y, column.title, kMuted);
    x += text_pixels(column.title) + 2 * kGap;
  }
  // Labels at multiples of 1, 2, 4, 5, 8, 10, 16 ...: as dense as they are readable.
  const int widest = text_pixels(fmt::format("{}", trace.n_experts - 1)) + 3 * kTextAdvance / 2;
  int step = 1;
  for (const int candidate : {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024}) {
    step = candidate;
    if (candidate * at.cell_width >= widest) break;
  }
  const int y = at.map_y + at.map_height + 3;
  for (int expert = 0; expert < trace.n_experts; expert += step) {
    const int centre = at.map_x + expert * at.cell_width + (at.cell_width - 1) / 2;
    picture.fill(centre, y, 1, 6, kMark);
    draw_centred(picture, centre, y + 10, fmt::format("{}", expert), kInk);
  }
  draw_text(picture, at.map_x, y + 10 + kLineStep, "expert", kMuted);
}

// A colour bar from 0 to the largest load, marked at even shares and their multiples.
void draw_legend(Picture& picture, const Layout& at, const RoutingStats& stats) {
  constexpr int kBar = 480;
  constexpr std::string_view kNever = "never used";
  picture.fill(at.map_x, at.legend_y, kLegendHeight, kLegendHeight, kUnusedIndex);
  draw_text(picture, at.map_x + kLegendHeight + 8, at.legend_y + 2, kNever, kInk);
  const int bar_x = at.map_x + kLegendHeight + 8 + text_pixels(kNever) + 3 * kGap;
  for (int i = 0; i < kBar; ++i) {
    picture.fill(bar_x + i, at.legend_y, 1, kLegendHeight, heat_colour(static_cast<double>(i) / (kBar - 1)));
  }
  int free_from = bar_x - kTextAdvance;  // where the next label may begin
  const auto mark = [&](double relative, std::string_view text) {
    const int x = bar_x + static_cast<int>(std::lround(heat_position(relative, stats) * (kBar - 1)));
    if (x - text_pixels(text) / 2 < free_from) return;
    picture.fill(x, at.legend_y + kLegendHeight, 1, 6, kMark);
    draw_centred(picture, x, at.legend_y + kLegendHeight + 10, text, kInk);
    free_from = x + text_pixels(text) / 2 + kTextAdvance;
  };
  const std::string most = fmt::format("{:.1f}", stats.max_relative);
  mark(0, "0");
  for (const double relative : {0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0}) {
    const double x = heat_position(relative, stats) * (kBar - 1);
    const bool clear = x + 2.0 * kTextAdvance + text_pixels(most) / 2.0 < kBar;  // leaves room for the last one
    if (relative < stats.max_relative && clear) mark(relative, fmt::format("{}", relative));
  }
  mark(stats.max_relative, most);
  draw_text(picture, bar_x + kBar + 2 * kGap, at.legend_y + 2, "times an even share", kInk);
}

}  // namespace

std::string facts_text(const RoutingTrace& trace) {
  const auto plural = [](std::int64_t n, std::string_view word) {
    return fmt::format("{} {}{}", n, word, n == 1 ? "" : "s");
  };
  const std::string architecture = trace.architecture.empty() ? "" : printable(trace.architecture) + ", ";
  return fmt::format("{}{}, {}, {} per token; {}", architecture, plural(trace.n_layers, "expert layer"),
                     plural(trace.n_experts, "expert"), trace.top_k, plural(trace.n_tokens(), "token"));
}

std::string summary_text(const RoutingTrace& trace, const RoutingStats& stats) {
  return fmt::format("Mean over layers: evenness {:.3f}, max/mean {:.2f}. Never used: {} of {} experts.",
                     stats.mean_evenness, stats.mean_imbalance, stats.n_unused, trace.n_layers * trace.n_experts);
}

Picture heat_picture(const RoutingTrace& trace, const RoutingStats& stats) {
  const std::string title = "Expert load: " + ascii_of(shown_model(trace));
  const std::string facts = ascii_of(facts_text(trace));
  const std::string summary = summary_text(trace, stats);
  const Layout at(trace, std::max({title.size(), facts.size(), summary.size()}));
  Picture picture(at.width, at.height, kBackground);
  picture.palette = palette();
  draw_bold(picture, kMargin, kMargin, title, kInk);
  draw_text(picture, kMargin, kMargin + kLineStep, facts, kMuted);
  draw_text(picture, kMargin, kMargin + 2 * kLineStep, summary, kMuted);
  draw_cells(picture, at, trace, stats);
  draw_axes(picture, at, trace);
  draw_legend(picture, at, stats);
  return picture;
}

}  // namespace conclave
