// conclave route: which experts serve which tokens of a text.
#pragma once

#include "cli.h"

namespace conclave {

void add_route(CLI::App& app, Command& chosen);

}  // namespace conclave
