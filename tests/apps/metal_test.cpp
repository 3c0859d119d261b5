// The metal device as the program has it: Apple's GPU, or its kernels on the CPU.
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "api/devices.h"
#include "apps/program.h"

namespace conclave {
namespace {

class Metal : public ProgramTest {
 protected:
  explicit Metal(const std::string& command) : ProgramTest(command) {}
  void SetUp() override {
    if (const std::string absence = metal_absence_here(); !absence.empty()) GTEST_SKIP() << "skipped: " << absence;
  }
};
class MetalRun : public Metal {
 protected:
  MetalRun() : Metal("run") {}
};
class MetalSelftest : public Metal {
 protected:
  MetalSelftest() : Metal("selftest") {}
};
class MetalBench : public Metal {
 protected:
  MetalBench() : Metal("bench") {}
};

TEST_F(MetalRun, TheBundledModelSaysWhatItSaysOnTheCpu) {
  const std::string model = std::string("-m '") + CONCLAVE_SOURCE_DIR + "/models/conclave-tales-18m.q8_0.gguf' ";
  const std::string arguments =
      model + "-q --temp 0 -n 12 -p 'Once upon a time there was a little' </dev/null --device ";
  const Outcome cpu = run(arguments + "cpu");
  const Outcome metal = run(arguments + "metal");
  EXPECT_EQ(metal.exit_code, 0) << metal.err;
  EXPECT_GT(cpu.out.size(), 20U);
  EXPECT_EQ(metal.out, cpu.out);
}

TEST_F(MetalSelftest, NamesTheExecutor) {
  const Outcome r = run("--device metal --op argmax --small");
  EXPECT_EQ(r.exit_code, 0) << r.out;
  EXPECT_EQ(has(r.out, " metal executor "), !metal_is_hardware()) << r.out;
}

TEST_F(MetalBench, PlansTheLayer) {
  const Outcome r = run("--plan --device metal --json");
  EXPECT_EQ(r.exit_code, 0) << r.err;
  ASSERT_EQ(lines_of(r.out).size(), 4U);
  for (const std::string& text : lines_of(r.out)) {
    const auto line = nlohmann::json::parse(text);
    const std::int64_t tokens = line.at("tokens");
    EXPECT_LE(line.at("dispatches"), tokens < 65 ? 3 : 5) << text;
    EXPECT_LT(line.at("dispatches"), line.at("source_dispatches")) << text;
    EXPECT_GE(line.at("bytes"), line.at("floor_bytes")) << text;
    EXPECT_LT(line.at("bytes").get<double>(), 1.3 * line.at("floor_bytes").get<double>()) << text;
  }
  EXPECT_TRUE(has(run("--plan --device metal").out, "threadgroups of"));
  expect_error(run("--plan --device cpu"), "there is a plan of the metal device alone");
  expect_error(run("--plan --device metal --model nonsense"), "nonsense");
  expect_error(run("--plan --device metal --tokens 0"), "'0' is not a number of tokens");
}

}  // namespace
}  // namespace conclave
