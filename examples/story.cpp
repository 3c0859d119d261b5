// A program that embeds conclave: text in, text out, as it comes.
//
//   story MODEL.gguf "Once upon a time"
#include <conclave/conclave.h>

#include <cstdint>
#include <cstdio>

namespace {

void tell(const char* path, const char* beginning) {
  const conclave::Model model = conclave::Model::open(path);
  const conclave::ModelText text(model);
  conclave::Session session(model, {.context = 1024});
  conclave::Generator generator(session);

  conclave::ModelText::Stream stream(text);
  const auto show = [](const std::string& piece) {
    std::fwrite(piece.data(), 1, piece.size(), stdout);
    std::fflush(stdout);
  };
  show(beginning);
  generator.generate(text.prompt(beginning), {.sampling = {.seed = 7}, .max_tokens = 200, .end_ids = text.end_ids()},
                     {.token = [&](std::int32_t id) { return show(stream.push(id)), true; }});
  show(stream.finish() + "\n");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return std::fprintf(stderr, "usage: story MODEL.gguf TEXT\n"), 2;
  try {
    tell(argv[1], argv[2]);
    return 0;
  } catch (const std::exception& error) {  // conclave::Error among them: one line, fit to be shown
    return std::fprintf(stderr, "error: %s\n", error.what()), 1;
  }
}
