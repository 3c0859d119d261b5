#include "text/template_text.h"

#include <algorithm>
#include <cstring>

namespace conclave::jinja {

std::size_t Text::run_at(std::size_t at) const {
  const auto run = std::upper_bound(runs_.begin(), runs_.end(), at,
                                    [](std::size_t position, const TextRun& r) { return position < r.end; });
  return static_cast<std::size_t>(run - runs_.begin());
}

bool Text::trusted_at(std::size_t at) const {
  if (runs_.empty()) return false;
  return runs_[std::min(run_at(at), runs_.size() - 1)].trusted;
}

bool Text::all_trusted() const {
  return runs_.empty() || (runs_.size() == 1 && runs_[0].trusted);
}

void Text::append(std::string_view bytes, bool trusted) {
  if (bytes.empty()) return;
  bytes_.append(bytes);
  if (!runs_.empty() && runs_.back().trusted == trusted) {
    runs_.back().end = bytes_.size();
  } else {
    runs_.push_back({bytes_.size(), trusted});
  }
}

void Text::append(const Text& other, std::size_t from, std::size_t to) {
  for (std::size_t run = other.run_at(from); from < to; ++run) {
    const std::size_t end = std::min(other.runs_[run].end, to);
    append(other.view().substr(from, end - from), other.runs_[run].trusted);
    from = end;
  }
}

Text Text::slice(std::size_t from, std::size_t to) const {
  Text part;
  part.append(*this, from, to);
  part.is_markup_ = is_markup_;
  return part;
}

Text Text::as_markup(bool is_markup) const {
  Text copy = *this;
  copy.is_markup_ = is_markup;
  return copy;
}

Text html_escaped(const Text& text) {
  if (text.is_markup()) return text;
  Text out;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const bool trusted = text.trusted_at(at);
    switch (text.view()[at]) {
      case '&':
        out.append("&amp;", trusted);
        break;
      case '<':
        out.append("&lt;", trusted);
        break;
      case '>':
        out.append("&gt;", trusted);
        break;
      case '\'':
        out.append("&#39;", trusted);
        break;
      case '"':
        out.append("&#34;", trusted);
        break;
      default:
        out.append(text.view().substr(at, 1), trusted);
    }
  }
  return out.as_markup();
}

CodePoint code_point_at(std::string_view bytes, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const unsigned char lead = byte(at);
  if (lead < 0x80) return {lead, 1};
  std::size_t length = 0;
  char32_t value = 0;
  char32_t least = 0;
  if (lead >= 0xC2 && lead < 0xE0) {
    length = 2, value = lead & 0x1F, least = 0x80;
  } else if (lead >= 0xE0 && lead < 0xF0) {
    length = 3, value = lead & 0x0F, least = 0x800;
  } else if (lead >= 0xF0 && lead < 0xF5) {
    length = 4, value = lead & 0x07, least = 0x10000;
  }
  if (length == 0 || bytes.size() - at < length) return {0xFFFD, 1};
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(at + i) & 0xC0) != 0x80) return {0xFFFD, 1};
    value = value << 6 | (byte(at + i) & 0x3F);
  }
  if (value < least || value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) return {0xFFFD, 1};
  return {value, length};
}

std::size_t previous_code_point(std::string_view bytes, std::size_t end) {
  // At most three bytes back; a start counts only if its sequence reaches exactly to `end`.
  for (std::size_t back = 2; back <= 4 && back <= end; ++back) {
    if (code_point_at(bytes.substr(0, end), end - back).bytes == back) return end - back;
  }
  return end - 1;
}

std::size_t count_code_points(std::string_view bytes) {
  std::size_t n = 0;
  for (std::size_t at = 0; at < bytes.size(); at += code_point_at(bytes, at).bytes) ++n;
  return n;
}

void append_utf8(std::string& out, char32_t value) {
  const auto put = [&](char32_t byte) { out.push_back(static_cast<char>(static_cast<unsigned char>(byte))); };
  if (value < 0x80) {
    put(value);
  } else if (value < 0x800) {
    put(0xC0 | value >> 6);
    put(0x80 | (value & 0x3F));
  } else if (value < 0x10000) {
    put(0xE0 | value >> 12);
    put(0x80 | (value >> 6 & 0x3F));
    put(0x80 | (value & 0x3F));
  } else {
    put(0xF0 | value >> 18);
    put(0x80 | (value >> 12 & 0x3F));
    put(0x80 | (value >> 6 & 0x3F));
    put(0x80 | (value & 0x3F));
  }
}

std::size_t find_bytes(std::string_view in, std::string_view what, std::size_t from) {
  if (from > in.size()) return std::string_view::npos;
  if (what.empty()) return from;
  const void* const found = ::memmem(in.data() + from, in.size() - from, what.data(), what.size());
  if (found == nullptr) return std::string_view::npos;
  return static_cast<std::size_t>(static_cast<const char*>(found) - in.data());
}

bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_line_break(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

}  // namespace conclave::jinja
