// Runs `conclave quantize`: exit codes, what goes to stdout and what to stderr, what is left on the disk.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "apps/program.h"
#include "gguf/file.h"
#include "model/description.h"
#include "model/model_fixture.h"
#include "quant/codec.h"

namespace conclave {
namespace {

namespace fs = std::filesystem;

using testing::ModelFixture;
using testing::tiny_model;

// A file of plain matrices that differ everywhere.
void write_matrices(const fs::path& path, std::int64_t rows, std::int64_t row) {
  gguf::Writer writer(path);
  writer.add("general.architecture", std::string("test"));
  writer.add("general.flags", std::vector<bool>{true, false});
  writer.add("test.block_count", std::uint32_t{8});
  writer.add("test.numbers", std::vector<double>{1.5, -2.5});
  writer.add("test.small", std::int8_t{-3});
  writer.add("general.file_type", std::uint32_t{0});
  writer.declare("token_embd.weight", DType::f32, {rows, row});
  writer.declare("blk.0.attn_v.weight", DType::f32, {rows, row});
  writer.declare("blk.0.attn_norm.weight", DType::f32, {row});
  const auto n = static_cast<std::size_t>(rows * row);
  std::vector<float> values(n);
  for (std::size_t i = 0; i < n; ++i) values[i] = std::sin(static_cast<float>(i) * 0.37F) + 0.01F * (i % 7);
  writer.write(std::as_bytes(std::span(values)));
  writer.write(std::as_bytes(std::span(values)));
  writer.write(std::as_bytes(std::span(values).first(static_cast<std::size_t>(row))));
  writer.finish();
}

std::vector<float> decoded(const gguf::File& file, const std::string& name) {
  const gguf::TensorInfo& tensor = *file.find_tensor(name);
  std::int64_t n = 1;
  for (const std::int64_t dim : tensor.dims) n *= dim;
  std::vector<float> values(static_cast<std::size_t>(n));
  decode(*tensor.type->dtype, file.data(tensor), values);
  return values;
}

class Quantize : public ProgramTest {
 protected:
  Quantize() : ProgramTest("quantize") {}

  void expect_only(const std::vector<std::string>& names) const {
    for (const auto& entry : fs::directory_iterator(folder_)) {
      const std::string name = entry.path().filename().string();
      if (name == "stdout" || name == "stderr") continue;
      EXPECT_NE(std::find(names.begin(), names.end(), name), names.end()) << name;
    }
  }
};

TEST_F(Quantize, EveryFormatIsCloseToWhatItWas) {
  write_matrices(path("in.gguf"), 16, 256);
  const gguf::File in = gguf::File::open(path("in.gguf"));
  const std::vector<float> before = decoded(in, "token_embd.weight");
  struct Row {
    const char* format;
    DType type;    // of token_embd.weight, which is also the head
    double error;  // of the whole, relative
    DType attn_v = DType::f32;
  };
  // clang-format off
  constexpr Row kRows[] = {
      {"F32",  DType::f32,  0.0,   DType::f32},   {"F16",    DType::f16,   3e-4,  DType::f16},
      {"bf16", DType::bf16, 2e-3,  DType::bf16},  {"Q8_0",   DType::q8_0,  0.006, DType::q8_0},
      {"q6_k", DType::q6_k, 0.02,  DType::q6_k},  {"Q5_K",   DType::q5_k,  0.04,  DType::q5_k},
      {"Q4_K", DType::q4_k, 0.08,  DType::q4_k},  {"Q4_0",   DType::q4_0,  0.1,   DType::q4_0},
      {"MXFP4", DType::mxfp4, 0.15, DType::mxfp4}, {"Q4_K_M", DType::q6_k, 0.02,  DType::q6_k},
      {"q4_k_s", DType::q6_k, 0.02, DType::q5_k}, {"Q5_K_M", DType::q6_k,  0.02,  DType::q6_k},
      {"Q5_K_S", DType::q6_k, 0.02, DType::q5_k}, {"MXFP4_MOE", DType::q8_0, 0.006, DType::q8_0},
  };
  // clang-format on
  for (const Row& row : kRows) {
    const Outcome r = run(path("in.gguf") + " " + path("out.gguf") + " " + row.format + " -t 2");
    ASSERT_EQ(r.exit_code, 0) << row.format << r.err;
    EXPECT_EQ(r.err, "");
    const gguf::File out = gguf::File::open(path("out.gguf"));
    EXPECT_EQ(out.find_tensor("token_embd.weight")->type->dtype, row.type) << row.format;
    EXPECT_EQ(out.find_tensor("blk.0.attn_v.weight")->type->dtype, row.attn_v) << row.format;
    EXPECT_EQ(out.find_tensor("blk.0.attn_norm.weight")->type->dtype, DType::f32);
    const std::vector<float> after = decoded(out, "token_embd.weight");
    double error = 0;
    double size = 0;
    for (std::size_t i = 0; i < before.size(); ++i) {
      error += std::pow(after[i] - before[i], 2);
      size += std::pow(before[i], 2);
    }
    EXPECT_LE(std::sqrt(error / size), row.error) << row.format;
    if (row.type != DType::f32) {
      EXPECT_GT(error, 0.0) << row.format;
    }
  }
}

TEST_F(Quantize, KeysAreKept) {
  write_matrices(path("in.gguf"), 4, 256);
  ASSERT_EQ(run(path("in.gguf") + " " + path("out.gguf") + " Q4_K_M").exit_code, 0);
  const gguf::File out = gguf::File::open(path("out.gguf"));
  EXPECT_EQ(out.keys().size(), 7U);  // all six, and the version
  EXPECT_EQ(out.find("general.architecture")->as_string(), "test");
  EXPECT_EQ(out.find("general.flags")->bool_at(1), false);
  EXPECT_EQ(out.find("test.numbers")->type(), gguf::ValueType::array);
  EXPECT_EQ(out.find("test.numbers")->element_type(), gguf::ValueType::f64);
  EXPECT_EQ(out.find("test.numbers")->float_at(1), -2.5);
  EXPECT_EQ(out.find("test.small")->type(), gguf::ValueType::i8);
  EXPECT_EQ(out.find("test.small")->as_i64(), -3);
  EXPECT_EQ(out.find("general.file_type")->as_u64(), 15U);
  EXPECT_EQ(out.find("general.quantization_version")->as_u64(), 2U);
}

TEST_F(Quantize, ModelsOfEveryFamilyStayModels) {
  for (const char* family : {"qwen3moe", "qwen2moe", "olmoe", "llama"}) {  // in blocks of several formats
    tiny_model(family).write(path("in.gguf"));
    for (const char* format : {"F32", "Q4_K_M", "MXFP4_MOE"}) {
      const Outcome r = run(path("in.gguf") + " " + path("out.gguf") + " " + format);
      ASSERT_EQ(r.exit_code, 0) << r.err;
      const gguf::File out = gguf::File::open(path("out.gguf"));
      EXPECT_EQ(describe_model(out).formats.size() == 1, std::string(format) == "F32");
    }
  }
}

TEST_F(Quantize, FallbacksAreTold) {
  tiny_model("qwen3moe").write(path("in.gguf"));
  const Outcome r = run(path("in.gguf") + " " + path("out.gguf") + " Q4_K");
  EXPECT_EQ(r.exit_code, 0);
  EXPECT_TRUE(has(r.err, "note: token_embd.weight and ")) << r.err;
  EXPECT_TRUE(has(r.err, "Q5_0 instead of Q4_K, whose blocks rows of 64 do not fill")) << r.err;
}

TEST_F(Quantize, ThreadsDoNotChangeTheBytes) {
  write_matrices(path("in.gguf"), 200, 256);
  for (const char* threads : {"1", "2", "5"}) {
    ASSERT_EQ(run(path("in.gguf") + " " + path(threads) + " Q4_K_M -t " + threads).exit_code, 0);
  }
  EXPECT_EQ(read_all(path("1")), read_all(path("2")));
  EXPECT_EQ(read_all(path("1")), read_all(path("5")));
}

TEST_F(Quantize, SplitSetsBecomeOneFile) {
  tiny_model("olmoe").write(path("set.gguf"), {.max_part_bytes = 8192});
  std::string first;
  for (const auto& entry : fs::directory_iterator(folder_)) {
    if (has(entry.path().filename().string(), "set-00001-of-")) first = entry.path().string();
  }
  ASSERT_NE(first, "");
  ASSERT_EQ(run(first + " " + path("out.gguf") + " Q8_0").exit_code, 0);
  EXPECT_EQ(gguf::File::open(path("out.gguf")).parts(), 1U);
  std::string second = first;
  second.replace(second.rfind("00001-of"), 5, "00002");
  const std::string bytes = read_all(second);
  expect_error(run(first + " " + second + " Q8_0"), "the output is the input");
  EXPECT_EQ(read_all(second), bytes);
}

TEST_F(Quantize, BadInput) {
  const std::string to = " " + path("out.gguf") + " Q8_0";
  expect_error(run(path("none.gguf") + to), "No such file");
  std::ofstream(path("text.gguf")) << "not a model at all, but some text";
  expect_error(run(path("text.gguf") + to), "GGUF");
  ModelFixture vocabulary = tiny_model("llama");
  vocabulary.tensors.clear();
  vocabulary.write(path("vocabulary.gguf"));
  expect_error(run(path("vocabulary.gguf") + to), "there are no tensors");
  tiny_model("llama").write(path("in.gguf"));
  const std::string whole = read_all(path("in.gguf"));
  std::ofstream(path("short.gguf"), std::ios::binary) << whole.substr(0, whole.size() - 100);
  expect_error(run(path("short.gguf") + to), "short.gguf");
  expect_error(run(folder_.string() + to), folder_.string());

  gguf::Writer writer(path("nan.gguf"));
  writer.declare("a.weight", DType::f32, {1, 2, 32});
  std::vector<float> values(64, 1.0F);
  values[40] = NAN;
  writer.write(std::as_bytes(std::span(values)));
  writer.finish();
  expect_error(run(path("nan.gguf") + to), "tensor a.weight: element 40 is nan, which q8_0 cannot hold");
  EXPECT_EQ(run(path("nan.gguf") + " " + path("f16.gguf") + " F16").exit_code, 0);  // floats may hold anything
  EXPECT_FALSE(fs::exists(path("out.gguf")));
}

TEST_F(Quantize, BadOutput) {
  write_matrices(path("in.gguf"), 100, 256);
  const std::string in = path("in.gguf");
  const std::string bytes = read_all(in);
  expect_error(run(in + " " + in + " Q8_0"), "the output is the input");
  fs::create_symlink(in, path("link.gguf"));
  expect_error(run(in + " " + path("link.gguf") + " Q8_0"), "the output is the input");
  expect_error(run(path("link.gguf") + " " + in + " Q8_0"), "the output is the input");
  EXPECT_EQ(read_all(in), bytes);
  fs::remove(path("link.gguf"));
  expect_error(run(in + " " + path("no/out.gguf") + " Q8_0"), "No such file or directory");
  expect_error(run(in + " /dev/null Q8_0"), "not a regular file");
  expect_error(run(in + " '' Q8_0"), "no name");
  // As a full disk: no file may grow past 16 KiB.
  expect_error(run(in + " " + path("out.gguf") + " Q8_0", "prlimit --fsize=16384"), "cannot write: File too large");
  expect_only({"in.gguf"});
  std::ofstream(path("out.gguf")) << "old";
  expect_error(run(in + " " + path("out.gguf") + " Q8_0", "prlimit --fsize=16384"), "cannot write: File too large");
  EXPECT_EQ(read_all(path("out.gguf")), "old");
}

TEST_F(Quantize, InterruptedItLeavesNothing) {
  write_matrices(path("in.gguf"), 8 * 1024, 256);  // a second of work
  for (const char* signal : {"INT", "TERM"}) {
    const Outcome r = run(path("in.gguf") + " " + path("out.gguf") + " Q6_K -t 1",
                          std::string("timeout --preserve-status -s ") + signal + " 0.2");
    if (r.exit_code == 0) continue;  // a very fast machine
    EXPECT_EQ(r.exit_code, std::string(signal) == "INT" ? 130 : 143);
    EXPECT_EQ(r.err, "error: interrupted: nothing was written\n");
    EXPECT_EQ(r.out, "");
    expect_only({"in.gguf"});
  }
}

TEST_F(Quantize, WrongUsage) {
  write_matrices(path("in.gguf"), 4, 256);
  const std::string both = path("in.gguf") + " " + path("out.gguf");
  for (const std::string& arguments : {std::string(), path("in.gguf"), both, both + " Q9_K", both + " q2_k",
                                       both + " Q8_0 -t 0", both + " Q8_0 --unknown", both + " Q8_0 more"}) {
    expect_wrong_usage(arguments);
  }
  expect_only({"in.gguf"});
}

TEST_F(Quantize, HelpTeaches) {
  const Outcome r = run("--help");
  EXPECT_EQ(r.exit_code, 0);
  for (const char* part : {"IN", "OUT", "FORMAT", "Q4_K_M", "MXFP4", "Examples:", "partial file"}) {
    EXPECT_TRUE(has(r.out, part)) << part;
  }
}

}  // namespace
}  // namespace conclave
