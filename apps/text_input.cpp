#include "text_input.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

#include "base/fail.h"
#include "base/file_text.h"
#include "text/tokenizer.h"

namespace conclave {
namespace {

std::string read_all(std::FILE* file, const std::string& name) {
  std::string text;
  std::vector<char> block(std::size_t{1} << 16);
  while (const std::size_t bytes = std::fread(block.data(), 1, block.size(), file)) {
    text.append(block.data(), bytes);
    if (text.size() > kMaxTextBytes) {
      fail(ErrorCode::invalid_argument, "{}: the text is longer than {} bytes", name, kMaxTextBytes);
    }
  }
  if (std::ferror(file) != 0) fail(ErrorCode::io, "{}: cannot read: {}", name, std::strerror(errno));
  return text;
}

}  // namespace

std::string read_stdin() {
  return read_all(stdin, "stdin");
}

std::string read_text_file(const std::string& path) {
  const std::string name = printable(path, path.size());
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), &std::fclose);
  if (!file) fail(ErrorCode::io, "{}: cannot open: {}", name, std::strerror(errno));
  return read_all(file.get(), name);
}

void drop_last_line_break(std::string& text) {
  if (text.ends_with("\r\n")) {
    text.resize(text.size() - 2);
  } else if (text.ends_with('\n')) {
    text.pop_back();
  }
}

}  // namespace conclave
