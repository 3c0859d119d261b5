// Profile: what a run did, as JSON lines, one event per op:
//
//   {"event":"op","op":"moe_ffn","backend":"ref","bytes":1048576,"flops":2097152,"us":812.5}
//   {"event":"moe_dump", ...}   (moe_dump.h)
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "ops/op.h"

namespace conclave {

class Profile {
 public:
  using Sink = std::function<void(const std::string& line)>;  // gets each line without its end

  explicit Profile(Sink sink) : sink_(std::move(sink)) {}
  // Appends to a file; throws where it cannot be opened or written.
  static Profile to_file(const std::filesystem::path& path);

  void op_event(const Op& op, std::string_view backend, double microseconds);
  void event(const std::string& line) { sink_(line); }

 private:
  Sink sink_;
};

}  // namespace conclave
