// conclave run: a prompt in, text out; at a terminal without a prompt, a chat.
#pragma once

#include "cli.h"

namespace conclave {

void add_run(CLI::App& app, Command& chosen);

}  // namespace conclave
