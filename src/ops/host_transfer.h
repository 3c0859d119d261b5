// Copies into and out of buffers in host memory, for devices whose memory it is. Throws where the bytes lie outside.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tensor/buffer.h"

namespace conclave {

void host_upload(Buffer& to, std::int64_t offset, std::span<const std::byte> bytes);
void host_download(const Buffer& from, std::int64_t offset, std::span<std::byte> bytes);

}  // namespace conclave
