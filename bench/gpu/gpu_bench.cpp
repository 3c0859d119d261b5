#include "bench/gpu/gpu_bench.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "backends/cpu/cpu_device.h"
#include "backends/cuda/cuda_buffer.h"
#include "backends/cuda/cuda_check.h"
#include "backends/cuda/cuda_device.h"
#include "backends/cuda/read_peak_plan.h"
#include "base/fail.h"
#include "base/file_text.h"
#include "bench/kernels/random_blocks.h"
#include "bench/kernels/skewed_routing.h"
#include "ops/host_access.h"

namespace conclave::bench {
namespace {

// A layer to measure: a model's shape, and the formats of its experts.
struct GpuShape {
  std::string name;
  std::int64_t n_experts;
  std::int64_t top_k;
  std::int64_t d_model;
  std::int64_t d_ff;
  DType gate_up;
  DType down;
};
const std::vector<GpuShape>& gpu_shapes() {
  static const std::vector<GpuShape> shapes = {
      {"qwen3-30b-a3b", 128, 8, 2048, 768, DType::q4_k, DType::q4_k},
      {"qwen3-30b-a3b", 128, 8, 2048, 768, DType::q4_k, DType::q6_k},
      {"mixtral-8x7b", 8, 2, 4096, 14336, DType::q4_k, DType::q4_k},
      {"deepseek-like", 256, 8, 7168, 2048, DType::q4_k, DType::q4_k},
      {"gpt-oss-like", 32, 4, 2880, 2880, DType::mxfp4, DType::mxfp4},
      {"qwen3-30b-a3b-f16", 128, 8, 2048, 768, DType::f16, DType::f16},
      {"qwen3-30b-a3b-bf16", 128, 8, 2048, 768, DType::bf16, DType::bf16},
  };
  return shapes;
}

constexpr double kMatrixPeak = 798e12;
// vLLM's Triton kernel with bf16 weights on an H200, us, for Qwen3-30B-A3B: products and sum alone, routing left out.
const std::map<std::int64_t, double> kVllm = {{1, 29.9}, {2, 45.1},  {4, 77.6},  {8, 128},    {16, 189},   {32, 247},
                                              {64, 295}, {128, 295}, {512, 325}, {2048, 487}, {8192, 1356}};

class GpuBench {
 public:
  GpuBench(CudaDevice& gpu, const GpuBenchOptions& options, const BenchOutput& output)
      : options_(options), output_(output), gpu_(gpu) {}

  int run() {
    require_known_models();
    measure_read();
    if (!options_.json) {
      output_.print(
          fmt::format("{}: reads {:.2f} TB/s\n\n{:<15} {:<5} {:<5} {:<8} {:>6} {:<7} {:>9} {:>9} {:>6} {:>6} {:>9}\n",
                      gpu_.gpu(), read_ / 1e12, "model", "gate", "down", "routing", "tokens", "phase", "us", "bound us",
                      "%", "TB/s", "x vLLM"));
    }
    int wrong = 0;
    for (const GpuShape& shape : gpu_shapes()) {
      const bool wanted = options_.models.empty()
                              ? shape.name == gpu_shapes()[0].name
                              : std::count(options_.models.begin(), options_.models.end(), shape.name) > 0;
      if (wanted) wrong += bench_shape(shape);
    }
    return wrong == 0 ? 0 : 1;
  }

 private:
  void require_known_models() const {
    for (const std::string& model : options_.models) {
      const auto named = [&](const GpuShape& shape) { return shape.name == model; };
      if (std::none_of(gpu_shapes().begin(), gpu_shapes().end(), named)) {
        fail(ErrorCode::invalid_argument, "--model: there is no shape '{}' for a GPU", printable(model));
      }
    }
  }

  struct Layer {
    Tensor gate, up, down;
  };

  // A buffer of the GPU with this content, kept until the shape is done.
  Tensor on_gpu(DType type, const std::vector<std::int64_t>& dims, std::span<const std::byte> content = {}) {
    buffers_.push_back(gpu_.allocate(dense_bytes(type, dims)));
    if (!content.empty()) gpu_.upload(*buffers_.back(), 0, content);
    return dense(*buffers_.back(), 0, type, dims);
  }
  Tensor values_on_gpu(const std::vector<std::int64_t>& dims, std::span<const float> content) {
    return on_gpu(DType::f32, dims, std::as_bytes(content));
  }

  void measure_read() {
    constexpr std::int64_t kBytes = std::int64_t{1} << 31;
    const auto buffer = std::static_pointer_cast<cuda::CudaBuffer>(gpu_.allocate(kBytes));
    const auto sink = std::static_pointer_cast<cuda::CudaBuffer>(gpu_.allocate(4));
    const double seconds = median_seconds(
        [&] {
          cuda::check(cuda::launch_read(buffer->data(), kBytes, reinterpret_cast<std::uint32_t*>(sink->data()),
                                        gpu_.target().multiprocessors, {gpu_.stream(), false}));
        },
        5);
    read_ = static_cast<double>(kBytes) / seconds;
  }

  // Of `calls` calls one after another, waited for at the end; the median of some such rounds, of one call.
  template <class Call>
  double median_seconds(Call&& call, int calls) {
    std::vector<double> seconds;
    for (int round = 0; round < 7; ++round) {
      gpu_.synchronize();
      const auto start = std::chrono::steady_clock::now();
      for (int i = 0; i < calls; ++i) call();
      gpu_.synchronize();
      seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / calls);
    }
    std::sort(seconds.begin() + 1, seconds.end());  // the first is for warming up
    return seconds[4];
  }

  int bench_shape(const GpuShape& s) {
    buffers_.clear();
    test::Rng rng(7);
    const auto random = [&](DType type, const std::vector<std::int64_t>& dims) {
      auto buffer = HostBuffer::make(dense_bytes(type, dims));
      random_blocks(type, {buffer->host(), static_cast<std::size_t>(buffer->bytes())}, kWeightSize, rng);
      return buffer;
    };
    const std::vector<std::int64_t> in_dims = {s.n_experts, s.d_ff, s.d_model};
    const std::vector<std::int64_t> out_dims = {s.n_experts, s.d_model, s.d_ff};
    const auto gate = random(s.gate_up, in_dims);
    const auto up = random(s.gate_up, in_dims);
    const auto down = random(s.down, out_dims);
    const std::int64_t layer_bytes = gate->bytes() + up->bytes() + down->bytes();
    const double expert_bytes = static_cast<double>(layer_bytes) / static_cast<double>(s.n_experts);
    const double one_token = expert_bytes * static_cast<double>(s.top_k);
    // Between two uses of a weight four times the cache is read, also at one token.
    const auto wanted =
        static_cast<std::int64_t>(std::ceil(4.0 * static_cast<double>(gpu_.target().l2_bytes) / one_token));
    const std::int64_t n_layers =
        std::clamp<std::int64_t>(wanted, 2, std::max<std::int64_t>(2, (std::int64_t{24} << 30) / layer_bytes));
    std::vector<Layer> layers;
    for (std::int64_t i = 0; i < n_layers; ++i) {
      const auto bytes_of = [](const HostBuffer& b) {
        return std::span<const std::byte>(b.host(), static_cast<std::size_t>(b.bytes()));
      };
      const Tensor stored[] = {on_gpu(s.gate_up, in_dims, bytes_of(*gate)), on_gpu(s.gate_up, in_dims, bytes_of(*up)),
                               on_gpu(s.down, out_dims, bytes_of(*down))};
      const std::vector<Tensor> prepared = gpu_.prepare(stored);
      layers.push_back({prepared[0], prepared[1], prepared[2]});
    }
    int wrong = 0;
    for (const std::string& skew_name : options_.skews) {
      for (const Skew skew : all_skews()) {
        if (name(skew) != skew_name) continue;
        for (const std::int64_t n_tokens : options_.tokens) {
          const std::size_t kept = buffers_.size();
          const Layer on_host{dense(*gate, 0, s.gate_up, in_dims), dense(*up, 0, s.gate_up, in_dims),
                              dense(*down, 0, s.down, out_dims)};
          wrong += bench_row(s, layers, on_host, expert_bytes, n_tokens, skew) ? 0 : 1;
          buffers_.resize(kept);
        }
      }
    }
    return wrong;
  }

  bool bench_row(const GpuShape& s, const std::vector<Layer>& layers, const Layer& on_host, double expert_bytes,
                 std::int64_t n_tokens, Skew skew) {
    test::Rng rng(static_cast<std::uint64_t>(n_tokens));
    const auto normal = [&](std::int64_t n, double size) {
      std::vector<float> v(static_cast<std::size_t>(n));
      for (float& x : v) x = static_cast<float>(size * rng.normal());
      return v;
    };
    const std::int64_t n_pairs = n_tokens * s.top_k;
    const std::vector<float> x = normal(n_tokens * s.d_model, 1);
    const std::vector<float> residual = normal(n_tokens * s.d_model, 1);
    const std::vector<float> weight = normal(s.d_model, 1);
    MoeFfn op{.x = values_on_gpu({n_tokens, s.d_model}, x),
              .rule = {.top_k = s.top_k, .renormalize = true},
              .phase = phase_of(n_tokens),
              .routing = {.experts = on_gpu(DType::i32, {n_tokens, s.top_k}),
                          .weights = on_gpu(DType::f32, {n_tokens, s.top_k})},
              .groups = {.offsets = on_gpu(DType::i32, {s.n_experts + 1}),
                         .row_pair = on_gpu(DType::i32, {n_pairs}),
                         .pair_row = on_gpu(DType::i32, {n_tokens, s.top_k})},
              .hidden = on_gpu(DType::f32, {n_pairs, s.d_ff}),
              .expert_out = on_gpu(DType::f32, {n_pairs, s.d_model}),
              .residual = values_on_gpu({n_tokens, s.d_model}, residual),
              .next = {.weight = values_on_gpu({s.d_model}, weight), .out = on_gpu(DType::f32, {n_tokens, s.d_model})}};
    double distinct = 0;
    std::vector<float> first_logits;
    std::vector<MoeFfn> ops;
    for (std::size_t i = 0; i < layers.size(); ++i) {
      const DrawnRouting routing = draw_routing({n_tokens, s.n_experts, s.top_k}, skew, 1000 + i);
      distinct += static_cast<double>(routing.n_distinct()) / static_cast<double>(layers.size());
      const std::vector<float> logits = logits_for(routing, i);
      if (i == 0) first_logits = logits;
      op.logits = values_on_gpu({n_tokens, s.n_experts}, logits);
      op.gate = layers[i].gate;
      op.up = layers[i].up;
      op.down = layers[i].down;
      ops.push_back(op);
    }
    gpu_.run(ops[0]);
    const std::string fault = compare(s, ops[0], on_host, x, residual, first_logits);
    if (!fault.empty()) {
      output_.print(fmt::format("{} {} {} tokens: WRONG: {}\n", s.name, dtype_info(s.down).name, n_tokens, fault));
      return false;
    }
    const double us = time_of(ops);
    const double ops_done = static_cast<double>(n_pairs) * 6 * static_cast<double>(s.d_model * s.d_ff);
    const double bytes = distinct * expert_bytes;
    const double bound = 1e6 * std::max(bytes / read_, ops_done / kMatrixPeak);
    report(s, skew, op, us, bound, bytes);
    if (options_.stages) report_stages(ops);
    return true;
  }

  template <class AnyOp>
  double time_of(const std::vector<AnyOp>& ops) {
    Program program;
    for (const AnyOp& op : ops) program.record(op);
    return time_of(program, ops.size());
  }
  // Of one of `count` equal parts.
  double time_of(const Program& program, std::size_t count) {
    const auto executable = gpu_.compile(program, {.capture = true});
    const double us = 1e6 * median_seconds([&] { executable->run(); }, 10);
    return us / static_cast<double>(count);
  }

  void report_stages(const std::vector<MoeFfn>& ops) {
    std::vector<MoeRoute> route;
    std::vector<MoeGroup> group;
    std::vector<MoeGateUp> gate_up;
    std::vector<MoeDown> down;
    std::vector<MoeCombineResidualNorm> combine;
    for (const MoeFfn& op : ops) {
      const MoeFfnSequence steps = sequence_of(op);
      route.push_back(steps.route);
      group.push_back(steps.group);
      gate_up.push_back(steps.gate_up);
      down.push_back(steps.down);
      combine.push_back(std::get<MoeCombineResidualNorm>(steps.combine));
    }
    Program both;
    for (std::size_t i = 0; i < ops.size(); ++i) {
      both.record(route[i]);
      both.record(group[i]);
    }
    output_.print(fmt::format("    route {:.2f}  group {:.2f}  both {:.2f}", time_of(route), time_of(group),
                              time_of(both, ops.size())));
    // The products read the routing of the last one: all of them see the same experts in layers of their own.
    output_.print(fmt::format("  gate_up {:.2f}  down {:.2f}  combine {:.2f}\n", time_of(gate_up), time_of(down),
                              time_of(combine)));
  }

  void report(const GpuShape& s, Skew skew, const MoeFfn& op, double us, double bound, double bytes) {
    const std::int64_t n_tokens = op.x.dim(0);
    const auto peer = kVllm.find(n_tokens);
    const bool has_peer = s.name == gpu_shapes()[0].name && peer != kVllm.end();
    if (options_.json) {
      nlohmann::ordered_json line = {{"model", s.name},
                                     {"gate_up", dtype_info(s.gate_up).name},
                                     {"down", dtype_info(s.down).name},
                                     {"routing", name(skew)},
                                     {"tokens", n_tokens},
                                     {"phase", name(op.phase)},
                                     {"us", us},
                                     {"bound_us", bound},
                                     {"read_tb_per_second", read_ / 1e12},
                                     {"gpu", gpu_.gpu()}};
      output_.print(line.dump() + "\n");
      return;
    }
    output_.print(fmt::format("{:<15} {:<5} {:<5} {:<8} {:>6} {:<7} {:>9.1f} {:>9.1f} {:>6.0f} {:>6.2f} {:>9}\n",
                              s.name, dtype_info(s.gate_up).name, dtype_info(s.down).name, name(skew), n_tokens,
                              name(op.phase), us, bound, 100 * bound / us, bytes / us / 1e6,
                              has_peer ? fmt::format("{:.2f}", peer->second / us) : "-"));
  }

  Phase phase_of(std::int64_t n_tokens) const {
    constexpr std::int64_t kMostGenerated = 256;
    if (options_.phase.empty()) return n_tokens <= kMostGenerated ? Phase::decode : Phase::prefill;
    return options_.phase == name(Phase::prefill) ? Phase::prefill : Phase::decode;
  }

  // The first and the last token by the CPU backend: the same experts, and nearly the same residual.
  std::string compare(const GpuShape& s, const MoeFfn& op, const Layer& on_host, const std::vector<float>& x,
                      const std::vector<float>& residual, const std::vector<float>& logits) {
    const std::int64_t n_tokens = op.x.dim(0);
    for (const std::int64_t t : {std::int64_t{0}, n_tokens - 1}) {
      const auto row = [&](const std::vector<float>& all, std::int64_t width) {
        auto buffer = HostBuffer::make(width * 4);
        std::copy_n(all.begin() + t * width, width, reinterpret_cast<float*>(buffer->host()));
        host_.push_back(buffer);
        return dense(*buffer, 0, DType::f32, {1, width});
      };
      const auto blank = [&](DType type, const std::vector<std::int64_t>& dims) {
        host_.push_back(HostBuffer::make(dense_bytes(type, dims)));
        return dense(*host_.back(), 0, type, dims);
      };
      MoeFfn one{.x = row(x, s.d_model),
                 .logits = row(logits, s.n_experts),
                 .rule = op.rule,
                 .gate = on_host.gate,
                 .up = on_host.up,
                 .down = on_host.down,
                 .routing = {.experts = blank(DType::i32, {1, s.top_k}), .weights = blank(DType::f32, {1, s.top_k})},
                 .groups = {.offsets = blank(DType::i32, {s.n_experts + 1}),
                            .row_pair = blank(DType::i32, {s.top_k}),
                            .pair_row = blank(DType::i32, {1, s.top_k})},
                 .hidden = blank(DType::f32, {s.top_k, s.d_ff}),
                 .expert_out = blank(DType::f32, {s.top_k, s.d_model}),
                 .residual = row(residual, s.d_model)};
      cpu_.run(one);
      std::vector<float> got(static_cast<std::size_t>(s.d_model));
      gpu_.download(*op.residual.buffer, t * s.d_model * 4, std::as_writable_bytes(std::span(got)));
      std::vector<std::int32_t> experts(static_cast<std::size_t>(s.top_k));
      gpu_.download(*op.routing.experts.buffer, t * s.top_k * 4, std::as_writable_bytes(std::span(experts)));
      double error = 0;
      double size = 0;
      for (std::int64_t d = 0; d < s.d_model; ++d) {
        const double want = load(one.residual, {0, d}) - residual[static_cast<std::size_t>(t * s.d_model + d)];
        const double have = got[static_cast<std::size_t>(d)] - residual[static_cast<std::size_t>(t * s.d_model + d)];
        error += (want - have) * (want - have);
        size += want * want;
      }
      for (std::int64_t k = 0; k < s.top_k; ++k) {
        if (experts[static_cast<std::size_t>(k)] != load_i32(one.routing.experts, {0, k})) return "other experts";
      }
      host_.clear();
      if (!(error <= (op.phase == Phase::prefill ? 5e-4 : 1e-5) * size))
        return fmt::format("token {} is off by {:.2e} of its square", t, error / size);
    }
    return {};
  }

  GpuBenchOptions options_;
  BenchOutput output_;
  CudaDevice& gpu_;
  CpuDevice cpu_;
  double read_ = 0;
  std::vector<std::shared_ptr<Buffer>> buffers_;
  std::vector<std::shared_ptr<HostBuffer>> host_;
};

}  // namespace

int run_gpu_bench(CudaDevice& gpu, const GpuBenchOptions& options, const BenchOutput& output) {
  return GpuBench(gpu, options, output).run();
}

}  // namespace conclave::bench
