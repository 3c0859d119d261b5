#include "bench/kernels/row_plan.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "base/fail.h"
#include "ops/check.h"

namespace conclave::bench {
namespace {

constexpr std::array<std::int64_t, 7> kTokens = {1, 2, 4, 8, 32, 128, 512};
constexpr std::array kShortFormats = {DType::q4_k, DType::q6_k, DType::q8_0};
constexpr std::array kCacheFormats = {DType::f16, DType::q8_0};
constexpr std::int64_t kMaxTokens = 1 << 16;

template <class List, class Element>
bool holds(const List& list, const Element& element) {
  return std::find(std::begin(list), std::end(list), element) != std::end(list);
}

std::int64_t parse_tokens(const std::string& text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < 1 || value > kMaxTokens) {
    fail(ErrorCode::invalid_argument, "--tokens: '{}' is not a whole number from 1 to {}", text, kMaxTokens);
  }
  return value;
}

DType parse_format(const std::string& text) {
  const std::optional<DType> type = dtype_from_name(text);
  if (!type || !holds(kWeight, *type)) fail(ErrorCode::invalid_argument, "--format: '{}' is not a weight type", text);
  return *type;
}

Skew parse_skew(const std::string& text) {
  for (const Skew skew : all_skews()) {
    if (name(skew) == text) return skew;
  }
  fail(ErrorCode::invalid_argument, "--skew: there is no skew '{}'; there are: uniform, zipf, one-hot", text);
}

void check_ops(const std::vector<std::string>& ops) {
  for (const std::string& op : ops) {
    const auto named = [&](const Kind& kind) { return kind.op == op; };
    if (!std::any_of(all_kinds().begin(), all_kinds().end(), named)) {
      fail(ErrorCode::invalid_argument, "--op: there is no op '{}' to benchmark", op);
    }
  }
}

// The filter with every name looked up.
struct Wanted {
  explicit Wanted(const RowFilter& filter) : ops(filter.ops), all(filter.all) {
    check_ops(ops);
    for (const std::string& text : filter.models) models.push_back(&model_shape(text));
    for (const std::string& text : filter.formats) formats.push_back(parse_format(text));
    for (const std::string& text : filter.tokens) tokens.push_back(parse_tokens(text));
    for (const std::string& text : filter.skews) skews.push_back(parse_skew(text));
  }

  bool has_kind(const Kind& kind) const { return ops.empty() || holds(ops, kind.op); }

  bool has_model(const Kind& kind, const ModelShape& model) const {
    if (kind.weights != nullptr && kind.weights(model, model.n_experts).empty()) return false;
    if (!models.empty()) return holds(models, &model);
    return all || model.name == kMainModel || kind.op == "moe_ffn" || kind.op == "moe_shared_expert";
  }

  // Those that were asked for, in that order; else those of the short list.
  std::vector<DType> formats_of(const Kind& kind, const ModelShape& model) const {
    std::vector<DType> possible = {DType::f32};
    std::vector<DType> chosen = {DType::f32};
    if (kind.formats == Formats::cache) {
      possible = {kCacheFormats.begin(), kCacheFormats.end()};
      chosen = all ? possible : std::vector{DType::f16};
    } else if (kind.formats == Formats::weights) {
      possible = {std::begin(kWeight), std::end(kWeight)};
      chosen = {DType::q4_k};
      if (all || model.name == kMainModel) chosen = {kShortFormats.begin(), kShortFormats.end()};
    }
    if (formats.empty()) return chosen;
    chosen = formats;
    std::erase_if(chosen, [&](DType type) { return !holds(possible, type); });
    return chosen;
  }

  std::vector<std::int64_t> tokens_of(const Kind& kind, const ModelShape& model, DType format) const {
    const bool whole = all || (kind.op == "moe_ffn" && model.name == kMainModel);
    std::vector<std::int64_t> list = tokens;
    if (list.empty() && whole) list = {kTokens.begin(), kTokens.end()};
    if (list.empty()) list = {kind.tokens.begin(), kind.tokens.end()};
    // Between the ends of the short list another format tells nothing new.
    const bool ends_only = tokens.empty() && !whole && kind.formats == Formats::weights && format != DType::q4_k;
    std::erase_if(list, [&](std::int64_t n) {
      return n < kind.fewest || n > kind.most || (ends_only && n != kind.tokens.front() && n != kind.tokens.back());
    });
    return list;
  }

  std::vector<Skew> skews_of(const RowKey& row) const {
    if (!row.kind->skews) return {Skew::uniform};
    if (!skews.empty()) return skews;
    // At one token every skew is eight experts.
    const bool in_short_list = row.model->name == kMainModel && row.format == DType::q4_k && row.n_tokens >= 8;
    if (all ? row.n_tokens > 1 : in_short_list) return {all_skews().begin(), all_skews().end()};
    return {Skew::uniform};
  }

  std::vector<std::string> ops;
  std::vector<const ModelShape*> models;
  std::vector<DType> formats;
  std::vector<std::int64_t> tokens;
  std::vector<Skew> skews;
  bool all;
};

}  // namespace

std::string RowKey::title() const {
  return fmt::format("{}{}{} {} {} {} token{}{}{}", kind->op, kind->part.empty() ? "" : " ", kind->part, model->name,
                     dtype_info(format).name, n_tokens, n_tokens == 1 ? "" : "s", kind->skews ? " " : "",
                     kind->skews ? name(skew) : "");
}

std::vector<RowKey> plan_rows(const RowFilter& filter) {
  const Wanted wanted(filter);
  std::vector<RowKey> rows;
  for (const ModelShape& model : model_shapes()) {
    for (const Kind& kind : all_kinds()) {
      if (!wanted.has_kind(kind) || !wanted.has_model(kind, model)) continue;
      for (const DType format : wanted.formats_of(kind, model)) {
        for (const std::int64_t n_tokens : wanted.tokens_of(kind, model, format)) {
          RowKey row{.kind = &kind, .model = &model, .format = format, .n_tokens = n_tokens};
          for (const Skew skew : wanted.skews_of(row)) {
            row.skew = skew;
            rows.push_back(row);
          }
        }
      }
    }
  }
  if (rows.empty()) fail(ErrorCode::invalid_argument, "no row of the benchmark is all that was asked for");
  return rows;
}

RowKey row_of(std::string_view op, std::string_view model, DType format, std::int64_t n_tokens) {
  const auto kind = std::find_if(all_kinds().begin(), all_kinds().end(), [&](const Kind& k) { return k.op == op; });
  CONCLAVE_CHECK(kind != all_kinds().end(), std::string(op));
  return {.kind = &*kind, .model = &model_shape(model), .format = format, .n_tokens = n_tokens};
}

std::vector<std::string> split_lists(const std::vector<std::string>& lists) {
  std::vector<std::string> parts;
  for (const std::string& list : lists) {
    for (std::size_t at = 0; at <= list.size();) {
      const std::size_t end = std::min(list.find(',', at), list.size());
      if (end > at) parts.push_back(list.substr(at, end - at));
      at = end + 1;
    }
  }
  return parts;
}

}  // namespace conclave::bench
