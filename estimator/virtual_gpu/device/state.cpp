// SPDX-License-Identifier: Apache-2.0
// Opening the book, CUDA_VISIBLE_DEVICES, contexts and forks. Part of libgpumem_vgpu.so, preloaded into jobs.

#include "estimator/virtual_gpu/device/state.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "estimator/book/lock.h"
#include "estimator/virtual_gpu/device/visible.h"

namespace gpumem::virtual_gpu {

constinit State state = {};
__thread ThreadState thread_state;

namespace {

void fork_child() {
  book::after_fork(&state.book);
  if (state.initialized) state.in_bad_fork = 1;
  thread_state = ThreadState{};
}

}  // namespace

void Lock::lock() { book::lock_word(&word_); }
void Lock::unlock() { book::unlock_word(&word_); }

bool open_book() {
  const uint32_t phase = __atomic_load_n(&state.phase, __ATOMIC_ACQUIRE);
  if (phase != 0) return phase == 1;
  Locked locked(state.lock);
  if (state.phase != 0) return state.phase == 1;
  const char *path = getenv("GPUMEM_BOOK");
  uint32_t found = 2;
  if (path != nullptr && path[0] == '/' && book::open(&state.book, path, true, nullptr, 0) == book::Status::ok) {
    pthread_atfork(nullptr, nullptr, fork_child);
    const char *clock = getenv("GPUMEM_CLOCK");
    state.lagging = clock != nullptr && strcmp(clock, "lagging") == 0;
    state.visible_count = visible_devices(state.book, getenv("CUDA_VISIBLE_DEVICES"), getenv("CUDA_DEVICE_ORDER"), state.visible);
    found = 1;
  }
  __atomic_store_n(&state.phase, found, __ATOMIC_RELEASE);
  return found == 1;
}

bool ready() { return check_ready() == cuda::kSuccess; }

Error check_ready() {
  if (state.in_bad_fork) return cuda::kNotInitialized;
  if (!open_book() || state.visible_count == 0) return cuda::kNoDevice;
  if (!__atomic_load_n(&state.initialized, __ATOMIC_RELAXED)) __atomic_store_n(&state.initialized, 1, __ATOMIC_RELAXED);
  return cuda::kSuccess;
}

int visible_device_count() { return ready() ? state.visible_count : 0; }

int current_device() { return thread_state.device; }

const book::DeviceDescription *device_description(int device) {
  if (!open_book() || device < 0 || device >= state.visible_count) return nullptr;
  return book::description(state.book, state.visible[device]);
}

Error check_device(int device) {
  const Error error = check_ready();
  if (error != cuda::kSuccess) return error;
  if (device < 0 || device >= state.visible_count) return cuda::kInvalidDevice;
  DeviceState &mine = state.devices[device];
  if (__atomic_load_n(&mine.used, __ATOMIC_ACQUIRE)) return cuda::kSuccess;
  Locked locked(state.lock);
  if (mine.used) return cuda::kSuccess;
  book::Status status = book::attach(&state.book, getenv("GPUMEM_JOB"));
  if (status == book::Status::ok) {
    const int target = book_device(device);
    status = book::charge(&state.book, target, book::description(state.book, target)->context_bytes, book::Charge::context);
  }
  if (status == book::Status::out_of_memory) return cuda::kOutOfMemory;
  if (status != book::Status::ok) return cuda::kOperatingSystem;
  // Not earlier: torch 2.15 calls the driver while it is imported, and the tracer starts after that.
  const char *tracer = getenv("GPUMEM_TRACER");
  __atomic_store_n(&state.contents_followed, tracer != nullptr && tracer[0] != '\0' ? 1u : 0u, __ATOMIC_RELAXED);
  __atomic_store_n(&mine.used, 1, __ATOMIC_RELEASE);
  return cuda::kSuccess;
}

Error check_current() {
  const Error error = check_device(thread_state.device);
  if (error == cuda::kSuccess) thread_state.bound = 1;
  return error;
}

bool use_device(int device) { return check_device(device) == cuda::kSuccess; }

bool charge(int device, uint64_t bytes) {
  return use_device(device) && book::charge(&state.book, book_device(device), bytes, book::Charge::allocation) == book::Status::ok;
}

void discharge(int device, uint64_t bytes) {
  if (device >= 0 && device < state.visible_count)
    book::discharge(&state.book, book_device(device), bytes, book::Charge::allocation);
}

void report_missing(const char *function) {
  if (open_book()) book::note_missing(&state.book, function);
}

uint64_t now_ns() {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000000000u + static_cast<uint64_t>(now.tv_nsec);
}

}  // namespace gpumem::virtual_gpu
