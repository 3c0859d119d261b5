// Every op's cases on the reference, one test per op: listed cases against golden answers that are not ours, and random
// cases in two memory layouts.
#include "support/suite.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "backends/ref/ref_device.h"
#include "support/case.h"

namespace conclave::test {
namespace {

class OpSuite : public testing::TestWithParam<std::string> {};

TEST_P(OpSuite, PassesOnTheReference) {
  RefDevice device;
  const std::vector<OpReport> reports = run_suite(device, {.random = 200, .op = GetParam()});
  ASSERT_EQ(reports.size(), 1U);
  for (const std::string& failure : reports[0].failures) ADD_FAILURE() << failure;
  EXPECT_GE(reports[0].cases, 220) << "listed and random cases together";
}

std::vector<std::string> op_names() {
  std::vector<std::string> names;
  for (const OpCases& cases : all_op_cases()) names.emplace_back(cases.op);
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, OpSuite, testing::ValuesIn(op_names()), [](const auto& op) { return op.param; });

TEST(Cases, CoverEveryOpOfTheContract) {
  std::set<std::string> in_contract;
  const auto add = [&]<std::size_t... I>(std::index_sequence<I...>) {
    (in_contract.emplace(std::variant_alternative_t<I, Op>::kName), ...);
  };
  add(std::make_index_sequence<std::variant_size_v<Op>>{});
  const std::vector<std::string> names = op_names();
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()), in_contract);
}

TEST(Cases, AreManyAndHaveNamesOfTheirOwn) {
  std::size_t total = 0;
  for (const OpCases& cases : all_op_cases()) {
    std::set<std::string> names;
    std::size_t small = 0;
    for (const CaseSpec& spec : cases.list()) {
      EXPECT_TRUE(names.insert(spec.name).second) << cases.op << " has two cases named " << spec.name;
      small += spec.small ? 1 : 0;
    }
    EXPECT_GE(small, 4U) << cases.op << ": the short list is for sanitizers and emulators";
    total += names.size();
  }
  EXPECT_GE(total, 1000U);
}

TEST(Cases, HaveOneGoldenAnswerEach) {
  std::size_t total = 0;
  for (const OpCases& cases : all_op_cases()) total += cases.list().size();
  EXPECT_EQ(Answers::compiled_in().size(), total);
}

TEST(Cases, BuildTheSameValuesInBothLayouts) {
  for (const OpCases& cases : all_op_cases()) {
    const CaseSpec spec = random_spec(cases, 5, 1);
    EXPECT_EQ(fingerprint(spec.make(Layout::dense)), fingerprint(spec.make(Layout::padded))) << cases.op;
    EXPECT_NE(fingerprint(random_spec(cases, 6, 1).make(Layout::dense)), fingerprint(spec.make(Layout::dense)))
        << cases.op;
  }
}

}  // namespace
}  // namespace conclave::test
