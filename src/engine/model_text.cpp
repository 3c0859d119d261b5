#include "engine/model_text.h"

#include <ctime>
#include <utility>

#include "engine/loaded_model.h"
#include "engine/vocabulary_reader.h"
#include "text/chat_template.h"
#include "text/text_stream.h"

namespace conclave {
namespace {

std::optional<std::string> text_of(const Tokenizer& tokenizer, const std::optional<TokenId>& id) {
  if (!id) return std::nullopt;
  return std::string(tokenizer.piece(*id));
}

std::optional<std::tm> local_time() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  if (::localtime_r(&now, &parts) == nullptr) return std::nullopt;
  return parts;
}

// Prompts are to be continued: the begin token where one is wanted, never the end token. Templates may have written it.
void add_begin_token(const Tokenizer& tokenizer, std::vector<TokenId>& ids) {
  const std::optional<TokenId> bos = tokenizer.special().bos;
  if (!tokenizer.adds_bos() || !bos || (!ids.empty() && ids.front() == *bos)) return;
  ids.insert(ids.begin(), *bos);
}

}  // namespace

ModelText::ModelText(const Model& model) {
  const gguf::File& file = model.impl().file;
  const auto source = model.impl().description.tokenizer.chat_template;
  impl_ = std::make_shared<Impl>(
      Impl{.tokenizer = read_tokenizer(file), .chat_template = std::string(source.value_or(""))});
}

std::vector<std::int32_t> ModelText::encode(std::string_view text, bool parse_special) const {
  return impl_->tokenizer.encode(text, {.parse_special = parse_special});
}

std::vector<std::int32_t> ModelText::prompt(std::string_view text, bool parse_special) const {
  std::vector<TokenId> ids = encode(text, parse_special);
  add_begin_token(impl_->tokenizer, ids);
  return ids;
}

std::vector<std::int32_t> ModelText::chat_prompt(std::span<const ChatTurn> turns) const {
  const Tokenizer& tokenizer = impl_->tokenizer;
  std::vector<ChatMessage> messages;
  messages.reserve(turns.size());
  for (const ChatTurn& turn : turns) messages.push_back({.role = turn.role, .content = ChatValue(turn.content)});
  const ChatContext context{.bos = text_of(tokenizer, tokenizer.special().bos),
                            .eos = text_of(tokenizer, tokenizer.special().eos),
                            .now = local_time()};
  const std::vector<TemplatePiece> rendered = ChatTemplate(impl_->chat_template).render(messages, context);
  std::vector<TextPiece> pieces;
  pieces.reserve(rendered.size());
  for (const TemplatePiece& piece : rendered) pieces.push_back({.text = piece.text, .parse_special = piece.trusted});
  std::vector<TokenId> ids = tokenizer.encode(pieces);
  add_begin_token(tokenizer, ids);
  return ids;
}

bool ModelText::has_chat_template() const {
  return !impl_->chat_template.empty();
}

std::string ModelText::decode(std::span<const std::int32_t> ids) const {
  return impl_->tokenizer.decode(ids);
}

std::vector<std::int32_t> ModelText::end_ids() const {
  const std::span<const TokenId> ids = impl_->tokenizer.end_ids();
  return {ids.begin(), ids.end()};
}

struct ModelText::Stream::State {
  std::shared_ptr<const Impl> text;  // what the stream reads from
  TextStream stream;
};

ModelText::Stream::Stream(const ModelText& text, bool continues)
    : state_(std::make_unique<State>(
          State{.text = text.impl_, .stream = TextStream(text.impl_->tokenizer, {.continues = continues})})) {}
ModelText::Stream::Stream(Stream&&) noexcept = default;
ModelText::Stream& ModelText::Stream::operator=(Stream&&) noexcept = default;
ModelText::Stream::~Stream() = default;

std::string ModelText::Stream::push(std::int32_t id) {
  return state_->stream.push(id);
}
std::string ModelText::Stream::finish() {
  return state_->stream.finish();
}

}  // namespace conclave
