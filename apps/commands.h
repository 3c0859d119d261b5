// The subcommands of the program, in the order in which --help lists them.
#pragma once

#include "cli.h"

namespace conclave {

void add_commands(CLI::App& app, Command& chosen);

}  // namespace conclave
