// What files leave unsaid about special tokens, known by the tokens' texts.
#pragma once

#include <vector>

#include "text/vocabulary.h"

namespace conclave {

// Tokens that are written like control tokens but typed otherwise become control tokens, end-of-turn and
// fill-in-the-middle ids that are not set are found, and a few texts get the type that their models mean. Gives the ids
// after which a model has nothing more to say, ascending.
std::vector<TokenId> settle_special_tokens(Vocabulary& vocabulary);

}  // namespace conclave
