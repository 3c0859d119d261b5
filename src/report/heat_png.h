// The heat map as a picture: a row per layer and a column per expert, the numbers of each layer beside its row, a legend
// below. Characters of the model's name that are not ASCII are shown as question marks.
#pragma once

#include <string>

#include "report/png.h"
#include "report/routing_stats.h"

namespace conclave {

Picture heat_picture(const RoutingTrace& trace, const RoutingStats& stats);

inline std::string heat_png(const RoutingTrace& trace, const RoutingStats& stats) {
  return png_of(heat_picture(trace, stats));
}

// Two lines of words and numbers, shared by all forms of the report.
std::string facts_text(const RoutingTrace& trace);
std::string summary_text(const RoutingTrace& trace, const RoutingStats& stats);

}  // namespace conclave
