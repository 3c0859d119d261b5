#include "bench/kernels/report.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/fail.h"

#ifndef CONCLAVE_COMMIT  // the build defines it where it knows
#define CONCLAVE_COMMIT "unknown"
#endif

namespace conclave::bench {
namespace {

double gbps(const RowResult& row) {
  return row.work.bytes / row.timing.median_us * 1e-3;
}
double gops(const RowResult& row) {
  return row.work.ops / row.timing.median_us * 1e-3;
}
double percent(const RowResult& row, const RunFacts& facts) {
  return percent_of(bound_of(row.work, facts.peaks), row.timing.median_us);
}
double times_reference(const RowResult& row) {
  return row.checked.reference_us / row.timing.median_us;
}

std::string label(const RowKey& key) {
  return key.kind->part.empty() ? std::string(key.kind->op) : fmt::format("{} {}", key.kind->op, key.kind->part);
}

std::string experts_text(const RowResult& row) {
  return row.n_experts > 0 ? fmt::format("{}/{}", row.distinct_experts, row.n_experts) : "";
}

std::string us_text(double us) {
  return us < 100 ? fmt::format("{:.2f}", us) : fmt::format("{:.0f}", us);
}

}  // namespace

std::string facts_text(const RunFacts& facts) {
  return fmt::format(
      "{}, {} kernels, {} thread{}, commit {}\n"
      "peaks of this run: read {:.1f} GB/s from the mapping, int8 {:.2f} TOP/s, f32 {:.1f} GFLOP/s\n",
      facts.cpu, facts.kernels, facts.threads, facts.threads == 1 ? "" : "s", CONCLAVE_COMMIT, facts.peaks.read_gbps,
      facts.peaks.int8_gops * 1e-3, facts.peaks.f32_gops);
}

std::string table_header() {
  return fmt::format("{:<15} {:<25} {:<6} {:>6} {:<8} {:>7} {:>11} {:>11} {:>13} {:>10} {:<6} {:>12}\n", "model", "op",
                     "format", "tokens", "skew", "experts", "us", "best", "rate", "% of bound", "", "x reference");
}

std::string table_line(const RowResult& row, const RunFacts& facts) {
  const std::string start = fmt::format("{:<15} {:<25} {:<6} {:>6} {:<8} {:>7}", row.key.model->name, label(row.key),
                                        dtype_info(row.key.format).name, row.key.n_tokens,
                                        row.key.kind->skews ? name(row.key.skew) : "", experts_text(row));
  if (!row.checked.ok) return fmt::format("{} WRONG: {}\n", start, row.checked.message);
  const Bound bound = bound_of(row.work, facts.peaks);
  const std::string rate =
      bound.by_bytes() ? fmt::format("{:.2f} GB/s", gbps(row)) : fmt::format("{:.1f} GOP/s", gops(row));
  const std::string reference = fmt::format("{}{:.1f}", row.checked.scaled ? "~" : "", times_reference(row));
  return fmt::format("{} {:>11} {:>11} {:>13} {:>10.1f} {:<6} {:>12}\n", start, us_text(row.timing.median_us),
                     us_text(row.timing.best_us), rate, percent(row, facts), bound.name, reference);
}

std::string table_notes(const std::vector<RowResult>& rows, const RunFacts& facts) {
  const auto any = [&](auto&& holds) { return std::any_of(rows.begin(), rows.end(), holds); };
  std::string notes;
  if (any([&](const RowResult& row) { return row.checked.ok && percent(row, facts) > 100; })) {
    notes += "Above 100%: the activations were still in a cache, and the bound is that of memory.\n";
  }
  if (any([](const RowResult& row) { return row.n_experts > 0 && row.n_experts < row.key.model->n_experts; })) {
    notes += "Experts are chosen / in memory: where fewer are in memory than the model has, --memory makes room.\n";
  }
  if (any([](const RowResult& row) { return row.checked.ok && row.checked.scaled; })) {
    notes += "~: the reference was timed on a part of the op and scaled by its work.\n";
  }
  return notes;
}

std::string json_line(const RowResult& row, const RunFacts& facts) {
  nlohmann::ordered_json line = {
      {"commit", CONCLAVE_COMMIT},    {"cpu", facts.cpu},
      {"flags", facts.kernels},       {"threads", facts.threads},
      {"op", row.key.kind->op},       {"part", row.key.kind->part},
      {"model", row.key.model->name}, {"format", dtype_info(row.key.format).name},
      {"tokens", row.key.n_tokens},   {"skew", row.key.kind->skews ? name(row.key.skew) : ""},
      {"ok", row.checked.ok}};
  if (!row.checked.ok) {
    line["message"] = row.checked.message;
    return line.dump() + "\n";
  }
  line.update({{"us_median", row.timing.median_us},
               {"us_best", row.timing.best_us},
               {"samples", row.timing.samples},
               {"bytes", row.work.bytes},
               {"ops", row.work.ops},
               {"gbps", gbps(row)},
               {"gops", gops(row)},
               {"bound", bound_of(row.work, facts.peaks).name},
               {"percent", percent(row, facts)},
               {"x_reference", times_reference(row)},
               {"reference_scaled", row.checked.scaled},
               {"distinct_experts", row.distinct_experts},
               {"experts_in_memory", row.n_experts},
               {"peak_gbps", facts.peaks.read_gbps},
               {"peak_gops", row.work.in == DotType::int8 ? facts.peaks.int8_gops : facts.peaks.f32_gops}});
  return line.dump() + "\n";
}

}  // namespace conclave::bench
