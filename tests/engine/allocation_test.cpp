// A step of a size that was there before allocates nothing. This file replaces the global operator new to count.
// (Not inlined: g++ would take malloc and delete for a mismatch.)
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "engine/random_model.h"

namespace {
std::atomic<long> allocations{0};
}

[[gnu::noinline]] void* operator new(std::size_t size) {
  ++allocations;
  if (void* memory = std::malloc(size > 0 ? size : 1)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  ++allocations;
  return std::malloc(size > 0 ? size : 1);
}
[[gnu::noinline]] void* operator new(std::size_t size, std::align_val_t alignment) {
  ++allocations;
  const auto unit = static_cast<std::size_t>(alignment);
  if (void* memory = std::aligned_alloc(unit, (size + unit) / unit * unit)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(std::size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  ++allocations;
  const auto unit = static_cast<std::size_t>(alignment);
  return std::aligned_alloc(unit, (size + unit) / unit * unit);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}

namespace conclave::testing {
namespace {

TEST(Allocation, ThereIsNoneInAStepOfASizeThatWasThereBefore) {
  const RandomModel file("qwen2moe", DType::f32);
  Session session(file.open(), {.context = 400, .max_sequences = 2, .chunk = 64});
  const Tokens prompt = random_tokens(100);
  const Tokens one{3};
  const StepHooks hooks{.logits = [](const LogitRow&) {}, .best = [](const BestRow&) {}};
  const SequenceId a = session.create();
  const auto turn = [&] {
    const SequenceId b = session.fork(a);
    const StepInput inputs[] = {{a, prompt}, {b, one}};
    session.step(inputs, hooks);                     // chunks of 64 and of 37
    session.step(std::span(inputs).last(1), hooks);  // one token
    session.drop(b);
  };
  turn();
  const long before = allocations;
  turn();
  EXPECT_EQ(allocations, before);
  const auto counted = std::make_unique<int>(1);  // the counter does count
  EXPECT_EQ(allocations, before + 1);
}

}  // namespace
}  // namespace conclave::testing
