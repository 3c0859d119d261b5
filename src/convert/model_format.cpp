#include "convert/model_format.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <charconv>

#include "base/file_text.h"

namespace conclave {
namespace {

constexpr ModelFormat kFormats[] = {
    {"F32", DType::f32, FormatMix::single, 0},       {"F16", DType::f16, FormatMix::single, 1},
    {"BF16", DType::bf16, FormatMix::single, 32},    {"Q8_0", DType::q8_0, FormatMix::single, 7},
    {"Q6_K", DType::q6_k, FormatMix::single, 18},    {"Q5_K_M", DType::q5_k, FormatMix::k_medium, 17},
    {"Q5_K_S", DType::q5_k, FormatMix::k_small, 16}, {"Q5_K", DType::q5_k, FormatMix::single, 16},
    {"Q5_0", DType::q5_0, FormatMix::single, 8},     {"Q4_K_M", DType::q4_k, FormatMix::k_medium, 15},
    {"Q4_K_S", DType::q4_k, FormatMix::k_small, 14}, {"Q4_K", DType::q4_k, FormatMix::single, 14},
    {"Q4_0", DType::q4_0, FormatMix::single, 2},     {"MXFP4_MOE", DType::mxfp4, FormatMix::experts_alone, 38},
    {"MXFP4", DType::mxfp4, FormatMix::single, 38},
};

bool same_letters(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [&](char x, char y) { return lower(x) == lower(y); });
}

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// N of "blk.N.", or -1.
std::int64_t layer_of(std::string_view name) {
  constexpr std::string_view kLayer = "blk.";
  if (!name.starts_with(kLayer)) return -1;
  std::int64_t layer = -1;
  const auto parsed = std::from_chars(name.data() + kLayer.size(), name.data() + name.size(), layer);
  return parsed.ec == std::errc{} ? layer : -1;
}

bool wants_more_bits(std::int64_t layer, std::int64_t n_layers) {
  const std::int64_t eighth = n_layers / 8;
  return layer < eighth || layer >= 7 * n_layers / 8 || (layer - eighth) % 3 == 2;
}

DType type_that_fits(DType type, std::int64_t row) {
  if (row % dtype_info(type).per_block == 0) return type;
  const DType smaller_blocks = type == DType::q4_k ? DType::q5_0 : DType::q8_0;
  return row % dtype_info(smaller_blocks).per_block == 0 ? smaller_blocks : DType::f16;
}

std::string upper(std::string_view name) {
  std::string text(name);
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

}  // namespace

std::span<const ModelFormat> all_model_formats() {
  return kFormats;
}

const ModelFormat* find_model_format(std::string_view name) {
  for (const ModelFormat& format : kFormats) {
    if (same_letters(format.name, name)) return &format;
  }
  return nullptr;
}

std::string model_format_names() {
  std::vector<std::string_view> names;
  for (const ModelFormat& format : kFormats) names.push_back(format.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

bool is_quantizable(std::string_view name, std::span<const std::int64_t> dims) {
  while (dims.size() > 1 && dims.front() == 1) dims = dims.subspan(1);
  return dims.size() >= 2 && name.ends_with("weight") && !contains(name, "_norm.weight") &&
         !contains(name, "ffn_gate_inp");
}

DType FormatChooser::wanted(std::string_view name, std::span<const std::int64_t> dims) const {
  const DType base = format_->base;
  if (format_->mix == FormatMix::single) return base;
  if (format_->mix == FormatMix::experts_alone) return contains(name, "_exps.") ? base : DType::q8_0;

  const bool medium = format_->mix == FormatMix::k_medium;
  const std::int64_t layer = layer_of(name);
  if (name == "output.weight" || (name == "token_embd.weight" && !facts_.has_head)) {
    return dims.back() % dtype_info(base).per_block == 0 ? DType::q6_k : DType::q8_0;
  }
  if (contains(name, "attn_v.weight")) {
    if (facts_.n_experts == 8) return DType::q8_0;
    if (medium) return wants_more_bits(layer, facts_.n_layers) ? DType::q6_k : base;
    return base == DType::q4_k && layer < 4 ? DType::q5_k : base;
  }
  if (contains(name, "attn_k.weight") && facts_.n_experts == 8) return DType::q8_0;
  if (contains(name, "attn_output.weight") && facts_.n_experts == 8 && base == DType::q4_k) return DType::q5_k;
  if (contains(name, "ffn_down")) {
    if (medium) return wants_more_bits(layer, facts_.n_layers) ? DType::q6_k : base;
    return base == DType::q4_k && layer < facts_.n_layers / 8 ? DType::q5_k : base;
  }
  return base;
}

DType FormatChooser::choose(std::string_view name, std::span<const std::int64_t> dims) {
  const DType want = wanted(name, dims);
  const DType fits = type_that_fits(want, dims.back());
  if (fits != want) {
    Fallback& fallback = fallbacks_[{dims.back(), want, fits}];
    if (fallback.count++ == 0) fallback.first = name;
  }
  return fits;
}

std::vector<std::string> FormatChooser::notes() const {
  std::vector<std::string> lines;
  for (const auto& [kind, fallback] : fallbacks_) {
    const auto& [row, want, fits] = kind;
    const std::string others = fallback.count > 1 ? fmt::format(" and {} more", fallback.count - 1) : "";
    lines.push_back(fmt::format("{}{}: {} instead of {}, whose blocks rows of {} do not fill",
                                printable(fallback.first), others, upper(dtype_info(fits).name),
                                upper(dtype_info(want).name), row));
  }
  return lines;
}

}  // namespace conclave
