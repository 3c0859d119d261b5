#include "api/devices.h"
#include "conclave/model.h"
#include "engine/loaded_model.h"

namespace conclave {

Model Model::open(const std::filesystem::path& path, const ModelOptions& options) {
  // What a GPU must have free for "auto" to take it: the weights, and as much again as a session usually wants.
  constexpr std::int64_t kForSession = std::int64_t{1} << 30;
  gguf::File file = gguf::File::open(path);
  const std::int64_t bytes = static_cast<std::int64_t>(file.file_bytes()) + kForSession;
  return load_model(std::move(file), path, make_device(options.device, options.threads, bytes), options.progress);
}

}  // namespace conclave
