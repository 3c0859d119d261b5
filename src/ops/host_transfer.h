// Copies into and out of buffers in host memory, for devices whose memory it is. Throws where the bytes lie outside.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tensor/buffer.h"

namespace conclave {

// Throws where the bytes are not inside the buffer, whoever's memory it is.
void check_range(const Buffer& buffer, std::int64_t offset, std::size_t bytes);

void host_upload(Buffer& to, std::int64_t offset, std::span<const std::byte> bytes);
void host_download(const Buffer& from, std::int64_t offset, std::span<std::byte> bytes);

}  // namespace conclave
