// The parts of the page that are the same for every trace.
#pragma once

#include <string_view>

namespace conclave {

extern const std::string_view kHeatPageStyle;
extern const std::string_view kHeatPageScript;

}  // namespace conclave
