// SPDX-License-Identifier: Apache-2.0
// What the rooms of the virtual GPU share (device/, runtime/, driver/, nvml/, libraries/): one library, libgpumem_vgpu.so.
// Preloaded into any process, so: libc only, no exceptions, no static constructors or destructors, no heap of libc's.
//
// Threads: everything here may be called from any thread. Fork: a child of a process that had used a device gets
// the API's "initialization error" from every CUDA call, as from the real driver; locks held at the fork are free in it.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "estimator/book/book.h"

// For every function that we answer: C linkage, exported. Everything else in the library is hidden.
#define GPUMEM_EXPORT extern "C" __attribute__((visibility("default")))
// A default that another object of this library may replace by its own definition (tables of missing functions).
#define GPUMEM_EXPORT_WEAK extern "C" __attribute__((visibility("default"), weak))

namespace gpumem::virtual_gpu {

using Stream = void *;  // cudaStream_t and CUstream alike: 0 default, 1 legacy, 2 per thread, else a handle of ours

// --- Devices. Ordinals are the program's (after CUDA_VISIBLE_DEVICES). ---

// Opens the book at the first call; false when there is no virtual GPU (no GPUMEM_BOOK, not openable, or after fork).
bool ready();
int visible_device_count();
// The calling thread's current device (cudaSetDevice or the current context); 0 at first.
int current_device();
// Facts of a device, nullptr when there is no such device. `cudnn_device_json` is in it. Valid for the process's life.
const book::DeviceDescription *device_description(int device);
inline const book::DeviceDescription *current_device_description() { return device_description(current_device()); }
// First real use of a device: charges this process's context once. False: no room for it (out of memory).
bool use_device(int device);

// --- Memory ---

// Device memory charged to the current process, zero-filled, 512-byte aligned; nullptr when out of memory.
// For what NVIDIA's libraries take with cudaMalloc behind the program's back. free_device_memory takes what this gave.
void *allocate_device_memory(int device, size_t bytes);
bool free_device_memory(void *pointer);
// Accounts only, no addresses: memory that a library or NCCL would hold. False: out of memory.
bool charge(int device, uint64_t bytes);
void discharge(int device, uint64_t bytes);
// True if the address lies in device memory of ours; then the device and the bytes from it to the end of its allocation.
bool find_device_memory(const void *pointer, int *device, size_t *bytes_to_end);

// Small host memory for our own bookkeeping: zeroed, 16-byte aligned, from mmap'ed pages, never libc's malloc
// (which a program may replace, and which may be locked at a fork).
void *allocate_zeroed(size_t bytes);
void release_zeroed(void *pointer);

// The copy rules (Note [Contents] in device/contents.h): small ones are done, large ones touch no page, and a copy to
// the host writes all of its destination. For libraries whose functions copy or fill memory.
void copy_contents(void *destination, const void *source, size_t bytes);
void fill_contents(void *destination, int byte, size_t bytes);
// The bytes there are the output of something that was not run: they read as zero from now on.
void forget_contents(void *destination, size_t bytes);

// --- Streams and work ---

// A kernel or library operation was queued on the stream (counts a launch; advances the device's simulated clock).
void count_launch(Stream stream);
// Work on the stream takes this much longer on the device's simulated clock.
void advance_clock(Stream stream, uint64_t nanoseconds);
// The stream is being captured into a graph.
bool is_capturing(Stream stream);

// --- Handles of libraries (cublasHandle_t, …). A handle is never 0 and never an address that a program could use. ---

struct Handle {
  uint32_t kind;       // the library's own tag, checked by find_handle
  int device;          // current device at creation
  Stream stream;       // set by the library's SetStream
  void *data;          // the library's own, from allocate_zeroed
  uint64_t number[6];  // the library's own
};
// A new handle, nullptr only if the host has no memory.
Handle *new_handle(uint32_t kind);
// `pointer` if it is a living handle of that kind, else nullptr. Never dereferences what is not ours.
Handle *find_handle(const void *pointer, uint32_t kind);
void delete_handle(Handle *handle);

// --- Saying what we lack ---

// Records in the book that the program called a function that the virtual GPU does not have. Nothing is printed.
void report_missing(const char *function);

// --- Finding real libraries (cuDNN's planning) ---

// dlopen, dlsym and friends at versions that exist in glibc 2.17.
void *open_library(const char *name, int flags);
void *find_symbol(void *handle, const char *name);
// The function of that name and version behind ours: what we stand in front of in libc.
void *next_function(const char *name, const char *version);
// The file name, without folders, of the library that holds a code address ("?" when unknown).
void library_of(const void *address, char *name, size_t size);

// --- A lock that is free again in a forked child, whatever thread held it. Zero-initialized; not recursive. ---
class Lock {
 public:
  void lock();
  void unlock();

 private:
  uint32_t word_ = 0;
};

class Locked {
 public:
  explicit Locked(Lock &lock) : lock_(lock) { lock_.lock(); }
  ~Locked() { lock_.unlock(); }
  Locked(const Locked &) = delete;
  Locked &operator=(const Locked &) = delete;

 private:
  Lock &lock_;
};

}  // namespace gpumem::virtual_gpu
