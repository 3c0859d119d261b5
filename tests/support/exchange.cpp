#include "support/exchange.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/fail.h"

extern "C" {
extern const char conclave_goldens_begin[];
extern const char conclave_goldens_end[];
}

namespace conclave::test {
namespace {

using Json = nlohmann::ordered_json;

std::string_view role_name(Role role) {
  switch (role) {
    case Role::in:
      return "in";
    case Role::weight:
      return "weight";
    case Role::out:
      return "out";
    case Role::inout:
      return "inout";
    case Role::scratch:
      return "scratch";
    case Role::host_in:
      return "host_in";
    case Role::host_out:
      return "host_out";
  }
  return "?";
}

std::string_view encoding_of(DType type) {
  return type == DType::i32 ? "i32" : type == DType::u32 ? "u32" : "f32";
}

struct Exporter {
  Json params = Json::object();
  Json tensors = Json::array();
  std::string payload;

  void tensor(Role role, std::string_view name, const Tensor& t) {
    if (!t.defined()) return;
    const std::vector<std::uint32_t> bits = dense_bits(t);
    tensors.push_back({{"name", name},
                       {"role", role_name(role)},
                       {"dtype", dtype_info(t.dtype).name},
                       {"encoding", encoding_of(t.dtype)},
                       {"dims", std::vector<std::int64_t>(t.shape().begin(), t.shape().end())},
                       {"offset", payload.size()},
                       {"bytes", bits.size() * 4}});
    payload.append(reinterpret_cast<const char*>(bits.data()), bits.size() * 4);
  }
  template <class Value>
  void param(std::string_view name, const Value& value) {
    if (name == "phase") return;  // the right answer is the same in every phase
    params[std::string(name)] = value;
  }
};

struct Record {
  Json header;
  std::string payload;
};

Record record_of(const Case& test_case) {
  Exporter exporter;
  std::visit([&](const auto& op) { std::remove_cvref_t<decltype(op)>::members(op, exporter); }, test_case.op);
  Json header = {{"op", op_name(test_case.op)}, {"case", test_case.name}};
  const std::uint64_t print = fnv1a(exporter.payload, fnv1a(exporter.params.dump() + exporter.tensors.dump()));
  header["inputs"] = fmt::format("{:016x}", print);
  header["params"] = std::move(exporter.params);
  header["tensors"] = std::move(exporter.tensors);
  header["payload_bytes"] = exporter.payload.size();
  return {std::move(header), std::move(exporter.payload)};
}

Answer::Output parse_output(const Json& header, std::string_view payload) {
  Answer::Output output{.count = header.at("count").get<std::uint64_t>(),
                        .stride = header.at("stride").get<std::uint64_t>()};
  const auto offset = header.at("offset").get<std::uint64_t>();
  const auto bytes = header.at("bytes").get<std::uint64_t>();
  const std::uint64_t stored =
      output.stride == 0 ? 0 : output.count / output.stride + (output.count % output.stride != 0);
  if (output.stride == 0 || bytes % 4 != 0 || bytes / 4 != stored || offset > payload.size() ||
      bytes > payload.size() - offset) {
    fail(ErrorCode::bad_file, "output {} does not fit its record", header.at("name").get<std::string>());
  }
  output.elements.resize(bytes / 4);
  if (bytes > 0) std::memcpy(output.elements.data(), payload.data() + offset, bytes);
  return output;
}

}  // namespace

std::string export_case(const Case& test_case) {
  const Record record = record_of(test_case);
  return record.header.dump() + "\n" + record.payload;
}

std::string fingerprint(const Case& test_case) {
  return record_of(test_case).header["inputs"].get<std::string>();
}

Answers Answers::parse(std::string_view bytes, std::string_view source) {
  Answers answers;
  try {
    while (!bytes.empty()) {
      const std::size_t line = bytes.find('\n');
      if (line == std::string_view::npos) fail(ErrorCode::bad_file, "the last record has no end of line");
      const Json header = Json::parse(bytes.substr(0, line));
      bytes.remove_prefix(line + 1);
      const auto payload_bytes = header.at("payload_bytes").get<std::uint64_t>();
      if (payload_bytes > bytes.size()) fail(ErrorCode::bad_file, "the last record is cut short");
      const std::string_view payload = bytes.substr(0, payload_bytes);
      bytes.remove_prefix(payload_bytes);
      Answer answer{.inputs = header.at("inputs").get<std::string>()};
      for (const Json& output : header.at("outputs")) {
        answer.outputs[output.at("name").get<std::string>()] = parse_output(output, payload);
      }
      answers.answers_[header.at("op").get<std::string>() + "/" + header.at("case").get<std::string>()] =
          std::move(answer);
    }
  } catch (const nlohmann::json::exception& error) {
    fail(ErrorCode::bad_file, "{}: not a file of answers: {}", source, error.what());
  } catch (const Error& error) {
    fail(error.code(), "{}: not a file of answers: {}", source, error.what());
  }
  return answers;
}

Answers Answers::from_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file || !std::filesystem::is_regular_file(path)) fail(ErrorCode::io, "{}: cannot be opened as a file", path);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  if (file.bad()) fail(ErrorCode::io, "{}: cannot be read", path);
  return parse(bytes, path);
}

const Answers& Answers::compiled_in() {
  static const Answers answers =
      parse({conclave_goldens_begin, static_cast<std::size_t>(conclave_goldens_end - conclave_goldens_begin)},
            "compiled-in answers");
  return answers;
}

const Answer* Answers::find(std::string_view op, std::string_view test_case) const {
  const auto found = answers_.find(std::string(op) + "/" + std::string(test_case));
  return found == answers_.end() ? nullptr : &found->second;
}

}  // namespace conclave::test
