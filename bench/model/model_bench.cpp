#include "bench/model/model_bench.h"

#include <algorithm>
#include <optional>

#include "backends/cpu/cpu_device.h"
#include "base/cpu.h"
#include "base/fail.h"
#include "bench/kernels/peaks.h"
#include "bench/model/model_report.h"
#include "bench/model/same_bits.h"
#include "engine/loaded_model.h"
#include "engine/session_plan.h"

namespace conclave::bench {
namespace {

constexpr double kSecondsBetweenPeaks = 0.05;  // of timed work
constexpr int kPeaksAround = 3;                // before a repetition and after it
constexpr int kWarmUpSteps = 4;

// The part of the model file with most bytes, as it is mapped.
std::span<const std::byte> largest_part(const gguf::File& file) {
  std::vector<std::span<const std::byte>> parts;
  for (const gguf::TensorInfo& tensor : file.tensors()) {
    if (tensor.part >= parts.size()) parts.resize(tensor.part + 1);
    const std::span<const std::byte> data = file.data(tensor);
    std::span<const std::byte>& part = parts[tensor.part];
    const std::byte* const begin = part.empty() ? data.data() : std::min(part.data(), data.data());
    const std::byte* const end =
        part.empty() ? data.data() + data.size() : std::max(part.data() + part.size(), data.data() + data.size());
    part = {begin, end};
  }
  return *std::max_element(parts.begin(), parts.end(),
                           [](const auto& a, const auto& b) { return a.size() < b.size(); });
}

// Page tables are filled, and what is on disk is read, before anything is timed.
void touch(const gguf::File& file) {
  constexpr std::size_t kPage = 4096;
  std::uint8_t sum = 0;
  for (const gguf::TensorInfo& tensor : file.tensors()) {
    const std::span<const std::byte> data = file.data(tensor);
    for (std::size_t at = 0; at < data.size(); at += kPage) sum ^= static_cast<std::uint8_t>(data[at]);
  }
  const volatile std::uint8_t sink = sum;
  static_cast<void>(sink);
}

// What is measured of the machine in turns with the work; nothing where the device is not the CPU.
class Machine {
 public:
  Machine(Device& device, const gguf::File& file) {
    auto* const cpu = dynamic_cast<CpuDevice*>(&device);
    if (cpu != nullptr) sampler_.emplace(*cpu, largest_part(file));
  }
  void begin() {
    if (sampler_) sampler_->forget();
    last_ = 0;
    for (int i = 0; i < kPeaksAround; ++i) sample();
  }
  // The clock shows `seconds`: whether it is time again.
  void between(double seconds) {
    if (seconds - last_ < kSecondsBetweenPeaks) return;
    last_ = seconds;
    sample();
  }
  std::optional<Peaks> end() {
    for (int i = 0; i < kPeaksAround; ++i) sample();
    if (!sampler_) return std::nullopt;
    return Peaks{.read_gbps = sampler_->read_gbps(), .int8_gops = sampler_->int8_gops()};
  }

 private:
  void sample() {
    if (sampler_) sampler_->sample();
  }

  std::optional<PeakSampler> sampler_;
  double last_ = 0;
};

class ModelBench {
 public:
  ModelBench(const ModelBenchOptions& options, const BenchOutput& output)
      : options_(options), output_(output), model_(Model::open(options.model, options.device)) {
    for (const std::int32_t tokens : options.prompts) {
      if (tokens > 0) works_.push_back({.kind = WorkKind::prefill, .tokens = tokens});
    }
    for (const std::int32_t tokens : options.generated) {
      for (const std::int32_t batch : options.batches) {
        for (const std::int32_t depth : options.depths) {
          if (tokens == 0) continue;
          works_.push_back({.kind = WorkKind::decode, .tokens = tokens, .batch = batch, .depth = depth});
        }
      }
    }
    if (works_.empty())
      fail(ErrorCode::invalid_argument, "there is nothing to measure: no prompt, and no tokens after it");
    for (const Workload& work : works_) {
      if (options.context == 0 || options.context >= work.context()) continue;
      fail(ErrorCode::invalid_argument, "a context of {} tokens is too small for a {} of {}", options.context,
           name(work.kind), work.context());
    }
    // What has no room is refused before anything is measured.
    for (const Workload& work : works_) {
      plan_session(model_.impl().description.config, sizes_of(work, true), model_.impl().device->available_bytes(),
                   model_.impl().device->usual_rows());
    }
    facts_ = {.file = options.model.filename().string(),
              .model = model_.facts(),
              .cpu = cpu_name(),
              .kernels = model_.facts().device,
              .fits_cache = static_cast<std::int64_t>(model_.facts().file_bytes) < 4 * cache_sizes().l3};
    if (const auto* const cpu = dynamic_cast<CpuDevice*>(model_.impl().device.get())) {
      facts_.kernels = cpu->kernels().name;
      facts_.threads = cpu->threads();
    }
  }

  void run() {
    output_.progress("reading the file");
    touch(model_.impl().file);
    output_.progress("checking that the output is right");
    if (const std::string wrong = check(); !wrong.empty()) refuse(wrong);
    if (!options_.json) output_.print(model_facts_text(facts_) + "\n" + work_header());
    Machine machine(*model_.impl().device, model_.impl().file);
    std::vector<WorkResult> results;
    for (const Workload& work : works_) {
      const std::string wrong = measure(work, machine, results.emplace_back());
      output_.progress("");
      if (!wrong.empty()) refuse(wrong);
      output_.print(options_.json ? work_json(results.back(), facts_) : work_line(results.back()));
    }
    if (!options_.json) output_.print("\n" + work_notes(results, facts_));
  }

 private:
  std::string check() const {
    std::int64_t batch = 1;
    for (const Workload& work : works_) batch = std::max(batch, work.batch);
    return check_same_bits(
        model_, batch, {.chunk = options_.chunk, .kv_type = options_.kv_type, .exact_prompts = options_.exact_prompts});
  }

  [[noreturn]] void refuse(const std::string& wrong) const {
    output_.progress("");
    fail(ErrorCode::unsupported, "the output is wrong, so there is no speed: {}", wrong);
  }

  SessionOptions sizes_of(const Workload& work, bool trace) const {
    return {.context = std::max(options_.context, work.context()),
            .max_sequences = work.batch,
            .chunk = options_.chunk,
            .kv_type = options_.kv_type,
            .trace_routing = trace,
            .exact_prompts = options_.exact_prompts};
  }

  // What a run gives: the best token of each row of each step, and the logits at the end.
  struct Output {
    std::vector<std::int32_t> best;
    std::vector<std::vector<float>> logits;  // [batch][n_vocab]
  };

  // Once with the routing: what the work must read.
  Traffic trace(const Workload& work, const TokenLists& tokens, Output& output) const {
    Session session(model_, sizes_of(work, true));
    TrafficMeter meter(model_.impl().description, kv_bytes_per_token());
    const auto per_step = static_cast<std::size_t>(work.tokens / work.steps());
    std::int64_t step = 0;
    std::int64_t done_before = 0;
    StepHooks hooks{.best = [&](const BestRow& row) { output.best.push_back(row.id); },
                    .routing = [&](const RoutingRow& row) { meter.route(row, row.token + 1 == per_step); },
                    .progress =
                        [&](std::int64_t done, std::int64_t total) {
                          const std::int64_t n = done - done_before;
                          done_before = done == total ? 0 : done;
                          const bool prefill = work.kind == WorkKind::prefill;
                          meter.end_chunk(n, prefill ? (done == total ? 1 : 0) : n,
                                          prefill ? done : n * (work.depth + step + 1));
                          return true;
                        }};
    const StepHooks check{
        .logits = [&](const LogitRow& row) { output.logits.emplace_back(row.logits.begin(), row.logits.end()); }};
    run_workload(session, work, tokens, {.step = hooks, .check = check, .starting = [&](std::int64_t i) { step = i; }});
    return meter.total();
  }

  // Of all layers.
  double kv_bytes_per_token() const {
    const SessionOptions page{.context = KvCachePlan::kPageSize, .chunk = 1, .kv_type = options_.kv_type};
    const SessionPlan plan = plan_session(model_.impl().description.config, page, std::nullopt);
    return static_cast<double>(plan.kv.bytes) / static_cast<double>(plan.kv.pages.n_pages() * KvCachePlan::kPageSize);
  }

  // Gives what is wrong with the output, if anything is.
  std::string measure(const Workload& work, Machine& machine, WorkResult& result) {
    const TokenLists tokens = random_tokens(work.batch, work.context(), model_.facts().n_vocab);
    const std::string title = fmt::format("{} of {} tokens, batch {}", name(work.kind), work.tokens, work.batch);
    output_.progress(title + ": tracing");
    Output expected;
    result.work = work;
    result.traffic = trace(work, tokens, expected);

    Session session(model_, sizes_of(work, false));
    result.memory = session.memory();
    std::string wrong;
    std::size_t row_of_run = 0;
    // As a greedy sampler would: the tokens of each step are read.
    RunHooks hooks{.step = {.best =
                                [&](const BestRow& row) {
                                  const std::int32_t id = expected.best[row_of_run++];
                                  if (row.id == id || !wrong.empty()) return;
                                  wrong = fmt::format(
                                      "token {} is the likeliest, and {} when the same tokens ran before", row.id, id);
                                }},
                   .check = {.logits = [&](const LogitRow& row) {
                     if (wrong.empty()) wrong = difference(row.logits, expected.logits[row.input]);
                   }}};
    warm_up(session, work, tokens);
    hooks.between = [&](double seconds) { machine.between(seconds); };
    for (std::int64_t i = 0; i < options_.repetitions && wrong.empty(); ++i) {
      output_.progress(fmt::format("{}: {} of {}", title, i + 1, options_.repetitions));
      row_of_run = 0;
      machine.begin();
      const RunTime time = run_workload(session, work, tokens, hooks);
      result.repetitions.push_back({.seconds = time.seconds, .cpu_seconds = time.cpu_seconds, .peaks = machine.end()});
    }
    result.resident = resident_memory();
    return wrong.empty() ? wrong : fmt::format("{}: {}", title, wrong);
  }

  // The step's program is compiled and its memory touched.
  static void warm_up(Session& session, const Workload& work, const TokenLists& tokens) {
    Workload few = work;
    if (work.kind == WorkKind::decode) few.tokens = std::min<std::int64_t>(few.tokens, kWarmUpSteps);
    few.depth = 0;
    const RunHooks wait{.step = {.best = [](const BestRow&) {}}};
    for (int i = 0; i < 2; ++i) run_workload(session, few, tokens, wait);  // a GPU makes its graph in the second run
  }

  const ModelBenchOptions& options_;
  const BenchOutput& output_;
  Model model_;
  std::vector<Workload> works_;
  ModelRunFacts facts_;
};

}  // namespace

void run_model_bench(const ModelBenchOptions& options, const BenchOutput& output) {
  ModelBench(options, output).run();
}

}  // namespace conclave::bench
