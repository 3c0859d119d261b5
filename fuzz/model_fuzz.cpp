// Any bytes as a model file: describe its tokenizer and the whole model. Only conclave::Error may come out, in one line,
// and what is described must hold together.
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/error.h"
#include "gguf/file.h"
#include "model/description.h"
#include "model/tokenizer_check.h"

namespace {

using conclave::ModelDescription;
using conclave::TokenizerDescription;
using conclave::gguf::File;

void require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "broken promise: %s\n", what);
  std::abort();
}

template <class Act>
void only_errors(Act&& act) {
  try {
    act();
  } catch (const conclave::Error& error) {
    require(std::string_view(error.what()).find_first_of("\n\r") == std::string_view::npos, "an error is one line");
  }
}

void check(const TokenizerDescription& tokenizer) {
  if (tokenizer.kind == conclave::TokenizerKind::none) return;
  const auto n = static_cast<std::uint64_t>(tokenizer.n_tokens);
  require(tokenizer.tokens != nullptr && tokenizer.tokens->size() == n, "as many tokens as it says");
  require(tokenizer.token_types == nullptr || tokenizer.token_types->size() == n, "a type each");
  require(tokenizer.scores == nullptr || tokenizer.scores->size() == n, "a score each");
  for (std::uint64_t i = 0; i < n; ++i) require(tokenizer.tokens->string_at(i).has_value(), "tokens are strings");
  for (const auto& special : tokenizer.special) {
    require(special.id >= 0 && special.id < tokenizer.n_tokens, "a special token is a token");
  }
}

void check(const ModelDescription& model, const File& file) {
  check(model.tokenizer);
  std::uint64_t bytes = 0;
  for (const auto& tensor : file.tensors()) bytes += tensor.bytes;
  std::uint64_t by_format = 0;
  for (const auto& format : model.formats) by_format += format.bytes;
  require(model.size.weight_bytes == bytes && by_format == bytes, "every tensor counts once");
  require(model.size.n_active_params > 0 && model.size.n_active_params <= model.size.n_params,
          "no more active than there are");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // A file of memory: no disk, and a name that leads to it.
  static const int fd = ::memfd_create("model_fuzz", MFD_CLOEXEC);
  require(fd >= 0 && ::ftruncate(fd, 0) == 0, "memfd");
  require(::pwrite(fd, data, size, 0) == static_cast<ssize_t>(size), "pwrite");
  only_errors([] {
    const File file = File::open("/proc/self/fd/" + std::to_string(fd));
    only_errors([&] { check(conclave::describe_tokenizer(file)); });
    only_errors([&] { check(conclave::describe_model(file), file); });
  });
  return 0;
}
