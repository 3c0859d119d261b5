// conclave logits -m FILE --tokens 1,2,3 -o out.npy: the logits of every position, as a NumPy array f32 [n_tokens, n_vocab].
#pragma once

#include "cli.h"

namespace conclave {

void add_logits(CLI::App& app, Command& chosen);

}  // namespace conclave
