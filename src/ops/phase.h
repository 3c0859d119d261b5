// Phase: which tokens the rows of an op are of. A backend may have one arithmetic for generated tokens, whose rows are
// few, and another for prompts, whose rows are many. Within a phase a row's bits depend on the row alone, never on how
// many rows there are; between phases they may differ, within the bounds of docs/numerics.md.
#pragma once

#include <string_view>

namespace conclave {

enum class Phase { decode, prefill };

constexpr std::string_view name(Phase phase) {
  return phase == Phase::decode ? "decode" : "prefill";
}

}  // namespace conclave
