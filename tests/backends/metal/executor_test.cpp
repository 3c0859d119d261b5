#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "backends/metal/hazards.h"
#include "backends/metal/kernels/probe_args.h"
#include "backends/metal/shim/executor_gpu.h"
#include "base/error.h"

namespace conclave::metal {
namespace {

// One probe kernel with an input and an output of so many ints.
class Probe {
 public:
  explicit Probe(const std::string& kernel, int mode = 0, std::int64_t in = 64, std::int64_t out = 64)
      : gpu_(make_executor_gpu({.threads = 2})), in_(gpu_->allocate(in * 4)), out_(gpu_->allocate(out * 4)) {
    args_.mode = mode;
    encoded_ = {.pipeline = gpu_->pipeline("probe_" + kernel),
                .args = std::as_bytes(std::span(&args_, 1)),
                .groups = {1, 1, 1},
                .threads = 64};
    encoded_.bindings[ProbeArgs::kIn] = {.buffer = in_.get(), .end = in * 4};
    encoded_.bindings[ProbeArgs::kOut] = {.buffer = out_.get(), .end = out * 4, .writes = true};
  }

  Probe& groups(std::uint32_t n) {
    encoded_.groups.x = n;
    return *this;
  }
  Probe& threads(std::uint32_t n) {
    encoded_.threads = n;
    return *this;
  }
  Probe& shared(std::uint32_t bytes) {
    encoded_.shared_bytes = bytes;
    return *this;
  }
  Encoded& encoded() { return encoded_; }
  Gpu& gpu() { return *gpu_; }
  Buffer& in() { return *in_; }

  std::vector<int> run() {
    gpu_->dispatch(encoded_);
    gpu_->commit();
    gpu_->wait();
    std::vector<int> values(static_cast<std::size_t>(out_->bytes()) / 4);
    std::memcpy(values.data(), out_->host(), values.size() * 4);
    return values;
  }

  std::string error() {
    try {
      run();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

 private:
  std::unique_ptr<Gpu> gpu_;
  std::shared_ptr<Buffer> in_;
  std::shared_ptr<Buffer> out_;
  ProbeArgs args_{};
  Encoded encoded_;
};

template <class AnyProbe>
void expect_error(AnyProbe&& probe, const std::string& words) {
  const std::string error = probe.error();
  EXPECT_NE(error.find(words), std::string::npos) << "'" << error << "' does not say '" << words << "'";
  EXPECT_NE(error.find("probe_"), std::string::npos) << error;
  EXPECT_NE(error.find("threadgroup ("), std::string::npos) << error;
  EXPECT_EQ(error.find('\n'), std::string::npos) << error;
}

TEST(Executor, SimdgroupFunctionsGiveWhatTheSpecificationSays) {
  const std::vector<int> got = Probe("simd_functions", 0, 64, 10 * 32).threads(32).run();
  for (int lane = 0; lane < 32; ++lane) {
    const auto row = [&](int i) { return got[static_cast<std::size_t>(i * 32 + lane)]; };
    EXPECT_EQ(row(0), 32 * 33 / 2);
    EXPECT_EQ(row(1), 32);
    EXPECT_EQ(row(2), 1);
    EXPECT_EQ(row(3), lane * (lane + 1) / 2);
    EXPECT_EQ(row(4), 8);
    EXPECT_EQ(row(5), (lane ^ 5) + 1);
    EXPECT_EQ(row(6), 1);
    EXPECT_EQ(row(7), 0);
    EXPECT_EQ(row(8), 32 * 33 / 2);
    EXPECT_EQ(row(9), 32);
  }
}

TEST(Executor, MatricesAreLoadedMultipliedAndStored) {
  const std::vector<int> got = Probe("matrices").threads(32).shared(256).run();
  for (int m = 0; m < 8; ++m) {
    for (int n = 0; n < 8; ++n) {
      int want = m * 8 + n;
      for (int k = 0; k < 8; ++k) want += (m * 8 + k) * (n * 8 + k);
      EXPECT_EQ(got[static_cast<std::size_t>(m * 8 + n)], want);
    }
  }
}

TEST(Executor, BarriersOrderWhatTheySayTheyOrder) {
  const std::vector<int> by_group = Probe("neighbours", 0).shared(256).run();
  const std::vector<int> by_simd = Probe("neighbours", 1).shared(256).run();
  for (int i = 0; i < 64; ++i) {
    EXPECT_EQ(by_group[static_cast<std::size_t>(i)], (i + 1) % 64);
    EXPECT_EQ(by_simd[static_cast<std::size_t>(i)], i / 32 * 32 + (i + 1) % 32);
  }
  expect_error(Probe("neighbours", 2).shared(256), "a race at byte");
  expect_error(Probe("neighbours", 3).shared(256), "of threadgroup memory");  // no barrier at all
}

TEST(Executor, NamesARaceInThreadgroupMemory) {
  expect_error(Probe("overwrites_what_others_read").shared(256), "has read it, and no barrier since");
}

TEST(Executor, NamesADivergentBarrier) {
  expect_error(Probe("barrier_in_a_branch"), "a barrier at line");
  expect_error(Probe("barrier_in_two_branches"), "a barrier that not all threads reach");
}

TEST(Executor, NamesMissingLanes) {
  expect_error(Probe("missing_lane"), "with missing lanes: thread");
  expect_error(Probe("two_simd_functions"), "a simdgroup function that not all lanes reach");
}

TEST(Executor, NamesAccessesOutsideOfTensors) {
  EXPECT_EQ(Probe("loads_outside", 0).error(), "");
  expect_error(Probe("loads_outside", 1), "loads 4 bytes outside of every tensor: at byte 256 of the 256 in buffer 0");
  expect_error(Probe("stores_outside", 1),
               "stores 4 bytes outside of every tensor: at byte 256 of the 256 in buffer 1");
  expect_error(Probe("loads_outside", -1), "at byte -4 of the 256");
  expect_error(Probe("stores_to_input"), "stores to buffer 0, which is bound to be read");
  expect_error(Probe("stores_outside_shared").shared(256), "bytes outside of every tensor");
}

TEST(Executor, NamesThreadgroupMemoryThatNobodyHasWritten) {
  expect_error(Probe("loads_unwritten_shared").shared(256),
               "thread 5: loads byte 20 of threadgroup memory, which nobody");
}

TEST(Executor, NamesRacesInDeviceMemory) {
  expect_error(Probe("threads_share_a_word"), "a race in buffer 1: thread");
  expect_error(Probe("groups_share_a_word").groups(2), "a race in buffer 1: threadgroup");
}

TEST(Executor, WhatOtherThreadgroupsStoredIsThereAfterFencesAlone) {
  EXPECT_EQ(Probe("last_one_sums", 0).groups(10).shared(16).run()[11], 55);
  expect_error(Probe("last_one_sums", 1).groups(10).shared(16), "without a fence on both sides");
}

TEST(Executor, DispatchesAreOrderedByBarriersAlone) {
  Probe probe("adds_one");
  probe.gpu().dispatch(probe.encoded());
  probe.gpu().barrier();
  EXPECT_EQ(probe.run(), std::vector<int>(64, 2));
  probe.gpu().dispatch(probe.encoded());
  expect_error(probe, "no barrier lies between them");
}

TEST(Executor, TakesTheGroupsOfAnIndirectDispatchFromMemory) {
  Probe probe("groups_share_a_word");
  const std::uint32_t grid[3] = {1, 1, 1};
  std::memcpy(probe.in().host(), grid, sizeof grid);
  probe.encoded().groups = {100, 1, 1};
  probe.encoded().indirect = Binding{.buffer = &probe.in(), .end = 12};
  EXPECT_EQ(probe.run()[0], 1);
}

TEST(Executor, RefusesWhatMetalWouldRefuse) {
  EXPECT_NE(Probe("adds_one").threads(33).error().find("multiple of 32"), std::string::npos);
  EXPECT_NE(Probe("adds_one").threads(2048).error().find("up to 1024"), std::string::npos);
  EXPECT_NE(Probe("adds_one").shared(65536).error().find("threadgroup memory"), std::string::npos);
  EXPECT_THROW(Probe("no_such_kernel"), Error);
}

TEST(Hazards, AskForABarrierWhereRangesMeet) {
  const auto buffer = HostBuffer::make(1024);
  const auto other = HostBuffer::make(1024);
  const auto range = [](const std::shared_ptr<HostBuffer>& b, std::int64_t begin, std::int64_t end, bool writes) {
    return std::vector<Binding>{{.buffer = b.get(), .begin = begin, .end = end, .writes = writes}};
  };
  Hazards hazards;
  EXPECT_FALSE(hazards.add(range(buffer, 0, 100, true)));
  EXPECT_FALSE(hazards.add(range(buffer, 100, 200, true)));  // beside it
  EXPECT_FALSE(hazards.add(range(other, 0, 100, true)));
  EXPECT_TRUE(hazards.add(range(buffer, 99, 100, false)));   // read after write
  EXPECT_FALSE(hazards.add(range(buffer, 99, 100, false)));  // two readers
  EXPECT_TRUE(hazards.add(range(buffer, 0, 100, true)));     // write after read
  EXPECT_TRUE(hazards.add(range(buffer, 50, 60, true)));     // write after write
  hazards.clear();
  EXPECT_FALSE(hazards.add(range(buffer, 50, 60, true)));
}

}  // namespace
}  // namespace conclave::metal
