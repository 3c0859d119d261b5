// The routing dump: what it says of each op that groups, and when it is written.
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <numeric>

#include "backends/ref/ref_device.h"
#include "ops/moe_dump.h"
#include "ops/op_test_support.h"

namespace conclave::test {
namespace {

using Ints = std::vector<std::int32_t>;
using nlohmann::json;

MoeAlignBlocks align_op(Host& b, const Tensor& experts, std::int64_t n_experts, std::int64_t block_size, RowIds ids) {
  const std::int64_t blocks = worst_case_blocks(experts.dim(0) * experts.dim(1), n_experts, block_size);
  return {.experts = experts,
          .n_experts = n_experts,
          .block_size = block_size,
          .ids = ids,
          .out = {.sorted_ids = b.out_i32({blocks * block_size}),
                  .block_expert = b.out_i32({blocks}),
                  .n_padded = b.out_i32({1})}};
}

MoeGroup group_op(Host& b, const Tensor& experts, std::int64_t n_experts) {
  return {.experts = experts,
          .n_experts = n_experts,
          .out = {.offsets = b.out_i32({n_experts + 1}),
                  .row_pair = b.out_i32({experts.dim(0) * experts.dim(1)}),
                  .pair_row = b.out_i32({experts.dim(0), experts.dim(1)})}};
}

MoeFfn ffn_op(Host& b, const Tensor& logits, std::int64_t top_k) {
  const std::int64_t n = logits.dim(0);
  const std::int64_t e = logits.dim(1);
  return {
      .x = b.values(DType::f32, {n, 4}),
      .logits = logits,
      .rule = {.top_k = top_k},
      .gate = b.values(DType::f32, {e, 2, 4}),
      .up = b.values(DType::f32, {e, 2, 4}),
      .down = b.values(DType::f32, {e, 4, 2}),
      .routing = {.experts = b.out_i32({n, top_k}), .weights = b.out_f32({n, top_k})},
      .groups = {.offsets = b.out_i32({e + 1}), .row_pair = b.out_i32({n * top_k}), .pair_row = b.out_i32({n, top_k})},
      .hidden = b.out_f32({n * top_k, 2}),
      .expert_out = b.out_f32({n * top_k, 4}),
      .residual = b.values(DType::f32, {n, 4})};
}

class RoutingDump : public testing::Test {
 protected:
  // Runs the op and offers it, as a device does.
  void offer(MoeDump& dump, const Op& op, Profile* profile = nullptr) {
    run(op);
    dump.offer(op, profile);
  }
  MoeDump dump(std::int64_t min_pairs = 1) {
    return MoeDump(MoeDumpRequest{.min_pairs = min_pairs}, [this](const std::string& line) { lines_.push_back(line); });
  }
  json only_line() {
    EXPECT_EQ(lines_.size(), 1U);
    return lines_.size() == 1 ? json::parse(lines_[0]) : json();
  }

  Host host_;
  std::vector<std::string> lines_;
};

// Tokens 0, 1, 2 go to experts (2, 0), (2, 2), (0, 9); 9 is none. Pairs 1 and 4 are expert 0's; 0, 2 and 3 expert 2's.
Tensor three_tokens(Host& b) {
  return b.i32({3, 2}, {2, 0, 2, 2, 0, 9});
}

TEST_F(RoutingDump, ShowsAlignedBlocksByPair) {
  MoeDump once = dump();
  offer(once, align_op(host_, three_tokens(host_), 4, 2, RowIds::pair));
  EXPECT_EQ(only_line(), (json{{"event", "moe_dump"},
                               {"kind", "pair"},
                               {"pairs", 6},
                               {"block_size", 2},
                               {"experts", 4},
                               {"padded", 6},
                               {"active_blocks", 3},
                               {"distinct_experts", 2},
                               {"ids", {1, 4, 0, 2, 3, 6}},
                               {"blocks", {0, 2, 2}}}));
}

TEST_F(RoutingDump, ShowsAlignedBlocksByPackedRow) {
  MoeDump once = dump();
  offer(once, align_op(host_, three_tokens(host_), 4, 4, RowIds::packed));
  const json line = only_line();
  EXPECT_EQ(line["kind"], "packed");
  EXPECT_EQ(line["block_size"], 4);
  EXPECT_EQ(line["padded"], 8);
  EXPECT_EQ(line["active_blocks"], 2);
  EXPECT_EQ(line["ids"], json({0, 1, 6, 6, 2, 3, 4, 6}));
  EXPECT_EQ(line["blocks"], json({0, 2}));
}

TEST_F(RoutingDump, ShowsGroupsAsBlocksOfOneRow) {
  MoeDump once = dump();
  offer(once, group_op(host_, three_tokens(host_), 4));
  EXPECT_EQ(only_line(), (json{{"event", "moe_dump"},
                               {"kind", "pair"},
                               {"pairs", 6},
                               {"block_size", 1},
                               {"experts", 4},
                               {"padded", 5},
                               {"active_blocks", 5},
                               {"distinct_experts", 2},
                               {"ids", {1, 4, 0, 2, 3}},
                               {"blocks", {0, 0, 2, 2, 2}}}));
}

TEST_F(RoutingDump, ShowsAFusedOpByTheRoutingItWrote) {
  MoeDump once = dump();
  // Token 0 prefers experts 2 then 0, token 1 expert 1 then 2.
  MoeFfn op = ffn_op(host_, host_.f32({2, 3}, {5, 1, 9, 0, 8, 7}), 2);
  run(op);
  for (const Tensor* scratch : {&op.groups.offsets, &op.groups.row_pair, &op.groups.pair_row}) {
    std::memset(scratch->buffer->host(), 0xFF,
                static_cast<std::size_t>(scratch->buffer->bytes()));  // it holds anything
  }
  once.offer(op, nullptr);
  EXPECT_EQ(only_line(), (json{{"event", "moe_dump"},
                               {"kind", "pair"},
                               {"pairs", 4},
                               {"block_size", 1},
                               {"experts", 3},
                               {"padded", 4},
                               {"active_blocks", 4},
                               {"distinct_experts", 3},
                               {"ids", {1, 2, 0, 3}},
                               {"blocks", {0, 1, 2, 2}}}));
}

TEST_F(RoutingDump, OfAFusedOpLeavesDeadTokensOut) {
  MoeDump once = dump();
  MoeFfn op = ffn_op(host_, host_.f32({2, 3}, {5, 1, 9, 0, 8, 7}), 2);
  op.live = host_.live(1);
  op.routing.experts = host_.i32({2, 2}, {1, 1, 1, 1});  // of an earlier step: the dead token's stay
  offer(once, op);
  const json line = only_line();
  EXPECT_EQ(line["pairs"], 4);
  EXPECT_EQ(line["ids"], json({1, 0}));
  EXPECT_EQ(line["blocks"], json({0, 2}));
}

TEST_F(RoutingDump, StopsAt48IdsAnd32Blocks) {
  Ints experts(100);
  std::iota(experts.begin(), experts.end(), 0);
  const Tensor routing = host_.i32({100, 1}, experts);
  MoeDump of_groups = dump();
  offer(of_groups, group_op(host_, routing, 100));
  json line = only_line();
  EXPECT_EQ(line["padded"], 100);
  EXPECT_EQ(line["active_blocks"], 100);
  EXPECT_EQ(line["distinct_experts"], 100);
  EXPECT_EQ(line["ids"].get<Ints>(), Ints(experts.begin(), experts.begin() + 48));
  EXPECT_EQ(line["blocks"].get<Ints>(), Ints(experts.begin(), experts.begin() + 32));

  lines_.clear();
  MoeDump of_blocks = dump();
  offer(of_blocks, align_op(host_, routing, 100, 2, RowIds::pair));
  line = only_line();
  EXPECT_EQ(line["padded"], 200);
  EXPECT_EQ(line["ids"].size(), 48U);
  EXPECT_EQ(line["ids"][46], 23);
  EXPECT_EQ(line["ids"][47], 100);
  EXPECT_EQ(line["blocks"].size(), 32U);
}

TEST_F(RoutingDump, OfNoPairsIsEmpty) {
  MoeDump once = dump(0);
  offer(once, group_op(host_, host_.i32({0, 2}, {}), 4));
  const json line = only_line();
  EXPECT_EQ(line["pairs"], 0);
  EXPECT_EQ(line["ids"], json::array());
}

TEST_F(RoutingDump, IsWrittenOnce) {
  MoeDump once = dump();
  EXPECT_TRUE(once.pending());
  offer(once, group_op(host_, three_tokens(host_), 4));
  EXPECT_FALSE(once.pending());
  offer(once, group_op(host_, three_tokens(host_), 4));
  EXPECT_EQ(lines_.size(), 1U);
}

TEST_F(RoutingDump, IsNotWrittenUnasked) {
  MoeDump never(std::nullopt, [this](const std::string& line) { lines_.push_back(line); });
  EXPECT_FALSE(never.pending());
  offer(never, group_op(host_, three_tokens(host_), 4));
  EXPECT_TRUE(lines_.empty());
}

TEST_F(RoutingDump, WaitsForEnoughPairs) {
  MoeDump waiting = dump(6);
  offer(waiting, group_op(host_, host_.i32({5, 1}, {0, 0, 0, 0, 0}), 4));
  EXPECT_TRUE(waiting.pending());
  EXPECT_TRUE(lines_.empty());
  offer(waiting, group_op(host_, three_tokens(host_), 4));
  EXPECT_FALSE(waiting.pending());
  EXPECT_EQ(only_line()["pairs"], 6);
}

TEST_F(RoutingDump, IgnoresOpsThatDoNotGroup) {
  MoeDump once = dump();
  offer(once, Argmax{.x = host_.values(DType::f32, {2, 4}), .ids = host_.out_i32({2})});
  EXPECT_TRUE(once.pending());
  EXPECT_TRUE(lines_.empty());
}

TEST_F(RoutingDump, GoesToTheProfileToo) {
  MoeDump once = dump();
  std::vector<std::string> events;
  Profile profile([&](const std::string& line) { events.push_back(line); });
  offer(once, group_op(host_, three_tokens(host_), 4), &profile);
  EXPECT_EQ(events, lines_);
  EXPECT_EQ(events.size(), 1U);
}

TEST_F(RoutingDump, OfADeviceFollowsTheOpsEvent) {
  RefDevice device(MoeDumpRequest{});
  std::vector<std::string> events;
  Profile profile([&](const std::string& line) { events.push_back(json::parse(line)["event"]); });
  testing::internal::CaptureStderr();
  device.run(group_op(host_, three_tokens(host_), 4), &profile);
  device.run(group_op(host_, three_tokens(host_), 4), &profile);
  const std::string err = testing::internal::GetCapturedStderr();
  EXPECT_EQ(events, (std::vector<std::string>{"op", "moe_dump", "op"}));
  EXPECT_EQ(std::count(err.begin(), err.end(), '\n'), 1) << err;
  EXPECT_EQ(json::parse(err)["kind"], "pair");
}

TEST_F(RoutingDump, CannotBeTakenWhileAGraphIsCaptured) {
  RefDevice device(MoeDumpRequest{});
  Program program;
  program.moe_group(group_op(host_, three_tokens(host_), 4));
  try {
    device.compile(program, {.capture = true});
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    EXPECT_STREQ(error.what(), "ref: the routing dump (CONCLAVE_MOE_DUMP) cannot be taken while a graph is captured");
  }
  testing::internal::CaptureStderr();
  EXPECT_NO_THROW(device.compile(program)->run()) << "without capture it can";
  EXPECT_NE(testing::internal::GetCapturedStderr(), "");
  EXPECT_NO_THROW(device.compile(program, {.capture = true})->run()) << "it has been taken";
}

// Sets the two variables, and leaves them unset.
class DumpEnvironment : public testing::Test {
 protected:
  ~DumpEnvironment() override { set(nullptr, nullptr); }

  static void set(const char* dump, const char* pairs) {
    for (const auto& [name, value] : {std::pair{"CONCLAVE_MOE_DUMP", dump}, {"CONCLAVE_MOE_DUMP_PAIRS", pairs}}) {
      value == nullptr ? unsetenv(name) : setenv(name, value, 1);
    }
  }
  static std::string refusal(const char* dump, const char* pairs) {
    set(dump, pairs);
    try {
      moe_dump_from_environment();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      return error.what();
    }
    return "(accepted)";
  }
};

TEST_F(DumpEnvironment, AsksForNothingUnsetEmptyOrZero) {
  for (const char* value : {static_cast<const char*>(nullptr), "", "0"}) {
    set(value, nullptr);
    EXPECT_FALSE(moe_dump_from_environment().has_value()) << (value == nullptr ? "(unset)" : value);
    set(value, "12");
    EXPECT_FALSE(moe_dump_from_environment().has_value()) << "the number of pairs alone asks for nothing";
  }
}

TEST_F(DumpEnvironment, AsksForADumpWithOne) {
  set("1", nullptr);
  ASSERT_TRUE(moe_dump_from_environment().has_value());
  EXPECT_EQ(moe_dump_from_environment()->min_pairs, 1) << "an empty batch shows nothing";
  set("1", "");
  EXPECT_EQ(moe_dump_from_environment()->min_pairs, 1);
  set("1", "4096");
  EXPECT_EQ(moe_dump_from_environment()->min_pairs, 4096);
}

TEST_F(DumpEnvironment, RefusesOtherValues) {
  EXPECT_EQ(refusal("2", nullptr), "CONCLAVE_MOE_DUMP is '2', expected 0 or 1");
  EXPECT_EQ(refusal("yes", nullptr), "CONCLAVE_MOE_DUMP is 'yes', expected 0 or 1");
  for (const char* pairs : {"x", "12x", " 12", "-1", "1.5", "99999999999999999999"}) {
    EXPECT_EQ(refusal("1", pairs),
              "CONCLAVE_MOE_DUMP_PAIRS is '" + std::string(pairs) + "', expected a number of pairs");
  }
}

}  // namespace
}  // namespace conclave::test
