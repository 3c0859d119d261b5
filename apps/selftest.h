// conclave selftest: every op of every backend on this machine against the reference.
#pragma once

#include "cli.h"

namespace conclave {

void add_selftest(CLI::App& app, Command& chosen);

}  // namespace conclave
