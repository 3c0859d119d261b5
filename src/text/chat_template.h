// From a conversation to the text that a model reads: the template of the model's file, or ChatML where it has none.
//
// A template is a program in Jinja that came with the file. It is run by a small interpreter of our own that can do
// nothing but make text: no files, no clock but the one given, and limits on nesting, steps and size, so that a template
// that loops or grows is an error and not a hang. What it renders is what the usual Python environment for chat templates
// renders, byte for byte: trim_blocks, lstrip_blocks, loop controls, tojson without HTML escapes, raise_exception,
// strftime_now. Unlike there, lists and dicts can be changed in place (append, pop, ...): some templates want it.
//
// What people typed stays text. Every character of the result is known to be from the template (its literals, the
// tokens bos and eos, numbers and punctuation that it makes) or from outside (contents, tool arguments, variables), through
// everything the template does with it. Control tokens may be looked for in the trusted pieces alone. A border between two
// pieces says nothing about where tokens end: outside of control tokens, text is to be tokenised as one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace conclave {

// Data for a template, in the shape of JSON.
struct ChatValue {
  using Array = std::vector<ChatValue>;
  using Object = std::vector<std::pair<std::string, ChatValue>>;  // in order; of equal names the last counts

  std::variant<std::nullptr_t, bool, std::int64_t, double, std::string, Array, Object> data = nullptr;

  ChatValue() = default;
  ChatValue(std::nullptr_t) {}
  ChatValue(bool value) : data(value) {}
  ChatValue(int value) : data(std::int64_t{value}) {}
  ChatValue(std::int64_t value) : data(value) {}
  ChatValue(double value) : data(value) {}
  ChatValue(const char* value) : data(std::string(value)) {}
  ChatValue(std::string_view value) : data(std::string(value)) {}
  ChatValue(std::string value) : data(std::move(value)) {}
  ChatValue(Array value) : data(std::move(value)) {}
  ChatValue(Object value) : data(std::move(value)) {}
};

struct ChatMessage {
  std::string role;  // trusted if it is a usual one (user, assistant, ...): templates make control tokens of it
  std::optional<ChatValue> content = std::nullopt;  // mostly a string; nullopt: the message has none
  ChatValue::Object extra = {};                     // tool_calls, reasoning_content, ...: further keys of the message
};

struct ChatContext {
  std::optional<std::string> bos = std::nullopt;  // the text of the token; the variable bos_token
  std::optional<std::string> eos = std::nullopt;
  bool add_generation_prompt = true;
  ChatValue tools = nullptr;
  ChatValue documents = nullptr;
  ChatValue::Object variables = {};           // enable_thinking, ...: further variables; they replace those above
  std::optional<std::tm> now = std::nullopt;  // for strftime_now, which is undefined without it
};

struct TemplatePiece {
  std::string text;
  bool trusted;  // from the template: may hold control tokens

  friend bool operator==(const TemplatePiece&, const TemplatePiece&) = default;
};

struct TemplateLimits {
  std::size_t max_source_bytes = std::size_t{1} << 20;
  std::uint64_t max_steps = 20'000'000;                 // expressions, statements, items and blocks of 64 bytes handled
  std::size_t max_text_bytes = std::size_t{64} << 20;   // of the result, and of any text on the way to it
  std::size_t max_kept_bytes = std::size_t{256} << 20;  // of all texts that are alive at a time
  int max_depth = 1000;                                 // recursion of macros, expressions and data together
};

namespace jinja {
struct Tree;
}

class ChatTemplate {
 public:
  // Parses the template; an empty one is ChatML. Throws Error, with the line, where it is none.
  explicit ChatTemplate(std::string_view source, TemplateLimits limits = {});

  // Throws Error: the template's own complaint (raise_exception) as invalid_argument, anything else that goes wrong in
  // it as bad_file, with its line. Neighbouring pieces differ in `trusted`; none is empty.
  std::vector<TemplatePiece> render(std::span<const ChatMessage> messages, const ChatContext& context) const;

 private:
  TemplateLimits limits_;
  std::shared_ptr<const jinja::Tree> tree_;
};

}  // namespace conclave
