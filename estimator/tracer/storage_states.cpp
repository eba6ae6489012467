// SPDX-License-Identifier: Apache-2.0
// The table behind storage_states.h: one entry a small storage, swept when it has doubled.

#include "storage_states.h"

#include "generator_skips.h"
#include "lazy_host.h"
#include "operators.h"

#include <dlfcn.h>
#include <pthread.h>

#include <mutex>
#include <unordered_map>

namespace gpumem::tracer {
namespace {

struct Entry {
  c10::weak_intrusive_ptr<c10::StorageImpl> alive;
  const void* data;
  State state;
};

class Table {
 public:
  State find(c10::StorageImpl* storage) {
    std::lock_guard<std::mutex> hold(mutex_);
    auto it = entries_.find(storage);
    if (it == entries_.end()) return State::unknown;
    // A dead storage's address cannot be reused while the weak reference holds its memory: what is found is this very one.
    return it->second.data == storage->data() ? it->second.state : State::unknown;
  }

  void put(const at::Tensor& t, State state) {
    c10::StorageImpl* storage = storage_of(t);
    std::lock_guard<std::mutex> hold(mutex_);
    auto it = entries_.find(storage);
    if (it != entries_.end()) {
      it->second.data = storage->data();
      it->second.state = state;
      return;
    }
    if (state == State::unknown) return;
    if (entries_.size() >= sweep_at_) sweep();
    entries_.emplace(storage, Entry{t.storage().getWeakStorageImpl(), storage->data(), state});
  }

  std::mutex& mutex() { return mutex_; }

 private:
  void sweep() {
    for (auto it = entries_.begin(); it != entries_.end();) it = it->second.alive.expired() ? entries_.erase(it) : std::next(it);
    sweep_at_ = std::max<size_t>(kSweepAt, 2 * entries_.size());
  }

  static constexpr size_t kSweepAt = 4096;
  std::mutex mutex_;
  std::unordered_map<c10::StorageImpl*, Entry> entries_;
  size_t sweep_at_ = kSweepAt;
};

// Never destroyed: autograd's threads outlive static destructors.
Table& device_table() {
  static auto* table = new Table;
  return *table;
}

void unlock_all() {
  generator_skips_mutex().unlock();
  lazy_mutex().unlock();
  device_table().mutex().unlock();
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
  if (is_small(t)) device_table().put(t, state);
}

void survive_fork() {
  pthread_atfork(
      [] {
        operators_mutex().lock();
        device_table().mutex().lock();
        lazy_mutex().lock();
        generator_skips_mutex().lock();
      },
      unlock_all, unlock_all);
}

}  // namespace gpumem::tracer
