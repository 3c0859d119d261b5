// The types of a KV cache by their names, for a command line.
#pragma once

#include <CLI/CLI.hpp>

#include <map>
#include <string>

#include "conclave/session.h"

namespace conclave {

inline CLI::CheckedTransformer kv_type_names() {
  return CLI::CheckedTransformer(std::map<std::string, KvType>{
      {"f32", KvType::f32}, {"f16", KvType::f16}, {"bf16", KvType::bf16}, {"q8_0", KvType::q8_0}});
}

}  // namespace conclave
