// A program that embeds conclave: it reads a prompt of token ids and continues it greedily.
//
//   embed MODEL.gguf N ID...
#include <conclave/conclave.h>

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace {

int run(const std::string& path, int n_new, const std::vector<std::int32_t>& prompt) {
  const conclave::Model model = conclave::Model::open(path);
  const auto n_tokens = static_cast<std::int64_t>(prompt.size()) + n_new;
  conclave::Session session(model, {.context = n_tokens});

  const conclave::SequenceId sequence = session.create();
  std::int32_t best = session.extend_best(sequence, prompt);  // the whole prompt, in chunks
  for (int i = 0; i < n_new && best >= 0; ++i) {
    std::printf("%d\n", best);
    const std::int32_t token = best;
    best = session.extend_best(sequence, {&token, 1});  // one more token
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return std::fprintf(stderr, "usage: embed MODEL.gguf N ID...\n"), 2;
  try {
    std::vector<std::int32_t> prompt;
    for (int i = 3; i < argc; ++i) prompt.push_back(std::stoi(argv[i]));
    return run(argv[1], std::stoi(argv[2]), prompt);
  } catch (const std::exception& error) {  // conclave::Error among them: one line, fit to be shown
    return std::fprintf(stderr, "error: %s\n", error.what()), 1;
  }
}
