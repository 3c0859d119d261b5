// The heat map as text. With colours: blocks, a row per layer, or two layers in each row where there are many. Without:
// one ASCII character for each cell, " " for never used, then . : - = + * # % @ as the load grows. Experts that do not
// fit in a line share a cell, which shows their mean.
#pragma once

#include <string>

#include "report/routing_stats.h"
#include "terminal/style.h"

namespace conclave {

std::string heat_text(const RoutingTrace& trace, const RoutingStats& stats, const TerminalStyle& style);

}  // namespace conclave
