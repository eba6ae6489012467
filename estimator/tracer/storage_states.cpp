// SPDX-License-Identifier: Apache-2.0
// The table behind storage_states.h: one entry a small storage, swept when it has doubled.

#include "storage_states.h"

#include "generator_skips.h"
#include "lazy_host.h"
#include "operators.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <mutex>
#include <vector>

namespace gpumem::tracer {
namespace {

using Weak = c10::weak_intrusive_ptr<c10::StorageImpl>;

// Held for a few instructions at a time and seldom by two threads at once, where a mutex would cost more than what it guards.
class BriefLock {
 public:
  void lock() {
    while (held_.test_and_set(std::memory_order_acquire)) sched_yield();
  }
  void unlock() { held_.clear(std::memory_order_release); }

 private:
  std::atomic_flag held_ = ATOMIC_FLAG_INIT;
};

// Open addressing, so that a look-up is mostly one cache line. A dead storage keeps its memory until a sweep (that is what makes its
// address safe to compare), so sweeps come early: memory that is used again soon is still in the cache.
class Table {
 public:
  State find(c10::StorageImpl* storage) {
    std::lock_guard<BriefLock> hold(lock_);
    const Entry& entry = slot_of(entries_, storage);
    // A dead storage's address cannot be reused while the weak reference holds its memory: what is found is this very one.
    return entry.storage && entry.data == storage->data() ? entry.state : State::unknown;
  }

  void put(c10::StorageImpl* storage, State state) {
    std::lock_guard<BriefLock> hold(lock_);
    Entry* entry = &slot_of(entries_, storage);
    if (!entry->storage) {
      if (state == State::unknown) return;
      if (used_ >= sweep_at_) {
        sweep();
        entry = &slot_of(entries_, storage);
      }
      entry->alive = Weak(c10::intrusive_ptr<c10::StorageImpl>::unsafe_reclaim_from_nonowning(storage));
      entry->storage = storage;
      used_++;
    }
    entry->data = storage->data();
    entry->state = state;
  }

  BriefLock& lock() { return lock_; }

 private:
  struct Entry {
    c10::StorageImpl* storage = nullptr;
    const void* data = nullptr;
    Weak alive = Weak(c10::intrusive_ptr<c10::StorageImpl>());
    State state = State::unknown;
  };
  static constexpr size_t kSweepAt = 512;

  static Entry& slot_of(std::vector<Entry>& entries, const c10::StorageImpl* storage) {
    const size_t mask = entries.size() - 1;
    size_t at = (reinterpret_cast<uintptr_t>(storage) * 0x9e3779b97f4a7c15u) >> 32 & mask;
    while (entries[at].storage && entries[at].storage != storage) at = (at + 1) & mask;
    return entries[at];
  }

  void sweep() {
    size_t alive = 0;
    for (const Entry& entry : entries_) alive += entry.storage && !entry.alive.expired();
    sweep_at_ = std::max<size_t>(kSweepAt, 2 * alive);
    size_t capacity = 2 * kSweepAt;
    while (capacity < 2 * sweep_at_) capacity *= 2;
    std::vector<Entry> kept(capacity);
    for (Entry& entry : entries_)
      if (entry.storage && !entry.alive.expired()) slot_of(kept, entry.storage) = std::move(entry);
    entries_.swap(kept);
    used_ = alive;
  }

  BriefLock lock_;
  size_t used_ = 0, sweep_at_ = kSweepAt;  // sweep_at_: at most half of the entries
  std::vector<Entry> entries_ = std::vector<Entry>(2 * kSweepAt);
};

// Never destroyed: autograd's threads outlive static destructors.
Table& device_table() {
  static auto* table = new Table;
  return *table;
}

void unlock_all() {
  generator_skips_mutex().unlock();
  lazy_mutex().unlock();
  device_table().lock().unlock();
  operators_mutex().unlock();
}

}  // namespace

namespace {
// Memory that another process shares with this one (CUDA IPC) has its small bytes: virtual_gpu/device/shared.h. A virtual
// GPU says so to an attribute that CUDA does not have.
bool is_shared(const at::Tensor& t) {
  using Function = int (*)(void*, int, uint64_t);
  static const auto attribute = reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, "cuPointerGetAttribute"));
  constexpr int kIsShared = -0x6770;
  unsigned shared = 0;
  return attribute != nullptr && t.is_cuda() && attribute(&shared, kIsShared, reinterpret_cast<uint64_t>(bytes_of(t))) == 0 && shared != 0;
}
}  // namespace

State state_of(const at::Tensor& t) {
  if (!is_small(t)) return State::unknown;
  const State known = device_table().find(storage_of(t));
  return known == State::unknown && is_shared(t) ? State::exact : known;
}

void set_state(const at::Tensor& t, State state) {
  if (is_small(t)) device_table().put(storage_of(t), state);
}

State state_of_storage(c10::StorageImpl* storage) { return device_table().find(storage); }
void set_state_of_storage(c10::StorageImpl* storage, State state) { device_table().put(storage, state); }

void survive_fork() {
  pthread_atfork(
      [] {
        operators_mutex().lock();
        device_table().lock().lock();
        lazy_mutex().lock();
        generator_skips_mutex().lock();
      },
      unlock_all, unlock_all);
}

}  // namespace gpumem::tracer
