// --kv TYPE: the type of a KV cache on the command line.
#pragma once

#include <CLI/CLI.hpp>

#include <map>
#include <string>

#include "conclave/session.h"

namespace conclave {

// `type` must outlive the parsing.
inline CLI::Option* add_kv_option(CLI::App& command, KvType& type, const std::string& usual) {
  static const std::map<std::string, KvType> kTypes{
      {"f32", KvType::f32}, {"f16", KvType::f16}, {"bf16", KvType::bf16}, {"q8_0", KvType::q8_0}};
  return command
      .add_option_function<std::string>(
          "--kv", [&type](const std::string& name) { type = kTypes.at(name); },
          "type of the KV cache: f32, f16, bf16 or q8_0 (" + usual + ")")
      ->check(CLI::Validator(
          [](const std::string& name) {
            return kTypes.contains(name) ? std::string{} : "'" + name + "' is none of f32, f16, bf16, q8_0";
          },
          ""))
      ->type_name("TYPE");
}

}  // namespace conclave
