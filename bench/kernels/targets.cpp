#include "bench/kernels/targets.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/fail.h"
#include "bench/kernels/peaks.h"

namespace conclave::bench {
namespace {

constexpr std::int64_t kFew = 8;
constexpr std::int64_t kPrompt = 512;

RowKey row(std::int64_t n_tokens) {
  return row_of("moe_ffn", kMainModel, DType::q4_k, n_tokens);
}

BenchCase make(const RowKey& key, const WeightPile& pile, const RotationRule& rule) {
  CaseMaker maker(key, &pile, rule);
  return key.kind->make(maker);
}

// A case on a device: checked first.
class Runs {
 public:
  void add(CpuDevice& device, const BenchCase& made, double* us) {
    const Checked checked = check_op(device, made.slots[0], made.samples, test::kInt8Arithmetic);
    if (!checked.ok && wrong_.empty()) {
      wrong_ = fmt::format("{} kernels, {} threads: {}", device.kernels().name, device.threads(), checked.message);
    }
    if (!wrong_.empty()) return;
    rotations_.emplace_back(device, made.slots);
    into_.push_back(us);
  }

  // In turns, with the peaks between them; gives what was wrong.
  std::string measure(PeakSampler& peaks) {
    if (!wrong_.empty()) return wrong_;
    constexpr TimeBudget kBudget{.seconds = 1, .samples = 7};
    const std::vector<Timing> timings = time_interleaved(rotations_, kBudget, [&] { peaks.sample(); });
    for (std::size_t i = 0; i < timings.size(); ++i) *into_[i] = timings[i].median_us;
    return {};
  }

 private:
  std::vector<Rotation> rotations_;
  std::vector<double*> into_;
  std::string wrong_;
};

double rate(const Work& work, double us) {
  return us > 0 ? work.bytes / us * 1e-3 : 0;
}

double ratio(double a, double b) {
  return b > 0 ? a / b : 0;
}

}  // namespace

bool Target::met() const {
  const double shown = std::round(reached * 100) / 100;
  return at_most ? shown <= wanted : shown >= wanted;
}

std::vector<RowKey> target_rows() {
  return {row(1), row(kFew), row(kPrompt)};
}

TargetRun run_targets(CpuDevice& device, const WeightPile& pile, const RotationRule& rule) {
  const BenchCase one = make(row(1), pile, rule);
  const BenchCase few = make(row(kFew), pile, rule);
  const BenchCase prompt = make(row(kPrompt), pile, rule);
  const std::string kernels(device.kernels().name);
  CpuDevice single(CpuOptions{.threads = 1, .kernels = kernels});
  std::optional<CpuDevice> two;  // where the device itself is not of two threads
  if (device.threads() != 2) two.emplace(CpuOptions{.threads = 2, .kernels = kernels});
  CpuDevice generic(CpuOptions{.threads = device.threads(), .kernels = "generic"});

  TargetRun run{.work = {.one_token = one.work, .eight_tokens = few.work, .prefill = prompt.work}};
  Runs decode;
  decode.add(device, one, &run.times.one_token);
  decode.add(device, few, &run.times.eight_tokens);
  decode.add(generic, one, &run.times.one_token_generic);
  PeakSampler decode_peaks(device, pile.bytes());
  run.wrong = decode.measure(decode_peaks);
  run.times.read_gbps = decode_peaks.read_gbps();
  if (!run.wrong.empty()) return run;

  Runs prefill;
  prefill.add(device, prompt, &run.times.prefill);
  prefill.add(single, prompt, &run.times.prefill_one_thread);
  if (two) prefill.add(*two, prompt, &run.times.prefill_two_threads);
  prefill.add(generic, prompt, &run.times.prefill_generic);
  PeakSampler prefill_peaks(device, pile.bytes());
  run.wrong = prefill.measure(prefill_peaks);
  run.times.int8_gops = prefill_peaks.int8_gops();
  if (!two) run.times.prefill_two_threads = run.times.prefill;
  return run;
}

std::vector<Target> targets_of(const LayerTimes& times, const LayerWork& work, const RunFacts& facts) {
  const bool two_cores = facts.threads == 2 && facts.kernels == "avx512";
  const bool amx = facts.threads == 16 && facts.kernels == "amx";
  const double dots = ratio(work.prefill.ops / times.prefill * 1e-3, times.int8_gops);
  const double read_one = rate(work.one_token, times.one_token);
  const double read_few = rate(work.eight_tokens, times.eight_tokens);
  std::vector<Target> targets = {
      {.what = "1 token: share of the read bandwidth",
       .reached = 100 * ratio(read_one, times.read_gbps),
       .unit = "%",
       .wanted = amx ? 75.0 : 85.0,
       .applies = two_cores || amx},
      {.what = "8 tokens: bytes a second over 1 token",
       .reached = ratio(read_few, read_one),
       .unit = "x",
       .wanted = 1,
       .applies = two_cores},
      {.what = "512 tokens: share of the int8 peak",
       .reached = 100 * dots,
       .unit = "%",
       .wanted = 35,
       .applies = two_cores},
      {.what = "512 tokens: time of a layer",
       .reached = times.prefill * 1e-3,
       .unit = "ms",
       .wanted = 6,
       .at_most = true,
       .applies = amx},
      {.what = "512 tokens: 2 threads over 1",
       .reached = ratio(times.prefill_one_thread, times.prefill_two_threads),
       .unit = "x",
       .wanted = 1.85,
       .applies = two_cores},
      {.what = "1 token: generic over the best row",
       .reached = ratio(times.one_token_generic, times.one_token),
       .unit = "x",
       .wanted = 12,
       .at_most = true,
       .applies = two_cores},
      {.what = "512 tokens: generic over the best row",
       .reached = ratio(times.prefill_generic, times.prefill),
       .unit = "x",
       .wanted = 12,
       .at_most = true,
       .applies = two_cores},
  };
  return targets;
}

std::string target_table(const std::vector<Target>& targets) {
  std::string text =
      fmt::format("{:<42} {:>10}   {:<14}\n", "MoE FFN of one layer, qwen3-30b-a3b, q4_k", "reached", "wanted");
  for (const Target& target : targets) {
    const std::string wanted = fmt::format("{} {:g} {}", target.at_most ? "<=" : ">=", target.wanted, target.unit);
    text += fmt::format("{:<42} {:>7.2f} {:<2}   {:<10} {}\n", target.what, target.reached, target.unit,
                        target.applies ? wanted : "",
                        !target.applies ? ""
                        : target.met()  ? "met"
                                        : "MISSED");
  }
  return text;
}

std::string target_json(const Target& target, const RunFacts& facts) {
  nlohmann::ordered_json line = {{"target", target.what},    {"cpu", facts.cpu},          {"flags", facts.kernels},
                                 {"threads", facts.threads}, {"reached", target.reached}, {"unit", target.unit}};
  if (target.applies) {
    line["wanted"] = target.wanted;
    line["at_most"] = target.at_most;
    line["met"] = target.met();
  }
  return line.dump() + "\n";
}

std::string wrong_json(const std::string& message) {
  return nlohmann::ordered_json{{"target", ""}, {"ok", false}, {"message", message}}.dump() + "\n";
}

}  // namespace conclave::bench
