#include <gtest/gtest.h>

#include <array>

#include "backends/cpu/cpu_device.h"
#include "backends/cuda/cuda_device.h"
#include "support/case.h"
#include "support/execute.h"

namespace conclave::test {
namespace {

// Every tile of float_rows_plan.h, float_bulk_plan.h and float_split_plan.h, with rows that lie on 16 bytes and with others.
TEST(CudaFloatRows, HaveTheBitsOfTheCpu) {
  if (const std::string absence = cuda_absence(); !absence.empty()) GTEST_SKIP() << "skipped: " << absence;
  CudaDevice device;
  CpuDevice cpu({.threads = 1});
  using Sizes = std::array<std::int64_t, 3>;
  for (const auto& [rows, n, k] :
       {Sizes{1, 128, 2048},  Sizes{12, 128, 2048},   Sizes{20, 130, 2080},  Sizes{64, 128, 7168},
        Sizes{128, 61, 4128}, Sizes{1, 1600, 333},    Sizes{3, 40, 2880},    Sizes{7, 128, 2048},
        Sizes{9, 128, 2050},  Sizes{33, 128, 2048},   Sizes{200, 130, 600},  Sizes{500, 128, 160},
        Sizes{1000, 129, 70}, Sizes{1000, 1, 64},     Sizes{100, 128, 2048}, Sizes{250, 128, 2880},
        Sizes{500, 130, 32},  Sizes{1000, 120, 2080}, Sizes{2050, 128, 96},  Sizes{2030, 128, 2048}}) {
    for (const DType type : {DType::f32, DType::f16, DType::bf16}) {
      for (const Layout layout : {Layout::dense, Layout::padded}) {
        CaseBuilder b(23, layout);
        const Matmul op{
            .x = b.values(DType::f32, {rows, k}), .w = b.weights(type, {n, k}), .out = b.output(DType::f32, {rows, n})};
        const Case one = b.finish("product", op);
        EXPECT_EQ(execute(one, device).outputs.at("out"), execute(one, cpu).outputs.at("out"))
            << rows << " rows, " << n << " columns of " << dtype_info(type).name;
      }
    }
  }
}

}  // namespace
}  // namespace conclave::test
