// The MoE layer on a GPU, from router logits to the next norm, at the shapes of real models: what
// `conclave bench --kernels --device cuda` runs.
//
// A row is one moe_ffn among several in a graph, each with weights of its own, so that they come from memory and not from
// the cache; the time of a replay by the number of ops, the median of several. What it computes is compared with the CPU
// backend first (decode: to 1e-5 of its square; prefill, whose products are of bf16, to 5e-4 of the CPU's of int8); a wrong
// result has no time. The bound is the bytes of the chosen experts at the speed at which this GPU
// reads, measured in the same run, or the products at 798 TFLOP/s (a bf16 matrix product on an H200), whichever is longer.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backends/cuda/cuda_device.h"
#include "bench/kernels/kernel_bench.h"

namespace conclave::bench {

struct GpuBenchOptions {
  std::vector<std::int64_t> tokens = {1, 2, 4, 8, 16, 32, 64, 128, 512, 2048, 8192};
  std::vector<std::string> models;  // empty: Qwen3-30B-A3B alone
  std::vector<std::string> skews = {"uniform"};
  std::string phase;    // "decode", "prefill"; empty: decode up to 256 tokens, prefill beyond
  bool stages = false;  // the ops that moe_ffn stands for, too, each by itself
  bool json = false;
};

int run_gpu_bench(CudaDevice& gpu, const GpuBenchOptions& options, const BenchOutput& output);

}  // namespace conclave::bench
