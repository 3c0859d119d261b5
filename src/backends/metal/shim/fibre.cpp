#include "backends/metal/shim/fibre.h"

#include <sys/mman.h>

#include "base/fail.h"
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace conclave::metal {
namespace {

// A fibre ends where it stands: what the address sanitizer knows of its frames is about nobody's any more.
void forget_frames([[maybe_unused]] std::byte* stack, [[maybe_unused]] std::size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(stack, bytes);
#endif
}

}  // namespace
}  // namespace conclave::metal

#if defined(__x86_64__)

// Saves the registers that a call keeps, leaves the stack, and takes up another where it left off. (swapcontext does the
// same with two system calls.)
extern "C" void conclave_switch_stack(void** from, void* to);
asm(R"(
.text
.globl conclave_switch_stack
.type conclave_switch_stack, @function
conclave_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size conclave_switch_stack, .-conclave_switch_stack

.globl conclave_start_fibre
.type conclave_start_fibre, @function
conclave_start_fibre:
  movq %rbx, %rdi
  callq *%r12
  ud2
.size conclave_start_fibre, .-conclave_start_fibre
)");
extern "C" void conclave_start_fibre();

namespace conclave::metal {

Fibre::Fibre() = default;
Fibre::~Fibre() = default;
Fibre::Fibre(Fibre&&) noexcept = default;
Fibre& Fibre::operator=(Fibre&&) noexcept = default;

void Fibre::prepare(std::byte* stack, std::size_t bytes, void (*body)(void*), void* argument) {
  forget_frames(stack, bytes);
  auto** top = reinterpret_cast<void**>(stack + bytes);
  top -= 2;  // the stack is aligned to 16 bytes where the body is called
  *--top = reinterpret_cast<void*>(conclave_start_fibre);
  *--top = nullptr;                        // rbp
  *--top = argument;                       // rbx
  *--top = reinterpret_cast<void*>(body);  // r12
  for (int i = 0; i < 3; ++i) *--top = nullptr;
  stack_pointer_ = top;
}

void Fibre::resume(Fibre& from) {
  conclave_switch_stack(&from.stack_pointer_, stack_pointer_);
}

}  // namespace conclave::metal

#else

#include <ucontext.h>

namespace conclave::metal {

struct Fibre::Context {
  ucontext_t saved;
};

Fibre::Fibre() : context_(std::make_unique<Context>()) {}
Fibre::~Fibre() = default;
Fibre::Fibre(Fibre&&) noexcept = default;
Fibre& Fibre::operator=(Fibre&&) noexcept = default;

namespace {
// makecontext hands over ints alone: two halves of each pointer.
void start(unsigned body_high, unsigned body_low, unsigned argument_high, unsigned argument_low) {
  const auto pointer = [](unsigned high, unsigned low) {
    return (static_cast<std::uintptr_t>(high) << 32) | static_cast<std::uintptr_t>(low);
  };
  reinterpret_cast<void (*)(void*)>(pointer(body_high, body_low))(
      reinterpret_cast<void*>(pointer(argument_high, argument_low)));
}
}  // namespace

void Fibre::prepare(std::byte* stack, std::size_t bytes, void (*body)(void*), void* argument) {
  forget_frames(stack, bytes);
  getcontext(&context_->saved);
  context_->saved.uc_stack.ss_sp = stack;
  context_->saved.uc_stack.ss_size = bytes;
  context_->saved.uc_link = nullptr;
  const auto body_bits = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(body));
  const auto argument_bits = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(argument));
  makecontext(&context_->saved, reinterpret_cast<void (*)()>(start), 4, static_cast<unsigned>(body_bits >> 32),
              static_cast<unsigned>(body_bits), static_cast<unsigned>(argument_bits >> 32),
              static_cast<unsigned>(argument_bits));
}

void Fibre::resume(Fibre& from) {
  swapcontext(&from.context_->saved, &context_->saved);
}

}  // namespace conclave::metal

#endif

namespace conclave::metal {

FibreStacks::FibreStacks(std::size_t count) : count_(count) {
  void* made =
      mmap(nullptr, count * kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (made == MAP_FAILED) fail(ErrorCode::out_of_memory, "no memory for the stacks of {} threads", count);
  base_ = static_cast<std::byte*>(made);
}

FibreStacks::~FibreStacks() {
  forget_frames(base_, count_ * kBytes);
  munmap(base_, count_ * kBytes);
}

}  // namespace conclave::metal
