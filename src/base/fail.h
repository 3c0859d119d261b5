// fail(): an Error with a formatted text. Apart from error.h so that headers which CUDA sources include stay free of
// fmt.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "base/error.h"

namespace conclave {

template <class... Args>
[[noreturn]] void fail(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(code, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace conclave
