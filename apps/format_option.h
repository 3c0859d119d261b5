// Options that `convert` and `quantize` share.
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <string_view>

#include "base/thread_pool.h"
#include "cli.h"
#include "convert/model_format.h"
#include "whole_number.h"

namespace conclave {

// One of `names`, as it stands there. (CLI::IsMember would print its list a second time in the help.)
inline CLI::Validator known_name(std::span<const std::string_view> names) {
  return CLI::Validator(
      [names](std::string& word) {
        if (std::find(names.begin(), names.end(), word) != names.end()) return std::string();
        return fmt::format("'{}' is none of: {}", word, fmt::join(names, ", "));
      },
      "");
}

inline CLI::Option* add_format_option(CLI::App& command, const std::string& name, std::string& word,
                                      const std::string& help) {
  return command.add_option(name, word, fmt::format("{}: {}", help, model_format_names()))
      ->type_name("")
      ->check(CLI::Validator(
          [](std::string& text) {
            if (find_model_format(text) != nullptr) return std::string();
            return fmt::format("there is no format '{}'; there are: {}", text, model_format_names());
          },
          ""));
}

inline void add_threads_option(CLI::App& command, int& threads) {
  command.add_option("-t,--threads", threads, "as many threads (the physical cores); the result is the same")
      ->check(whole_number(1, ThreadPool::kMaxThreads));
}

}  // namespace conclave
