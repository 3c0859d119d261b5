#include "report/heat_html.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "report/colour_ramp.h"
#include "report/heat_page.h"
#include "report/heat_png.h"
#include "report/trace_jsonl.h"

namespace conclave {
namespace {

constexpr std::int64_t kListedPairs = 1'000'000;  // about 10 MB of page
constexpr int kRampColours = 128;

std::int64_t listed_tokens(const RoutingTrace& trace) {
  return std::clamp<std::int64_t>(kListedPairs / (trace.n_layers * trace.top_k), 1, trace.n_tokens());
}

std::string ramp_json(Ground ground) {
  std::string out = "[";
  for (int i = 0; i < kRampColours; ++i) {
    fmt::format_to(std::back_inserter(out), "{}\"{}\"", i == 0 ? "" : ",",
                   hex(ramp(static_cast<double>(i) / (kRampColours - 1), ground)));
  }
  return out + "]";
}

// [[...],[...]]: a list for each layer.
template <class List>
std::string layers_json(const RoutingTrace& trace, List&& list) {
  std::string out = "[";
  for (std::int64_t layer = 0; layer < trace.n_layers; ++layer) {
    out += layer == 0 ? "[" : ",[";
    list(out, layer);
    out += ']';
  }
  return out + "]";
}

void append_number(std::string& out, double value, int decimals) {
  if (!std::isfinite(value)) {
    out += "null";
    return;
  }
  const double unit = std::pow(10.0, decimals);
  const double rounded = std::round(value * unit) / unit;
  fmt::format_to(std::back_inserter(out), "{}", std::isfinite(rounded) ? rounded : value);
}

std::string data_json(const RoutingTrace& trace, const RoutingStats& stats) {
  const std::int64_t n_listed = listed_tokens(trace);
  std::string tokens;
  for (std::int64_t t = 0; t < n_listed; ++t) {
    const TracedToken& token = trace.tokens[static_cast<std::size_t>(t)];
    fmt::format_to(std::back_inserter(tokens), "{}[{},{}]", t == 0 ? "" : ",", token.id,
                   json_string(shown_token(token.text)));
  }
  const auto pairs = [&](auto&& append) {
    return layers_json(trace, [&](std::string& out, std::int64_t layer) {
      const std::size_t first = trace.pair(layer, 0, 0);
      const std::size_t end = first + static_cast<std::size_t>(n_listed * trace.top_k);
      for (std::size_t i = first; i < end; ++i) {
        if (i > first) out += ',';
        append(out, i);
      }
    });
  };
  std::string json =
      fmt::format("{{\"nExperts\":{},\"topK\":{},\"nTokens\":{},\"maxRelative\":{},\"layers\":", trace.n_experts,
                  trace.top_k, trace.n_tokens(), stats.max_relative);
  json += "[";
  for (std::int64_t layer = 0; layer < trace.n_layers; ++layer) {
    fmt::format_to(std::back_inserter(json), "{}{}", layer == 0 ? "" : ",", trace.layer_number(layer));
  }
  json += "],\n\"ramp\":{\"light\":" + ramp_json(Ground::light) + ",\"dark\":" + ramp_json(Ground::dark) + "}";
  json += ",\n\"load\":" + layers_json(trace, [&](std::string& out, std::int64_t layer) {
            out += fmt::format("{}", fmt::join(stats.layers[static_cast<std::size_t>(layer)].load, ","));
          });
  json += ",\n\"weight\":" + layers_json(trace, [&](std::string& out, std::int64_t layer) {
            const auto& weights = stats.layers[static_cast<std::size_t>(layer)].weight;
            for (std::size_t e = 0; e < weights.size(); ++e) {
              if (e > 0) out += ',';
              append_number(out, weights[e], 3);
            }
          });
  json += ",\n\"tokens\":[" + tokens + "]";
  json += ",\n\"experts\":" + pairs([&](std::string& out, std::size_t i) {
            fmt::format_to(std::back_inserter(out), "{}", trace.experts[i]);
          });
  json += ",\n\"weights\":" + pairs([&](std::string& out, std::size_t i) { append_number(out, trace.weights[i], 4); });
  return json + "}";
}

// A number with a bar behind it, of a share of the cell from 0 to 1.
std::string bar_cell(std::string_view number, double share) {
  return fmt::format("<td class=\"n bar\"><i style=\"width:{:.1f}%\"></i><b>{}</b></td>",
                     100 * std::clamp(share, 0.0, 1.0), number);
}

std::string layer_row(const RoutingTrace& trace, const RoutingStats& stats, std::int64_t layer) {
  const LayerStats& s = stats.layers[static_cast<std::size_t>(layer)];
  return fmt::format(
      "<tr data-layer=\"{}\"><th scope=\"row\">{}</th>{}<td class=\"n\">{}</td><td class=\"n\">{:.2f}</td>{}"
      "<td class=\"n\">{}</td><td class=\"ids\"><div>{}</div></td></tr>\n",
      layer, trace.layer_number(layer), bar_cell(fmt::format("{:.2f}", s.imbalance), s.imbalance / stats.max_relative),
      s.busiest, s.entropy, bar_cell(fmt::format("{:.3f}", s.evenness), s.evenness), s.unused.size(),
      range_text(s.unused));
}

std::string layer_table(const RoutingTrace& trace, const RoutingStats& stats) {
  std::string out =
      "<table id=\"layers\"><thead><tr><th scope=\"col\">layer</th>"
      "<th scope=\"col\" title=\"largest load over mean load: 1 is perfectly even\">imbalance, max/mean</th>"
      "<th scope=\"col\" title=\"the expert with the largest load\">busiest expert</th>"
      "<th scope=\"col\" title=\"of the distribution of loads\">entropy, bits</th>"
      "<th scope=\"col\" title=\"entropy over log2 of the number of experts: 1 is perfectly even\">evenness</th>"
      "<th scope=\"col\">never used</th><th scope=\"col\" class=\"ids\">which (all of the chosen "
      "layer)</th></tr></thead>\n<tbody>\n";
  for (std::int64_t layer = 0; layer < trace.n_layers; ++layer) out += layer_row(trace, stats, layer);
  return out + "</tbody></table>\n";
}

std::string listing_note(const RoutingTrace& trace) {
  const std::int64_t n_listed = listed_tokens(trace);
  if (n_listed == trace.n_tokens()) return "";
  return fmt::format(
      "<p class=\"muted\">The first {} of {} tokens are listed here; the JSON lines have all of them.</p>\n", n_listed,
      trace.n_tokens());
}

}  // namespace

std::string html_escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string heat_html(const RoutingTrace& trace, const RoutingStats& stats) {
  const std::string model = html_escaped(shown_model(trace));
  std::string page =
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
      "script-src 'unsafe-inline'\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n";
  page += "<title>Expert load: " + model + "</title>\n<style>\n";
  page += kHeatPageStyle;
  page += "</style></head>\n<body>\n<header><h1>" + model + "</h1>\n<p>" + html_escaped(facts_text(trace)) + "<br>" +
          html_escaped(summary_text(trace, stats)) + "</p></header>\n";
  page +=
      "<section><h2>Expert load, layer by layer</h2>\n"
      "<p class=\"muted\">Each cell is one expert of one layer; its colour says how many tokens chose it, as a "
      "multiple of an "
      "even share. Point at a cell for its numbers; click it to see its tokens below. Arrow keys work, too.</p>\n"
      "<div id=\"map\"><canvas id=\"heat\" tabindex=\"0\" role=\"img\" aria-label=\"heat map of expert load; the table "
      "below "
      "has the numbers of each layer\"></canvas></div>\n"
      "<div id=\"legend\"><span class=\"swatch\"></span> never used <canvas id=\"bar\"></canvas> times an even "
      "share</div>\n"
      "<noscript><p>The heat map and the tokens need scripts; the table does not.</p></noscript></section>\n";
  page +=
      "<section><h2>Tokens and their experts</h2>\n<div class=\"controls\"><label>layer <select "
      "id=\"layer\"></select></label>"
      "<label>expert <select id=\"expert\"></select></label><span id=\"chosen\" class=\"muted\" "
      "aria-live=\"polite\"></span>"
      "</div>\n" +
      listing_note(trace) +
      "<div id=\"text\"></div>\n<div class=\"scroll tall\"><table id=\"tokens\"><thead><tr><th>position</th><th>id</th>"
      "<th class=\"ids\">token</th><th class=\"ids\">experts and weights, best "
      "first</th></tr></thead><tbody></tbody></table>"
      "</div>\n<button id=\"more\" hidden>show more tokens</button></section>\n";
  page +=
      "<section><h2>Layers</h2>\n<div class=\"scroll\">" + layer_table(trace, stats) +
      "</div>\n<p class=\"muted\">imbalance: the largest load over the mean load. evenness: entropy over log2 of the "
      "number "
      "of experts. Both are 1 where all experts have the same load; a short text cannot reach that.</p></section>\n";
  page += "<div id=\"tip\" hidden></div>\n<script type=\"application/json\" id=\"data\">\n" + data_json(trace, stats) +
          "\n</script>\n<script>\n";
  page += kHeatPageScript;
  return page + "</script>\n</body></html>\n";
}

}  // namespace conclave
