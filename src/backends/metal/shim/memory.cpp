// What kernels do with memory: every load and store comes here, through clang's callbacks for -fsanitize=thread.
#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "backends/metal/shim/worker.h"
#include "base/fail.h"

namespace conclave::metal {
namespace {

// A write to device memory: dispatch, threadgroup, thread and the epoch of device memory, packed.
constexpr std::uint64_t kDispatchMask = (1U << 22) - 1;
constexpr std::uint64_t kGroupMask = (1U << 18) - 1;
constexpr std::uint64_t kEpochMask = (1U << 14) - 1;
struct Stamp {
  std::uint64_t dispatch;
  std::uint64_t group;
  std::uint64_t thread;
  std::uint64_t epoch;

  std::uint64_t packed() const {
    return ((dispatch & kDispatchMask) << 42) | ((group & kGroupMask) << 24) | (thread << 14) | (epoch & kEpochMask);
  }
  static Stamp of(std::uint64_t bits) {
    return {bits >> 42, (bits >> 24) & kGroupMask, (bits >> 14) & 1023, bits & kEpochMask};
  }
};

std::uint64_t load_stamp(const std::uint64_t& at) {
  return __atomic_load_n(&at, __ATOMIC_RELAXED);
}

}  // namespace

WriteLog::WriteLog(const std::byte* base, std::int64_t bytes)
    : base_(reinterpret_cast<std::uintptr_t>(base) & ~std::uintptr_t{1}),
      bytes_((static_cast<std::size_t>(bytes) / 2 + 2) * sizeof(std::uint64_t)) {
  void* made = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (made == MAP_FAILED) fail(ErrorCode::out_of_memory, "no memory to watch over a buffer of {} bytes", bytes);
  stamps_ = static_cast<std::uint64_t*>(made);
}

WriteLog::~WriteLog() {
  munmap(stamps_, bytes_);
}

// Whether a barrier lies between an earlier touch of this threadgroup and now.
bool Executor::Worker::ordered(const Touch& before) const {
  if (before.epoch != epoch_) return true;
  const std::uint32_t simd = running_ / kSimdWidth;
  return before.by / kSimdWidth == simd && !before.several_simds && before.simd_epoch != simd_epoch_[simd];
}

void Executor::Worker::touch_shared(std::uintptr_t at, std::size_t bytes, bool writes) {
  if (bytes > shared_bytes_ - at) {
    give_up(fmt::format("{} {} bytes at {} of {} bytes of threadgroup memory", writes ? "stores" : "loads", bytes, at,
                        shared_bytes_));
  }
  const auto self = static_cast<std::uint16_t>(running_);
  const Touch now{group_serial_, epoch_, simd_epoch_[running_ / kSimdWidth], self};
  for (std::uintptr_t i = at / 2; i <= (at + bytes - 1) / 2; ++i) {
    Touch& last_write = written_[i];
    if (last_write.group == group_serial_) {
      if (last_write.by != self && !ordered(last_write)) {
        give_up(fmt::format("a race at byte {} of threadgroup memory: thread {} has written it, and no barrier since",
                            2 * i, last_write.by));
      }
    } else if (!writes) {
      give_up(fmt::format("loads byte {} of threadgroup memory, which nobody has written", 2 * i));
    }
    Touch& last_read = read_[i];
    const bool read_now = last_read.group == group_serial_ && last_read.epoch == epoch_;
    if (writes) {
      if (read_now && (last_read.several || last_read.by != self) && !ordered(last_read)) {
        give_up(fmt::format("a race at byte {} of threadgroup memory: thread {} has read it, and no barrier since",
                            2 * i, last_read.by));
      }
      last_write = now;
    } else {
      const bool more = read_now && (last_read.several || last_read.by != self);
      const bool simds = read_now && (last_read.several_simds || last_read.by / kSimdWidth != running_ / kSimdWidth);
      last_read = now;
      last_read.several = more;
      last_read.several_simds = simds;
    }
  }
}

const ExecutorBinding* Executor::Worker::binding_of(std::uintptr_t address, std::size_t bytes) {
  const auto& bindings = state_->call->bindings;
  for (int tried = 0; tried < kMaxBuffers; ++tried) {
    const int i = (last_binding_ + tried) % kMaxBuffers;
    const ExecutorBinding& binding = bindings[static_cast<std::size_t>(i)];
    const auto begin = reinterpret_cast<std::uintptr_t>(binding.begin);
    const auto end = reinterpret_cast<std::uintptr_t>(binding.end);
    if (address < begin || address + bytes > end) continue;
    last_binding_ = i;
    return &binding;
  }
  return nullptr;
}

void Executor::Worker::touch_device(std::uintptr_t address, std::size_t bytes, bool writes) {
  const ExecutorDispatch& call = *state_->call;
  const auto args = reinterpret_cast<std::uintptr_t>(call.args);
  if (!writes && address >= args && address + bytes <= args + call.args_bytes) return;
  const ExecutorBinding* binding = binding_of(address, bytes);
  if (binding == nullptr) {
    // The nearest one is most likely the one that was meant.
    std::int64_t nearest = 0;
    int which = -1;
    for (int i = 0; i < kMaxBuffers; ++i) {
      const ExecutorBinding& other = call.bindings[static_cast<std::size_t>(i)];
      if (other.begin == other.end) continue;
      const auto distance = static_cast<std::int64_t>(address - reinterpret_cast<std::uintptr_t>(other.begin));
      if (which < 0 || std::abs(distance) < std::abs(nearest)) {
        nearest = distance;
        which = i;
      }
    }
    give_up(which < 0 ? std::string("touches memory though no buffer is bound")
                      : fmt::format("{} {} bytes outside of every tensor: at byte {} of the {} in buffer {}",
                                    writes ? "stores" : "loads", bytes, nearest,
                                    call.bindings[static_cast<std::size_t>(which)].end -
                                        call.bindings[static_cast<std::size_t>(which)].begin,
                                    which));
  }
  if (writes && binding->log == nullptr) {
    give_up(fmt::format("stores to buffer {}, which is bound to be read", last_binding_));
  }
  if (binding->log == nullptr) return;
  const Stamp now{state_->dispatch, flat_group_, running_, device_epoch_};
  const std::uint64_t packed = now.packed();
  const Stamp masked = Stamp::of(packed);
  const std::uint64_t unordered = state_->first_unordered & kDispatchMask;
  for (std::uintptr_t at = address & ~std::uintptr_t{1}; at < address + bytes; at += 2) {
    std::uint64_t& stamp = binding->log->at(at);
    const std::uint64_t last = load_stamp(stamp);
    if (last != packed && last != 0) {
      const Stamp before = Stamp::of(last);
      if (before.dispatch == masked.dispatch) {
        if (before.group != masked.group) {
          give_up(fmt::format("a race in buffer {}: threadgroup {} has written byte {} in this dispatch", last_binding_,
                              before.group, at - reinterpret_cast<std::uintptr_t>(binding->begin)));
        }
        if (before.thread != masked.thread && before.epoch == masked.epoch) {
          give_up(fmt::format("a race in buffer {}: thread {} has written byte {}, and no barrier since", last_binding_,
                              before.thread, at - reinterpret_cast<std::uintptr_t>(binding->begin)));
        }
      } else if (before.dispatch >= unordered && before.dispatch < masked.dispatch) {
        give_up(fmt::format("buffer {} was written by an earlier dispatch, and no barrier lies between them",
                            last_binding_));
      }
    }
    if (writes) __atomic_store_n(&stamp, packed, __ATOMIC_RELAXED);
  }
}

// Atomics of device memory take part in no race, but a value that another threadgroup stored is there only after fences.
std::uint32_t Executor::Worker::atomic(int what, void* object, std::uint32_t operand, std::uint32_t expected,
                                       bool* swapped, int line) {
  const auto address = reinterpret_cast<std::uintptr_t>(object);
  auto* value = static_cast<std::uint32_t*>(object);
  if (address - shared_begin_ < shared_bytes_) give_up(fmt::format("an atomic in threadgroup memory, line {}", line));
  const ExecutorBinding* binding = binding_of(address, 4);
  if (binding == nullptr || address % 4 != 0) give_up(fmt::format("an atomic outside of every tensor, line {}", line));
  if (binding->log == nullptr) {
    give_up(fmt::format("an atomic of buffer {}, which is bound to be read", last_binding_));
  }
  const Stamp now{state_->dispatch, flat_group_, running_, device_epoch_};
  const Stamp masked = Stamp::of(now.packed());
  std::uint64_t& stamp = binding->log->at(address);
  if (what == 0) {
    const Stamp before = Stamp::of(load_stamp(stamp));
    const auto fenced = [&](std::uint64_t group, int side) {
      return (state_->fences[group % state_->fences.size()].load(std::memory_order_seq_cst) & side) != 0;
    };
    if (before.dispatch == masked.dispatch && before.group != masked.group &&
        !(fenced(before.group, 1) && fenced(masked.group, 2))) {
      give_up(
          fmt::format("loads what threadgroup {} stored, without a fence on both sides, line {}", before.group, line));
    }
    return __atomic_load_n(value, __ATOMIC_RELAXED);
  }
  if (what == 1) {
    __atomic_store_n(value, operand, __ATOMIC_RELAXED);
    __atomic_store_n(&stamp, now.packed(), __ATOMIC_RELAXED);
    unfenced_ = true;
    return 0;
  }
  state_->fences[flat_group_ % state_->fences.size()].store(unfenced_ ? 0 : 1, std::memory_order_seq_cst);
  if (what == 2) return __atomic_fetch_add(value, operand, __ATOMIC_SEQ_CST);
  std::uint32_t seen = __atomic_load_n(value, __ATOMIC_SEQ_CST);
  if (what == 3) {
    while (static_cast<std::int32_t>(seen) < static_cast<std::int32_t>(operand) &&
           !__atomic_compare_exchange_n(value, &seen, operand, true, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
    }
    return seen;
  }
  *swapped = __atomic_compare_exchange_n(value, &expected, operand, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  return expected;
}

}  // namespace conclave::metal

using conclave::metal::Executor;

namespace {

struct Callbacks : Executor {
  static void touch(const void* address, std::size_t bytes, bool writes) {
    if (auto* worker = Worker::current(); worker != nullptr && bytes > 0) {
      worker->touch(reinterpret_cast<std::uintptr_t>(address), bytes, writes);
    }
  }
  static Worker& worker() { return *Worker::current(); }
};

}  // namespace

// NOLINTBEGIN(bugprone-reserved-identifier): the names that clang calls
extern "C" {
#define CONCLAVE_TSAN_ACCESS(bytes)                   \
  void __tsan_read##bytes(void* at) {                 \
    Callbacks::touch(at, bytes, false);               \
  }                                                   \
  void __tsan_write##bytes(void* at) {                \
    Callbacks::touch(at, bytes, true);                \
  }                                                   \
  void __tsan_unaligned_read##bytes(void* at) {       \
    Callbacks::touch(at, bytes, false);               \
  }                                                   \
  void __tsan_unaligned_write##bytes(void* at) {      \
    Callbacks::touch(at, bytes, true);                \
  }                                                   \
  void __tsan_read_write##bytes(void* at) {           \
    Callbacks::touch(at, bytes, true);                \
  }                                                   \
  void __tsan_unaligned_read_write##bytes(void* at) { \
    Callbacks::touch(at, bytes, true);                \
  }
CONCLAVE_TSAN_ACCESS(1)
CONCLAVE_TSAN_ACCESS(2)
CONCLAVE_TSAN_ACCESS(4)
CONCLAVE_TSAN_ACCESS(8)
CONCLAVE_TSAN_ACCESS(16)
#undef CONCLAVE_TSAN_ACCESS
void __tsan_init() {}
void* __tsan_memcpy(void* to, const void* from, std::size_t bytes) {
  Callbacks::touch(from, bytes, false);
  Callbacks::touch(to, bytes, true);
  return std::memcpy(to, from, bytes);
}
void* __tsan_memset(void* to, int value, std::size_t bytes) {
  Callbacks::touch(to, bytes, true);
  return std::memset(to, value, bytes);
}
void* __tsan_memmove(void* to, const void* from, std::size_t bytes) {
  Callbacks::touch(from, bytes, false);
  Callbacks::touch(to, bytes, true);
  return std::memmove(to, from, bytes);
}

// NOLINTEND(bugprone-reserved-identifier)

std::uint32_t conclave_shim_collective(ShimCollective what, std::uint32_t bits, std::uint32_t argument, int line) {
  return Callbacks::worker().collective(what, bits, argument, line);
}
void conclave_shim_multiply(float* d, const float* a, const float* b, const float* c, int line) {
  Callbacks::worker().multiply(d, a, b, c, line);
}
void conclave_shim_barrier(int flags, int line) {
  Callbacks::worker().barrier(flags, line);
}
void conclave_shim_simdgroup_barrier(int flags, int line) {
  Callbacks::worker().simdgroup_barrier(flags, line);
}
void conclave_shim_fence(int) {
  Callbacks::worker().fence();
}
std::uint32_t conclave_shim_atomic(int what, void* object, std::uint32_t operand, std::uint32_t expected, bool* swapped,
                                   int line) {
  return Callbacks::worker().atomic(what, object, operand, expected, swapped, line);
}
}
