// conclave tokenize -m FILE [--ids | --json] [--add-special] [--parse-special] [--decode]: stdin to token ids and back.
//
// Reads all of stdin as bytes: nothing is trimmed, a newline at the end counts.
// Output: one line per token, "id<TAB>piece" with the piece in quotes and whatever is not printable as \xNN.
//   --ids     one line, ids with a space between; an empty line for an empty text
//   --json    one line, an object: tokens [{ id, piece, control }]; bytes that are not UTF-8 are replaced by U+FFFD
//   --decode  the other way: ids on stdin, between them white space, commas or brackets; their bytes on stdout
// Where the vocabulary has no token for some byte, a line on stderr says how many got lost.
#pragma once

#include "cli.h"

namespace conclave {

void add_tokenize(CLI::App& app, Command& chosen);

}  // namespace conclave
