// Deliberate faults in kernels (faults.cmake), each of which a case or the executor must notice.
#include <gtest/gtest.h>

#include "backends/metal/metal_device.h"
#include "backends/metal/shim/executor_gpu.h"
#include "support/suite.h"

namespace conclave::test {
namespace {

struct Fault {
  const char* name;
  const char* op;     // whose cases meet it
  const char* words;  // of what notices it: the executor, or the comparison with the reference
  metal::Target::Products products = metal::Target::Products::by_rows;
};

class MetalFault : public testing::TestWithParam<Fault> {};

TEST_P(MetalFault, IsNoticed) {
  const Fault& fault = GetParam();
  MetalDevice device(metal::make_executor_gpu({.threads = 2, .fault = fault.name}), {.products = fault.products});
  const auto reports = run_suite(device, {.random = 10, .op = fault.op});
  ASSERT_EQ(reports.size(), 1U);
  ASSERT_GT(reports[0].failed, 0) << fault.name << " was not noticed";
  bool told = false;
  for (const std::string& failure : reports[0].failures) told = told || failure.find(fault.words) != std::string::npos;
  EXPECT_TRUE(told) << "none of " << reports[0].failed << " failures says '" << fault.words
                    << "'; the first: " << reports[0].failures.front();
  std::printf("%-20s %-26s noticed in %lld of %lld cases: %s\n", fault.name, fault.op,
              static_cast<long long>(reports[0].failed), static_cast<long long>(reports[0].cases),
              reports[0].failures.front().substr(0, 150).c_str());
}

using Products = metal::Target::Products;
INSTANTIATE_TEST_SUITE_P(Kernels, MetalFault,
                         testing::Values(Fault{"dropped_barrier", "matmul", "threadgroup memory", Products::many_rows},
                                         Fault{"off_by_one", "softmax", "outside of every tensor"},
                                         Fault{"wrong_lane_mask", "matmul", "out: "},
                                         Fault{"unwritten_slot", "moe_group", "row_pair: "},
                                         Fault{"stale_shared_value", "argmax", "ids: "},
                                         Fault{"missing_lane", "matmul", "with missing lanes", Products::few_rows},
                                         Fault{"divergent_barrier", "argmax", "barrier"},
                                         Fault{"shared_elements", "moe_combine", "a race in buffer"},
                                         Fault{"overlapping_groups", "matmul", "a race in buffer", Products::few_rows},
                                         Fault{"missing_fence", "moe_ffn", "without a fence", Products::few_rows},
                                         Fault{"lost_tie", "moe_route", "experts: "},
                                         Fault{"wrong_scale", "moe_matmul", "out: ", Products::few_rows},
                                         Fault{"uncleared_sum", "attention", "nobody has written"},
                                         Fault{"dead_rows", "softmax", ""}),
                         [](const auto& fault) { return std::string(fault.param.name); });

}  // namespace
}  // namespace conclave::test
