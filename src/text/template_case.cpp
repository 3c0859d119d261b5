#include <algorithm>
#include <iterator>

#include "text/template_case_table.h"
#include "text/template_text.h"

namespace conclave::jinja {
namespace {

template <std::size_t Rows, std::size_t Specials>
std::string other_case(char32_t c, const CaseRow (&rows)[Rows], const CaseSpecial (&specials)[Specials]) {
  const auto* const special = std::lower_bound(std::begin(specials), std::end(specials), c,
                                               [](const CaseSpecial& s, char32_t code) { return s.from < code; });
  if (special != std::end(specials) && special->from == c) return special->to;
  const auto* const row = std::lower_bound(std::begin(rows), std::end(rows), c,
                                           [](const CaseRow& r, char32_t code) { return r.last < code; });
  const bool in_row =
      row != std::end(rows) && c >= row->first && (c - row->first) % static_cast<char32_t>(row->step) == 0;
  std::string out;
  append_utf8(out, in_row ? static_cast<char32_t>(static_cast<std::int64_t>(c) + row->delta) : c);
  return out;
}

}  // namespace

std::string to_upper(char32_t c) {
  return other_case(c, kUpperRows, kUpperSpecials);
}

std::string to_lower(char32_t c) {
  return other_case(c, kLowerRows, kLowerSpecials);
}

bool is_cased(char32_t c) {
  return to_upper(c) != to_lower(c);
}

}  // namespace conclave::jinja
