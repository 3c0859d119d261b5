#include "report/trace_jsonl.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <iterator>

#include "base/file_text.h"
#include "base/utf8.h"

namespace conclave {
namespace {

template <class Number>
void append_number(std::string& out, Number value) {
  if (std::isfinite(value)) {
    fmt::format_to(std::back_inserter(out), "{}", value);  // the shortest that reads back as the same number
  } else {
    out += "null";
  }
}

// "[[...],[...]]": one list of top_k entries for each layer.
template <class Append>
std::string by_layer(const RoutingTrace& trace, std::int64_t token, Append&& append) {
  std::string out = "[";
  for (std::int64_t layer = 0; layer < trace.n_layers; ++layer) {
    out += layer == 0 ? "[" : ",[";
    for (std::int64_t slot = 0; slot < trace.top_k; ++slot) {
      if (slot > 0) out += ',';
      append(out, trace.pair(layer, token, slot));
    }
    out += ']';
  }
  return out + "]";
}

std::string model_line(const RoutingTrace& trace) {
  std::string layers;
  for (std::int64_t layer = 0; layer < trace.n_layers; ++layer) {
    fmt::format_to(std::back_inserter(layers), "{}{}", layer == 0 ? "" : ",", trace.layer_number(layer));
  }
  return fmt::format(
      "{{\"type\":\"model\",\"format\":\"conclave-routing\",\"version\":1,\"model\":{},\"architecture\":{},\"n_"
      "layers\":{},"
      "\"n_experts\":{},\"top_k\":{},\"n_tokens\":{},\"layers\":[{}]}}\n",
      json_string(trace.model), json_string(trace.architecture), trace.n_layers, trace.n_experts, trace.top_k,
      trace.n_tokens(), layers);
}

std::string token_line(const RoutingTrace& trace, std::int64_t position) {
  const TracedToken& token = trace.tokens[static_cast<std::size_t>(position)];
  std::string line = fmt::format("{{\"type\":\"token\",\"position\":{},\"id\":{},\"text\":{}", position, token.id,
                                 json_string(token.text));
  if (!is_utf8(token.text)) {
    line += ",\"bytes\":\"";
    for (const char c : token.text) fmt::format_to(std::back_inserter(line), "{:02x}", static_cast<unsigned char>(c));
    line += '"';
  }
  line += ",\"experts\":" + by_layer(trace, position, [&](std::string& out, std::size_t i) {
            fmt::format_to(std::back_inserter(out), "{}", trace.experts[i]);
          });
  line += ",\"weights\":" +
          by_layer(trace, position, [&](std::string& out, std::size_t i) { append_number(out, trace.weights[i]); });
  return line + "}\n";
}

std::string layer_line(const RoutingTrace& trace, const RoutingStats& stats, std::int64_t layer) {
  const LayerStats& s = stats.layers[static_cast<std::size_t>(layer)];
  return fmt::format(
      "{{\"type\":\"layer\",\"layer\":{},\"load\":[{}],\"weight\":[{}],\"imbalance\":{},\"entropy_bits\":{},"
      "\"evenness\":{},"
      "\"unused\":[{}]}}\n",
      trace.layer_number(layer), fmt::join(s.load, ","), fmt::join(s.weight, ","), s.imbalance, s.entropy, s.evenness,
      fmt::join(s.unused, ","));
}

}  // namespace

void write_trace_jsonl(const RoutingTrace& trace, const RoutingStats& stats,
                       const std::function<void(std::string_view)>& write) {
  write(model_line(trace));
  for (std::int64_t t = 0; t < trace.n_tokens(); ++t) write(token_line(trace, t));
  for (std::int64_t layer = 0; layer < trace.n_layers; ++layer) write(layer_line(trace, stats, layer));
}

std::string json_string(std::string_view text) {
  std::string out = "\"";
  while (!text.empty()) {
    const Utf8Character c = first_character(text);
    const std::uint32_t code = c.length == 0 ? 0xFFFD : c.code;
    if (code == '"' || code == '\\') {
      out += {'\\', static_cast<char>(code)};
    } else if (code == '\n') {
      out += "\\n";
    } else if (code >= 0x20 && code < 0x7F && code != '<') {
      out += static_cast<char>(code);
    } else if (code < 0x10000) {
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", code);
    } else {
      const std::uint32_t rest = code - 0x10000;
      fmt::format_to(std::back_inserter(out), "\\u{:04x}\\u{:04x}", 0xD800 + (rest >> 10), 0xDC00 + (rest & 0x3FF));
    }
    text.remove_prefix(c.length == 0 ? 1 : c.length);
  }
  return out + "\"";
}

}  // namespace conclave
