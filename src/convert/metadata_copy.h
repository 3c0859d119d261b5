// A key-value of a file that is read as one of a file that is written.
#pragma once

#include "gguf/file.h"
#include "gguf/writer.h"

namespace conclave {

// The same type and the same value.
gguf::Metadata copy_of(const gguf::Value& value);

}  // namespace conclave
