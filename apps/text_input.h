// Text from outside: whole, byte by byte, at most as long as a tokenizer takes.
#pragma once

#include <string>

namespace conclave {

std::string read_stdin();
std::string read_text_file(const std::string& path);

// A last line break is the file's, not the text's: `echo TEXT |` gives TEXT.
void drop_last_line_break(std::string& text);

}  // namespace conclave
