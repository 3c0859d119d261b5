// What `conclave bench -m` holds a model's speed against, and how its numbers become lines.
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "bench/model/model_report.h"
#include "bench/model/same_bits.h"
#include "bench/model/traffic.h"
#include "engine/loaded_model.h"
#include "engine/random_model.h"

namespace conclave::bench {
namespace {

using conclave::testing::kTinyExperts;
using conclave::testing::kTinyLayers;
using conclave::testing::RandomModel;

double bytes_of(const gguf::File& file, const std::string& part) {
  double bytes = 0;
  for (const gguf::TensorInfo& tensor : file.tensors()) {
    if (tensor.name.find(part) != std::string_view::npos) bytes += static_cast<double>(tensor.bytes);
  }
  return bytes;
}

void route(TrafficMeter& meter, std::int64_t layer, std::vector<std::int32_t> experts, bool out) {
  const std::vector<float> weights(experts.size(), 0.5F);
  meter.route({.input = 0, .token = 0, .layer = layer, .experts = experts, .weights = weights}, out);
}

class TrafficTest : public ::testing::TestWithParam<const char*> {};

TEST_P(TrafficTest, AStepReadsAllButTheOtherExpertsAndRowsOfTheEmbedding) {
  const RandomModel file(GetParam(), DType::q8_0);
  const Model model = file.open();
  const gguf::File& tensors = model.impl().file;
  TrafficMeter meter(model.impl().description, 10);
  for (std::int64_t layer = 0; layer < kTinyLayers; ++layer) {
    route(meter, layer, {0, 3}, true);
    route(meter, layer, {3, 5}, true);
  }
  meter.end_chunk(2, 2, 7);
  const double embedding = bytes_of(tensors, "token_embd.weight");
  const double experts = bytes_of(tensors, "_exps.weight");
  const double expected = bytes_of(tensors, "") - embedding * (1 - 2.0 / conclave::testing::kTinyVocab) -
                          experts * (1 - 3.0 / kTinyExperts);
  EXPECT_NEAR(meter.total().weight_bytes, expected, 1e-6 * expected);
  EXPECT_EQ(meter.total().kv_bytes, 70);
  EXPECT_EQ(meter.total().experts, 3 * kTinyLayers);
  EXPECT_EQ(meter.total().layers, kTinyLayers);
  EXPECT_GT(meter.total().int8_ops, 0);

  // The next chunk starts anew.
  const Traffic before = meter.total();
  for (std::int64_t layer = 0; layer < kTinyLayers; ++layer) route(meter, layer, {1}, true);
  meter.end_chunk(1, 1, 1);
  EXPECT_EQ(meter.total().experts - before.experts, kTinyLayers);
}
INSTANTIATE_TEST_SUITE_P(Families, TrafficTest, ::testing::Values("qwen3moe", "qwen2moe", "llama", "olmoe"));

TEST(Traffic, TokensWithoutLogitsDoNotReachTheLastExpertsOrTheHead) {
  const RandomModel file("qwen3moe", DType::q8_0);
  const Model model = file.open();
  const auto traffic = [&](std::int64_t n_out) {
    TrafficMeter meter(model.impl().description, 0);
    for (std::int64_t layer = 0; layer < kTinyLayers; ++layer) route(meter, layer, {0, 3}, n_out > 0);
    meter.end_chunk(1, n_out, 1);
    return meter.total();
  };
  EXPECT_EQ(traffic(0).experts, 2 * (kTinyLayers - 1));
  EXPECT_EQ(traffic(1).experts, 2 * kTinyLayers);
  const gguf::File& tensors = model.impl().file;
  EXPECT_GT(traffic(1).weight_bytes - traffic(0).weight_bytes, bytes_of(tensors, "output.weight"));
}

TEST(SameBits, HoldsForAModelAndFindsADifference) {
  const RandomModel file("olmoe", DType::q4_k);
  EXPECT_EQ(check_same_bits(file.open(), 3, {}), "");
  EXPECT_EQ(allowed_difference("cpu").batch, 0);
  EXPECT_EQ(allowed_difference("cpu").phase, 0);
  const std::vector<float> want = {3, 4};
  EXPECT_EQ(difference(std::vector<float>{3, 4.04F}, want, 0.01), "");
  EXPECT_NE(difference(std::vector<float>{3, 4.06F}, want, 0.01), "");
  EXPECT_NE(difference(std::vector<float>{3, NAN}, want, 0.01), "");
  EXPECT_NE(difference(std::vector<float>{3, 4.00001F}, want), "");
  EXPECT_EQ(check_same_bits(file.open(), 3, {.chunk = 2, .kv_type = KvType::q8_0}), "");
  const std::vector<float> row{1, 2, 3};
  EXPECT_EQ(difference(row, row), "");
  EXPECT_NE(difference(row, std::vector<float>{1, 2, std::nextafterf(3, 4)}), "");
  const std::vector<float> bad{1, std::numeric_limits<float>::quiet_NaN(), 3};
  EXPECT_EQ(difference(bad, bad), "logit 1 is nan");
}

TEST(ModelReport, MediansAndShares) {
  WorkResult result{.work = {.kind = WorkKind::decode, .tokens = 10, .batch = 2},
                    .traffic = {.weight_bytes = 8e9, .kv_bytes = 2e9, .int8_ops = 1e12, .experts = 8, .layers = 2}};
  // Twice as slow while the machine is half as fast: the same share.
  result.repetitions = {{.seconds = 1, .cpu_seconds = 0.25, .peaks = Peaks{.read_gbps = 20, .int8_gops = 4000}},
                        {.seconds = 2, .cpu_seconds = 1, .peaks = Peaks{.read_gbps = 10, .int8_gops = 2000}},
                        {.seconds = 4, .peaks = Peaks{.read_gbps = 5, .int8_gops = 1000}}};
  const WorkSummary summary = summary_of(result);
  EXPECT_DOUBLE_EQ(summary.tokens_per_second, 10);
  EXPECT_DOUBLE_EQ(summary.slowest, 5);
  EXPECT_DOUBLE_EQ(summary.fastest, 20);
  EXPECT_DOUBLE_EQ(summary.percent_of_read, 50);
  EXPECT_DOUBLE_EQ(summary.percent_of_int8, 25);
  EXPECT_DOUBLE_EQ(summary.percent_of_bound, 50);
  EXPECT_DOUBLE_EQ(summary.cores, 0.25);

  // Names are any bytes, and one line.
  const auto line = nlohmann::json::parse(work_json(result, {.file = "a\n\xff.gguf"}));
  EXPECT_EQ(line.at("work"), "decode");
  EXPECT_EQ(line.at("experts_per_layer"), 4);
  EXPECT_TRUE(line.at("resident_bytes").is_null());
}

}  // namespace
}  // namespace conclave::bench
