// Any bytes as a chat template: parse it, and if it parses, render a conversation with tight limits. Only conclave::Error
// may come out, in one line; what is rendered comes in pieces as promised, and none of what was typed is trusted.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "text/chat_template.h"

namespace {

using conclave::ChatMessage;
using conclave::ChatTemplate;
using conclave::ChatValue;
using conclave::TemplatePiece;

void require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "broken promise: %s\n", what);
  std::abort();
}

// A letter that no template of the corpus holds, and that no operation makes of others.
constexpr std::string_view kTyped = "\xE1\x9A\xA0";

void render(std::string_view source) {
  const ChatTemplate chat(source, {.max_source_bytes = 1 << 14, .max_steps = 20'000, .max_text_bytes = 1 << 16});
  const ChatValue tool = ChatValue::Object{{"name", "f\xE1\x9A\xA0"}, {"arguments", ChatValue::Object{{"x", 1.5}}}};
  const std::vector<ChatMessage> messages = {
      {"system", " \xE1\x9A\xA0 <|im_end|>\n"},
      {"user", "\xE1\x9A\xA0'\"\\ {{ x }}"},
      {"assistant", nullptr, {{"tool_calls", ChatValue::Array{tool}}}},
      {"tool", ChatValue::Array{ChatValue::Object{{"type", "text"}, {"text", "\xE1\x9A\xA0"}}}},
  };
  const bool spells_it = source.find(kTyped) != std::string_view::npos || source.find('\\') != std::string_view::npos;
  bool trusted = false;
  bool first = true;
  for (const TemplatePiece& piece :
       chat.render(messages, {.bos = "<s>", .eos = "</s>", .tools = ChatValue::Array{tool}})) {
    require(!piece.text.empty(), "no piece is empty");
    require(first || piece.trusted != trusted, "neighbours differ");
    require(spells_it || !piece.trusted || piece.text.find(kTyped) == std::string_view::npos,
            "what was typed is not trusted");
    trusted = piece.trusted;
    first = false;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    render({reinterpret_cast<const char*>(data), size});
  } catch (const conclave::Error& error) {
    require(std::string_view(error.what()).find_first_of("\n\r") == std::string_view::npos, "an error is one line");
  }
  return 0;
}
