// ModelText: the vocabulary and the chat template of a model. Text in, token ids out, and back.
//
//   conclave::ModelText text(model);
//   std::vector<std::int32_t> prompt = text.prompt("Once upon a time");
//
// Any bytes are text: what is not UTF-8 comes back as it was. Control tokens that are written out in what a user typed
// stay text.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "conclave/model.h"

namespace conclave {

// A message of a conversation.
struct ChatTurn {
  std::string role;  // "system", "user" or "assistant"
  std::string content;
};

class ModelText {
 public:
  // Throws Error where the file has no vocabulary. What it needs is copied from the model.
  explicit ModelText(const Model& model);

  // The ids of `text` alone. `parse_special`: control tokens that are written out in it become themselves.
  std::vector<std::int32_t> encode(std::string_view text, bool parse_special = false) const;
  // A text for the model to continue: with the begin token, where the model wants one.
  std::vector<std::int32_t> prompt(std::string_view text, bool parse_special = false) const;
  // A conversation for the model to answer, as the file's own template writes it, or as ChatML where it has none. Throws
  // Error where the template is broken, or refuses the conversation.
  std::vector<std::int32_t> chat_prompt(std::span<const ChatTurn> turns) const;
  bool has_chat_template() const;

  // Control tokens are left out. Throws Error for an id that is none.
  std::string decode(std::span<const std::int32_t> ids) const;
  // Ids after which the model has nothing more to say.
  std::vector<std::int32_t> end_ids() const;

  struct Impl;  // the library's own
  const Impl& impl() const { return *impl_; }

  // Text from ids as they come, cut only between characters.
  class Stream {
   public:
    // `continues`: the text goes on after another, as an answer after a prompt does: a space at its start is its own.
    explicit Stream(const ModelText& text, bool continues = true);
    Stream(Stream&&) noexcept;
    Stream& operator=(Stream&&) noexcept;
    ~Stream();
    std::string push(std::int32_t id);  // what is complete now; may be empty
    std::string finish();               // whatever is left

   private:
    struct State;
    std::unique_ptr<State> state_;
  };

 private:
  std::shared_ptr<const Impl> impl_;
};

}  // namespace conclave
