// Cases and answers as files, so that an implementation that is not ours can be the judge.
//
// Both are a sequence of records: one JSON object on a line of its own, then `payload_bytes` raw bytes, little endian.
//
//   a case     {"op","case","inputs","params":{...},"tensors":[{"name","role","dtype","encoding","dims","offset","bytes"}],
//              "payload_bytes"}: every tensor dense; floats and blocks decoded to f32, integers as i32 or u32; outputs
//              with what they hold before (poison: poison.h). "inputs" is a fingerprint of all that.
//   an answer  {"op","case","inputs","outputs":[{"name","encoding","count","stride","offset","bytes"}],"payload_bytes"}:
//              of each output the elements 0, stride, 2 stride, ...
//
// tools/golden_ops.py reads the first and writes the second. The answers to the listed cases are compiled in.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "support/case.h"

namespace conclave::test {

// The record of a case, ready to be written.
std::string export_case(const Case& test_case);
// Its "inputs".
std::string fingerprint(const Case& test_case);

struct Answer {
  struct Output {
    std::uint64_t count = 0;
    std::uint64_t stride = 1;
    std::vector<std::uint32_t> elements;
  };
  std::string inputs;
  std::map<std::string, Output, std::less<>> outputs;
};

class Answers {
 public:
  // Throws an Error where the bytes are no sequence of answers.
  static Answers parse(std::string_view bytes, std::string_view source);
  static Answers from_file(const std::string& path);
  // The answers to the listed cases.
  static const Answers& compiled_in();

  const Answer* find(std::string_view op, std::string_view test_case) const;
  std::size_t size() const { return answers_.size(); }

 private:
  std::map<std::string, Answer, std::less<>> answers_;  // by "op/case"
};

}  // namespace conclave::test
