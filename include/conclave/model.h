// Model: a GGUF file, checked and ready to run on a device.
//
//   conclave::Model model = conclave::Model::open("model.gguf");
//   conclave::Session session(model, {.context = 4096});
//
// The file is mapped, not read: on the CPU, opening takes no time that depends on its size, and weights are used as they
// are stored. A GPU with memory of its own gets a copy of the weights when the model is opened. A Model is a handle:
// copies share the file and the device. Sessions of one model may exist side by side, but only one of them may be in a
// step at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "conclave/error.h"

namespace conclave {

struct ModelOptions {
  // "cpu", "cuda" (the first GPU), "cuda:N", "metal" (an Apple GPU; elsewhere its kernels on the CPU, for tests), "ref"
  // (slow: the oracle that others are tested against), or "auto": a GPU that has room for the model, else the CPU.
  std::string device = "auto";
  int threads = 0;  // of the CPU device; 0: the physical cores that this process may use
  // Told while a device gets its copy of the weights; may be empty.
  std::function<void(std::uint64_t done_bytes, std::uint64_t total_bytes)> progress;
};

// What is known of a model before it runs.
struct ModelFacts {
  std::string architecture;    // as the file says: "qwen3moe", ...
  std::string name;            // may be empty, may hold any bytes
  std::string device;          // what it runs on: "cpu", "cuda:0", "ref"
  std::int64_t n_vocab = 0;    // logits of a token
  std::int64_t n_context = 0;  // tokens that it was trained to see
  std::int64_t n_layers = 0;
  std::int64_t d_model = 0;
  std::int64_t n_experts = 0;  // of a layer
  std::int64_t top_k = 0;      // experts that serve a token
  std::int64_t n_params = 0;
  std::int64_t n_active_params = 0;  // that one token uses
  std::uint64_t file_bytes = 0;
  bool has_vocabulary = false;  // else it works on token ids alone
};

class Model {
 public:
  // Throws Error with one line that says what is wrong with the file, the device or the request.
  static Model open(const std::filesystem::path& path, const ModelOptions& options = {});

  const ModelFacts& facts() const;

  // Brings what is not in memory yet of the weights there, which otherwise happens where they are first used: for programs
  // that want to show how far it is. Where the device has a copy of them there is nothing to do. `progress`, which may be
  // empty, is called only if there is anything to do; false stops it.
  void read_in(const std::function<bool(std::uint64_t done_bytes, std::uint64_t total_bytes)>& progress) const;

  struct Impl;  // the library's own
  explicit Model(std::shared_ptr<Impl> impl);
  Impl& impl() const { return *impl_; }

 private:
  std::shared_ptr<Impl> impl_;
};

}  // namespace conclave
