// What `conclave run` was asked for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cli.h"
#include "conclave/generate.h"
#include "conclave/model.h"

namespace conclave {

struct RunOptions {
  std::string model;                  // empty: default_model()
  std::optional<std::string> prompt;  // -p; at most one of these three
  std::optional<std::string> prompt_file;
  std::optional<std::string> tokens;
  bool parse_special = false;
  bool chat = false;
  std::string system;
  std::int64_t max_tokens = -1;  // -1: no limit
  bool ignore_eos = false;
  SamplerOptions sampling;            // its seed is set from the next
  std::optional<std::uint64_t> seed;  // none: a random one
  ModelOptions device;
  SessionOptions session;
  bool ids = false;
  bool json = false;
  bool quiet = false;
  bool stats = false;

  std::optional<std::int64_t> token_limit() const { return max_tokens < 0 ? std::nullopt : std::optional(max_tokens); }
  bool has_prompt() const { return prompt || prompt_file || tokens; }
};

// Declares the options on `command`, with their help.
void add_run_options(CLI::App& command, RunOptions& options);

}  // namespace conclave
