// SPDX-License-Identifier: Apache-2.0
// The process's view of its virtual GPUs: the book, which devices are visible, who used what. Part of libgpumem_vgpu.so.
//
// One State a process, all zero until the first CUDA call. Opening happens once, under the lock; afterwards `visible`
// and `visible_count` do not change. Fork: fork_child() runs in the child through an atfork handler that the first
// opening installs. Errors are cuda::Error, the numbers that the runtime and the driver share.
#pragma once

#include "estimator/cuda_interface/types.h"
#include "estimator/virtual_gpu/internal.h"

namespace gpumem::virtual_gpu {

using cuda::Error;

// How much work was queued on a stream, and how much of it the device has done: Note [Lagging device] in streams.h.
struct Progress {
  uint64_t queued, completed;
  uint64_t waits_for;        // the stream (its id; 0: none) whose work up to `waits_until` comes first
  uint64_t waits_until;
};

struct DeviceState {
  uint32_t used;             // its context was charged: device in real use by this process
  uint32_t peers;            // bit n: peer access to device n is enabled
  uint64_t clock_ns;         // simulated time up to which work was queued on the default stream
  Progress progress;         // of the default stream
};

struct State {
  uint32_t phase;            // 0: not looked; 1: book open; 2: no virtual GPU here
  uint32_t initialized;      // CUDA (not only NVML) was used: a forked child may not use it
  uint32_t in_bad_fork;      // this is such a child
  uint32_t contents_followed;  // a tracer tells us what kernels write (see contents.h)
  uint32_t lagging;            // GPUMEM_CLOCK=lagging: Note [Lagging device] in streams.h
  Lock lock;
  book::Book book;
  int visible_count;
  int visible[book::kMaxDevices];  // book's device behind each of the program's ordinals
  DeviceState devices[book::kMaxDevices];
};

struct ThreadState {
  int device;                // the program's ordinal
  int last_error;            // the runtime's sticky-until-read error
  int bound;                 // a context is current in this thread
  int context_depth;         // cuCtxPushCurrent
  signed char context_stack[16];
  int capture_mode;
  uint64_t events_recorded;  // for the tracer: gpumem_events_recorded()
};

extern State state;
extern __thread ThreadState thread_state;

// Opens the book if that was not tried yet, without counting as use of CUDA (for NVML and nvidia-smi).
bool open_book();

// kSuccess, or what every CUDA call answers here: kNoDevice, or kNotInitialized in a bad fork.
Error check_ready();
// check_ready, then the device's existence, then its context (charged at first real use).
Error check_device(int device);
// The same for the calling thread's current device, and marks it bound to the thread.
Error check_current();

inline bool contents_followed() { return __atomic_load_n(&state.contents_followed, __ATOMIC_RELAXED) != 0; }

inline int book_device(int device) { return state.visible[device]; }
// The program's ordinal of a device of the book; -1: it does not see it.
inline int visible_device(int of_book) {
  for (int d = 0; d < state.visible_count; ++d)
    if (state.visible[d] == of_book) return d;
  return -1;
}

// Nanoseconds of the host's monotonic clock, on which the devices' simulated clock runs.
uint64_t now_ns();

}  // namespace gpumem::virtual_gpu
