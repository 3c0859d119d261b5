#include "selftest.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "api/devices.h"
#include "backends/ref/ref_device.h"
#include "base/file_text.h"
#include "ops/moe_dump.h"
#include "ops/profile.h"
#include "support/suite.h"
#include "whole_number.h"

namespace conclave {
namespace {

constexpr std::int64_t kMaxRandom = 1'000'000'000'000;
constexpr std::int64_t kMaxSeed = std::numeric_limits<std::int64_t>::max();

struct SelftestArguments {
  std::string device = "all";
  int threads = 0;
  test::SuiteOptions suite;
  bool json = false;
  std::string export_path;
  std::string answers_path;
  std::string profile_path;
};

// A backend and how it computes.
struct Subject {
  std::unique_ptr<Device> device;
  test::Arithmetic arithmetic;
  std::string kernels;  // the row of the kernel table, where a backend has several
};

// The backends of this machine. The reference computes in f64, metal in f32, every other one in f32 with int8 activations,
// and the GPUs of cuda attention on tensor cores.
std::vector<Subject> subjects_for(const SelftestArguments& arguments) {
  std::vector<Subject> subjects;
  const auto add_cpu = [&] {
    auto cpu = make_cpu_device(arguments.threads);
    const std::string kernels(cpu->kernels().name);
    subjects.push_back({std::move(cpu), test::kInt8Arithmetic, kernels});
  };
  const std::vector<std::string> names =
      arguments.device == "all" ? device_names() : std::vector<std::string>{arguments.device};
  for (const std::string& name : names) {
    if (name == "cpu") {
      add_cpu();
    } else {
      auto device = make_device(name, arguments.threads);
      const test::Arithmetic arithmetic = device->name() == "ref"     ? test::kReferenceArithmetic
                                          : device->name() == "metal" ? test::kFloatArithmetic
                                                                      : test::kCudaArithmetic;
      const std::string kernels = device->name() == "metal" && !metal_is_hardware() ? "executor" : "";
      subjects.push_back({std::move(device), arithmetic, kernels});
    }
  }
  return subjects;
}

// JSON has no infinity: an element that is no number at all is off by the largest number there is.
double finite(double error) {
  return std::min(error, std::numeric_limits<double>::max());
}

std::string json_line(const test::OpReport& report, const std::string& kernels) {
  nlohmann::ordered_json line = {{"op", report.op}, {"backend", report.backend}};
  if (!kernels.empty()) line["kernels"] = kernels;
  line.update(nlohmann::ordered_json{
      {"cases", report.cases}, {"failed", report.failed}, {"worst", finite(report.worst)}, {"bound", report.bound}});
  return line.dump() + "\n";
}

std::string table_line(const test::OpReport& report, const std::string& kernels) {
  const std::string backend = report.backend + (kernels.empty() ? "" : " ") + kernels;
  const std::string error = report.worst > 0 ? fmt::format("{:.2e} of {:.2e}", report.worst, report.bound) : "exact";
  std::string text = fmt::format("{:<27} {:<17} {:>6}   {:<22} {}\n", report.op, backend, report.cases, error,
                                 report.failed == 0 ? "ok" : fmt::format("{} FAILED", report.failed));
  constexpr std::size_t kShown = 5;
  for (std::size_t i = 0; i < report.failures.size() && i < kShown; ++i)
    text += fmt::format("    {}\n", report.failures[i]);
  if (report.failures.size() > kShown) text += fmt::format("    and {} more\n", report.failed - std::int64_t{kShown});
  return text;
}

void export_to(const std::string& path, const test::SuiteOptions& options) {
  std::ofstream file(path, std::ios::binary);
  if (!file) fail(ErrorCode::io, "{}: cannot be opened for writing", path);
  test::export_cases(options, [&](const std::string& record) { file << record; });
  if (!file.flush()) fail(ErrorCode::io, "{}: cannot be written", path);
}

int selftest(SelftestArguments arguments) {
  test::check_op_name(arguments.suite.op);
  if (!arguments.export_path.empty()) {
    export_to(arguments.export_path, arguments.suite);
    return 0;
  }
  test::Answers answers;
  if (!arguments.answers_path.empty()) {
    answers = test::Answers::from_file(arguments.answers_path);
    arguments.suite.answers = &answers;
  }
  std::optional<Profile> profile;
  if (!arguments.profile_path.empty()) {
    profile = Profile::to_file(arguments.profile_path);
    arguments.suite.profile = &*profile;
  }
  const auto subjects = subjects_for(arguments);
  if (!arguments.json) {
    print(fmt::format("seed {} ({} random cases per op; --seed repeats them)\n\n", arguments.suite.seed,
                      arguments.suite.random));
    print(fmt::format("{:<27} {:<17} {:>6}   {:<22}\n", "op", "backend", "cases", "worst error, its bound"));
  }
  std::int64_t cases = 0;
  std::int64_t failed = 0;
  for (const Subject& subject : subjects) {
    arguments.suite.arithmetic = subject.arithmetic;
    run_suite(*subject.device, arguments.suite, [&](const test::OpReport& report) {
      cases += report.cases;
      failed += report.failed;
      print(arguments.json ? json_line(report, subject.kernels) : table_line(report, subject.kernels));
    });
  }
  if (!arguments.json) {
    const std::string absence = cuda_absence_here();
    if (arguments.device == "all" && !absence.empty()) print(fmt::format("\ncuda: not tested: {}\n", absence));
    const std::string metal = metal_absence_here();
    if (arguments.device == "all" && !metal.empty()) print(fmt::format("\nmetal: not tested: {}\n", metal));
    print(fmt::format("\n{} cases, {} failed\n", cases, failed));
  }
  return failed == 0 ? 0 : 1;
}

}  // namespace

void add_selftest(CLI::App& app, Command& chosen) {
  auto arguments = std::make_shared<SelftestArguments>();
  CLI::App* command = app.add_subcommand("selftest", "check every op of every backend on this machine");
  command->add_option("--device,--backend", arguments->device,
                      "ref, cpu, cuda, cuda:N, metal, auto, or all (the default)");
  command->add_option("-t,--threads", arguments->threads, "of the cpu device (the physical cores)")
      ->check(whole_number(0, ThreadPool::kMaxThreads));
  command->add_option("--op", arguments->suite.op, "this op alone, for example moe_route");
  command->add_option("--seed", arguments->suite.seed, "of the random cases (1)")->check(whole_number(0, kMaxSeed));
  command->add_option("--random", arguments->suite.random, "random cases per op (20); as many as you like")
      ->check(whole_number(0, kMaxRandom));
  command->add_flag("--small", arguments->suite.small_only, "the short list alone");
  command->add_flag("--json", arguments->json, "one object a line: op, backend, cases, failed, worst, bound");
  command->add_option("--profile", arguments->profile_path, "append one JSON event per op run to this file");
  auto* export_option =
      command->add_option("--export", arguments->export_path, "write the cases to this file and stop");
  command
      ->add_option("--answers", arguments->answers_path,
                   "judge every case by this file of answers (tools/golden_ops.py)")
      ->excludes(export_option);
  command->footer(
      "Other backends are judged by the reference on the same inputs; the reference is judged by golden answers from\n"
      "NumPy. A table shows each op's worst error beside the bound derived for it; exit code 1 if any case failed.\n\n"
      "Example:\n  conclave selftest --op moe_route --random 1000 --seed 7");
  command->callback([arguments, &chosen] { chosen = [arguments] { return selftest(*arguments); }; });
}

}  // namespace conclave
