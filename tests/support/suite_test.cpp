// The suite must fail on a backend that is wrong in any of the ways backends go wrong.
#include "support/suite.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "backends/ref/ref_device.h"
#include "base/fail.h"
#include "ops/host_access.h"
#include "ops/rows.h"
#include "support/execute.h"

namespace conclave::test {
namespace {

// Runs the reference, then spoils the result.
class SpoiledDevice final : public Device {
 public:
  using Spoil = std::function<void(const Op&)>;
  explicit SpoiledDevice(Spoil spoil) : spoil_(std::move(spoil)) {}

  std::string_view name() const override { return "spoiled"; }
  std::shared_ptr<Buffer> allocate(std::int64_t bytes) override { return inner_.allocate(bytes); }
  void upload(Buffer& to, std::int64_t offset, std::span<const std::byte> bytes) override {
    inner_.upload(to, offset, bytes);
  }
  void download(const Buffer& from, std::int64_t offset, std::span<std::byte> bytes) override {
    inner_.download(from, offset, bytes);
  }
  bool reaches(const Buffer& buffer) const override { return inner_.reaches(buffer); }
  Selection select(const Op& op) const override { return inner_.select(op); }

 protected:
  std::unique_ptr<Executable> build(const Program& program, CompileOptions) override {
    class Spoiling final : public Executable {
     public:
      Spoiling(std::unique_ptr<Executable> run, std::vector<Op> ops, const Spoil& spoil)
          : run_(std::move(run)), ops_(std::move(ops)), spoil_(spoil) {}
      void run(Profile* profile) override {
        run_->run(profile);
        for (const Op& op : ops_) spoil_(op);
      }

     private:
      std::unique_ptr<Executable> run_;
      std::vector<Op> ops_;
      const Spoil& spoil_;
    };
    return std::make_unique<Spoiling>(inner_.compile(program),
                                      std::vector<Op>(program.ops().begin(), program.ops().end()), spoil_);
  }

 private:
  RefDevice inner_;
  Spoil spoil_;
};

std::int64_t failures(const std::string& op, SpoiledDevice::Spoil spoil, const Arithmetic& arithmetic = {}) {
  SpoiledDevice device(std::move(spoil));
  return run_suite(device, {.random = 20, .op = op, .arithmetic = arithmetic}).at(0).failed;
}

// The first tensor with elements that the op writes, of floats or of integers.
const Tensor* written(const std::vector<Access>& list, bool integer) {
  for (const Access& access : list) {
    const bool fits = writes(access.role) && access.role != Role::scratch && is_integer(access.tensor.dtype) == integer;
    if (fits && !is_block(access.tensor.dtype) && element_count(access.tensor) > 0) return &access.tensor;
  }
  return nullptr;
}

TEST(Suite, PassesADeviceThatDoesNothingWrong) {
  EXPECT_EQ(failures("moe_ffn", [](const Op&) {}), 0);
  EXPECT_EQ(failures("attention", [](const Op&) {}), 0);
}

TEST(Suite, FailsOnOneElementThatIsOff) {
  for (const char* op : {"moe_combine", "matmul", "rms_norm", "softmax"}) {
    EXPECT_GT(failures(op,
                       [](const Op& run) {
                         const std::vector<Access> list = accesses(run);
                         const Tensor* out = written(list, false);
                         if (out == nullptr || out->rank != 2 || out->dtype != DType::f32) return;
                         store(*out, {0, 0}, static_cast<double>(load(*out, {0, 0})) * 1.001 + 0.001);
                       }),
              0)
        << op;
  }
}

TEST(Suite, FailsOnAWrongExpert) {
  EXPECT_GT(failures("moe_route",
                     [](const Op& run) {
                       const Tensor& experts = std::get<MoeRoute>(run).out.experts;
                       if (element_count(experts) > 0) store_i32(experts, {0, 0}, load_i32(experts, {0, 0}) ^ 1);
                     }),
            0);
}

TEST(Suite, FailsOnAnElementNobodyWrote) {
  EXPECT_GT(failures("add",
                     [](const Op& run) {
                       const Tensor& out = std::get<Add>(run).out;
                       if (element_count(out) > 0 && out.dtype == DType::f32) {
                         const std::uint32_t poison = 0x7FC0DEADU;
                         std::memcpy(row_address(out, {0, 0}), &poison, 4);
                       }
                     }),
            0);
}

TEST(Suite, FailsOnAWriteBesideTheOutput) {
  for (const std::int64_t distance : {-1, 0}) {
    EXPECT_GT(failures("add",
                       [=](const Op& run) {
                         const Tensor& out = std::get<Add>(run).out;
                         const ByteRange range = byte_range(out);
                         out.buffer->host()[distance < 0 ? range.begin - 1 : range.end] ^= std::byte{1};
                       }),
              0);
  }
}

TEST(Suite, FailsOnAWriteIntoAnInput) {
  EXPECT_GT(failures("silu_mul",
                     [](const Op& run) {
                       const auto& op = std::get<SiluMul>(run);
                       if (op.gate.defined() && element_count(op.gate) > 0 && op.gate.dtype == DType::f32 &&
                           op.gate != op.out) {
                         store(flat_row(op.gate, 0), {0}, 123);
                       }
                     }),
            0);
}

TEST(Suite, FailsOnARowPastTheLiveCount) {
  EXPECT_GT(failures("rms_norm",
                     [](const Op& run) {
                       const auto& op = std::get<RmsNorm>(run);
                       if (!op.live.defined() || op.out.rank != 2 || op.out.dim(0) == 0) return;
                       store(op.out, {op.out.dim(0) - 1, 0}, 0);
                     }),
            0);
}

TEST(Suite, FailsOnSwappedRows) {
  EXPECT_GT(failures("moe_down",
                     [](const Op& run) {
                       const Tensor& out = std::get<MoeDown>(run).out;
                       if (out.dim(0) < 2) return;
                       const std::vector<std::byte> first(row_address(out, {0}),
                                                          row_address(out, {0}) + row_bytes(out));
                       std::memcpy(row_address(out, {0}), row_address(out, {1}), first.size());
                       std::memcpy(row_address(out, {1}), first.data(), first.size());
                     }),
            0);
}

Tensor named(const std::vector<Access>& list, std::string_view name) {
  return std::find_if(list.begin(), list.end(), [&](const Access& access) { return access.name == name; })->tensor;
}

// Computes the op again from activations rounded as int8 is, to `levels` on either side of 0.
void run_rounded(const Op& op, double levels) {
  const Tensor x = named(accesses(op), "x");
  std::vector<std::vector<float>> rows;
  for (std::int64_t r = 0; r < row_count(x); ++r) {
    const Tensor row = flat_row(x, r);
    rows.push_back(load_row(row, {}));
    float largest = 0;
    for (const float value : rows.back()) largest = std::max(largest, std::fabs(value));
    const double step = static_cast<double>(largest) / levels;
    for (std::int64_t i = 0; i < x.inner() && step > 0; ++i)
      store(row, {i}, std::nearbyint(static_cast<double>(load(row, {i})) / step) * step);
  }
  reference(op);
  for (std::int64_t r = 0; r < row_count(x); ++r) {
    for (std::int64_t i = 0; i < x.inner(); ++i)
      store(flat_row(x, r), {i}, static_cast<double>(rows[static_cast<std::size_t>(r)][static_cast<std::size_t>(i)]));
  }
  if (const auto* shared = std::get_if<MoeSharedExpert>(&op)) {
    run_rounded(Matmul{.x = shared->hidden, .w = shared->down, .live = shared->live, .out = shared->out}, levels);
  }
}

// Whether a product's weights are blocks, all or none of them, and its activations f32, which holds any rounding.
bool fits(const Op& op, bool blocks) {
  const std::vector<Access> list = accesses(op);
  return std::all_of(list.begin(), list.end(), [&](const Access& access) {
    if (access.role == Role::weight) return is_block(access.tensor.dtype) == blocks;
    return (access.name != "x" && access.role != Role::scratch) || access.tensor.dtype == DType::f32;
  });
}

TEST(Suite, FailsOnActivationsRoundedMoreThanTheyMayBe) {
  for (const char* op : {"matmul", "moe_matmul", "moe_gate_up", "moe_down"}) {
    const auto rounded = [&](double levels, bool blocks) {
      const auto spoil = [=](const Op& run) {
        if (fits(run, blocks)) run_rounded(run, levels);
      };
      return failures(op, spoil, kInt8Arithmetic);
    };
    EXPECT_EQ(rounded(127, true), 0) << op;
    EXPECT_GT(rounded(127 / 3.0, true), 0) << op;
    EXPECT_GT(rounded(127, false), 0) << op << ": plain weights take activations as they are";
  }
}

// A product of ordinary size with its activations rounded, against the reference.
Comparison compare_rounded(const Op& op, double levels) {
  reference(op);
  const Tensor out = named(accesses(op), "out");
  const std::vector<std::uint32_t> expected = dense_bits(out);
  const Tolerance tolerance = tolerances_of(op, kInt8Arithmetic).at("out");
  run_rounded(op, levels);
  return compare_floats(dense_bits(out), expected,
                        {.bound = tolerance.bound, .nmse = kInt8Arithmetic.nmse, .noise = tolerance.noise});
}

// Every bound here passes an error some times that of int8, but noise is no excuse for its mean square.
TEST(Suite, FailsOnTheMeanErrorOfActivationsRoundedTooMuch) {
  CaseBuilder b(1, Layout::dense);
  const std::int64_t n_tokens = 32;
  const std::int64_t d_model = 512;
  const std::int64_t d_ff = 64;
  std::vector<std::int32_t> pairs;
  for (std::int32_t pair = 0; pair < n_tokens; ++pair) pairs.push_back(pair);
  const Tensor x = b.values(DType::f32, {n_tokens, d_model});
  const Op gate_up = MoeGateUp{.x = x,
                               .gate = b.weights(DType::q8_0, {1, d_ff, d_model}),
                               .up = b.weights(DType::q8_0, {1, d_ff, d_model}),
                               .offsets = b.ints(DType::i32, {2}, {0, static_cast<std::int32_t>(n_tokens)}),
                               .row_pair = b.ints(DType::i32, {n_tokens}, pairs),
                               .out = b.output(DType::f32, {n_tokens, d_ff})};
  const Op shared = MoeSharedExpert{.x = x,
                                    .gate = b.weights(DType::q4_k, {256, d_model}),
                                    .up = b.weights(DType::q4_k, {256, d_model}),
                                    .down = b.weights(DType::q6_k, {d_model, 256}),
                                    .hidden = b.output(DType::f32, {n_tokens, 256}),
                                    .out = b.output(DType::f32, {n_tokens, d_model})};
  const Op matmul =
      Matmul{.x = x, .w = b.weights(DType::q8_0, {d_ff, d_model}), .out = b.output(DType::f32, {n_tokens, d_ff})};
  const Case keeps_the_buffers = b.finish("ordinary", matmul);
  // One rounding of its own makes a tenth of the ceiling: only more than three times that is above it.
  const std::pair<Op, double> coarse_ops[] = {{gate_up, 3}, {shared, 3}, {matmul, 4}};
  for (const auto& [op, coarser] : coarse_ops) {
    EXPECT_TRUE(compare_rounded(op, 127).ok) << op_name(op);
    const Comparison coarse = compare_rounded(op, 127 / coarser);
    EXPECT_LT(coarse.worst, coarse.bound) << op_name(op);
    EXPECT_FALSE(coarse.ok) << op_name(op);
    EXPECT_NE(coarse.message.find("mean squared"), std::string::npos) << coarse.message;
  }
}

TEST(Suite, FailsOnARefusal) {
  EXPECT_GT(failures("argmax", [](const Op&) { fail(ErrorCode::unsupported, "no"); }), 0);
}

TEST(Suite, RefusesAnUnknownOp) {
  RefDevice device;
  EXPECT_THROW(run_suite(device, {.op = "moe_rout"}), Error);
}

TEST(Suite, RepeatsItsRandomCases) {
  std::string first;
  std::string second;
  std::string other;
  export_cases({.seed = 3, .random = 5, .op = "rope"}, [&](const std::string& record) { first += record; });
  export_cases({.seed = 3, .random = 5, .op = "rope"}, [&](const std::string& record) { second += record; });
  export_cases({.seed = 4, .random = 5, .op = "rope"}, [&](const std::string& record) { other += record; });
  EXPECT_EQ(first, second);
  EXPECT_NE(first, other);
}

TEST(Answers, AreRefusedWhereTheyAreBroken) {
  EXPECT_THROW(Answers::parse("{", "x"), Error);
  EXPECT_THROW(Answers::parse("{}\n", "x"), Error);
  EXPECT_THROW(Answers::parse("{\"payload_bytes\":9}\nabc", "x"), Error);
  EXPECT_THROW(
      Answers::parse("{\"op\":\"a\",\"case\":\"b\",\"inputs\":\"c\",\"payload_bytes\":0,\"outputs\":"
                     "[{\"name\":\"o\",\"encoding\":\"f32\",\"count\":1,\"stride\":1,\"offset\":0,\"bytes\":4}]}\n",
                     "x"),
      Error);
  EXPECT_EQ(Answers::parse("", "x").size(), 0U);
}

TEST(Suite, FailsWhereTheAnswerIsToOtherInputs) {
  const Answers none = Answers::parse("", "x");
  RefDevice device;
  const OpReport report = run_suite(device, {.random = 3, .op = "add", .answers = &none}).at(0);
  EXPECT_EQ(report.failed, report.cases);
}

}  // namespace
}  // namespace conclave::test
