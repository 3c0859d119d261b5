// conclave convert HF_DIR OUT [--type FORMAT]: a checkpoint of transformers as a GGUF file.
#pragma once

#include "cli.h"

namespace conclave {

void add_convert(CLI::App& app, Command& chosen);

}  // namespace conclave
