// The suite must fail on a backend that is wrong in any of the ways backends go wrong.
#include "support/suite.h"

#include <gtest/gtest.h>

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

std::int64_t failures(const std::string& op, SpoiledDevice::Spoil spoil) {
  SpoiledDevice device(std::move(spoil));
  return run_suite(device, {.random = 20, .op = op}).at(0).failed;
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
