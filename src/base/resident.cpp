#include "base/resident.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace conclave {
namespace {

std::size_t page_bytes() {
  return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace

bool is_resident(std::span<const std::byte> bytes) {
  if (bytes.empty()) return true;
  const std::size_t page = page_bytes();
  const auto address = reinterpret_cast<std::uintptr_t>(bytes.data());
  const std::uintptr_t start = address / page * page;
  const std::size_t length = address - start + bytes.size();
  std::vector<unsigned char> pages((length + page - 1) / page);
  if (::mincore(reinterpret_cast<void*>(start), length, pages.data()) != 0) return true;
  return std::all_of(pages.begin(), pages.end(), [](unsigned char state) { return (state & 1U) != 0; });
}

void read_in(std::span<const std::byte> bytes) {
  const std::size_t page = page_bytes();
  const volatile std::byte* data = bytes.data();
  for (std::size_t at = 0; at < bytes.size(); at += page) static_cast<void>(data[at]);
  if (!bytes.empty()) static_cast<void>(data[bytes.size() - 1]);
}

}  // namespace conclave
