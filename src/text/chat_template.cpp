#include "text/chat_template.h"

#include <algorithm>

#include "base/fail.h"
#include "text/template_evaluator.h"
#include "text/template_parser.h"

namespace conclave {
namespace {

using jinja::Dict;
using jinja::Runtime;
using jinja::Scope;
using jinja::Text;
using jinja::Value;

constexpr std::string_view kChatMl =
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

// A role is chosen by the program, not typed. Some templates spell a control token around it, and with any other name
// that would be a way to make one.
bool is_known_role(std::string_view role) {
  static constexpr std::string_view kRoles[] = {"system",  "user",      "assistant", "tool",        "developer",
                                                "model",   "function",  "ipython",   "observation", "tool_response",
                                                "context", "documents", "tools",     "environment"};
  return std::find(std::begin(kRoles), std::end(kRoles), role) != std::end(kRoles);
}

Value untrusted(Runtime& runtime, const ChatValue& data);

Value untrusted_dict(Runtime& runtime, const ChatValue::Object& object) {
  Dict* const dict = runtime.dict();
  for (const auto& [key, value] : object) dict->set(runtime, runtime.text(key, false), untrusted(runtime, value));
  return dict;
}

Value untrusted(Runtime& runtime, const ChatValue& data) {
  const Runtime::Level level(runtime);
  if (const auto* const text = std::get_if<std::string>(&data.data)) return runtime.text(*text, false);
  if (const auto* const boolean = std::get_if<bool>(&data.data)) return *boolean;
  if (const auto* const integer = std::get_if<std::int64_t>(&data.data)) return *integer;
  if (const auto* const real = std::get_if<double>(&data.data)) return *real;
  if (const auto* const object = std::get_if<ChatValue::Object>(&data.data)) return untrusted_dict(runtime, *object);
  if (const auto* const array = std::get_if<ChatValue::Array>(&data.data)) {
    std::vector<Value> items;
    for (const ChatValue& item : *array) items.push_back(untrusted(runtime, item));
    return runtime.list(std::move(items));
  }
  return jinja::None{};
}

Value message_value(Runtime& runtime, const ChatMessage& message) {
  Dict* const dict = runtime.dict();
  dict->set(runtime, runtime.text("role"), runtime.text(message.role, is_known_role(message.role)));
  if (message.content) dict->set(runtime, runtime.text("content"), untrusted(runtime, *message.content));
  for (const auto& [key, value] : message.extra) {
    dict->set(runtime, runtime.text(key, false), untrusted(runtime, value));
  }
  return dict;
}

// The names are views of `context`, which outlives the rendering.
std::shared_ptr<Scope> globals(Runtime& runtime, std::span<const ChatMessage> messages, const ChatContext& context) {
  const auto scope = std::make_shared<Scope>();
  std::vector<Value> list;
  for (const ChatMessage& message : messages) list.push_back(message_value(runtime, message));
  scope->set("messages", runtime.list(std::move(list)));
  scope->set("tools", untrusted(runtime, context.tools));
  scope->set("documents", untrusted(runtime, context.documents));
  scope->set("add_generation_prompt", context.add_generation_prompt);
  if (context.bos) scope->set("bos_token", runtime.text(*context.bos));
  if (context.eos) scope->set("eos_token", runtime.text(*context.eos));
  for (const auto& [name, value] : context.variables) scope->set(name, untrusted(runtime, value));
  return scope;
}

}  // namespace

ChatTemplate::ChatTemplate(std::string_view source, TemplateLimits limits) : limits_(limits) {
  if (source.size() > limits.max_source_bytes) {
    fail(ErrorCode::bad_file, "chat template: it has {} bytes, must have at most {}", source.size(),
         limits.max_source_bytes);
  }
  tree_ = std::make_shared<const jinja::Tree>(jinja::parse(source.empty() ? kChatMl : source));
}

std::vector<TemplatePiece> ChatTemplate::render(std::span<const ChatMessage> messages,
                                                const ChatContext& context) const {
  Runtime runtime(limits_);
  runtime.now = context.now;
  Text text;
  try {
    text = jinja::evaluate(runtime, *tree_, globals(runtime, messages, context));
  } catch (const Error& error) {
    fail(error.code(), "chat template, line {}: {}", runtime.line, error.what());
  }
  std::vector<TemplatePiece> pieces;
  std::size_t start = 0;
  for (const jinja::TextRun& run : text.runs()) {
    pieces.push_back({std::string(text.view().substr(start, run.end - start)), run.trusted});
    start = run.end;
  }
  return pieces;
}

}  // namespace conclave
