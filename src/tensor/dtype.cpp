#include "tensor/dtype.h"

#include <algorithm>
#include <array>
#include <cctype>

namespace conclave {
namespace {

constexpr std::array<DTypeInfo, kDTypeCount> kInfo = {{
    {"f32", 1, 4, 4},
    {"f16", 1, 2, 2},
    {"bf16", 1, 2, 2},
    {"i32", 1, 4, 4},
    {"u32", 1, 4, 4},
    {"q4_0", 32, 18, 2},
    {"q4_1", 32, 20, 2},
    {"q5_0", 32, 22, 2},
    {"q5_1", 32, 24, 2},
    {"q8_0", 32, 34, 2},
    {"q2_k", 256, 84, 2},
    {"q3_k", 256, 110, 2},
    {"q4_k", 256, 144, 2},
    {"q5_k", 256, 176, 2},
    {"q6_k", 256, 210, 2},
    {"iq4_nl", 32, 18, 2},
    {"iq4_xs", 256, 136, 2},
    {"mxfp4", 32, 17, 1},
}};

constexpr auto kAll = [] {
  std::array<DType, kDTypeCount> all{};
  for (int i = 0; i < kDTypeCount; ++i) all[static_cast<std::size_t>(i)] = static_cast<DType>(i);
  return all;
}();

}  // namespace

const DTypeInfo& dtype_info(DType type) {
  return kInfo[static_cast<std::size_t>(type)];
}

std::span<const DType> all_dtypes() {
  return kAll;
}

std::optional<DType> dtype_from_name(std::string_view name) {
  const auto same = [](char a, char b) { return a == std::tolower(static_cast<unsigned char>(b)); };
  for (const DType type : kAll) {
    const std::string_view known = dtype_info(type).name;
    if (std::equal(known.begin(), known.end(), name.begin(), name.end(), same)) return type;
  }
  return std::nullopt;
}

}  // namespace conclave
