#include "bench/kernels/kernel_bench.h"

#include <unistd.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>

#include "base/cpu.h"
#include "base/fail.h"
#include "bench/kernels/peaks.h"
#include "bench/kernels/report.h"
#include "bench/kernels/targets.h"

namespace conclave::bench {
namespace {

class Bench {
 public:
  Bench(const BenchOptions& options, const BenchOutput& output)
      : options_(options),
        output_(output),
        device_(CpuOptions{.threads = options.threads, .kernels = options.cpu_row}),
        rule_(rotation_rule(held_to_memory(options.memory_limit))) {
    if (options.kernels) rows_ = plan_rows(options.rows);
    facts_.cpu = cpu_name();
    facts_.kernels = device_.kernels().name;
    facts_.threads = device_.threads();
    need_piles();
  }

  int run() {
    // The targets first: the pile of their format stays for the rows.
    TargetRun reached;
    if (options_.targets) reached = measure_targets();
    std::vector<RowResult> results(rows_.size());
    for (const DType format : formats_in_order()) measure_format(format, results);

    const bool all_right = reached.wrong.empty() &&
                           std::all_of(results.begin(), results.end(), [](const RowResult& r) { return r.checked.ok; });
    output_.progress("");
    print(results, reached);
    return all_right ? 0 : 1;
  }

 private:
  // The bytes that the rows of each format take.
  void need_piles() {
    const auto need = [&](const RowKey& key) {
      std::int64_t& bytes = pile_bytes_[key.format];
      bytes = std::max({bytes, pile_bytes(key, rule_), rule_.bytes});
    };
    for (const RowKey& key : rows_) need(key);
    if (!options_.targets) return;
    for (const RowKey& key : target_rows()) need(key);
  }

  // The format whose pile is there comes first.
  std::vector<DType> formats_in_order() const {
    std::vector<DType> formats;
    for (const RowKey& key : rows_) {
      if (std::find(formats.begin(), formats.end(), key.format) == formats.end()) formats.push_back(key.format);
    }
    std::stable_partition(formats.begin(), formats.end(), [&](DType f) { return pile_ && pile_->type() == f; });
    return formats;
  }

  const WeightPile& pile(DType format) {
    if (pile_ && pile_->type() == format) return *pile_;
    pile_.reset();  // one at a time
    const std::int64_t bytes = pile_bytes_.at(format);
    output_.progress(fmt::format("writing {:.1f} GiB of {} weights", static_cast<double>(bytes) / (1 << 30),
                                 dtype_info(format).name));
    pile_.emplace(PileRequest{.type = format, .bytes = bytes, .folder = options_.scratch});
    return *pile_;
  }

  void measure_machine() {
    output_.progress("measuring the machine's peaks");
    const Peaks now = measure_peaks(device_, pile_->bytes());
    facts_.peaks = facts_.peaks.best_of(now);
    worst_peaks_ = worst_peaks_ ? worst_peaks_->worst_of(now) : now;
  }

  TargetRun measure_targets() {
    const WeightPile& weights = pile(target_rows().front().format);
    measure_machine();
    output_.progress("measuring the targets");
    TargetRun reached = run_targets(device_, weights, rule_);
    measure_machine();
    return reached;
  }

  void measure_format(DType format, std::vector<RowResult>& results) {
    const WeightPile& weights = pile(format);
    measure_machine();
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      if (rows_[i].format != format) continue;
      output_.progress(fmt::format("{} of {}: {}", ++done_, rows_.size(), rows_[i].title()));
      results[i] = measure_row(rows_[i], weights);
    }
    measure_machine();
  }

  RowResult measure_row(const RowKey& key, const WeightPile& weights) {
    CaseMaker maker(key, &weights, rule_);
    const BenchCase made = key.kind->make(maker);
    const bool in_int8 = key.kind->formats == Formats::weights && is_block(key.format);
    RowResult result{.key = key,
                     .work = made.work,
                     .distinct_experts = made.distinct_experts,
                     .n_experts = made.n_experts,
                     .checked = check_op(device_, made.slots[0], made.samples,
                                         in_int8 ? test::kInt8Arithmetic : test::Arithmetic{})};
    if (!result.checked.ok) return result;
    Rotation rotation(device_, made.slots);
    result.timing = time_rotation(rotation);
    return result;
  }

  void print(const std::vector<RowResult>& results, const TargetRun& reached) const {
    const std::vector<Target> targets = options_.targets && reached.wrong.empty()
                                            ? targets_of(reached.times, reached.work, facts_)
                                            : std::vector<Target>{};
    if (options_.json) {
      for (const RowResult& row : results) output_.print(json_line(row, facts_));
      for (const Target& target : targets) output_.print(target_json(target, facts_));
      if (!reached.wrong.empty()) output_.print(wrong_json(reached.wrong));
      return;
    }
    output_.print(facts_text(facts_));
    const std::string noise = noise_of(facts_.peaks, *worst_peaks_, facts_.threads, facts_.kernels);
    if (!noise.empty()) output_.print(noise + "\n");
    if (!results.empty()) {
      output_.print("\n" + table_header());
      for (const RowResult& row : results) output_.print(table_line(row, facts_));
      output_.print(table_notes(results, facts_));
    }
    if (!targets.empty()) {
      output_.print("\n" + target_table(targets));
      output_.print(
          fmt::format("Shares are of the peaks in the same turns, medians: read {:.1f} GB/s, int8 {:.2f} TOP/s.\n",
                      reached.times.read_gbps, reached.times.int8_gops * 1e-3));
    }
    if (!reached.wrong.empty()) output_.print(fmt::format("\ntargets: WRONG: {}\n", reached.wrong));
  }

  const BenchOptions& options_;
  const BenchOutput& output_;
  CpuDevice device_;
  RotationRule rule_;
  std::vector<RowKey> rows_;
  std::map<DType, std::int64_t> pile_bytes_;
  std::optional<WeightPile> pile_;
  RunFacts facts_;
  std::optional<Peaks> worst_peaks_;
  std::size_t done_ = 0;
};

}  // namespace

std::int64_t held_to_memory(std::int64_t memory_limit) {
  const std::int64_t pages = ::sysconf(_SC_PHYS_PAGES);
  const std::int64_t page = ::sysconf(_SC_PAGESIZE);
  return pages > 0 && page > 0 ? std::min(memory_limit, pages / 2 * page) : memory_limit;
}

int run_bench(const BenchOptions& options, const BenchOutput& output) {
  return Bench(options, output).run();
}

}  // namespace conclave::bench
