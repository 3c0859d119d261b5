#include "bench.h"

#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "bench/kernels/kernel_bench.h"

namespace conclave {
namespace {

struct BenchArguments {
  bench::BenchOptions options;
  std::string device = "cpu";
  double memory_gib = 4;
};

std::string variable(const char* name, const char* otherwise) {
  const char* const value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : otherwise;
}

// One line that is written over, on a terminal; nothing where stderr is a file.
void show_progress(std::string_view text) {
  static const bool on_terminal = ::isatty(STDERR_FILENO) == 1;
  if (!on_terminal) return;
  std::fputs(fmt::format("\r\x1b[K{}", text).c_str(), stderr);
  std::fflush(stderr);
}

int run(BenchArguments arguments) {
  if (arguments.device != "cpu" && arguments.device != "auto") {
    fail(ErrorCode::invalid_argument, "there is no device '{}' to benchmark; there is: cpu", arguments.device);
  }
  bench::BenchOptions& options = arguments.options;
  for (auto* list :
       {&options.rows.ops, &options.rows.models, &options.rows.formats, &options.rows.tokens, &options.rows.skews}) {
    *list = bench::split_lists(*list);
  }
  options.cpu_row = variable("CONCLAVE_CPU", "");
  options.memory_limit = static_cast<std::int64_t>(arguments.memory_gib * (1 << 30));
  const bench::BenchOutput output{.print = [](std::string_view text) { print(text); }, .progress = show_progress};
  try {
    return bench::run_bench(options, output);
  } catch (...) {
    show_progress("");
    throw;
  }
}

}  // namespace

void add_bench(CLI::App& app, Command& chosen) {
  auto arguments = std::make_shared<BenchArguments>();
  bench::BenchOptions& options = arguments->options;
  options.scratch = variable("TMPDIR", "/tmp");
  CLI::App* command = app.add_subcommand("bench", "how fast the ops are, against what this machine can do");
  command->add_flag("--kernels", options.kernels, "every op at the shapes of real models");
  command->add_flag("--targets", options.targets, "the speeds this project wants to reach, one by one");
  command->add_option("--device,--backend", arguments->device, "cpu (the default)");
  command->add_option("-t,--threads", options.threads, "as many threads (the physical cores)")
      ->check(CLI::Range(1, ThreadPool::kMaxThreads));
  command->add_option("--op", options.rows.ops, "these ops alone, as in moe_ffn,matmul");
  command->add_option("--model", options.rows.models,
                      "these models' shapes: qwen3-30b-a3b, mixtral-8x7b, olmoe-7b, qwen2-57b-a14b");
  command->add_option("--format", options.rows.formats, "weights of these types (q4_k,q6_k,q8_0)");
  command->add_option("--tokens", options.rows.tokens, "these batch sizes (1,2,4,8,32,128,512)");
  command->add_option("--skew", options.rows.skews, "these routings of moe_ffn: uniform, zipf, one-hot");
  command->add_flag("--all", options.rows.all, "every op for every model and batch size: takes an hour");
  command->add_option("--scratch", options.scratch, "folder for the file of random weights ($TMPDIR, or /tmp)");
  command->add_option("--memory", arguments->memory_gib, "GiB of weights at most (4)")->check(CLI::Range(0.5, 4096.0));
  command->add_flag("--json", options.json, "one object a line");
  command->footer(
      "Without a choice of ops, models, formats or tokens it is the short list: every op for qwen3-30b-a3b, moe_ffn "
      "for\n"
      "the others. Weights are random, in a mapped file, and runs rotate over more of them than the caches hold. A "
      "row\n"
      "says how long an op takes, how much of this machine's bound that is (reading the bytes, or the dot products, "
      "each\n"
      "measured in the same run), and how often the reference would fit in. What is computed is checked first: a "
      "wrong\n"
      "result has no time, and exit code 1. CONCLAVE_CPU=NAME forces a row of the kernel table.\n\n"
      "Example:\n  conclave bench --kernels --op moe_ffn --model mixtral-8x7b --tokens 1,512");
  command->callback([arguments, &chosen] {
    const bench::BenchOptions& asked = arguments->options;
    if (!asked.kernels && !asked.targets) throw CLI::RequiredError("--kernels or --targets");
    chosen = [arguments] { return run(*arguments); };
  });
}

}  // namespace conclave
