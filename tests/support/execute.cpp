#include "support/execute.h"

#include <cstring>

#include "base/fail.h"
#include "ops/host_access.h"
#include "ops/rows.h"

namespace conclave::test {
namespace {

std::span<std::byte> bytes_of(const Buffer& buffer) {
  return {buffer.host(), static_cast<std::size_t>(buffer.bytes())};
}

// Which bytes of `buffer` the op may write.
std::vector<bool> writable_bytes(const Op& op, const Buffer& buffer) {
  std::vector<bool> writable(static_cast<std::size_t>(buffer.bytes()), false);
  for (const Access& access : accesses(op)) {
    if (!writes(access.role) || access.tensor.buffer != &buffer) continue;
    for (std::int64_t r = 0; r < row_count(access.tensor); ++r) {
      const std::int64_t begin = flat_row(access.tensor, r).byte_offset;
      std::fill_n(writable.begin() + begin, row_bytes(access.tensor), true);
    }
  }
  return writable;
}

std::string member_of(const Op& op, const Buffer& buffer) {
  for (const Access& access : accesses(op)) {
    if (access.tensor.buffer == &buffer) return std::string(access.name);
  }
  return "?";
}

std::string forbidden_write(const Case& before, const Case& after) {
  for (std::size_t b = 0; b < before.buffers.size(); ++b) {
    const std::span<std::byte> was = bytes_of(*before.buffers[b]);
    const std::span<std::byte> is = bytes_of(*after.buffers[b]);
    if (std::memcmp(was.data(), is.data(), was.size()) == 0) continue;
    const std::vector<bool> writable = writable_bytes(before.op, *before.buffers[b]);
    for (std::size_t i = 0; i < was.size(); ++i) {
      if (was[i] == is[i] || writable[i]) continue;
      return fmt::format("byte {} of the buffer of {} changed, outside what the op may write", i,
                         member_of(before.op, *before.buffers[b]));
    }
  }
  return {};
}

}  // namespace

Op rebind(Op op, const std::map<const Buffer*, Buffer*>& to) {
  std::visit(
      [&](auto& o) { for_each_tensor(o, [&](Role, std::string_view, Tensor& t) { t.buffer = to.at(t.buffer); }); }, op);
  return op;
}

Case clone(const Case& test_case) {
  Case copy{.name = test_case.name, .op = test_case.op};
  std::map<const Buffer*, Buffer*> to;
  for (const auto& buffer : test_case.buffers) {
    copy.buffers.push_back(HostBuffer::make(buffer->bytes()));
    std::memcpy(copy.buffers.back()->host(), buffer->host(), static_cast<std::size_t>(buffer->bytes()));
    to[buffer.get()] = copy.buffers.back().get();
  }
  copy.op = rebind(test_case.op, to);
  return copy;
}

Outcome execute(const Case& test_case, Device& device, Profile* profile) {
  Outcome outcome{.after = clone(test_case)};
  std::map<const Buffer*, bool> on_host;
  for (const Access& access : accesses(outcome.after.op)) on_host[access.tensor.buffer] = is_host(access.role);

  std::vector<std::shared_ptr<Buffer>> device_buffers;
  std::map<const Buffer*, Buffer*> to;
  for (const auto& buffer : outcome.after.buffers) {
    to[buffer.get()] = buffer.get();
    if (on_host[buffer.get()]) continue;
    device_buffers.push_back(device.allocate(buffer->bytes()));
    to[buffer.get()] = device_buffers.back().get();
    device.upload(*device_buffers.back(), 0, bytes_of(*buffer));
  }
  try {
    device.run(rebind(outcome.after.op, to), profile);
  } catch (const Error& error) {
    outcome.fault = fmt::format("refused: {}", error.what());
    return outcome;
  }
  for (const auto& [host, other] : to) {
    if (host != other) device.download(*other, 0, bytes_of(*host));
  }
  outcome.fault = forbidden_write(test_case, outcome.after);
  for (const Access& access : accesses(outcome.after.op)) {
    if (!writes(access.role) || access.role == Role::scratch) continue;
    outcome.outputs[std::string(access.name)] = dense_bits(access.tensor);
  }
  return outcome;
}

}  // namespace conclave::test
