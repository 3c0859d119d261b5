#include "convert/model_output.h"

#include <limits>

#include "base/checked.h"
#include "base/fail.h"
#include "base/file_output.h"
#include "base/file_text.h"
#include "gguf/tensor_layout.h"

namespace conclave {

namespace fs = std::filesystem;

void require_model_output(const fs::path& target, std::span<const fs::path> inputs) {
  if (target.empty()) fail(ErrorCode::invalid_argument, "the output has no name");
  require_no_input(target, inputs);
  // A model is read again before it gets its name.
  std::error_code code;
  if (fs::exists(target, code) && !fs::is_directory(target, code) && !fs::is_regular_file(target, code)) {
    fail(ErrorCode::invalid_argument, "{}: not a regular file",
         printable(target.native(), std::numeric_limits<std::size_t>::max()));
  }
}

WrittenModel write_model(const fs::path& path, const ModelOutput& output, ThreadPool& pool,
                         const WriteProgress& progress, const std::function<void(const gguf::File&)>& check) {
  gguf::Writer writer(path, {.alignment = output.alignment});
  for (const auto& [key, value] : output.keys) writer.add(key, value);
  WrittenModel written{.n_tensors = output.tensors.size()};
  for (const OutputTensor& tensor : output.tensors) {
    writer.declare(tensor.job.name, tensor.job.to, tensor.dims);  // which also checks the sizes below
    written.tensor_bytes += gguf::tensor_bytes(gguf::tensor_type(tensor.job.to), tensor.dims).bytes;
    std::int64_t n = 1;
    for (const std::int64_t dim : tensor.dims) n *= dim;
    written.n_params += n;
  }
  writer.write({});  // a target that cannot be written to is found before any work

  Recoder recoder(pool);
  std::uint64_t done = 0;
  for (const OutputTensor& tensor : output.tensors) {
    recoder.run(tensor.job, [&](std::span<const std::byte> bytes) {
      if (progress) progress(done, written.tensor_bytes, tensor.job.name);
      writer.write(bytes);
      done += bytes.size();
    });
  }
  if (progress) progress(done, written.tensor_bytes, "");
  writer.finish([&](const fs::path& complete) {
    const gguf::File file = gguf::File::open(complete);
    written.file_bytes = file.file_bytes();
    if (check) check(file);
  });
  return written;
}

}  // namespace conclave
