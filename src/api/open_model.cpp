#include "api/devices.h"
#include "conclave/model.h"
#include "engine/loaded_model.h"

namespace conclave {

Model Model::open(const std::filesystem::path& path, const ModelOptions& options) {
  // What a GPU must have free for "auto" to take it: the weights, and as much again as a session usually wants.
  constexpr std::int64_t kForSession = std::int64_t{1} << 30;
  std::error_code unreadable;  // opening the file says what is wrong with it
  const std::uintmax_t file_bytes = std::filesystem::file_size(path, unreadable);
  const std::int64_t bytes = unreadable ? 0 : static_cast<std::int64_t>(file_bytes) + kForSession;
  return load_model(path, make_device(options.device, options.threads, bytes));
}

}  // namespace conclave
