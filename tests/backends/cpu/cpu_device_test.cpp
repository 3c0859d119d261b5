#include "backends/cpu/cpu_device.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <utility>

#include "backends/cpu/tile_rows.h"
#include "backends/ref/ref_device.h"
#include "base/cpu.h"
#include "base/error.h"
#include "ops/host_access.h"
#include "support/execute.h"
#include "support/layer.h"
#include "support/suite.h"

namespace conclave::test {
namespace {

std::vector<std::string> runnable_rows() {
  std::vector<std::string> names;
  for (const CpuRow& row : cpu_rows()) {
    if (row.runs_here()) names.emplace_back(row.kernels->name);
  }
  return names;
}

std::string error_of(const std::string& kernels) {
  try {
    CpuDevice device({.threads = 1, .kernels = kernels});
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(CpuDevice, TheForcedRowIsTheOneThatRuns) {
  for (const CpuRow& row : cpu_rows()) {
    const std::string name(row.kernels->name);
    if (!row.runs_here()) {
      EXPECT_EQ(error_of(name), "CONCLAVE_CPU: this machine cannot run '" + name + "'");
      continue;
    }
    const CpuDevice device({.threads = 1, .kernels = name});
    EXPECT_EQ(&device.kernels(), row.kernels);
  }
  EXPECT_EQ(&CpuDevice({.threads = 1}).kernels(), &CpuDevice({.threads = 1, .kernels = runnable_rows()[0]}).kernels());
  EXPECT_NE(error_of("sse17").find("there is no 'sse17'; there is: "), std::string::npos);
}

// Every row has its own code: a table that was filled with another's would be found here.
TEST(CpuDevice, NoRowBorrowsTheProductsOfAnother) {
  for (const CpuRow& a : cpu_rows()) {
    for (const CpuRow& b : cpu_rows()) {
      if (a.kernels == b.kernels) continue;
      const auto q4_k = static_cast<std::size_t>(DType::q4_k);
      const bool own_tile = a.kernels->product.tile[q4_k] != b.kernels->product.tile[q4_k];
      const bool own_strips = a.kernels->product.strips != b.kernels->product.strips;
      EXPECT_TRUE(own_tile || own_strips) << a.kernels->name << " and " << b.kernels->name;
    }
  }
}

TEST(CpuDevice, RefusesThreadCountsThatCannotBe) {
  EXPECT_THROW(CpuDevice({.threads = ThreadPool::kMaxThreads + 1}), Error);
  EXPECT_GE(CpuDevice().threads(), 1);
}

class CpuRowTest : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(EveryRow, CpuRowTest, testing::ValuesIn(runnable_rows()),
                         [](const auto& row) { return row.param; });

TEST_P(CpuRowTest, PassesEveryCase) {
  CpuDevice device({.threads = 2, .kernels = GetParam()});
  for (const OpReport& report : run_suite(device, {.arithmetic = kInt8Arithmetic})) {
    EXPECT_EQ(report.failed, 0) << report.op << ": " << (report.failures.empty() ? "" : report.failures.front());
    EXPECT_GT(report.cases, 0) << report.op;
  }
}

// NaN payloads are the only bits that may differ.
std::vector<std::uint32_t> without_payloads(std::vector<std::uint32_t> bits) {
  for (std::uint32_t& b : bits) {
    if (std::isnan(std::bit_cast<float>(b))) b = 0x7FC00000U;
  }
  return bits;
}

void expect_same(const Outcome& got, const Outcome& want, const std::string& where) {
  ASSERT_EQ(got.fault, want.fault) << where;
  for (const auto& [name, bits] : want.outputs) {
    EXPECT_EQ(without_payloads(got.outputs.at(name)), without_payloads(bits)) << where << ": " << name;
  }
}

TEST(CpuDevice, EveryOpHasTheSameBitsOnAnyNumberOfThreadsAndOnEveryRow) {
  CpuDevice first({.threads = 1});
  std::vector<std::unique_ptr<CpuDevice>> others;
  for (const int threads : {2, 3, 7}) others.push_back(std::make_unique<CpuDevice>(CpuOptions{.threads = threads}));
  for (const std::string& row : runnable_rows()) {
    others.push_back(std::make_unique<CpuDevice>(CpuOptions{.threads = 1, .kernels = row}));
  }
  for (const OpCases& cases : all_op_cases()) {
    std::vector<CaseSpec> specs = cases.list();
    for (int i = 0; i < 10; ++i) specs.push_back(random_spec(cases, 77, i));
    for (const CaseSpec& spec : specs) {
      const Case one = spec.make(Layout::padded);
      const Outcome want = execute(one, first);
      for (const auto& device : others) {
        expect_same(
            execute(one, *device), want,
            fmt::format("{} [{}] on {} threads of {}", cases.op, spec.name, device->threads(), device->kernels().name));
      }
    }
  }
}

std::vector<std::uint32_t> results_of(const MoeFfn& op) {
  std::vector<std::uint32_t> all = dense_bits(op.residual);
  for (const Tensor& t : {op.next.out, op.routing.experts, op.routing.weights}) {
    const auto bits = dense_bits(t);
    all.insert(all.end(), bits.begin(), bits.end());
  }
  return all;
}

void expect_batches_do_not_matter(const Layer& layer, const std::string& row, const std::string& where) {
  constexpr std::int64_t kTokens = 512;
  CpuDevice device({.threads = 2, .kernels = row});
  const Case whole = clone(layer.make(kTokens));
  device.run(whole.op);
  for (const std::int64_t count : {1, 2, 3, 7, 8, 9, 33, 43, 129, 300}) {
    for (std::int64_t first = 0; first + count <= kTokens; first += std::max<std::int64_t>(count, 101)) {
      const Case again = clone(layer.make(kTokens));
      const MoeFfn batch = part_of(std::get<MoeFfn>(again.op), first, count);
      device.run(batch);
      ASSERT_EQ(results_of(batch), results_of(part_of(std::get<MoeFfn>(whole.op), first, count)))
          << where << ": tokens " << first << " and " << count - 1 << " more";
    }
  }
}

TEST_P(CpuRowTest, ATokensMoeOutputIsTheSameAloneAndInAnyBatch) {
  expect_batches_do_not_matter({}, GetParam(), "q4_k and q6_k");
  expect_batches_do_not_matter({.gate = DType::q5_k, .down = DType::q8_0, .x = DType::bf16, .expert_out = DType::bf16},
                               GetParam(), "q5_k and q8_0, bf16");
  // Some kernels take a strip of gate's columns where they take a tile of up's.
  expect_batches_do_not_matter({.d_model = 256, .d_ff = 768, .up = DType::q8_0}, GetParam(), "gate q4_k, up q8_0");
  expect_batches_do_not_matter({.d_model = 256, .d_ff = 768, .gate = DType::mxfp4, .up = DType::q5_k}, GetParam(),
                               "gate mxfp4, up q5_k");
}

TEST(CpuDevice, EveryFormatIsTheSameInAnyBatch) {
  for (const DType type : all_dtypes()) {
    if (is_integer(type)) continue;
    expect_batches_do_not_matter({.d_model = 256, .d_ff = 256, .gate = type, .down = type}, "",
                                 std::string(dtype_info(type).name));
  }
}

// One thread takes so much of a layer this wide at a time that it also makes hidden's rows ready for down.
constexpr Layer kWide{.d_model = 256, .d_ff = 640, .down = DType::q8_0};
// So wide a layer's hidden rows are packed as they are made, by instruction sets that want that.
constexpr Layer kPacked{.d_model = 256, .d_ff = 768, .down = DType::q4_k};
constexpr Layer kPackedHalves{.d_model = 256, .d_ff = 768, .down = DType::q6_k, .hidden = DType::bf16};
const std::vector<Layer> kWideLayers = {kWide, kPacked, kPackedHalves};

void expect_bits_of_the_sequence(const Layer& layer, CpuDevice& device, std::int64_t n_tokens) {
  const Case fused = clone(layer.make(n_tokens));
  const Case apart = clone(layer.make(n_tokens));
  device.run(fused.op);
  const MoeFfnSequence ops = sequence_of(std::get<MoeFfn>(apart.op));
  Program program;
  program.record(ops.route);
  program.record(ops.group);
  program.record(ops.gate_up);
  program.record(ops.down);
  std::visit([&](const auto& combine) { program.record(combine); }, ops.combine);
  device.compile(program)->run();
  EXPECT_EQ(results_of(std::get<MoeFfn>(fused.op)), results_of(std::get<MoeFfn>(apart.op))) << n_tokens << layer.d_ff;
}

TEST_P(CpuRowTest, TheFusedUnitHasTheBitsOfTheSequence) {
  CpuDevice three({.threads = 3, .kernels = GetParam()});
  for (const int n_tokens : {1, 5, 42, 43, 200}) {
    expect_bits_of_the_sequence({.expert_out = n_tokens % 2 ? DType::f32 : DType::bf16}, three, n_tokens);
  }
  CpuDevice one({.threads = 1, .kernels = GetParam()});
  for (const Layer& layer : kWideLayers) {
    for (const int n_tokens : {43, 200, 352}) expect_bits_of_the_sequence(layer, one, n_tokens);
  }
}

// What the test above needs: a list of more rows than are taken at a time, of which so few are left over that no strip
// takes them.
TEST(CpuDevice, OneOfTheLayersHasAListWithFewRowsLeftOver) {
  const Case whole = clone(kPacked.make(352));
  CpuDevice device({.threads = 1});
  device.run(whole.op);
  const Tensor& offsets = std::get<MoeFfn>(whole.op).groups.offsets;
  int found = 0;
  for (std::int64_t e = 0; e < Layer::kExperts; ++e) {
    const std::int32_t left = load_i32(offsets, {e + 1}) - load_i32(offsets, {e}) - TileRows::kMaxRows;
    found += left > 0 && left < 8 ? 1 : 0;
  }
  EXPECT_GT(found, 0);
}

void expect_harm_stays_in_its_token(const Layer& layer, CpuDevice& device, std::int64_t n_tokens) {
  const Case plain = clone(layer.make(n_tokens));
  device.run(plain.op);
  for (const float value : {NAN, INFINITY, -INFINITY, 1e30F}) {
    const Case hurt = clone(layer.make(n_tokens));
    const auto& op = std::get<MoeFfn>(hurt.op);
    store(op.x, {1, 17}, static_cast<double>(value));
    device.run(hurt.op);
    for (std::int64_t t = 0; t < n_tokens; ++t) {
      const bool same = results_of(part_of(op, t, 1)) == results_of(part_of(std::get<MoeFfn>(plain.op), t, 1));
      EXPECT_EQ(same, t != 1) << "token " << t << " of " << n_tokens << ", value " << value;
    }
    const Case again = clone(layer.make(n_tokens));
    const MoeFfn hurt_alone = part_of(std::get<MoeFfn>(again.op), 1, 1);
    store(hurt_alone.x, {0, 17}, static_cast<double>(value));
    device.run(hurt_alone);
    EXPECT_EQ(without_payloads(results_of(hurt_alone)), without_payloads(results_of(part_of(op, 1, 1))))
        << "value " << value;
    if (!std::isfinite(value)) {
      EXPECT_FALSE(std::isfinite(load(op.residual, {1, 0})));
    }
  }
}

TEST_P(CpuRowTest, NanAndInfinityStayInTheirToken) {
  CpuDevice two({.threads = 2, .kernels = GetParam()});
  for (const int n_tokens : {2, 20, 90}) expect_harm_stays_in_its_token({}, two, n_tokens);
  CpuDevice one({.threads = 1, .kernels = GetParam()});
  for (const Layer& layer : kWideLayers) expect_harm_stays_in_its_token(layer, one, 90);
}

// So small that hidden's row cannot be int8, and nothing is there to hide it.
MoeFfn with_tiny_token(const MoeFfn& op, std::int64_t token) {
  for (std::int64_t d = 0; d < op.x.dim(1); ++d) {
    store(op.x, {token, d}, 1e-17 * static_cast<double>(load(op.x, {token, d})));
    store(op.residual, {token, d}, 0);
  }
  return op;
}

TEST_P(CpuRowTest, ATinyTokenIsTheSameAloneAndInABatch) {
  CpuDevice device({.threads = 1, .kernels = GetParam()});
  for (const Layer& layer : kWideLayers) {
    const Case whole = clone(layer.make(90));
    const MoeFfn batch = with_tiny_token(std::get<MoeFfn>(whole.op), 1);
    device.run(batch);
    const Case again = clone(layer.make(90));
    const MoeFfn alone = with_tiny_token(part_of(std::get<MoeFfn>(again.op), 1, 1), 0);
    device.run(alone);
    EXPECT_EQ(results_of(alone), results_of(part_of(batch, 1, 1))) << layer.d_ff;
    EXPECT_NE(load(alone.residual, {0, 0}), 0.0F);
  }
}

TEST(CpuDevice, ActivationsUpToAMillionGiveNoInfinity) {
  CpuDevice device;
  RefDevice reference;
  const Case ours = clone(Layer().make(4));
  const auto& op = std::get<MoeFfn>(ours.op);
  for (std::int64_t t = 0; t < 4; ++t) {
    for (std::int64_t d = 0; d < op.x.dim(1); ++d) store(op.x, {t, d}, 1e6 * static_cast<double>(load(op.x, {t, d})));
  }
  const Case theirs = clone(ours);
  device.run(ours.op);
  reference.run(theirs.op);
  for (std::int64_t d = 0; d < op.x.dim(1); ++d) {
    EXPECT_TRUE(std::isfinite(load(std::get<MoeFfn>(theirs.op).residual, {2, d})));
    EXPECT_TRUE(std::isfinite(load(op.residual, {2, d})));
  }
}

TEST_P(CpuRowTest, RowsOfNothingGiveZero) {
  CpuDevice device({.threads = 2, .kernels = GetParam()});
  for (const DType type : {DType::f32, DType::q4_k, DType::q6_k, DType::q8_0}) {
    for (const std::int64_t rows : {1, 70}) {
      CaseBuilder b(17, Layout::dense);
      const Matmul op{
          .x = b.values(DType::f32, {rows, 0}), .w = b.weights(type, {40, 0}), .out = b.output(DType::f32, {rows, 40})};
      const Outcome outcome = execute(b.finish("empty", op), device);
      EXPECT_EQ(outcome.fault, "");
      EXPECT_EQ(outcome.outputs.at("out"), std::vector<std::uint32_t>(static_cast<std::size_t>(rows * 40)));
    }
  }
}

TEST(CpuDevice, RunsAWholeProgramInOrderManyTimes) {
  CpuDevice device({.threads = 3});
  CaseBuilder b(3, Layout::dense);
  const Tensor x = b.values(DType::f32, {5, 64});
  const Tensor w = b.weights(DType::q8_0, {64, 64});
  const Tensor y = b.output(DType::f32, {5, 64});
  const Tensor norm = b.values(DType::f32, {64});
  Program program;
  program.matmul({.x = x, .w = w, .out = y});
  program.rms_norm({.x = y, .weight = norm, .out = x});
  const Case keep = b.finish("program", Matmul{.x = x, .w = w, .out = y});
  const auto executable = device.compile(program);
  std::vector<std::uint32_t> first;
  for (int i = 0; i < 200; ++i) {
    const std::vector<float> before = load_row(x, {0});
    executable->run();
    const Case same = clone(keep);
    if (i == 0) first = dense_bits(x);
    ASSERT_TRUE(std::isfinite(load(x, {4, 63})));
  }
  EXPECT_NE(dense_bits(x), first);  // every run feeds the next
}

TEST_P(CpuRowTest, MatmulsInARowHaveTheBitsOfEachAlone) {
  CpuDevice device({.threads = 3, .kernels = GetParam()});
  for (const std::int64_t rows : {1, 40}) {
    CaseBuilder b(5, Layout::dense);
    const Tensor x = b.values(DType::f32, {rows, 512});
    std::vector<Matmul> ops;
    for (const auto& [type, n] : {std::pair{DType::q4_k, 700}, {DType::q6_k, 512}, {DType::f16, 16}}) {
      ops.push_back({.x = x, .w = b.weights(type, {n, 512}), .out = b.output(DType::f32, {rows, n})});
    }
    // Needs the second one's result: it has to wait.
    ops.push_back({.x = ops[1].out, .w = b.weights(DType::q8_0, {30, 512}), .out = b.output(DType::f32, {rows, 30})});
    const Case keep = b.finish("matmuls", ops.back());
    std::vector<std::vector<std::uint32_t>> alone;
    for (const Matmul& op : ops) {
      device.run(op);
      alone.push_back(dense_bits(op.out));
    }
    Program program;
    for (const Matmul& op : ops) {
      for (std::int64_t r = 0; r < rows; ++r) store(op.out, {r, 0}, 7.0);
      program.record(op);
    }
    device.compile(program)->run();
    for (std::size_t i = 0; i < ops.size(); ++i) EXPECT_EQ(dense_bits(ops[i].out), alone[i]) << i << " of " << rows;
  }
}

// Results that outgrow the last cache are stored past it.
TEST_P(CpuRowTest, ResultsThatNoCacheHoldsAreTheSame) {
  constexpr std::int64_t kColumns = 2000;
  constexpr std::int64_t kDepth = 32;
  const std::int64_t rows = cache_sizes().l3 / 2 / (kColumns * 4) + 9;
  CpuDevice device({.threads = 3, .kernels = GetParam()});
  CaseBuilder b(29, Layout::dense);
  const Tensor w = b.weights(DType::q8_0, {kColumns, kDepth});
  const Case keep = b.finish("weights", Matmul{});
  const auto x = HostBuffer::make(rows * kDepth * 4);
  const auto out = HostBuffer::make(rows * kColumns * 4);
  const auto alone = HostBuffer::make(kColumns * 4);
  const Tensor all = dense(*x, 0, DType::f32, {rows, kDepth});
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t i = 0; i < kDepth; ++i) store(all, {r, i}, static_cast<double>((r * 31 + i * 17) % 101) - 50);
  }
  const Tensor results = dense(*out, 0, DType::f32, {rows, kColumns});
  device.run(Matmul{.x = all, .w = w, .out = results});
  const Tensor result = dense(*alone, 0, DType::f32, {1, kColumns});
  for (const std::int64_t r : {std::int64_t{0}, std::int64_t{1}, rows / 2, rows - 2, rows - 1}) {
    device.run(Matmul{.x = dense(*x, r * kDepth * 4, DType::f32, {1, kDepth}), .w = w, .out = result});
    EXPECT_EQ(dense_bits(dense(*out, r * kColumns * 4, DType::f32, {1, kColumns})), dense_bits(result)) << r;
  }
}

TEST(CpuDevice, RefusesScratchThatNoMemoryHolds) {
  CpuDevice device;
  // One row, given 2^40 times by a stride of 0: a legal view of a huge input.
  const auto x = HostBuffer::make(64 * 4);
  const auto w = HostBuffer::make(64 * 4);
  const auto out = HostBuffer::make(64);
  Tensor rows = dense(*x, 0, DType::f32, {1, 64});
  rows.dims[0] = std::int64_t{1} << 58;
  rows.strides[0] = 0;
  Tensor to = dense(*out, 0, DType::f32, {1, 1});
  to.dims[0] = std::int64_t{1} << 58;
  to.strides[0] = 0;
  const Matmul op{.x = rows, .w = dense(*w, 0, DType::f32, {1, 64}), .out = to};
  try {
    device.run(op);
    FAIL() << "not refused";
  } catch (const Error& error) {
    SUCCEED() << error.what();
  }
}

TEST(CpuDevice, SelectNamesTheRow) {
  const CpuDevice device({.threads = 1, .kernels = "generic"});
  const Case one = Layer().make(1);
  EXPECT_EQ(device.select(one.op).plan, "generic");
  EXPECT_TRUE(device.select(one.op).supported());
}

}  // namespace
}  // namespace conclave::test
