#include "ops/moe_routing_upload.h"

#include <gtest/gtest.h>

#include <cstring>

#include "op_test_support.h"

namespace conclave::test {
namespace {

using Ints = std::vector<std::int32_t>;

MoeRoutingUpload good_routing(Host& host) {
  return {.from = {.experts = host.i32({2, 3}, {4, -1, 0, 99, 2, 2}),
                   .weights = host.f32({2, 3}, {0.5F, -0.0F, 1e-40F, 3, 2, 1})},
          .to = {.experts = host.out_i32({2, 3}), .weights = host.out_f32({2, 3})}};
}

// Four pairs in blocks of 2: expert 0 has one row, expert 3 has three. Room for more on the device.
MoeRoutingUpload good_triple(Host& host) {
  return {
      .from_blocks = {.sorted_ids = host.i32({6}, {2, 4, 0, 1, 3, 4}),
                      .block_expert = host.i32({3}, {0, 3, 3}),
                      .n_padded = host.i32({1}, {6})},
      .to_blocks = {.sorted_ids = host.out_i32({8}), .block_expert = host.out_i32({5}), .n_padded = host.out_i32({1})},
      .n_pairs = 4};
}

TEST(MoeRoutingUpload, CopiesARoutingAsItIsInvalidIdsToo) {
  Host host;
  const MoeRoutingUpload op = good_routing(host);
  run(op);
  EXPECT_EQ(ints_of(op.to.experts), (Ints{4, -1, 0, 99, 2, 2}));
  EXPECT_EQ(dense_bits(op.to.weights), dense_bits(op.from.weights)) << "the sign of zero and subnormals too";
}

void expect_kept(std::uint32_t nan) {
  Host host;
  const MoeRoutingUpload op = good_routing(host);
  std::memcpy(op.from.weights.buffer->host() + op.from.weights.byte_offset, &nan, sizeof nan);
  run(op);
  EXPECT_EQ(dense_bits(op.to.weights)[0], nan);
}

TEST(MoeRoutingUpload, KeepsTheBitsOfAQuietNan) {
  expect_kept(0xFFC12345U);
}

// Waits for a copy that does not go through arithmetic: without optimisation, f32 to f64 and back makes this NaN quiet.
TEST(MoeRoutingUpload, KeepsTheBitsOfASignallingNan) {
  expect_kept(0x7F800001U);
}

TEST(MoeRoutingUpload, CopiesATripleAndPadsWhatTheDeviceHasMore) {
  Host host;
  const MoeRoutingUpload op = good_triple(host);
  run(op);
  EXPECT_EQ(ints_of(op.to_blocks.sorted_ids), (Ints{2, 4, 0, 1, 3, 4, 4, 4})) << "padding is n_pairs = 4";
  EXPECT_EQ(ints_of(op.to_blocks.block_expert), (Ints{0, 3, 3, -1, -1}));
  EXPECT_EQ(ints_of(op.to_blocks.n_padded), (Ints{6}));
}

TEST(MoeRoutingUpload, GivesTheTripleThatMoeAlignBlocksWouldWrite) {
  Host host;
  const Tensor experts = host.i32({3, 2}, {2, 0, 2, 1, 0, 2});
  const auto aligned = [&](std::int64_t capacity) {
    MoeAlignBlocks op{.experts = experts,
                      .n_experts = 4,
                      .block_size = 2,
                      .out = {.sorted_ids = host.out_i32({capacity}),
                              .block_expert = host.out_i32({capacity / 2}),
                              .n_padded = host.out_i32({1})}};
    run(op);
    return op.out;
  };
  const MoeRoutingUpload op{
      .from_blocks = aligned(10),
      .to_blocks = {.sorted_ids = host.out_i32({14}), .block_expert = host.out_i32({7}), .n_padded = host.out_i32({1})},
      .n_pairs = 6};
  run(op);
  const AlignedBlocks direct = aligned(14);
  EXPECT_EQ(ints_of(op.to_blocks.sorted_ids), ints_of(direct.sorted_ids));
  EXPECT_EQ(ints_of(op.to_blocks.block_expert), ints_of(direct.block_expert));
  EXPECT_EQ(ints_of(op.to_blocks.n_padded), ints_of(direct.n_padded));
}

TEST(MoeRoutingUpload, TakesNoTokensAndNoBlocks) {
  Host host;
  run(MoeRoutingUpload{.from = {.experts = host.i32({0, 2}, {}), .weights = host.f32({0, 2}, {})},
                       .to = {.experts = host.out_i32({0, 2}), .weights = host.out_f32({0, 2})}});
  const MoeRoutingUpload op{
      .from_blocks = {.sorted_ids = host.out_i32({0}),
                      .block_expert = host.out_i32({0}),
                      .n_padded = host.i32({1}, {0})},
      .to_blocks = {.sorted_ids = host.out_i32({2}), .block_expert = host.out_i32({1}), .n_padded = host.out_i32({1})}};
  run(op);
  EXPECT_EQ(ints_of(op.to_blocks.sorted_ids), (Ints{0, 0})) << "n_pairs = 0";
  EXPECT_EQ(ints_of(op.to_blocks.block_expert), (Ints{-1}));
}

TEST(MoeRoutingUploadRefuses, MissingTensorsAndBadViews) {
  Host host;
  expect_all_needed_but(good_routing(host), {});
  expect_bad_views_refused(good_routing(host));
  expect_bad_views_refused(good_triple(host));
  for (const std::string_view name : {"from_block_expert", "from_n_padded", "sorted_ids", "block_expert", "n_padded"}) {
    expect_refusal(with_member(good_triple(host), name, [](Tensor& t) { t = {}; }), std::string(name) + " is missing");
  }
}

TEST(MoeRoutingUploadRefuses, ARoutingOfOtherShapesOrTypes) {
  Host host;
  const MoeRoutingUpload op = good_routing(host);
  const auto refused = [&](auto edit, std::string_view text) { expect_refusal(op, edit, text); };
  refused([&](auto& o) { o.from.experts = host.out_i32({6}); }, "from_experts is [6], expected [any,any]");
  refused([&](auto& o) { o.from.experts = host.out_u32({2, 3}); }, "from_experts is u32, expected i32");
  refused([&](auto& o) { o.from.weights = host.out_f32({2, 2}); }, "from_weights is [2,2], expected [2,3]");
  refused([&](auto& o) { o.from.weights = host.output(DType::f16, {2, 3}); }, "from_weights is f16, expected f32");
  refused(
      [&](auto& o) {
        o.to.experts = host.out_i32({3, 3});
      },
      "moe_routing_upload: experts is [3,3], expected [2,3]");
  refused([&](auto& o) { o.to.weights = host.out_i32({2, 3}); }, "moe_routing_upload: weights is i32, expected f32");
  refused([](auto& o) { o.from.experts = repeated(o.from.experts, 1 << 30); },
          "moe_routing_upload: 1073741824 tokens with 3 experts each: pair ids are 32-bit");
}

TEST(MoeRoutingUploadRefuses, TriplesThatDoNotFitOrContradictThemselves) {
  Host host;
  const MoeRoutingUpload op = good_triple(host);
  const auto refused = [&](auto edit, std::string_view text) { expect_refusal(op, edit, text); };
  refused(
      [&](auto& o) {
        o.from.experts = host.out_i32({2, 2});
      },
      "moe_routing_upload: a routing and an aligned triple were given: one at a time");
  refused([&](auto& o) { o.from_blocks.sorted_ids = host.out_f32({6}); }, "from_sorted_ids is f32, expected i32");
  refused(
      [&](auto& o) {
        o.from_blocks.block_expert = host.out_i32({1, 3});
      },
      "from_block_expert is [1,3], expected [any]");
  refused([&](auto& o) { o.from_blocks.n_padded = host.out_i32({2}); }, "from_n_padded is [2], expected [1]");
  refused([&](auto& o) { o.to_blocks.sorted_ids = host.out_u32({8}); }, "sorted_ids is u32, expected i32");
  refused([&](auto& o) { o.to_blocks.block_expert = host.out_f32({5}); }, "block_expert is f32, expected i32");
  refused([&](auto& o) { o.to_blocks.n_padded = host.out_i32({2}); }, "n_padded is [2], expected [1]");
  refused([&](auto& o) { o.to_blocks.sorted_ids = host.out_i32({5}); }, "6 ids and 3 blocks do not fit into 5 and 5");
  refused([&](auto& o) { o.to_blocks.block_expert = host.out_i32({2}); }, "6 ids and 3 blocks do not fit into 8 and 2");
  refused([](auto& o) { o.n_pairs = -5; }, "moe_routing_upload: n_pairs is -5");
  refused([](auto& o) { o.n_pairs = std::int64_t{1} << 31; }, "moe_routing_upload: 2147483648");
  refused([&](auto& o) { o.from_blocks.n_padded = host.i32({1}, {7}); }, "n_padded is 7, but there are 6 ids");
  refused([&](auto& o) { o.from_blocks.n_padded = host.i32({1}, {-1}); }, "n_padded is -1, but there are 6 ids");
}

TEST(MoeRoutingUploadRefuses, SourcesThatAreNotInHostMemory) {
  Host host;
  DeviceOnlyBuffer device(64);
  const auto move = [&](Tensor& t) { t.buffer = &device, t.byte_offset = 0; };
  for (const std::string name : {"from_experts", "from_weights"}) {
    expect_refusal(with_member(good_routing(host), name, move), name + " is not in host memory");
  }
  for (const std::string name : {"from_sorted_ids", "from_block_expert", "from_n_padded"}) {
    expect_refusal(with_member(good_triple(host), name, move), name + " is not in host memory");
  }
  EXPECT_EQ(refusal_of(with_member(good_routing(host), "experts", move)), "(accepted)")
      << "the destination is the device's";
}

}  // namespace
}  // namespace conclave::test
