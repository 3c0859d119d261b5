// What the benchmark is made of: its plan, its routings, its bound, its weights, and that it sees a wrong result.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "backends/ref/ref_device.h"
#include "base/error.h"
#include "bench/kernels/kinds.h"
#include "bench/kernels/peaks.h"
#include "bench/kernels/random_blocks.h"
#include "bench/kernels/report.h"
#include "bench/kernels/targets.h"
#include "ops/check.h"
#include "ops/host_access.h"
#include "ops/rows.h"
#include "support/case.h"

namespace conclave::bench {
namespace {

namespace fs = std::filesystem;

TEST(RowPlan, ListsAreSplitAtCommas) {
  EXPECT_EQ(split_lists({"a,b", "c", ",d,,"}), (std::vector<std::string>{"a", "b", "c", "d"}));
  EXPECT_TRUE(split_lists({}).empty());
  EXPECT_TRUE(split_lists({""}).empty());
}

TEST(RowPlan, TheShortListHasEveryOpAndEveryModel) {
  const std::vector<RowKey> rows = plan_rows({});
  std::set<std::string_view> ops;
  std::set<std::string_view> ffn_models;
  for (const RowKey& row : rows) {
    ops.insert(row.kind->op);
    if (row.kind->op == "moe_ffn") ffn_models.insert(row.model->name);
  }
  for (const test::OpCases& cases : test::all_op_cases()) EXPECT_TRUE(ops.count(cases.op) > 0) << cases.op;
  EXPECT_EQ(ffn_models.size(), model_shapes().size());
  EXPECT_LT(rows.size(), 200U) << "make bench is to end after minutes";
  EXPECT_GT(plan_rows({.all = true}).size(), 1000U);
}

TEST(RowPlan, FiltersNarrowWhatTheyName) {
  const std::vector<RowKey> rows =
      plan_rows({.ops = {"moe_ffn"}, .models = {"olmoe-7b"}, .formats = {"Q5_K"}, .tokens = {"3"}, .skews = {"zipf"}});
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0].title(), "moe_ffn olmoe-7b q5_k 3 tokens zipf");
  for (const RowKey& row : plan_rows({.models = {"mixtral-8x7b"}})) EXPECT_EQ(row.model->name, "mixtral-8x7b");
  EXPECT_TRUE(plan_rows({.ops = {"moe_shared_expert"}}).front().model->d_shared > 0);
}

TEST(RowPlan, WhatThereIsNotIsAnError) {
  for (const RowFilter& filter :
       {RowFilter{.ops = {"moe"}}, RowFilter{.models = {"gpt"}}, RowFilter{.formats = {"i32"}},
        RowFilter{.formats = {"q9"}}, RowFilter{.tokens = {"0"}}, RowFilter{.tokens = {"1x"}},
        RowFilter{.tokens = {"99999999999999999999"}}, RowFilter{.skews = {"even"}},
        RowFilter{.ops = {"rope"}, .formats = {"q4_k"}}}) {
    EXPECT_THROW(plan_rows(filter), Error);
  }
}

TEST(Bound, IsTheSlowerOfBytesAndOperations) {
  const Peaks peaks{.read_gbps = 20, .int8_gops = 1000, .f32_gops = 100};
  const Bound bytes = bound_of({.bytes = 20e6, .ops = 1e6, .in = DotType::int8}, peaks);
  EXPECT_DOUBLE_EQ(bytes.us, 1000);
  EXPECT_EQ(bytes.name, "bytes");
  const Bound dots = bound_of({.bytes = 20e6, .ops = 4e9, .in = DotType::int8}, peaks);
  EXPECT_DOUBLE_EQ(dots.us, 4000);
  EXPECT_EQ(dots.name, "dots");
  EXPECT_DOUBLE_EQ(bound_of({.bytes = 0, .ops = 4e9, .in = DotType::f32}, peaks).us, 40000);
  EXPECT_DOUBLE_EQ(percent_of(dots, 8000), 50);
  EXPECT_EQ(bound_of({.bytes = 1e6, .ops = 1e9, .in = DotType::f32}, {.read_gbps = 10}).name, "bytes");
}

TEST(Noise, IsAPeakThatIsTooLowOrMoved) {
  const Peaks quiet{.read_gbps = 19, .int8_gops = 1300};
  EXPECT_EQ(noise_of(quiet, quiet, 2, "avx512"), "");
  const Peaks slow{.read_gbps = 16, .int8_gops = 1300};
  EXPECT_NE(noise_of(slow, slow, 2, "avx512").find("noisy run: repeat it"), std::string::npos);
  EXPECT_EQ(noise_of(slow, slow, 1, "avx512"), "") << "told for two cores";
  EXPECT_EQ(noise_of(slow, slow, 2, "generic"), "");
  const Peaks moved{.read_gbps = 19, .int8_gops = 900};
  EXPECT_NE(noise_of(quiet, moved, 16, "amx").find("noisy run: repeat it"), std::string::npos);
}

TEST(Timing, MedianAndBest) {
  EXPECT_DOUBLE_EQ(timing_of({5, 1, 9}).median_us, 5);
  EXPECT_DOUBLE_EQ(timing_of({4, 1, 2, 9}).median_us, 3);
  EXPECT_DOUBLE_EQ(timing_of({4, 1, 2, 9}).best_us, 1);
  EXPECT_EQ(timing_of({}).samples, 0);
}

TEST(Timing, ShortOpsShareAProgram) {
  EXPECT_EQ(ops_per_program(1e6, 4), 1);
  EXPECT_EQ(ops_per_program(80e3, 4), 2);
  EXPECT_EQ(ops_per_program(80e3, 1), 1);
  EXPECT_EQ(ops_per_program(1000, 16), 5);
  EXPECT_EQ(ops_per_program(1, 1), 64);
  EXPECT_EQ(ops_per_program(1, 500), 500);
}

TEST(SkewedRouting, EveryTokenHasDistinctExpertsAndTheLogitsChooseThem) {
  for (const Skew skew : all_skews()) {
    const RoutingShape shape{.n_tokens = 40, .n_experts = 24, .top_k = 5};
    const DrawnRouting drawn = draw_routing(shape, skew, 7);
    std::set<std::int32_t> used;
    for (std::size_t t = 0; t < 40; ++t) {
      const std::set<std::int32_t> of_token(drawn.experts.begin() + static_cast<std::ptrdiff_t>(t * 5),
                                            drawn.experts.begin() + static_cast<std::ptrdiff_t>(t * 5 + 5));
      EXPECT_EQ(of_token.size(), 5U);
      used.insert(of_token.begin(), of_token.end());
    }
    EXPECT_EQ(std::vector<std::int32_t>(used.begin(), used.end()), drawn.used);

    auto logits = logits_for(drawn, 3);
    std::vector<std::int32_t> experts(200);
    std::vector<float> weights(200);
    const auto borrow = [](auto& v) {
      return BorrowedBuffer(reinterpret_cast<std::byte*>(v.data()), static_cast<std::int64_t>(v.size() * 4));
    };
    BorrowedBuffer l = borrow(logits);
    BorrowedBuffer e = borrow(experts);
    BorrowedBuffer w = borrow(weights);
    reference(
        MoeRoute{.logits = dense(l, 0, DType::f32, {40, 24}),
                 .rule = {.top_k = 5},
                 .out = {.experts = dense(e, 0, DType::i32, {40, 5}), .weights = dense(w, 0, DType::f32, {40, 5})}});
    EXPECT_EQ(experts, drawn.experts) << name(skew);
  }
}

TEST(SkewedRouting, SkewsAreWhatTheySay) {
  const RoutingShape shape{.n_tokens = 400, .n_experts = 64, .top_k = 4};
  const auto most_popular = [&](Skew skew) {
    std::vector<int> counts(64);
    for (const std::int32_t e : draw_routing(shape, skew, 1).experts) ++counts[static_cast<std::size_t>(e)];
    return *std::max_element(counts.begin(), counts.end());
  };
  EXPECT_EQ(most_popular(Skew::one_hot), 400);
  EXPECT_LT(most_popular(Skew::uniform), 50);  // 25 expected
  EXPECT_GT(most_popular(Skew::zipf), 150);
}

TEST(SkewedRouting, VariantsUseOtherExpertsAsLongAsThereAreAny) {
  const DrawnRouting drawn = draw_routing({.n_tokens = 2, .n_experts = 32, .top_k = 4}, Skew::uniform, 5);
  std::set<std::int32_t> seen;
  for (std::int64_t v = 0; v < drawn.n_variants(); ++v) {
    const DrawnRouting moved = drawn.variant(v);
    EXPECT_EQ(moved.n_distinct(), drawn.n_distinct());
    for (const std::int32_t e : moved.used) EXPECT_TRUE(seen.insert(e).second) << "variant " << v;
  }
  EXPECT_EQ(drawn.variant(0).experts, drawn.experts);
  EXPECT_GE(drawn.n_variants(), 4);
}

TEST(RandomBlocks, EveryFormatIsFiniteAndOfTheSizeAskedFor) {
  for (const DType type : kWeight) {
    for (const double size : {kWeightSize, 1.0}) {
      const std::int64_t n = 256 * 64;
      std::vector<std::byte> blocks(static_cast<std::size_t>(n / dtype_info(type).per_block * dtype_info(type).bytes));
      test::Rng rng(3);
      random_blocks(type, blocks, size, rng);
      std::vector<float> values(static_cast<std::size_t>(n));
      decode(type, blocks, values);
      double squares = 0;
      for (const float v : values) squares += static_cast<double>(v) * static_cast<double>(v);
      const double deviation = std::sqrt(squares / static_cast<double>(n));
      EXPECT_GT(deviation, size / 2) << dtype_info(type).name;  // NaN fails too
      EXPECT_LT(deviation, size * 2) << dtype_info(type).name;
    }
  }
}

class Pile : public testing::Test {
 protected:
  Pile() {
    std::string pattern = (fs::temp_directory_path() / "conclave-bench-test-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary directory");
    folder_ = pattern;
  }
  ~Pile() override { fs::remove_all(folder_); }
  fs::path folder_;
};

TEST_F(Pile, IsMappedAndHasNoName) {
  const WeightPile pile({.type = DType::q6_k, .bytes = 1 << 20, .folder = folder_});
  EXPECT_TRUE(fs::is_empty(folder_));
  EXPECT_GE(pile.size(), 1 << 20);
  const Tensor w = pile.view(pile_alignment(DType::q6_k), {16, 256});
  EXPECT_EQ(fault_of_view(w), "");
  for (const float x : load_row(w, {15})) EXPECT_TRUE(std::isfinite(x));
}

TEST_F(Pile, WhatTheFolderCannotTakeIsAnError) {
  EXPECT_THROW(WeightPile({.type = DType::q8_0, .bytes = 1 << 20, .folder = folder_ / "none"}), Error);
  EXPECT_THROW(WeightPile({.type = DType::q8_0, .bytes = std::int64_t{1} << 60, .folder = folder_}), Error);
  EXPECT_TRUE(fs::is_empty(folder_));
}

constexpr ModelShape kTiny{.name = kMainModel,
                           .d_model = 256,
                           .d_ff = 256,
                           .n_experts = 8,
                           .top_k = 2,
                           .n_heads = 4,
                           .n_kv_heads = 2,
                           .d_head = 64,
                           .n_vocab = 300,
                           .d_shared = 256,
                           .score = Score::softmax,
                           .renormalize = true};
constexpr RotationRule kSmallRule{.bytes = 1 << 20, .memory_limit = 64 << 20};

RowKey tiny_row(const Kind& kind, std::int64_t n_tokens) {
  RowKey key{.kind = &kind, .model = &kTiny, .n_tokens = n_tokens};
  if (kind.formats == Formats::weights) key.format = DType::q4_k;
  if (kind.formats == Formats::cache) key.format = DType::f16;
  return key;
}

// The reference, but for what `spoil` does to each output.
class SpoiltDevice final : public Device {
 public:
  using Spoil = void (*)(Role, const Tensor&);
  explicit SpoiltDevice(Spoil spoil) : spoil_(spoil) {}
  std::string_view name() const override { return "spoilt"; }
  std::shared_ptr<Buffer> allocate(std::int64_t bytes) override { return HostBuffer::make(bytes); }
  void upload(Buffer&, std::int64_t, std::span<const std::byte>) override {}
  void download(const Buffer&, std::int64_t, std::span<std::byte>) override {}
  bool reaches(const Buffer&) const override { return true; }
  Selection select(const Op&) const override { return {.plan = "spoilt"}; }

 protected:
  struct Run final : Executable {
    void run(Profile*) override {
      for (const Op& op : ops) {
        reference(op);
        for (const Access& access : accesses(op)) {
          if (writes(access.role) && access.role != Role::scratch) spoil(access.role, access.tensor);
        }
      }
    }
    std::vector<Op> ops;
    Spoil spoil = nullptr;
  };
  std::unique_ptr<Executable> build(const Program& program, CompileOptions) override {
    auto run = std::make_unique<Run>();
    run->ops.assign(program.ops().begin(), program.ops().end());
    run->spoil = spoil_;
    return run;
  }
  Spoil spoil_;
};

// A tenth more in every element.
void a_tenth_more(Role, const Tensor& t) {
  for (std::int64_t r = 0; r < row_count(t); ++r) {
    const Tensor row = flat_row(t, r);
    for (std::int64_t i = 0; i < row.inner(); ++i) {
      if (is_integer(t.dtype)) {
        store_i32(row, {i}, load_i32(row, {i}) + 1);
      } else {
        store(row, {i}, 1.1 * static_cast<double>(load(row, {i})));
      }
    }
  }
}

TEST_F(Pile, EveryKindPassesWhereItIsRightAndFailsWhereItIsNot) {
  const WeightPile blocks({.type = DType::q4_k, .bytes = 4 << 20, .folder = folder_});
  const WeightPile floats({.type = DType::f32, .bytes = 4 << 20, .folder = folder_});
  for (const Kind& kind : all_kinds()) {
    for (const std::int64_t n_tokens : {std::max<std::int64_t>(kind.fewest, 1), std::int64_t{9}}) {
      const RowKey key = tiny_row(kind, n_tokens);
      CaseMaker maker(key, key.format == DType::f32 ? &floats : &blocks, kSmallRule);
      const BenchCase made = kind.make(maker);
      ASSERT_FALSE(made.slots.empty()) << key.title();
      for (const Op& op : made.slots) EXPECT_NO_THROW(validate(op)) << key.title();
      EXPECT_GT(made.work.bytes, 0) << key.title();
      RefDevice right;
      const Checked good = check_op(right, made.slots[0], made.samples, test::Arithmetic{});
      EXPECT_TRUE(good.ok) << key.title() << ": " << good.message;
      EXPECT_GT(good.reference_us, 0) << key.title();
      SpoiltDevice wrong(a_tenth_more);
      EXPECT_FALSE(check_op(wrong, made.slots[0], made.samples, test::kInt8Arithmetic).ok) << key.title();
      SpoiltDevice lazy([](Role role, const Tensor& t) {
        if (role != Role::inout)
          std::memset(row_address(flat_row(t, 0), {}), 0xFF, static_cast<std::size_t>(row_bytes(t)));
      });
      const std::vector<Access> all = accesses(made.slots[0]);
      const bool writes_anew = std::any_of(all.begin(), all.end(), [](const Access& access) {
        return access.role == Role::out || access.role == Role::host_out;
      });
      EXPECT_EQ(check_op(lazy, made.slots[0], made.samples, test::kInt8Arithmetic).ok, !writes_anew) << key.title();
    }
  }
}

TEST_F(Pile, ConsecutiveRunsReadOtherExperts) {
  const WeightPile pile({.type = DType::q4_k, .bytes = 4 << 20, .folder = folder_});
  const RowKey key{.kind = &all_kinds().front(), .model = &kTiny, .format = DType::q4_k, .n_tokens = 1};
  CaseMaker maker(key, &pile, kSmallRule);
  const BenchCase made = key.kind->make(maker);
  EXPECT_EQ(made.distinct_experts, 2);
  // Two experts of three matrices, the shared one's three, 36 KiB each, and some activations.
  const double matrices = (2 * 3 + 3) * 256 * 144;
  EXPECT_GT(made.work.bytes, matrices);
  EXPECT_LT(made.work.bytes, matrices + 10 * 256 * 4);
  EXPECT_EQ(made.work.ops, 2.0 * (2 * 3 + 3) * 256 * 256);
  std::set<std::pair<std::int64_t, std::int64_t>> seen;  // layer and expert
  for (const Op& op : made.slots) {
    const auto& ffn = std::get<MoeFfn>(op);
    reference(ffn);
    for (std::int64_t s = 0; s < 2; ++s) {
      EXPECT_TRUE(seen.emplace(ffn.gate.byte_offset, load_i32(ffn.routing.experts, {0, s})).second);
    }
  }
  EXPECT_GT(made.slots.size(), 2U);
}

TEST(Memory, ExpertsAreLeftOutWhereTheyDoNotFit) {
  const RowKey key = row_of("moe_ffn", "qwen2-57b-a14b", DType::f32, 1);
  const std::int64_t fit = experts_in_memory(key, std::int64_t{4} << 30);
  EXPECT_LT(fit, 64);
  EXPECT_GE(fit, 8);
  EXPECT_LE(layer_bytes(key, std::int64_t{4} << 30), std::int64_t{4} << 30);
  EXPECT_THROW(experts_in_memory(key, 1 << 30), Error);
  EXPECT_EQ(experts_in_memory(row_of("moe_ffn", kMainModel, DType::q4_k, 1), std::int64_t{4} << 30), 128);
}

TEST(Targets, AreComputedFromTimesAndPeaks) {
  const RunFacts facts{.kernels = "avx512", .threads = 2};
  const LayerWork work{.one_token = {.bytes = 20e6}, .eight_tokens = {.bytes = 100e6}, .prefill = {.ops = 40e9}};
  const LayerTimes times{.one_token = 1000,
                         .eight_tokens = 5000,
                         .prefill = 100e3,
                         .prefill_one_thread = 180e3,
                         .prefill_two_threads = 100e3,
                         .one_token_generic = 3000,
                         .prefill_generic = 1300e3,
                         .read_gbps = 20,
                         .int8_gops = 1000};
  const std::vector<Target> targets = targets_of(times, work, facts);
  const std::vector<double> reached = {100, 1, 40, 100, 1.8, 3, 13};
  const std::vector<bool> met = {true, true, true, false, false, true, false};
  ASSERT_EQ(targets.size(), reached.size());
  for (std::size_t i = 0; i < targets.size(); ++i) {
    EXPECT_NEAR(targets[i].reached, reached[i], 1e-9) << targets[i].what;
    EXPECT_EQ(targets[i].met(), met[i]) << targets[i].what;
  }
  EXPECT_FALSE(targets[3].applies) << "told for 16 cores with AMX";
  EXPECT_NE(target_table(targets).find("MISSED"), std::string::npos);
}

TEST(Report, AWrongRowHasNoTime) {
  RowResult row{.key = row_of("moe_ffn", kMainModel, DType::q4_k, 8),
                .work = {.bytes = 1e6, .ops = 1e6, .in = DotType::int8},
                .distinct_experts = 40,
                .n_experts = 128,
                .checked = {.reference_us = 5000, .scaled = true},
                .timing = {.median_us = 100, .best_us = 90, .samples = 5}};
  const RunFacts facts{
      .cpu = "a cpu", .kernels = "avx512", .threads = 2, .peaks = {.read_gbps = 20, .int8_gops = 1000}};
  EXPECT_NE(table_line(row, facts).find("10.00 GB/s"), std::string::npos) << table_line(row, facts);
  EXPECT_NE(table_line(row, facts).find("~50.0"), std::string::npos) << table_line(row, facts);
  const auto line = nlohmann::json::parse(json_line(row, facts));
  EXPECT_EQ(line.at("bound"), "bytes");
  EXPECT_EQ(line.at("percent"), 50.0);
  EXPECT_EQ(line.at("distinct_experts"), 40);
  row.checked = {.ok = false, .message = "residual: element 3"};
  EXPECT_NE(table_line(row, facts).find("WRONG: residual: element 3"), std::string::npos);
  EXPECT_FALSE(nlohmann::json::parse(json_line(row, facts)).contains("us_median"));
}

}  // namespace
}  // namespace conclave::bench
