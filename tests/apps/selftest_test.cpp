// Runs `conclave selftest`: exit codes, what goes to stdout and what to stderr.
#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "apps/program.h"

namespace conclave {
namespace {

class Selftest : public ProgramTest {
 protected:
  Selftest() : ProgramTest("selftest") {}
};

TEST_F(Selftest, PassesEveryListedCaseOfEveryOp) {
  const Outcome r = run("--device ref --random 0 --json");
  EXPECT_EQ(r.exit_code, 0) << r.out.substr(0, 2000) << r.err;
  EXPECT_EQ(r.err, "");
  std::set<std::string> ops;
  std::int64_t cases = 0;
  for (const std::string& text : lines_of(r.out)) {
    const auto line = nlohmann::json::parse(text);
    EXPECT_EQ(line.size(), 6U) << text;
    EXPECT_TRUE(ops.insert(line.at("op")).second) << text;
    EXPECT_EQ(line.at("backend"), "ref");
    EXPECT_EQ(line.at("failed"), 0) << text;
    EXPECT_GT(line.at("cases"), 0) << text;
    EXPECT_TRUE(line.at("worst").is_number()) << text;
    EXPECT_LE(line.at("worst"), line.at("bound")) << text;
    cases += line.at("cases").get<std::int64_t>();
  }
  EXPECT_GE(cases, 1000);
  EXPECT_GE(ops.size(), 20U);
  for (const char* op : {"moe_route", "moe_ffn", "attention", "matmul"}) EXPECT_TRUE(ops.contains(op)) << op;
}

TEST_F(Selftest, ShowsATableWithItsSeed) {
  const Outcome r = run("--op moe_route --seed 5 --random 30");
  EXPECT_EQ(r.exit_code, 0) << r.out;
  EXPECT_EQ(r.err, "");
  EXPECT_TRUE(r.out.starts_with("seed 5 (30 random cases per op; --seed repeats them)\n")) << r.out;
  EXPECT_TRUE(has(r.out, "moe_route "));
  EXPECT_FALSE(has(r.out, "moe_group"));
  EXPECT_TRUE(has(r.out, " cases, 0 failed\n")) << r.out;
}

TEST_F(Selftest, RunsTheRandomCasesItIsAskedFor) {
  const auto cases = [&](const std::string& arguments) {
    return nlohmann::json::parse(run("--device ref --json --op argmax " + arguments).out)
        .at("cases")
        .get<std::int64_t>();
  };
  const std::int64_t listed = cases("--random 0");
  EXPECT_EQ(cases("--random 7"), listed + 7);
  EXPECT_EQ(cases(""), listed + 20);
  EXPECT_LE(cases("--small"), listed) << "the short list, without random cases";
}

TEST_F(Selftest, TakesEveryNameOfADevice) {
  for (const char* device : {"--device ref", "--device cpu", "--device all", "--device auto", "--backend ref"}) {
    EXPECT_EQ(run(std::string(device) + " --op argmax --small").exit_code, 0) << device;
  }
}

TEST_F(Selftest, RefusesWhatIsNotThere) {
  expect_error(run("--op nonsense"), "there is no op 'nonsense'");
  expect_error(run("--device nonsense"), "there is no device 'nonsense' here; there are: ref, cpu");
  expect_error(run("--export /nonexistent/x"), "/nonexistent/x: cannot be opened for writing");
  expect_error(run("--answers /nonexistent/x"), "/nonexistent/x");
}

TEST_F(Selftest, RefusesWrongUsage) {
  for (const char* arguments :
       {"--colour", "--seed x", "--random -1", "stray", "--export a --answers b", "-t x", "--threads -1", "-t 1025"}) {
    expect_wrong_usage(arguments);
  }
}

// Every op, and the row of the kernel table that was forced.
TEST_F(Selftest, ChecksTheCpuBackendWithTheKernelsItIsTold) {
  const Outcome r = run("--device cpu --small --json -t 2", "CONCLAVE_CPU=generic");
  EXPECT_EQ(r.exit_code, 0) << r.out.substr(0, 2000) << r.err;
  EXPECT_EQ(r.err, "");
  std::set<std::string> ops;
  for (const std::string& text : lines_of(r.out)) {
    const auto line = nlohmann::json::parse(text);
    EXPECT_EQ(line.size(), 7U) << text;
    EXPECT_TRUE(ops.insert(line.at("op")).second) << text;
    EXPECT_EQ(line.at("backend"), "cpu");
    EXPECT_EQ(line.at("kernels"), "generic");
    EXPECT_EQ(line.at("failed"), 0) << text;
    EXPECT_GT(line.at("cases"), 0) << text;
  }
  EXPECT_GE(ops.size(), 20U);
}

TEST_F(Selftest, NamesTheKernelsItChose) {
  const Outcome r = run("--device cpu --op argmax --small --json");
  EXPECT_EQ(r.exit_code, 0) << r.err;
  const std::string kernels = nlohmann::json::parse(r.out).at("kernels");
  EXPECT_NE(kernels, "");
  EXPECT_TRUE(has(run("--device cpu --op argmax --small").out, " cpu " + kernels + " ")) << kernels;
  EXPECT_TRUE(has(run("--device cpu --op argmax --small", "CONCLAVE_CPU=" + kernels).out, " cpu " + kernels + " "));
}

TEST_F(Selftest, RefusesKernelsThatAreNotThere) {
  const Outcome r = run("--device cpu --op argmax", "CONCLAVE_CPU=nonsense");
  expect_error(r, "CONCLAVE_CPU: there is no 'nonsense'; there is: ");
  EXPECT_TRUE(has(r.err, "generic")) << r.err;
  EXPECT_EQ(r.out, "");
}

TEST_F(Selftest, FailsWhereAnAnswerIsMissing) {
  std::ofstream(path("empty")).flush();
  const Outcome r = run("--device ref --op argmax --random 0 --answers '" + path("empty") + "'");
  EXPECT_EQ(r.exit_code, 1);
  EXPECT_TRUE(has(r.out, "there is no golden answer")) << r.out;
  EXPECT_TRUE(has(r.out, "FAILED")) << r.out;
  EXPECT_TRUE(has(r.out, " more\n")) << "a long list of failures is cut\n" << r.out;
  const Outcome json = run("--device ref --json --op argmax --random 0 --answers '" + path("empty") + "'");
  EXPECT_EQ(json.exit_code, 1);
  const auto line = nlohmann::json::parse(json.out);
  EXPECT_EQ(line.at("failed"), line.at("cases"));
}

TEST_F(Selftest, RefusesAnAnswersFileThatIsNone) {
  std::ofstream(path("junk")) << "this is no answer\n";
  expect_error(run("--device ref --op argmax --random 0 --answers '" + path("junk") + "'"), "junk");
}

TEST_F(Selftest, ExportsEveryCaseOfAnOp) {
  const Outcome r = run("--op argmax --random 3 --export '" + path("cases") + "'");
  EXPECT_EQ(r.exit_code, 0) << r.err;
  EXPECT_EQ(r.out, "");
  std::ifstream in(path("cases"), std::ios::binary);
  std::set<std::string> names;
  for (std::string line; std::getline(in, line);) {
    const auto record = nlohmann::json::parse(line);
    EXPECT_EQ(record.at("op"), "argmax");
    EXPECT_TRUE(names.insert(record.at("case")).second) << line;
    in.seekg(record.at("payload_bytes").get<std::int64_t>(), std::ios::cur);
  }
  EXPECT_TRUE(in.eof());
  EXPECT_TRUE(names.contains("random seed=1 #2"));
  EXPECT_GT(names.size(), 10U);
}

TEST_F(Selftest, DumpsOneRoutingOnRequest) {
  const Outcome r = run("--device ref --op moe_group", "CONCLAVE_MOE_DUMP=1");
  EXPECT_EQ(r.exit_code, 0) << r.out;
  const auto lines = lines_of(r.err);
  ASSERT_EQ(lines.size(), 1U) << r.err;
  EXPECT_EQ(nlohmann::json::parse(lines[0]).at("event"), "moe_dump");
  const Outcome waited = run("--device ref --op moe_group", "CONCLAVE_MOE_DUMP=1 CONCLAVE_MOE_DUMP_PAIRS=20");
  ASSERT_EQ(lines_of(waited.err).size(), 1U) << waited.err;
  EXPECT_GE(nlohmann::json::parse(waited.err).at("pairs"), 20);
  EXPECT_EQ(lines_of(run("--device cpu --op moe_group", "CONCLAVE_MOE_DUMP=1").err).size(), 1U);
  EXPECT_EQ(run("--op argmax", "CONCLAVE_MOE_DUMP=1").err, "") << "nothing to dump";
  EXPECT_EQ(run("--device ref --op moe_group", "CONCLAVE_MOE_DUMP=0").err, "");
}

TEST_F(Selftest, RefusesADumpRequestThatIsNone) {
  expect_error(run("--device ref --op moe_group", "CONCLAVE_MOE_DUMP=2"), "CONCLAVE_MOE_DUMP is '2', expected 0 or 1");
  expect_error(run("--device ref --op moe_group", "CONCLAVE_MOE_DUMP=1 CONCLAVE_MOE_DUMP_PAIRS=x"),
               "expected a number of pairs");
}

}  // namespace
}  // namespace conclave
