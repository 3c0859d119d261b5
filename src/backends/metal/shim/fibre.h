// Fibres: many stacks on one thread of the system, switched by hand. What runs the threads of a threadgroup.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace conclave::metal {

// One stack at rest. The thread that runs fibres has one, too: where it comes back to.
class Fibre {
 public:
  Fibre();
  ~Fibre();
  Fibre(Fibre&&) noexcept;
  Fibre& operator=(Fibre&&) noexcept;

  // Makes it ready to call body(argument) on the stack; body never returns.
  void prepare(std::byte* stack, std::size_t bytes, void (*body)(void*), void* argument);
  // Leaves `from`, which is running, and goes on with this one.
  void resume(Fibre& from);

 private:
#if defined(__x86_64__)
  void* stack_pointer_ = nullptr;
#else
  struct Context;
  std::unique_ptr<Context> context_;
#endif
};

// Address space for stacks, of which only touched pages take memory.
class FibreStacks {
 public:
  static constexpr std::size_t kBytes = std::size_t{64} << 10;  // of one
  explicit FibreStacks(std::size_t count);
  ~FibreStacks();
  FibreStacks(const FibreStacks&) = delete;
  FibreStacks& operator=(const FibreStacks&) = delete;

  std::byte* at(std::size_t i) const { return base_ + i * kBytes; }
  bool holds(std::uintptr_t address) const {
    return address - reinterpret_cast<std::uintptr_t>(base_) < count_ * kBytes;
  }

 private:
  std::byte* base_;
  std::size_t count_;
};

}  // namespace conclave::metal
