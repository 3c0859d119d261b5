#include "bench/model/model_report.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/fail.h"
#include "base/file_text.h"

#ifndef CONCLAVE_COMMIT  // the build defines it where it knows
#define CONCLAVE_COMMIT "unknown"
#endif

namespace conclave::bench {
namespace {

using Json = nlohmann::ordered_json;

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

template <class Value>
double median_of(const WorkResult& result, Value&& value) {
  std::vector<double> values;
  for (const Repetition& each : result.repetitions) values.push_back(value(each));
  return median(std::move(values));
}

double percent(double work, double gigas, double seconds) {
  return gigas > 0 && seconds > 0 ? 100 * work / (gigas * 1e9) / seconds : 0;
}

double experts_per_layer(const Traffic& traffic) {
  return traffic.layers > 0 ? traffic.experts / static_cast<double>(traffic.layers) : 0;
}

std::string size(std::int64_t bytes) {
  return size_text(static_cast<std::uint64_t>(bytes));
}

// 30.53 B
std::string count_text(std::int64_t count) {
  const auto value = static_cast<double>(count);
  if (count >= 1'000'000'000) return fmt::format("{:.2f} B", value * 1e-9);
  return count >= 1'000'000 ? fmt::format("{:.1f} M", value * 1e-6) : fmt::format("{:.1f} k", value * 1e-3);
}

}  // namespace

WorkSummary summary_of(const WorkResult& result) {
  const auto speed = [&](const Repetition& each) { return static_cast<double>(result.work.total()) / each.seconds; };
  const double bytes = result.traffic.bytes();
  const double ops = result.traffic.int8_ops;
  WorkSummary summary{
      .tokens_per_second = median_of(result, speed),
      .seconds = median_of(result, [](const Repetition& each) { return each.seconds; }),
      .gbps = median_of(result, [&](const Repetition& each) { return bytes / each.seconds * 1e-9; }),
      .cores = median_of(result, [](const Repetition& each) { return each.cpu_seconds / each.seconds; })};
  const auto [slow, fast] =
      std::minmax_element(result.repetitions.begin(), result.repetitions.end(),
                          [](const Repetition& a, const Repetition& b) { return a.seconds > b.seconds; });
  summary.slowest = speed(*slow);
  summary.fastest = speed(*fast);
  if (!result.repetitions.front().peaks) return summary;
  const auto of_read = [&](const Repetition& each) { return percent(bytes, each.peaks->read_gbps, each.seconds); };
  const auto of_int8 = [&](const Repetition& each) { return percent(ops, each.peaks->int8_gops, each.seconds); };
  summary.peaks = Peaks{.read_gbps = median_of(result, [](const Repetition& each) { return each.peaks->read_gbps; }),
                        .int8_gops = median_of(result, [](const Repetition& each) { return each.peaks->int8_gops; })};
  summary.percent_of_read = median_of(result, of_read);
  summary.percent_of_int8 = median_of(result, of_int8);
  summary.percent_of_bound =
      median_of(result, [&](const Repetition& each) { return std::max(of_read(each), of_int8(each)); });
  return summary;
}

std::string model_facts_text(const ModelRunFacts& facts) {
  return fmt::format("{} ({}, {}, {} parameters, {} active)\n{}, {} kernels, {} thread{}, commit {}\n",
                     printable(facts.file), facts.model.architecture, size_text(facts.model.file_bytes),
                     count_text(facts.model.n_params), count_text(facts.model.n_active_params), facts.cpu,
                     facts.kernels, facts.threads, facts.threads == 1 ? "" : "s", CONCLAVE_COMMIT);
}

std::string work_header() {
  return fmt::format("{:<8}{:>6}{:>6}{:>7}{:>11}{:>10}{:>10}{:>8}{:>7}{:>7}{:>9}{:>7}\n", "work", "tokens", "batch",
                     "after", "tokens/s", "slowest", "fastest", "GB/s", "%read", "%int8", "experts", "cores");
}

std::string work_line(const WorkResult& result) {
  const WorkSummary s = summary_of(result);
  std::string line =
      fmt::format("{:<8}{:>6}{:>6}{:>7}{:>11.2f}{:>10.2f}{:>10.2f}", name(result.work.kind), result.work.tokens,
                  result.work.batch, result.work.depth, s.tokens_per_second, s.slowest, s.fastest);
  line += s.peaks ? fmt::format("{:>8.2f}{:>7.1f}{:>7.1f}", s.gbps, s.percent_of_read, s.percent_of_int8)
                  : fmt::format("{:>8.2f}{:>7}{:>7}", s.gbps, "-", "-");
  return line + fmt::format("{:>9.1f}{:>7.2f}\n", experts_per_layer(result.traffic), s.cores);
}

std::string work_notes(const std::vector<WorkResult>& results, const ModelRunFacts& facts) {
  std::string notes;
  const auto largest = std::max_element(results.begin(), results.end(), [](const WorkResult& a, const WorkResult& b) {
    return a.memory.kv_bytes + a.memory.workspace_bytes < b.memory.kv_bytes + b.memory.workspace_bytes;
  });
  if (largest == results.end()) return notes;
  notes += fmt::format("memory at most: file {}, KV {}, workspace {}", size_text(facts.model.file_bytes),
                       size(largest->memory.kv_bytes), size(largest->memory.workspace_bytes));
  if (largest->resident) {
    notes += fmt::format("; resident {}, {} of it not the file", size(largest->resident->total),
                         size(largest->resident->own));
  }
  notes += "\n";
  if (const auto peaks = summary_of(results.front()).peaks) {
    notes += fmt::format("measured in turns with the first row: read {:.1f} GB/s, int8 {:.2f} TOP/s\n",
                         peaks->read_gbps, peaks->int8_gops * 1e-3);
  }
  if (facts.fits_cache) notes += "The file is no larger than a few caches: reading it is not reading memory.\n";
  return notes;
}

std::string work_json(const WorkResult& result, const ModelRunFacts& facts) {
  const WorkSummary s = summary_of(result);
  Json samples = Json::array();
  for (const Repetition& each : result.repetitions) {
    samples.push_back(static_cast<double>(result.work.total()) / each.seconds);
  }
  const bool same_bits = facts.model.device != "metal";
  Json line = {{"work", name(result.work.kind)},
               {"tokens", result.work.tokens},
               {"batch", result.work.batch},
               {"depth", result.work.depth},
               {"tokens_per_second", s.tokens_per_second},
               {"min", s.slowest},
               {"max", s.fastest},
               {"samples", samples},
               {"seconds", s.seconds},
               {"device", facts.model.device},
               {"cpu", facts.cpu},
               {"kernels", facts.kernels},
               {"threads", facts.threads},
               {"commit", CONCLAVE_COMMIT},
               {"model", facts.file},
               {"architecture", facts.model.architecture},
               {"same_bits", same_bits},  // checked before anything was timed, and in each repetition
               {"bytes", result.traffic.bytes()},
               {"kv_bytes_read", result.traffic.kv_bytes},
               {"int8_ops", result.traffic.int8_ops},
               {"experts_per_layer", experts_per_layer(result.traffic)},
               {"gbps", s.gbps},
               {"cores", s.cores}};
  const auto share = [&](double value) { return s.peaks ? Json(value) : Json(); };
  line["peak_read_gbps"] = share(s.peaks ? s.peaks->read_gbps : 0);
  line["peak_int8_gops"] = share(s.peaks ? s.peaks->int8_gops : 0);
  line["percent_of_read"] = share(s.percent_of_read);
  line["percent_of_int8"] = share(s.percent_of_int8);
  line["percent_of_bound"] = share(s.percent_of_bound);
  line["fits_cache"] = facts.fits_cache;
  line["file_bytes"] = facts.model.file_bytes;
  line["kv_bytes"] = result.memory.kv_bytes;
  line["workspace_bytes"] = result.memory.workspace_bytes;
  line["resident_bytes"] = result.resident ? Json(result.resident->total) : Json();
  line["resident_own_bytes"] = result.resident ? Json(result.resident->own) : Json();
  return line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace conclave::bench
