// The report as one page that needs nothing else: heat map with numbers under the pointer, a table of the layers, and the
// text with the experts of each token. Readable in light and dark, also without scripts (the table). It loads nothing:
// its own policy forbids that.
//
// Pages stay small enough to open: of a long text the first tokens are listed, and the page says so; the heat map and the
// table are always of all tokens.
#pragma once

#include <string>
#include <string_view>

#include "report/routing_stats.h"

namespace conclave {

std::string heat_html(const RoutingTrace& trace, const RoutingStats& stats);

// As text or as an attribute between double quotes.
std::string html_escaped(std::string_view text);

}  // namespace conclave
