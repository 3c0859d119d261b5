// What a row is computed for. Within a phase a row's bits depend on the row alone; a backend may have an arithmetic of
// its own for each.
#pragma once

namespace conclave {

enum class Phase { decode, prefill };

}  // namespace conclave
