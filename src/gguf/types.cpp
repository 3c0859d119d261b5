#include "gguf/types.h"

#include <array>
#include <string>

#include "base/error.h"

namespace conclave::gguf {
namespace {

struct ValueTypeInfo {
  std::string_view name;
  std::uint64_t bytes;
};

constexpr std::array<ValueTypeInfo, kValueTypeCount> kValueTypes = {{
    {"u8", 1},
    {"i8", 1},
    {"u16", 2},
    {"i16", 2},
    {"u32", 4},
    {"i32", 4},
    {"f32", 4},
    {"bool", 1},
    {"string", 0},
    {"array", 0},
    {"u64", 8},
    {"i64", 8},
    {"f64", 8},
}};

// In order of their numbers. The gaps are numbers whose formats were removed.
constexpr std::array kTensorTypes = {
    TensorType{0, "F32", 1, 4, DType::f32},
    TensorType{1, "F16", 1, 2, DType::f16},
    TensorType{2, "Q4_0", 32, 18, DType::q4_0},
    TensorType{3, "Q4_1", 32, 20, DType::q4_1},
    TensorType{6, "Q5_0", 32, 22, DType::q5_0},
    TensorType{7, "Q5_1", 32, 24, DType::q5_1},
    TensorType{8, "Q8_0", 32, 34, DType::q8_0},
    TensorType{9, "Q8_1", 32, 36, {}},
    TensorType{10, "Q2_K", 256, 84, DType::q2_k},
    TensorType{11, "Q3_K", 256, 110, DType::q3_k},
    TensorType{12, "Q4_K", 256, 144, DType::q4_k},
    TensorType{13, "Q5_K", 256, 176, DType::q5_k},
    TensorType{14, "Q6_K", 256, 210, DType::q6_k},
    TensorType{15, "Q8_K", 256, 292, {}},
    TensorType{16, "IQ2_XXS", 256, 66, {}},
    TensorType{17, "IQ2_XS", 256, 74, {}},
    TensorType{18, "IQ3_XXS", 256, 98, {}},
    TensorType{19, "IQ1_S", 256, 50, {}},
    TensorType{20, "IQ4_NL", 32, 18, DType::iq4_nl},
    TensorType{21, "IQ3_S", 256, 110, {}},
    TensorType{22, "IQ2_S", 256, 82, {}},
    TensorType{23, "IQ4_XS", 256, 136, DType::iq4_xs},
    TensorType{24, "I8", 1, 1, {}},
    TensorType{25, "I16", 1, 2, {}},
    TensorType{26, "I32", 1, 4, DType::i32},
    TensorType{27, "I64", 1, 8, {}},
    TensorType{28, "F64", 1, 8, {}},
    TensorType{29, "IQ1_M", 256, 56, {}},
    TensorType{30, "BF16", 1, 2, DType::bf16},
    TensorType{34, "TQ1_0", 256, 54, {}},
    TensorType{35, "TQ2_0", 256, 66, {}},
    TensorType{39, "MXFP4", 32, 17, DType::mxfp4},
    TensorType{40, "NVFP4", 64, 36, {}},
    TensorType{41, "Q1_0", 128, 18, {}},
    TensorType{42, "Q2_0", 64, 18, {}},
};

constexpr std::uint32_t kCodeEnd = kTensorTypes.back().code + 1;

// Number to place in kTensorTypes; -1 for a gap.
constexpr auto kPlaceOfCode = [] {
  std::array<int, kCodeEnd> place{};
  place.fill(-1);
  for (std::size_t i = 0; i < kTensorTypes.size(); ++i) place[kTensorTypes[i].code] = static_cast<int>(i);
  return place;
}();

constexpr auto kPlaceOfDType = [] {
  std::array<int, kDTypeCount> place{};
  place.fill(-1);
  for (std::size_t i = 0; i < kTensorTypes.size(); ++i) {
    if (kTensorTypes[i].dtype) place[static_cast<std::size_t>(*kTensorTypes[i].dtype)] = static_cast<int>(i);
  }
  return place;
}();

}  // namespace

std::string_view value_type_name(ValueType type) {
  return kValueTypes[static_cast<std::size_t>(type)].name;
}

std::uint64_t value_type_bytes(ValueType type) {
  return kValueTypes[static_cast<std::size_t>(type)].bytes;
}

const TensorType* tensor_type(std::uint32_t code) {
  if (code >= kCodeEnd || kPlaceOfCode[code] < 0) return nullptr;
  return &kTensorTypes[static_cast<std::size_t>(kPlaceOfCode[code])];
}

const TensorType& tensor_type(DType type) {
  const int place = kPlaceOfDType[static_cast<std::size_t>(type)];
  CONCLAVE_CHECK(place >= 0, std::string(dtype_info(type).name) + " has no number in GGUF");
  return kTensorTypes[static_cast<std::size_t>(place)];
}

}  // namespace conclave::gguf
