// Runs `conclave bench`: what it refuses, and one small row. (The rows themselves are tested in tests/bench.)
#include <nlohmann/json.hpp>

#include "apps/program.h"

namespace conclave {
namespace {

class Bench : public ProgramTest {
 protected:
  Bench() : ProgramTest("bench") {}
};

TEST_F(Bench, RefusesWrongUsage) {
  for (const char* arguments :
       {"", "--json", "--colour", "--kernels stray", "--kernels -t 0", "--kernels -t x", "--kernels --threads 1025",
        "--kernels --memory 0.1", "--kernels --memory x", "--kernels --op", "--targets --scratch"}) {
    expect_wrong_usage(arguments);
  }
}

TEST_F(Bench, RefusesWhatIsNotThere) {
  const std::pair<const char*, const char*> wrong[] = {
      {"--op nonsense", "--op: there is no op 'nonsense' to benchmark"},
      {"--op moe_ffn,nonsense", "'nonsense'"},
      {"--model nonsense", "nonsense"},
      {"--format nonsense", "--format: 'nonsense' is not a weight type"},
      {"--format i32", "--format: 'i32' is not a weight type"},
      {"--tokens 0", "--tokens: '0' is not a whole number from 1 to "},
      {"--tokens 1,x", "--tokens: 'x' is not a whole number"},
      {"--skew nonsense", "--skew: there is no skew 'nonsense'; there are: uniform, zipf, one-hot"},
      {"--device ref", "there is no device 'ref' to benchmark; there is: cpu"},
      {"--op rms_norm --scratch /nonexistent/x", "/nonexistent/x"},
  };
  for (const auto& [arguments, part] : wrong) {
    const Outcome r = run(std::string("--kernels ") + arguments);
    expect_error(r, part);
    EXPECT_EQ(r.out, "") << arguments;
  }
}

TEST_F(Bench, RefusesKernelsThatAreNotThere) {
  const Outcome r = run("--kernels --op rms_norm", "CONCLAVE_CPU=nonsense");
  expect_error(r, "CONCLAVE_CPU: there is no 'nonsense'; there is: ");
  EXPECT_EQ(r.out, "");
}

TEST_F(Bench, MeasuresOneRow) {
  const Outcome r =
      run("--kernels --op rms_norm --tokens 1 -t 1 --json --scratch '" + path("") + "'", "CONCLAVE_CPU=generic");
  EXPECT_EQ(r.exit_code, 0) << r.err;
  EXPECT_EQ(r.err, "");
  ASSERT_EQ(lines_of(r.out).size(), 1U) << r.out;
  const auto line = nlohmann::json::parse(r.out);
  EXPECT_EQ(line.at("op"), "rms_norm");
  EXPECT_EQ(line.at("flags"), "generic");
  EXPECT_EQ(line.at("threads"), 1);
  EXPECT_EQ(line.at("ok"), true);
  EXPECT_GT(line.at("us_median"), 0);
  EXPECT_GT(line.at("peak_gbps"), 0);
}

TEST_F(Bench, Help) {
  const Outcome r = run("--help");
  EXPECT_EQ(r.exit_code, 0);
  EXPECT_TRUE(has(r.out, "conclave bench --kernels --op moe_ffn")) << r.out;
}

}  // namespace
}  // namespace conclave
