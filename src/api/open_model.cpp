#include "api/devices.h"
#include "conclave/model.h"
#include "engine/loaded_model.h"

namespace conclave {

Model Model::open(const std::filesystem::path& path, const ModelOptions& options) {
  return load_model(path, make_device(options.device, options.threads));
}

}  // namespace conclave
