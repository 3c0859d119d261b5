#include "support/suite.h"

#include <algorithm>

#include "backends/ref/ref_device.h"
#include "base/fail.h"
#include "support/execute.h"

namespace conclave::test {
namespace {

constexpr std::size_t kMaxFailures = 1000;  // kept as text; all are counted

struct NamedSpec {
  CaseSpec spec;
  bool listed;
};

// Calls visit(spec) for the listed cases, then for the random ones, which are made one at a time: there may be any number.
template <class Visit>
void for_each_spec(const OpCases& cases, const SuiteOptions& options, Visit&& visit) {
  for (CaseSpec& spec : cases.list()) {
    if (!options.small_only || spec.small) visit(NamedSpec{std::move(spec), true});
  }
  for (std::int64_t i = 0; i < options.random && !options.small_only; ++i) {
    visit(NamedSpec{random_spec(cases, options.seed, i), false});
  }
}

std::vector<const OpCases*> chosen_ops(const SuiteOptions& options) {
  std::vector<const OpCases*> chosen;
  for (const OpCases& cases : all_op_cases()) {
    if (options.op.empty() || options.op == cases.op) chosen.push_back(&cases);
  }
  check_op_name(options.op);
  return chosen;
}

DType output_type(const Op& op, std::string_view name) {
  for (const Access& access : accesses(op)) {
    if (access.name == name && writes(access.role)) return access.tensor.dtype;
  }
  CONCLAVE_CHECK(false, std::string(name));
}

template <class Any>
concept Phased = requires(Any op) {
  op.phase;
};

Case in_phase(Case test_case, Phase phase) {
  std::visit(
      [&](auto& op) {
        if constexpr (Phased<decltype(op)>) op.phase = phase;
      },
      test_case.op);
  return test_case;
}

// Whether there is an op of that name that knows phases.
template <class... Ops>
bool has_phase(std::string_view name, const std::variant<Ops...>*) {
  return ((Phased<Ops> && Ops::kName == name) || ...);
}
bool has_phase(std::string_view name) {
  return has_phase(name, static_cast<const Op*>(nullptr));
}
// Where both phases have one arithmetic, one of them is enough.
bool tells_phases(const Arithmetic& arithmetic) {
  return arithmetic.prefill_weight > 0;
}

template <class Element>
std::vector<Element> every(const std::vector<Element>& all, std::uint64_t stride) {
  std::vector<Element> some;
  for (std::size_t i = 0; i < all.size(); i += stride) some.push_back(all[i]);
  return some;
}

Comparison compare_output(const Op& op, std::string_view name, const std::vector<std::uint32_t>& got,
                          const std::vector<std::uint32_t>& expected, const Tolerance& tolerance,
                          const Arithmetic& arithmetic) {
  Comparison result;
  const DType type = output_type(op, name);
  if (is_integer(type)) {
    result = compare_ints(got, expected);
  } else {
    const double storage = dtype_info(type).bytes == 2 ? 0x1p-14 : 0;
    result = compare_floats(got, expected,
                            {.bound = tolerance.bound,
                             .nmse = arithmetic.nmse + storage,
                             .noise = tolerance.noise,
                             .overflow = type == DType::f16 ? 65520 : INFINITY});
  }
  if (!result.ok) result.message = fmt::format("{}: {}", name, result.message);
  return result;
}

// Of integers there is none.
Tolerance tolerance_of(const Tolerances& tolerances, std::string_view name) {
  const auto found = tolerances.find(name);
  return found == tolerances.end() ? Tolerance{} : found->second;
}

// Against an answer, of which a sample may be all there is.
Comparison judge_by_answer(const Outcome& outcome, const Answer& answer, const Tolerances& tolerances,
                           const Arithmetic& arithmetic) {
  Comparison all;
  for (const auto& [name, got] : outcome.outputs) {
    const auto expected = answer.outputs.find(name);
    if (expected == answer.outputs.end() || expected->second.count != got.size()) {
      all.include({.ok = false, .message = fmt::format("{}: the answer has none, or of another size", name)});
      continue;
    }
    const std::uint64_t stride = expected->second.stride;
    const Tolerance all_of_it = tolerance_of(tolerances, name);
    all.include(compare_output(outcome.after.op, name, every(got, stride), expected->second.elements,
                               {.bound = every(all_of_it.bound, stride), .noise = every(all_of_it.noise, stride)},
                               arithmetic));
  }
  return all;
}

Comparison judge_by_outputs(const Outcome& outcome, const Outputs& expected, const Tolerances& tolerances,
                            const Arithmetic& arithmetic) {
  Comparison all;
  for (const auto& [name, got] : outcome.outputs) {
    all.include(
        compare_output(outcome.after.op, name, got, expected.at(name), tolerance_of(tolerances, name), arithmetic));
  }
  return all;
}

Tolerances no_error(const Outputs& outputs) {
  Tolerances none;
  for (const auto& [name, bits] : outputs) none[name].bound.resize(bits.size(), 0.0);
  return none;
}

class Judge {
 public:
  Judge(Device& device, const SuiteOptions& options)
      : device_(device), options_(options), is_reference_(device.name() == reference_.name()) {}

  Comparison judge(std::string_view op, const NamedSpec& named, Phase phase) {
    const Case dense_case = in_phase(named.spec.make(Layout::dense), phase);
    const Outcome dense_reference = execute(dense_case, reference_);
    if (!dense_reference.fault.empty()) return {.ok = false, .message = "reference: " + dense_reference.fault};
    const Arithmetic& arithmetic = is_reference_ ? kReferenceArithmetic : options_.arithmetic;
    const Tolerances tolerances = tolerances_of(dense_reference.after.op, arithmetic);

    Comparison all;
    for (const Layout layout : {Layout::dense, Layout::padded}) {
      const Outcome outcome = execute(in_phase(named.spec.make(layout), phase), device_, options_.profile);
      if (!outcome.fault.empty()) return {.ok = false, .worst = 1, .message = outcome.fault};
      if (!is_reference_ && options_.answers == nullptr) {
        all.include(judge_by_outputs(outcome, dense_reference.outputs, tolerances, arithmetic));
        continue;
      }
      // The layout must not matter at all.
      all.include(judge_by_outputs(outcome, dense_reference.outputs,
                                   is_reference_ ? no_error(outcome.outputs) : tolerances, arithmetic));
      const Answers* answers = options_.answers != nullptr ? options_.answers
                               : named.listed              ? &Answers::compiled_in()
                                                           : nullptr;
      if (answers == nullptr) continue;
      const Answer* answer = answers->find(op, named.spec.name);
      if (answer == nullptr) {
        all.include({.ok = false, .message = "there is no golden answer"});
      } else if (answer->inputs != fingerprint(dense_case)) {
        all.include({.ok = false, .message = "the golden answer is to other inputs"});
      } else {
        all.include(judge_by_answer(outcome, *answer, tolerances, arithmetic));
      }
    }
    return all;
  }

 private:
  RefDevice reference_;
  Device& device_;
  const SuiteOptions& options_;
  bool is_reference_;
};

}  // namespace

void check_op_name(const std::string& op) {
  const auto all = all_op_cases();
  const bool known = std::any_of(all.begin(), all.end(), [&](const OpCases& cases) { return cases.op == op; });
  if (!op.empty() && !known) fail(ErrorCode::invalid_argument, "there is no op '{}'", op);
}

std::vector<OpReport> run_suite(Device& device, const SuiteOptions& options,
                                const std::function<void(const OpReport&)>& on_op) {
  Judge judge(device, options);
  std::vector<OpReport> reports;
  for (const OpCases* cases : chosen_ops(options)) {
    OpReport report{.op = std::string(cases->op), .backend = std::string(device.name())};
    Comparison worst;
    for_each_spec(*cases, options, [&](const NamedSpec& named) {
      for (const Phase phase : {Phase::decode, Phase::prefill}) {
        if (phase == Phase::prefill && !(tells_phases(options.arithmetic) && has_phase(cases->op))) continue;
        ++report.cases;
        Comparison result = judge.judge(cases->op, named, phase);
        if (!result.ok) {
          ++report.failed;
          if (report.failures.size() < kMaxFailures) {
            report.failures.push_back(fmt::format("{} [{}{}] {}", cases->op, named.spec.name,
                                                  phase == Phase::prefill ? ", prefill" : "", result.message));
          }
        }
        worst.include(result);
      }
    });
    report.worst = worst.worst;
    report.bound = worst.bound;
    if (on_op) on_op(report);
    reports.push_back(std::move(report));
  }
  return reports;
}

void export_cases(const SuiteOptions& options, const std::function<void(const std::string& record)>& write) {
  for (const OpCases* cases : chosen_ops(options)) {
    for_each_spec(*cases, options, [&](const NamedSpec& named) { write(export_case(named.spec.make(Layout::dense))); });
  }
}

}  // namespace conclave::test
