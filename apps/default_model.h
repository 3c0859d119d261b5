// The model that is used where none is named.
#pragma once

#include <filesystem>

namespace conclave {

inline constexpr const char* kBundledModel = "conclave-tales-18m.q8_0.gguf";

// $CONCLAVE_MODEL if it is set; else the bundled model: beside the program, in the share folder of an installation, or
// in the source tree that the program was built from. Throws Error, with what to do, where there is none.
std::filesystem::path default_model();

}  // namespace conclave
