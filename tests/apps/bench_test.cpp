// Runs `conclave bench`: what it refuses, one small row, a tiny model. (The rows themselves are tested in tests/bench.)
#include <nlohmann/json.hpp>

#include "apps/program.h"
#include "engine/random_model.h"

namespace conclave {
namespace {

class Bench : public ProgramTest {
 protected:
  Bench() : ProgramTest("bench") {}
};

TEST_F(Bench, RefusesWrongUsage) {
  for (const char* arguments :
       {"", "--json", "--colour", "--kernels stray", "--kernels -t 0", "--kernels -t x", "--kernels --threads 1025",
        "--kernels --memory 0.1", "--kernels --memory x", "--kernels --memory nan", "--kernels --memory inf",
        "--kernels --op", "--targets --scratch"}) {
    expect_wrong_usage(arguments);
  }
}

TEST_F(Bench, RefusesOptionsThatDoNothing) {
  const std::pair<const char*, const char*> wrong[] = {
      {"--targets --op moe_ffn", "--op does nothing without --kernels"},
      {"--targets --tokens 1", "--tokens does nothing without --kernels"},
      {"--targets --format q8_0", "--format does nothing without --kernels"},
      {"--kernels --phase decode", "--phase does nothing on the CPU"},
      {"--kernels --stages", "--stages does nothing on the CPU"},
      {"--kernels --device cuda --op moe_ffn", "--op does nothing on a GPU"},
      {"--kernels --device cuda:0 --format q8_0", "--format does nothing on a GPU"},
      {"--kernels --device cuda --all", "--all does nothing on a GPU"},
      {"--kernels --device cuda --memory 8", "--memory does nothing on a GPU"},
      {"--plan --device metal --skew zipf", "--skew does nothing with --plan"},
      {"--plan --device metal --format q4_k,q8_0", "--plan takes one --format"},
  };
  for (const auto& [arguments, part] : wrong) {
    expect_wrong_usage(arguments);
    EXPECT_TRUE(has(run(arguments).err, part)) << arguments;
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
      {"--device auto", "there is no device 'auto' to benchmark; there is: cpu"},
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

// `conclave bench -m`.
class ModelBench : public Bench {
 protected:
  ModelBench() : model_("qwen3moe", DType::q8_0) {}
  Outcome on_model(const std::string& arguments, const std::string& environment = "") const {
    return run("-m '" + model_.path().string() + "' " + arguments, environment);
  }

  testing::RandomModel model_;
};

TEST_F(ModelBench, OneObjectALine) {
  const Outcome r = on_model("-p 9,3 -n 4 -b 1,3 --reps 3 -t 2 --json", "CONCLAVE_CPU=generic");
  EXPECT_EQ(r.exit_code, 0) << r.err;
  EXPECT_EQ(r.err, "");
  struct Row {
    const char* work;
    int tokens;
    int batch;
  };
  const Row rows[] = {{"prefill", 9, 1}, {"prefill", 3, 1}, {"decode", 4, 1}, {"decode", 4, 3}};
  const std::vector<std::string> lines = lines_of(r.out);
  ASSERT_EQ(lines.size(), std::size(rows)) << r.out;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const auto line = nlohmann::json::parse(lines[i]);
    EXPECT_EQ(line.at("work"), rows[i].work);
    EXPECT_EQ(line.at("tokens"), rows[i].tokens);
    EXPECT_EQ(line.at("batch"), rows[i].batch);
    EXPECT_EQ(line.at("device"), "cpu");
    EXPECT_EQ(line.at("kernels"), "generic");
    EXPECT_EQ(line.at("threads"), 2);
    EXPECT_EQ(line.at("model"), "model.gguf");
    EXPECT_EQ(line.at("samples").size(), 3U);
    EXPECT_GT(line.at("min"), 0);
    EXPECT_LE(line.at("min"), line.at("tokens_per_second"));
    EXPECT_LE(line.at("tokens_per_second"), line.at("max"));
    EXPECT_EQ(line.at("same_bits"), true);
    EXPECT_GT(line.at("percent_of_read"), 0);
    EXPECT_GT(line.at("percent_of_int8"), 0);
    EXPECT_EQ(line.at("file_bytes"), std::filesystem::file_size(model_.path()));
    EXPECT_GT(line.at("kv_bytes"), 0);
    EXPECT_GT(line.at("workspace_bytes"), 0);
    EXPECT_GE(line.at("resident_bytes"), line.at("resident_own_bytes"));
    EXPECT_TRUE(line.contains("commit"));
    EXPECT_TRUE(line.contains("cpu"));
  }
  // One token at a time reads the experts that it is routed to, three read at most three times as many.
  const auto experts = [&](std::size_t i) {
    return nlohmann::json::parse(lines[i]).at("experts_per_layer").get<double>();
  };
  EXPECT_EQ(experts(2), 2);
  EXPECT_GT(experts(3), 2);
  EXPECT_LE(experts(3), 6);
}

TEST_F(ModelBench, TableForPeople) {
  const Outcome r = on_model("-p 5 -n 2 -b 2 --reps 2 -t 1 --kv q8_0");
  EXPECT_EQ(r.exit_code, 0) << r.err;
  for (const char* part : {"model.gguf (qwen3moe", "tokens/s", "prefill      5     1", "decode       2     2",
                           "memory at most: file ", "read ", " GB/s"}) {
    EXPECT_TRUE(has(r.out, part)) << part << "\n" << r.out;
  }
  for (const std::string& line : lines_of(r.out)) EXPECT_LE(line.size(), 120U) << line;
}

TEST_F(ModelBench, DecodesAfterAContext) {
  const Outcome r = on_model("-p 0 -n 2 -b 2 -d 0,7 --reps 1 -t 1 --json");
  const auto lines = lines_of(r.out);
  ASSERT_EQ(lines.size(), 2U) << r.out << r.err;
  const auto shallow = nlohmann::json::parse(lines[0]);
  const auto deep = nlohmann::json::parse(lines[1]);
  EXPECT_EQ(shallow.at("depth"), 0);
  EXPECT_EQ(deep.at("depth"), 7);
  // Two sequences see 1 and 2 positions, or 8 and 9.
  EXPECT_EQ(deep.at("kv_bytes_read").get<double>() * 3, shallow.at("kv_bytes_read").get<double>() * 17);
  EXPECT_TRUE(has(on_model("-p 0 -n 2 -d 7 --reps 1 -t 1").out, "decode       2     1      7"));
}

TEST_F(ModelBench, OtherDevicesHaveNoBound) {
  const Outcome r = on_model("-p 0 -n 2 --reps 1 --device ref --json");
  ASSERT_EQ(lines_of(r.out).size(), 1U) << r.out << r.err;
  const auto line = nlohmann::json::parse(r.out);
  EXPECT_EQ(line.at("device"), "ref");
  EXPECT_TRUE(line.at("percent_of_read").is_null());
}

TEST_F(ModelBench, RefusesWrongUsage) {
  for (const char* arguments :
       {"-m", "-m ''", "-p 5", "-m x --kernels", "-m x --op moe_ffn", "-m x -p five", "-m x -p -1", "-m x -n ''",
        "-m x -b 0", "-m x -b 1,,2", "-m x --reps 0", "-m x --ctx 0", "-m x --kv q3_k", "-m x -t 0", "-m x -d -1"}) {
    expect_wrong_usage(arguments);
  }
}

TEST_F(ModelBench, RefusesWhatCannotBe) {
  const std::pair<const char*, const char*> wrong[] = {
      {"-p 0 -n 0", "there is nothing to measure"},
      {"-p 20 --ctx 10", "a context of 10 tokens is too small for a prefill of 20"},
      {"-p 0 -n 5 -d 20 --ctx 24", "a context of 24 tokens is too small for a decode of 25"},
      {"-p 1 -n 0 --ctx 2000000000", "would fit"},
      {"-p 0 -b 5000", "the number of sequences is 5000"},
      {"-p 1 --device abacus", "there is no device 'abacus' here"},
      {"-p 1 --chunk 100000", "the chunk is 100000"},
  };
  for (const auto& [arguments, part] : wrong) {
    const Outcome r = on_model(arguments);
    expect_error(r, part);
    EXPECT_EQ(r.out, "") << arguments;
  }
  expect_error(run("-m '" + path("none.gguf") + "'"), "none.gguf: cannot open");
  expect_error(run("-m '" + folder_.string() + "'"), "this is a directory");
}

TEST_F(Bench, Help) {
  const Outcome r = run("--help");
  EXPECT_EQ(r.exit_code, 0);
  EXPECT_TRUE(has(r.out, "conclave bench --kernels --op moe_ffn")) << r.out;
  EXPECT_TRUE(has(r.out, "deepseek-like")) << r.out;
  EXPECT_TRUE(has(r.out, "conclave bench -m model.gguf -p 512 -n 128 -b 1,2,4,8")) << r.out;
}

}  // namespace
}  // namespace conclave
