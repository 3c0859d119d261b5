// The forms of the report: JSON lines, page and text.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "base/file_text.h"
#include "report/colour_ramp.h"
#include "report/heat_html.h"
#include "report/heat_terminal.h"
#include "report/trace_jsonl.h"
#include "terminal/width.h"
#include "trace_fixture.h"

namespace conclave {
namespace {

using nlohmann::json;
using test::small_trace;
using test::wheel_trace;

std::vector<std::string> jsonl(const RoutingTrace& trace) {
  std::vector<std::string> lines;
  write_trace_jsonl(trace, routing_stats(trace), [&](std::string_view line) { lines.emplace_back(line); });
  return lines;
}

bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// Everything between the data's script tags.
json data_of(const std::string& page) {
  const std::string open = "id=\"data\">";
  const std::size_t begin = page.find(open) + open.size();
  return json::parse(page.substr(begin, page.find("</script>", begin) - begin));
}

TEST(TraceJsonl, LinesAreTheDocumentedObjects) {
  const auto lines = jsonl(small_trace());
  ASSERT_EQ(lines.size(), 1U + 4U + 2U);
  for (const std::string& line : lines) {
    EXPECT_EQ(line.find('\n'), line.size() - 1);
    EXPECT_TRUE(json::accept(line)) << line;
  }
  const json model = json::parse(lines[0]);
  EXPECT_EQ(model, json::parse(R"({"type":"model","format":"conclave-routing","version":1,"model":"tiny",
      "architecture":"qwen3moe","n_layers":2,"n_experts":4,"top_k":2,"n_tokens":4,"layers":[1,3]})"));
  EXPECT_TRUE(lines[0].starts_with("{\"type\":\"model\""));
  const json token = json::parse(lines[2]);
  EXPECT_EQ(token["position"], 1);
  EXPECT_EQ(token["id"], 6);
  EXPECT_EQ(token["text"], " upon");
  EXPECT_EQ(token["experts"], json::parse("[[1,0],[2,3]]"));
  EXPECT_EQ(token["weights"][1][0].get<float>(), 0.6F);
  EXPECT_FALSE(token.contains("bytes"));
  const json layer = json::parse(lines[5]);
  EXPECT_EQ(layer["type"], "layer");
  EXPECT_EQ(layer["layer"], 1);
  EXPECT_EQ(layer["load"], json::parse("[4,4,0,0]"));
  EXPECT_EQ(layer["imbalance"], 2);
  EXPECT_EQ(layer["entropy_bits"], 1);
  EXPECT_EQ(layer["evenness"], 0.5);
  EXPECT_EQ(layer["unused"], json::parse("[2,3]"));
}

TEST(TraceJsonl, AnyBytesAndAnyWeights) {
  RoutingTrace trace = small_trace();
  trace.model = "a\"b\\c\n\x01\xff</script>";
  trace.weights[0] = std::numeric_limits<float>::infinity();
  const auto lines = jsonl(trace);
  EXPECT_EQ(json::parse(lines[0])["model"], "a\"b\\c\n\x01\uFFFD</script>");
  const json half = json::parse(lines[4]);
  EXPECT_EQ(half["text"], "\uFFFD\uFFFD");
  EXPECT_EQ(half["bytes"], "e282");
  EXPECT_TRUE(json::parse(lines[1])["weights"][0][0].is_null());
}

TEST(TraceJsonl, EveryByteAndEveryPlaneReadsBack) {
  std::string all;
  for (int c = 0; c < 128; ++c) all += static_cast<char>(c);
  all += "\u00e9\u4e16\U0001F600\u2028";
  EXPECT_EQ(json::parse(json_string(all)).get<std::string>(), all);
  for (const char c : json_string(all)) EXPECT_TRUE(c >= 0x20 && c < 0x7F && c != '<');
}

TEST(HeatHtml, EscapesNamesAndTokens) {
  RoutingTrace trace = small_trace();
  trace.model = "<script>alert(1)</script>&\"'\x1b";
  trace.architecture = "<img src=x>";
  trace.tokens[0].text = "</script><script>alert(2)</script>";
  trace.tokens[1].text = "<!--";
  const std::string page = heat_html(trace, routing_stats(trace));
  EXPECT_FALSE(has(page, "<script>alert"));
  EXPECT_FALSE(has(page, "<img"));
  EXPECT_FALSE(has(page, "<!--"));
  EXPECT_FALSE(has(page, "\x1b"));
  EXPECT_TRUE(has(page, "<h1>&lt;script&gt;alert(1)&lt;/script&gt;&amp;&quot;&#39;\\x1b</h1>"));
  EXPECT_TRUE(has(page, "<title>Expert load: &lt;script&gt;"));
  EXPECT_EQ(data_of(page)["tokens"][0][1], "</script><script>alert(2)</script>");
  EXPECT_TRUE(is_utf8(page));
}

TEST(HeatHtml, CarriesTheNumbersAndLoadsNothing) {
  const RoutingTrace trace = small_trace();
  const std::string page = heat_html(trace, routing_stats(trace));
  const json data = data_of(page);
  EXPECT_EQ(data["layers"], json::parse("[1,3]"));
  EXPECT_EQ(data["load"], json::parse("[[4,4,0,0],[2,2,2,2]]"));
  EXPECT_EQ(data["weight"][0], json::parse("[2.5,1.5,0,0]"));
  EXPECT_EQ(data["experts"][1], json::parse("[0,1,2,3,3,2,1,0]"));
  EXPECT_EQ(data["weights"][0][0], 0.75);
  EXPECT_EQ(data["weights"][1][0], 0.6);
  EXPECT_EQ(data["tokens"][2], json::parse(R"([7,"\\n"])"));
  EXPECT_EQ(data["tokens"][3], json::parse(R"([8,"\\xe2\\x82"])"));
  EXPECT_TRUE(has(page, "<b>2.00</b>"));
  EXPECT_TRUE(has(page, "<b>0.500</b>"));
  EXPECT_TRUE(has(page, "<div>2, 3</div>"));
  for (const char* reference : {"http://", "https://", "src=", "url(", "@import", "<link"}) {
    EXPECT_FALSE(has(page, reference)) << reference;
  }
  EXPECT_TRUE(has(page, "default-src 'none'"));
}

TEST(HeatHtml, ALongTextIsListedInPartAndSaysSo) {
  const RoutingTrace trace = wheel_trace(1000, 128, 100, 11);
  const std::string page = heat_html(trace, routing_stats(trace));
  EXPECT_TRUE(has(page, "The first 10 of 11 tokens are listed here"));
  EXPECT_TRUE(has(page, "[9,\"x\"]"));
  EXPECT_FALSE(has(page, "[10,\"x\"]"));
  EXPECT_TRUE(has(page, "\"nTokens\":11"));
}

TEST(HeatTerminal, PlainTextIsAsciiAndDrawsTheLoads) {
  const RoutingTrace trace = small_trace();
  const auto lines = lines_of(heat_text(trace, routing_stats(trace), {.columns = 80, .colours = Colours::none}));
  EXPECT_EQ(lines[0], "tiny");
  EXPECT_EQ(lines[1], "qwen3moe, 2 expert layers, 4 experts, 2 per token; 4 tokens");
  EXPECT_EQ(lines[4], "layer  expert            max/mean  evenness  never used");
  EXPECT_EQ(lines[5], "       0   1   2   3");
  EXPECT_EQ(lines[6], "    1  @@@@@@@@              2.00     0.500           2");
  EXPECT_EQ(lines[7], "    3  ################      1.00     1.000           0");
  for (const std::string& line : lines) {
    for (const char c : line) EXPECT_TRUE(c >= 0x20 && c < 0x7F) << line;
  }
}

TEST(HeatTerminal, FitsTheWidthWhateverTheSizes) {
  for (const std::int64_t n_experts : {1, 7, 64, 257, 1024}) {
    for (const std::int64_t n_layers : {1, 41, 100}) {
      const RoutingTrace trace = wheel_trace(n_layers, n_experts, 1, 3);
      const RoutingStats stats = routing_stats(trace);
      for (const int columns : {20, 120}) {
        for (const Colours colours : {Colours::none, Colours::palette256, Colours::truecolour}) {
          const auto lines = lines_of(heat_text(trace, stats, {.columns = columns, .colours = colours}));
          for (std::size_t i = 5; i + 1 < lines.size(); ++i) {  // below the words
            std::string shown;
            bool escape = false;
            for (const char c : lines[i]) {
              if (c == '\x1b') escape = true;
              if (!escape) shown += c;
              if (c == 'm') escape = false;
            }
            EXPECT_LE(text_width(shown), columns) << n_experts << " " << n_layers << " " << lines[i];
          }
        }
      }
    }
  }
}

TEST(HeatTerminal, ColoursEndWithTheLineAndPairsShareARow) {
  const RoutingTrace trace = wheel_trace(41, 8, 2, 5);
  const auto lines = lines_of(heat_text(trace, routing_stats(trace), {.columns = 80, .colours = Colours::truecolour}));
  int rows = 0;
  for (const std::string& line : lines) {
    if (!has(line, "\u2580")) continue;
    ++rows;
    EXPECT_TRUE(line.ends_with("\x1b[0m"));
  }
  EXPECT_EQ(rows, 21);
}

// L of OKLab.
double lightness(Rgb c) {
  const auto linear = [](int byte) {
    const double x = byte / 255.0;
    return x <= 0.04045 ? x / 12.92 : std::pow((x + 0.055) / 1.055, 2.4);
  };
  const double r = linear(c.r);
  const double g = linear(c.g);
  const double b = linear(c.b);
  return 0.2104542553 * std::cbrt(0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b) +
         0.7936177850 * std::cbrt(0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b) -
         0.0040720468 * std::cbrt(0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b);
}

TEST(ColourRamp, LightnessMovesInEqualSteps) {
  for (const Ground ground : {Ground::light, Ground::dark}) {
    const double first = lightness(ramp(0, ground));
    const double last = lightness(ramp(1, ground));
    EXPECT_GT(std::abs(last - first), 0.65);
    for (int i = 0; i <= 64; ++i) {
      EXPECT_NEAR(lightness(ramp(i / 64.0, ground)), first + (last - first) * i / 64.0, 0.004) << i;
    }
  }
}

TEST(ColourRamp, ColoursMoveSmoothlyAndEndAtTheEnds) {
  for (const Ground ground : {Ground::light, Ground::dark}) {
    for (int i = 1; i <= 256; ++i) {
      const Rgb a = ramp((i - 1) / 256.0, ground);
      const Rgb b = ramp(i / 256.0, ground);
      EXPECT_LE(std::abs(a.r - b.r) + std::abs(a.g - b.g) + std::abs(a.b - b.b), 12) << i;
    }
  }
  EXPECT_EQ(ramp(-3, Ground::dark), ramp(0, Ground::dark));
  EXPECT_EQ(ramp(7, Ground::dark), ramp(1, Ground::dark));
  EXPECT_EQ(hex({1, 0xAB, 255}), "#01abff");
}

}  // namespace
}  // namespace conclave
