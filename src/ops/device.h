// Device: memory, and programs made runnable. One backend is one class derived from it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ops/program.h"

namespace conclave {

class Profile;

// The answer of select(): the name of the plan that would run, or why none can.
struct Selection {
  std::string plan;
  std::string refusal;  // empty where there is a plan

  bool supported() const { return refusal.empty(); }
};

struct CompileOptions {
  // Make one graph that is replayed whole. What cannot be part of one (growing scratch, the routing dump) is an error
  // then.
  bool capture = false;
};

// A compiled program. It refers to its device and to the program's tensors: they and their buffers must outlive it.
class Executable {
 public:
  virtual ~Executable() = default;
  // Runs every op once, in order. With a profile, one event per op.
  virtual void run(Profile* profile = nullptr) = 0;
};

// Bytes of a buffer that are asked for now and looked at later, while other programs run. Made once, used again and again;
// its device and the buffer must outlive it.
class Fetch {
 public:
  virtual ~Fetch() = default;
  // The bytes as everything that was run so far leaves them.
  virtual void begin() = 0;
  // Until those of the last begin() are there. They stay until the next one.
  virtual std::span<const std::byte> wait() = 0;
};

class Device {
 public:
  virtual ~Device() = default;
  Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  virtual std::string_view name() const = 0;  // "ref", "cpu", "cuda:0", ...

  virtual std::shared_ptr<Buffer> allocate(std::int64_t bytes) = 0;  // filled with zeros
  virtual void upload(Buffer& to, std::int64_t offset, std::span<const std::byte> bytes) = 0;
  virtual void download(const Buffer& from, std::int64_t offset, std::span<std::byte> bytes) = 0;
  // By default a download when it begins.
  virtual std::unique_ptr<Fetch> fetch(const Buffer& from, std::int64_t offset, std::int64_t bytes);
  // Whether a program may still run when Executable::run() has returned: then the host can prepare the next one.
  virtual bool runs_ahead() const { return false; }
  // Bytes that allocate() could still give, all together; nothing where the device does not know.
  virtual std::optional<std::int64_t> available_bytes() const { return std::nullopt; }
  // Rows of activations that products want at once to be fast: chunks of a prompt, where nobody says how many.
  virtual std::int64_t usual_rows() const { return 512; }
  // Whether this device's ops can use the buffer.
  virtual bool reaches(const Buffer& buffer) const = 0;

  // May repack weights that are used together (gate and up; Q, K and V; a tied embedding and head), once, at load. The
  // tensors that come back are what ops are to be given; what lies behind them is the device's business. By default
  // they are the weights as stored.
  virtual std::vector<Tensor> prepare(std::span<const Tensor> weights) { return {weights.begin(), weights.end()}; }

  // The one decision per op: compile() goes by it, and so does everyone who asks beforehand. It sees shapes and bounds,
  // never contents.
  virtual Selection select(const Op& op) const = 0;

  // Validates every op, then compiles. Throws an Error with the reason where an op is wrong or is refused.
  std::unique_ptr<Executable> compile(const Program& program, CompileOptions options = {});
  // A program of one op, compiled and run.
  void run(const Op& op, Profile* profile = nullptr);

 protected:
  virtual std::unique_ptr<Executable> build(const Program& program, CompileOptions options) = 0;
};

}  // namespace conclave
