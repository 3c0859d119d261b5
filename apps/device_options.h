// --device NAME and -t N: what a model runs on, on the command line.
#pragma once

#include <CLI/CLI.hpp>

#include "base/thread_pool.h"
#include "conclave/model.h"
#include "whole_number.h"

namespace conclave {

// `options` must outlive the parsing.
inline void add_device_options(CLI::App& command, ModelOptions& options) {
  command
      .add_option(
          "--device,--backend", options.device,
          "cpu, cuda, cuda:N, metal (without an Apple GPU: on the CPU, for tests), ref, or auto (the default): a GPU "
          "that has room, else the CPU")
      ->type_name("NAME");
  command.add_option("-t,--threads", options.threads, "of the cpu device (the physical cores)")
      ->check(whole_number(0, ThreadPool::kMaxThreads))
      ->type_name("N");
}

}  // namespace conclave
