#include "tokenize.h"

#include <charconv>
#include <cstdio>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/file_text.h"
#include "engine/vocabulary_reader.h"
#include "gguf/file.h"
#include "text_input.h"

namespace conclave {
namespace {

struct TokenizeOptions {
  std::string path;
  bool ids = false;
  bool json = false;
  bool decode = false;
  bool add_special = false;
  bool parse_special = false;
};

std::vector<TokenId> parse_ids(std::string_view text) {
  constexpr std::string_view kBetween = " \t\r\n,[]";
  std::vector<TokenId> ids;
  for (std::size_t at = text.find_first_not_of(kBetween); at != std::string_view::npos;) {
    const std::size_t end = std::min(text.find_first_of(kBetween, at), text.size());
    const std::string_view word = text.substr(at, end - at);
    TokenId id = 0;
    const auto [after, error] = std::from_chars(word.data(), word.data() + word.size(), id);
    if (error != std::errc() || after != word.data() + word.size()) {
      fail(ErrorCode::invalid_argument, "stdin: '{}' is no token id", printable(word));
    }
    ids.push_back(id);
    at = text.find_first_not_of(kBetween, end);
  }
  return ids;
}

std::string listing(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  std::string out;
  for (const TokenId id : ids) {
    const std::string piece = printable(tokenizer.piece(id), std::numeric_limits<std::size_t>::max());
    out += fmt::format("{}\t\"{}\"\n", id, piece);
  }
  return out;
}

std::string json_text(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  using Json = nlohmann::ordered_json;
  Json tokens = Json::array();
  for (const TokenId id : ids) {
    tokens.push_back({{"id", id}, {"piece", tokenizer.piece(id)}, {"control", tokenizer.is_control(id)}});
  }
  return Json{{"tokens", tokens}}.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Tokenizer open_tokenizer(const std::string& path) {
  const gguf::File file = gguf::File::open(path);
  try {
    return read_tokenizer(file);
  } catch (const Error& error) {  // the file's name, which the reader does not know
    throw Error(error.code(), path + ": " + error.what());
  }
}

int tokenize(const TokenizeOptions& options) {
  const Tokenizer tokenizer = open_tokenizer(options.path);
  const std::string input = read_stdin();
  if (options.decode) {
    print(tokenizer.decode(parse_ids(input), {.show_special = options.parse_special}));
    return 0;
  }
  const std::vector<TokenId> ids =
      tokenizer.encode(input, {.add_special = options.add_special, .parse_special = options.parse_special});
  if (options.ids) {
    print(fmt::format("{}\n", fmt::join(ids, " ")));
  } else {
    print(options.json ? json_text(tokenizer, ids) : listing(tokenizer, ids));
  }
  if (const std::size_t lost = tokenizer.uncovered_bytes(input); lost > 0) {
    const std::string line = fmt::format("warning: the vocabulary has no token for {} bytes of the text\n", lost);
    std::fputs(line.c_str(), stderr);
  }
  return 0;
}

}  // namespace

void add_tokenize(CLI::App& app, Command& chosen) {
  CLI::App* command = app.add_subcommand("tokenize", "turn the text on stdin into token ids, or ids into text");
  command->footer(
      "Examples:\n"
      "  printf 'Hello world' | conclave tokenize -m model.gguf             one token a line: id, tab, what it stands "
      "for\n"
      "  printf 'Hello world' | conclave tokenize -m model.gguf --ids       the ids on one line\n"
      "  conclave tokenize -m model.gguf --ids --add-special < prompt.txt   as a model gets it, begin token and all\n"
      "  echo '9707 1879' | conclave tokenize -m model.gguf --decode        back to text\n\n"
      "Text is taken as it is, byte by byte: a newline at its end is part of it. Control tokens that are written out "
      "in\n"
      "the text, such as <|im_end|>, stay text unless --parse-special says otherwise. The file may hold a vocabulary\n"
      "alone. A file without one gives one line on stderr and exit code 1.");
  const auto options = std::make_shared<TokenizeOptions>();
  command->add_option("-m,--model", options->path, "a GGUF file; of a split model, any part")
      ->required()
      ->type_name("FILE");
  CLI::Option* ids = command->add_flag("--ids", options->ids, "print the ids alone, on one line");
  CLI::Option* json = command->add_flag("--json", options->json, "print one JSON object");
  CLI::Option* decode = command->add_flag("--decode", options->decode, "read ids, write the bytes they stand for");
  CLI::Option* add =
      command->add_flag("--add-special", options->add_special, "add the begin and end tokens that the model wants");
  command->add_flag("--parse-special", options->parse_special,
                    "take control tokens in the text as such; with --decode, write them out");
  json->excludes(ids);
  decode->excludes(ids);
  decode->excludes(json);
  decode->excludes(add);
  command->callback([options, &chosen] { chosen = [options] { return tokenize(*options); }; });
}

}  // namespace conclave
