#include "ops/profile.h"

#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/fail.h"

namespace conclave {

Profile Profile::to_file(const std::filesystem::path& path) {
  auto file = std::make_shared<std::ofstream>(path, std::ios::app);
  if (!*file) fail(ErrorCode::io, "profile {}: cannot be opened for writing", path.string());
  return Profile([file, path](const std::string& line) {
    if (!(*file << line << '\n' << std::flush)) fail(ErrorCode::io, "profile {}: cannot be written", path.string());
  });
}

void Profile::op_event(const Op& op, std::string_view backend, double microseconds) {
  const Cost cost = cost_of(op);
  const nlohmann::ordered_json event = {{"event", "op"},
                                        {"op", op_name(op)},
                                        {"backend", backend},
                                        {"bytes", static_cast<std::int64_t>(cost.bytes)},
                                        {"flops", static_cast<std::int64_t>(cost.flops)},
                                        {"us", microseconds}};
  sink_(event.dump());
}

}  // namespace conclave
