#include "bench.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "api/devices.h"
#include "base/fail.h"
#include "base/thread_pool.h"
#ifdef CONCLAVE_HAS_CUDA
#include "bench/gpu/gpu_bench.h"
#endif
#include "bench/kernels/kernel_bench.h"
#ifdef CONCLAVE_HAS_METAL
#include "bench/metal/metal_plan.h"
#endif
#include "bench/model/model_bench.h"
#include "kv_type.h"
#include "token_list.h"
#include "whole_number.h"

namespace conclave {
namespace {

constexpr const char* kFooter =
    "-m: tokens are drawn at random from the vocabulary. A prefill starts from an empty context and ends with the\n"
    "likeliest token after its last; a decode starts from an empty context too, or after -d tokens, and takes one\n"
    "token of each sequence in a step, each sequence with a text of its own: what llama-bench calls pp and tg. %read\n"
    "is the share of the time that reading takes at the least: the weights outside the experts, the experts that the\n"
    "tokens were routed to, keys and values, over the speed at which the file's mapping can be read, measured in\n"
    "turns with the work. %int8 is the same for the dot products; experts is how many of a layer a step reads, cores\n"
    "how many of the CPU's are busy meanwhile. Before anything is timed, tokens alone, in a batch and all at once\n"
    "must give the same bits (on metal, logits within 1% of their length; on a GPU of NVIDIA's, a prompt's within\n"
    "10% of those of the same tokens when generated); tokens and logits that differ later are an error.\n\n"
    "--kernels: without a choice of ops, models, formats or tokens it is the short list: every op for qwen3-30b-a3b,\n"
    "moe_ffn for the others. Weights are random, in a mapped file, and runs rotate over more of them than the caches\n"
    "hold. A row says how long an op takes, how much of this machine's bound that is (reading the bytes, or the dot\n"
    "products, each measured in the same run), and how often the reference would fit in. What is computed is checked\n"
    "first: a wrong result has no time, and exit code 1. CONCLAVE_CPU=NAME forces a row of the kernel table.\n"
    "On a GPU it is the MoE layer, from router logits to the next norm, as part of a graph; --model,\n"
    "--tokens, --skew, --phase and --stages choose.\n\n"
    "Examples:\n"
    "  conclave bench -m model.gguf -p 512 -n 128 -b 1,2,4,8\n"
    "  conclave bench --kernels --op moe_ffn --model mixtral-8x7b --tokens 1,512\n"
    "  conclave bench --kernels --device cuda\n"
    "  conclave bench --plan --device metal --tokens 1,512";

struct BenchArguments {
  bench::BenchOptions options;
  std::string device;
  double memory_gib = 4;
  bench::ModelBenchOptions model;
  std::string model_path;
  bool stages = false;
  std::string phase;
  bool plan = false;
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

bench::BenchOutput program_output() {
  return {.print = [](std::string_view text) { print(text); }, .progress = show_progress};
}

#if defined(CONCLAVE_HAS_CUDA) || defined(CONCLAVE_HAS_METAL)
// What --tokens names.
std::vector<std::int64_t> counted_tokens(const BenchArguments& arguments) {
  std::vector<std::int64_t> tokens;
  for (const std::string& text : bench::split_lists(arguments.options.rows.tokens)) {
    const auto count = parse_token_list(text);
    if (!count || count->size() != 1 || count->front() < 1) {
      fail(ErrorCode::invalid_argument, "'{}' is not a number of tokens", text);
    }
    tokens.push_back(count->front());
  }
  return tokens;
}
#endif

#ifdef CONCLAVE_HAS_CUDA
int run_gpu(const BenchArguments& arguments) {
  const std::unique_ptr<Device> device = make_device(arguments.device, arguments.options.threads);
  bench::GpuBenchOptions options{.json = arguments.options.json};
  options.models = bench::split_lists(arguments.options.rows.models);
  options.stages = arguments.stages;
  options.phase = arguments.phase;
  if (const auto skews = bench::split_lists(arguments.options.rows.skews); !skews.empty()) options.skews = skews;
  if (const auto tokens = counted_tokens(arguments); !tokens.empty()) options.tokens = tokens;
  return bench::run_gpu_bench(dynamic_cast<CudaDevice&>(*device), options, program_output());
}
#endif

// What would be launched; nothing is.
int run_plan([[maybe_unused]] const BenchArguments& arguments) {
  if (arguments.device != "metal") {
    fail(ErrorCode::invalid_argument, "--plan: there is a plan of the metal device alone: --device metal");
  }
#ifdef CONCLAVE_HAS_METAL
  bench::MetalPlanOptions options{.json = arguments.options.json};
  options.models = bench::split_lists(arguments.options.rows.models);
  if (const auto tokens = counted_tokens(arguments); !tokens.empty()) options.tokens = tokens;
  if (const auto formats = bench::split_lists(arguments.options.rows.formats); !formats.empty()) {
    const auto type = dtype_from_name(formats.front());
    if (!type || is_integer(*type))
      fail(ErrorCode::invalid_argument, "--format: '{}' is not a weight type", formats.front());
    options.gate_up = options.down = *type;
  }
  return bench::run_metal_plan(options, program_output());
#else
  fail(ErrorCode::unsupported, "{}", metal_absence_here());
#endif
}

int run_kernels(BenchArguments arguments) {
#ifdef CONCLAVE_HAS_CUDA
  if (arguments.device.starts_with("cuda")) return run_gpu(arguments);
#endif
  if (!arguments.device.empty() && arguments.device != "cpu") {
    fail(ErrorCode::invalid_argument, "there is no device '{}' to benchmark; there is: cpu", arguments.device);
  }
  bench::BenchOptions& options = arguments.options;
  for (auto* list :
       {&options.rows.ops, &options.rows.models, &options.rows.formats, &options.rows.tokens, &options.rows.skews}) {
    *list = bench::split_lists(*list);
  }
  options.cpu_row = variable("CONCLAVE_CPU", "");
  options.memory_limit = static_cast<std::int64_t>(arguments.memory_gib * (1 << 30));
  return bench::run_bench(options, program_output());
}

int run_model(BenchArguments arguments) {
  bench::ModelBenchOptions& options = arguments.model;
  options.model = arguments.model_path;
  options.device = {.device = arguments.device.empty() ? "auto" : arguments.device,
                    .threads = arguments.options.threads};
  options.json = arguments.options.json;
  bench::run_model_bench(options, program_output());
  return 0;
}

int run(const BenchArguments& arguments) {
  try {
    if (arguments.plan) return run_plan(arguments);
    return arguments.model_path.empty() ? run_kernels(arguments) : run_model(arguments);
  } catch (...) {
    show_progress("");
    throw;
  }
}

// A list of whole numbers, each at least `least`, as in 1,2,4.
CLI::Option* add_counts(CLI::App& command, const std::string& flag, std::vector<std::int32_t>& counts, int least,
                        const std::string& help) {
  const auto good = [least](const std::string& text) {
    const auto list = parse_token_list(text);
    const bool ok =
        list && !list->empty() && std::all_of(list->begin(), list->end(), [&](int n) { return n >= least; });
    return ok ? std::string{}
              : fmt::format("'{}' is not a list of whole numbers from {} on, such as 1,2,4", text, least);
  };
  return command
      .add_option_function<std::string>(
          flag, [&counts](const std::string& text) { counts = *parse_token_list(text); }, help)
      ->check(CLI::Validator(good, ""))
      ->type_name("N,...");
}

CLI::Option* add_model_options(CLI::App& command, BenchArguments& arguments) {
  bench::ModelBenchOptions& options = arguments.model;
  CLI::Option* model = command.add_option("-m", arguments.model_path, "a GGUF file: how fast that model runs")
                           ->check(not_empty())
                           ->type_name("FILE");
  for (CLI::Option* option :
       {add_counts(command, "-p", options.prompts, 0, "-m: prefills of so many tokens (512); 0: none"),
        add_counts(command, "-n", options.generated, 0, "-m: decodes of so many tokens (128); 0: none"),
        add_counts(command, "-b", options.batches, 1, "-m: so many sequences decoded together (1)"),
        add_counts(command, "-d", options.depths, 0, "-m: decodes that start after so many tokens (0)"),
        command.add_option("--reps", options.repetitions, "-m: how often each is timed (5)")
            ->check(whole_number(1, 1000)),
        command.add_option("--ctx", options.context, "-m: tokens of context (what the work needs)")
            ->check(at_least<std::int64_t>(1)),
        command
            .add_option("--chunk", options.chunk, "-m: tokens that go through the model at once (512; with CUDA 4096)")
            ->check(at_least<std::int64_t>(1)),
        command.add_flag("--exact-prompts", options.exact_prompts, "-m: compute prefills as generated tokens are"),
        add_kv_option(command, options.kv_type, "f16")}) {
    option->needs(model);
  }
  return model;
}

void add_kernel_options(CLI::App& command, BenchArguments& arguments, CLI::Option* model) {
  bench::BenchOptions& options = arguments.options;
  options.scratch = variable("TMPDIR", "/tmp");
  for (CLI::Option* option :
       {command.add_flag("--kernels", options.kernels, "every op at the shapes of real models"),
        command.add_flag("--targets", options.targets, "the speeds this project wants to reach, one by one"),
        command.add_option("--op", options.rows.ops, "these ops alone, as in moe_ffn,matmul"),
        command.add_option("--model", options.rows.models,
                           "these models' shapes: qwen3-30b-a3b, mixtral-8x7b, olmoe-7b, qwen2-57b-a14b; on a GPU: "
                           "qwen3-30b-a3b, qwen3-30b-a3b-f16, qwen3-30b-a3b-bf16, mixtral-8x7b, deepseek-like, "
                           "gpt-oss-like"),
        command.add_option("--format", options.rows.formats, "weights of these types (q4_k,q6_k,q8_0)"),
        command.add_option("--tokens", options.rows.tokens, "these batch sizes (1,2,4,8,32,128,512)"),
        command.add_option("--skew", options.rows.skews, "these routings of moe_ffn: uniform, zipf, one-hot"),
        command
            .add_option(
                "--phase", arguments.phase,
                "on a GPU: rows of generated tokens (decode) or of a prompt (prefill); without it decode up to 256")
            ->check(CLI::IsMember({"decode", "prefill"})),
        command.add_flag("--stages", arguments.stages, "on a GPU: the ops that moe_ffn stands for, too"),
        command.add_flag("--plan", arguments.plan,
                         "with --device metal: what the MoE layer would launch, and its bytes; nothing is run"),
        command.add_flag("--all", options.rows.all, "every op for every model and batch size: takes an hour"),
        command.add_option("--scratch", options.scratch, "folder for the file of random weights ($TMPDIR, or /tmp)"),
        command.add_option("--memory", arguments.memory_gib, "GiB of weights at most (4)")
            ->check(number_within(0.5, 4096))}) {
    option->excludes(model);
  }
}

// An option that would do nothing is wrong usage: its number would be taken for something that it is not.
void refuse_unused(const CLI::App& command, const BenchArguments& arguments) {
  const auto refuse = [&](std::initializer_list<const char*> options, std::string_view where) {
    for (const char* option : options) {
      if (command.count(option) > 0) throw CLI::ValidationError(fmt::format("{} does nothing {}", option, where));
    }
  };
  if (!arguments.model_path.empty()) return;  // the options themselves say what goes with -m
  if (arguments.plan) {
    refuse({"--kernels", "--targets", "--op", "--skew", "--phase", "--stages", "--all", "--scratch", "--memory", "-t"},
           "with --plan");
    if (bench::split_lists(arguments.options.rows.formats).size() > 1) {
      throw CLI::ValidationError("--plan takes one --format");
    }
    return;
  }
  if (!arguments.options.kernels) {
    refuse({"--op", "--model", "--format", "--tokens", "--skew", "--phase", "--stages", "--all"}, "without --kernels");
  }
  if (arguments.device.starts_with("cuda")) {
    refuse({"--targets", "--op", "--format", "--all", "--scratch", "--memory"}, "on a GPU");
  } else {
    refuse({"--phase", "--stages"}, "on the CPU");
  }
}

}  // namespace

void add_bench(CLI::App& app, Command& chosen) {
  auto arguments = std::make_shared<BenchArguments>();
  bench::BenchOptions& options = arguments->options;
  CLI::App* command = app.add_subcommand("bench", "how fast a model or the ops are, against what this machine can do");
  CLI::Option* model = add_model_options(*command, *arguments);
  add_kernel_options(*command, *arguments, model);
  command->add_option(
      "--device,--backend", arguments->device,
      "cpu, cuda or cuda:N; with -m also metal, ref and auto, the default (a GPU that has room, else the CPU)");
  command->add_option("-t,--threads", options.threads, "as many threads (the physical cores)")
      ->check(whole_number(1, ThreadPool::kMaxThreads));
  command->add_flag("--json", options.json, "one object a line");
  command->footer(kFooter);
  command->callback([arguments, command, &chosen] {
    const bench::BenchOptions& asked = arguments->options;
    if (arguments->model_path.empty() && !asked.kernels && !asked.targets && !arguments->plan)
      throw CLI::RequiredError("-m FILE, --kernels, --targets or --plan");
    refuse_unused(*command, *arguments);
    chosen = [arguments] { return run(*arguments); };
  });
}

}  // namespace conclave
