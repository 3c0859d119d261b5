// A conversation at a terminal.
#pragma once

#include "conclave/model.h"
#include "conclave/text.h"
#include "run_options.h"

namespace conclave {

// Until the person has had enough. Gives the exit code.
int chat(const RunOptions& options, const Model& model, const ModelText& text);

}  // namespace conclave
