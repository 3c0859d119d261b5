// Which part of a mapped file is in memory, and how to get the rest of it there.
#pragma once

#include <cstddef>
#include <span>

namespace conclave {

// Whether all pages of the mapping that `bytes` lies in are in memory. True where the system does not say.
bool is_resident(std::span<const std::byte> bytes);

// Touches every page of it.
void read_in(std::span<const std::byte> bytes);

}  // namespace conclave
