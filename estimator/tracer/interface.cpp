// SPDX-License-Identifier: Apache-2.0
// What the shim calls, by ctypes. Nothing throws out of here.
//
//   gpumem_tracer_start()                  once a process, before any thread is followed; 1: not what Python's handlers compute, else 0
//   gpumem_tracer_follow()                 follows the calling thread (and the autograd threads that work for it)
//   gpumem_tracer_module(n)                the calling thread runs the forward of module n now; returns the number before
//   gpumem_tracer_key()                    the number of the dispatch key in use
//   gpumem_tracer_record(dir, why, n)      writes allocator events to the record; 0 on success, else why
//   gpumem_tracer_mark_step(k)             an optimizer step, among the events
//   gpumem_tracer_mark_batch(k)            a DataLoader hands out a batch, among the events
//   gpumem_tracer_guesses(text, n)         JSON array of what was guessed; returns the bytes it needs, with its final zero
//   gpumem_tracer_compute(address)         the CPU storage at that address is about to be read by other means than operators
//   gpumem_tracer_lazy()                   1 where any CPU tensor was ever put off
//   gpumem_tracer_write(file, bytes, n)    writes memory to a file; what nobody has touched becomes holes. 0, or an error number
//   gpumem_tracer_mapped(address, n, file) a file is mapped privately; takes the descriptor
//   gpumem_tracer_counts(run, not_run)     operators that really ran, and that did not

#include "allocator_events.h"
#include "current.h"
#include "dispatch_key.h"
#include "host_memory.h"
#include "lazy_host.h"
#include "lazy_recipes.h"
#include "operators.h"
#include "python_handlers.h"
#include "storage_states.h"
#include "unboxed.h"

#include <c10/core/impl/LocalDispatchKeySet.h>

#include <cerrno>
#include <cstring>

namespace gpumem::tracer {
uint64_t count_run();
uint64_t count_not_run();
void let_views_through();
}  // namespace gpumem::tracer

#define GPUMEM_EXPORT extern "C" __attribute__((visibility("default")))

GPUMEM_EXPORT int gpumem_tracer_start() {
  gpumem::tracer::survive_fork();
  gpumem::tracer::let_views_through();
  gpumem::tracer::enter_unboxed();
  return gpumem::tracer::follow_python_handlers() ? 0 : 1;
}

GPUMEM_EXPORT void gpumem_tracer_follow() {
  gpumem::tracer::current.python = true;
  c10::impl::tls_set_dispatch_key_included(gpumem::tracer::kFollowKey, true);
}

GPUMEM_EXPORT unsigned gpumem_tracer_module(unsigned number) {
  const unsigned before = gpumem::tracer::current.module;
  gpumem::tracer::current.module = static_cast<uint16_t>(number);
  return before;
}

GPUMEM_EXPORT int gpumem_tracer_key() { return static_cast<int>(gpumem::tracer::kFollowKey); }

GPUMEM_EXPORT int gpumem_tracer_record(const char* directory, char* why, size_t size) {
  std::string reason;
  if (gpumem::tracer::record_allocator_events(directory, reason)) return 0;
  if (size) {
    std::strncpy(why, reason.c_str(), size - 1);
    why[size - 1] = 0;
  }
  return 1;
}

// Follows again too: a fake tensor mode in C++ (2.15) leaves the key switched off.
GPUMEM_EXPORT void gpumem_tracer_mark_step(uint64_t step) {
  gpumem_tracer_follow();
  gpumem::tracer::mark_step(step);
}

GPUMEM_EXPORT void gpumem_tracer_mark_batch(uint64_t number) { gpumem::tracer::mark_batch(number); }

GPUMEM_EXPORT void gpumem_tracer_write_events() { gpumem::tracer::write_events_out(); }

GPUMEM_EXPORT size_t gpumem_tracer_guesses(char* text, size_t size) {
  std::string guesses = gpumem::tracer::guesses_as_json();
  if (guesses.size() < size) std::memcpy(text, guesses.c_str(), guesses.size() + 1);
  return guesses.size() + 1;
}

GPUMEM_EXPORT void gpumem_tracer_counts(uint64_t* run, uint64_t* not_run) {
  *run = gpumem::tracer::count_run();
  *not_run = gpumem::tracer::count_not_run();
}

// What is known of a storage (its StorageImpl), and to say so: for what is computed beside PyTorch's dispatcher (compiled graphs).
GPUMEM_EXPORT int gpumem_tracer_state(const void* storage) {
  return static_cast<int>(gpumem::tracer::state_of_storage(static_cast<c10::StorageImpl*>(const_cast<void*>(storage))));
}
GPUMEM_EXPORT void gpumem_tracer_set_state(void* storage, int state) {
  gpumem::tracer::set_state_of_storage(static_cast<c10::StorageImpl*>(storage), static_cast<gpumem::tracer::State>(state));
}

// Before something reads a CPU tensor's bytes past the dispatcher: computes them if they were put off.
GPUMEM_EXPORT void gpumem_tracer_compute(const void* storage_address) { gpumem::tracer::compute_lazy_at(storage_address); }
GPUMEM_EXPORT int gpumem_tracer_lazy() { return gpumem::tracer::any_recipes(); }

GPUMEM_EXPORT void gpumem_tracer_mapped(const void* address, size_t size, int file) { gpumem::tracer::note_mapping(address, size, file); }

GPUMEM_EXPORT int gpumem_tracer_write(int file, const void* bytes, size_t size) {
  gpumem::tracer::compute_lazy_at(bytes);
  return gpumem::tracer::write_sparse(file, static_cast<const char*>(bytes), size) ? 0 : errno;
}
