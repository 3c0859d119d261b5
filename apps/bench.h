// conclave bench: how fast the ops are on this machine, against what the machine can do.
#pragma once

#include "cli.h"

namespace conclave {

void add_bench(CLI::App& app, Command& chosen);

}  // namespace conclave
