// conclave quantize IN OUT FORMAT: a GGUF file with its matrices in another format.
#pragma once

#include "cli.h"

namespace conclave {

void add_quantize(CLI::App& app, Command& chosen);

}  // namespace conclave
