// The suite: every case of every op on a device. The tests run it, and `conclave selftest` is this and a table.
//
// Who judges: on a backend, the reference, run on the same inputs. On the reference itself, answers that are not ours:
// the listed cases against golden answers from NumPy, and random cases against themselves in another memory layout
// (against NumPy too, where an answers file is given).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ops/device.h"
#include "support/bounds.h"
#include "support/compare.h"
#include "support/exchange.h"

namespace conclave::test {

struct SuiteOptions {
  std::uint64_t seed = 1;            // of the random cases
  std::int64_t random = 20;          // random cases per op
  std::string op;                    // this op alone; empty: all
  bool small_only = false;           // the short list alone, without random cases
  Arithmetic arithmetic;             // how the device computes; the reference's own is used for the reference
  const Answers* answers = nullptr;  // judge every case, listed or random, by these instead
  Profile* profile = nullptr;        // gets the events of every run on the device
};

struct OpReport {
  std::string op;
  std::string backend;
  std::int64_t cases = 0;
  std::int64_t failed = 0;
  double worst = 0;  // the error closest to its bound, and that bound
  double bound = 0;
  std::vector<std::string> failures;  // one line each: case, tensor, element; the first thousand
};

// Throws an Error where `op` is neither empty nor the name of an op.
void check_op_name(const std::string& op);

// Throws an Error where options.op names no op.
std::vector<OpReport> run_suite(Device& device, const SuiteOptions& options,
                                const std::function<void(const OpReport&)>& on_op = {});

// Every case that run_suite would judge with these options, as records for another implementation.
void export_cases(const SuiteOptions& options, const std::function<void(const std::string& record)>& write);

}  // namespace conclave::test
