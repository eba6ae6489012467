// SPDX-License-Identifier: Apache-2.0
// The meter: counts what a job's processes take of a device's memory, and refuses what exceeds the job's limit.
// libgpumem_meter.so, preloaded into the processes of a job on the node, in front of the real CUDA or the virtual GPU.
//
// It stands between the program and the next library that has the same function: each intercepted call is passed on
// unchanged, counted before (a charge that the limit refuses never reaches the driver) and corrected after.
// Without GPUMEM_METER_BOOK every call is passed on and nothing else happens. The functions are those of functions.def.
//
// What is counted: memory that the program takes through the runtime's and the driver's allocation functions, as the
// driver holds it (rounded), plus one context for each process and device at its first allocation. A runtime that calls
// the driver inside an intercepted function is counted once (Metered::nested). Memory of others that is imported is its owner's;
// memory of graphs and what a pool keeps beyond its blocks is taken inside the driver and not seen.
//
// Note [Ways to a function]
// A program reaches CUDA by name (preloading answers that), by an entry-point look-up (cuGetProcAddress, cudaGetDriverEntryPoint), or by
// dlsym on the handle of libcuda.so.1: PyTorch up to 2.6 for expandable segments, programs with a runtime of their own (nvcc's
// default), NCCL. All three are ours (lookup.cpp). NVIDIA's mathematical libraries are left alone where they look up functions by handle:
// what they take for themselves is part of the context, as it was measured.
//
// Threads: any. Fork: a child starts with an empty account; its parent's memory stays charged to its parent.
#pragma once

#include <stddef.h>
#include <stdint.h>

#define GPUMEM_EXPORT extern "C" __attribute__((visibility("default")))

namespace gpumem::meter {

// True when this process has a meter book. The first call opens it.
bool active();

// What a request of `bytes` takes on the device. The driver hands out 2 MiB pages; requests below 1 MiB share pages,
// so they are counted as they are, in the 512 bytes that cudaMalloc aligns to (CUDA C++ Programming Guide: 256 at least).
uint64_t held_bytes(uint64_t bytes);

// Before the call: charges context (first time) and bytes. False: the limit has no room, tell the program out of memory.
bool charge(int device, uint64_t held);
// After the call. A failed call gives its charge back; a successful one is remembered under its address or handle.
void remember(uint64_t key, int device, uint64_t held);
void give_back(int device, uint64_t held);
// Before a free: one reference to the address or handle less; without any it is forgotten and its charge given back. Unknown keys
// (taken before us) do nothing.
void forget(uint64_t key);

// Keys of things that are no addresses of memory: handles of physical memory, places where it is mapped, pools.
constexpr uint64_t kHandleKey = 1ull << 63, kMappingKey = 1ull << 62, kPoolKey = kHandleKey | kMappingKey;

// Physical memory is held by its handle, by each further one (cuMemRetainAllocationHandle) and by each mapping. After the calls:
void retain(uint64_t handle);
void mapped(uint64_t address, uint64_t bytes, uint64_t handle);
void unmapped(uint64_t address, uint64_t bytes);

// The device of what is remembered under the key, `otherwise` when nothing is. Pools: what is taken from one made here is its device's;
// kHost for pools of host memory.
int device_of(uint64_t key, int otherwise);
constexpr int kHost = -1, kUnknown = -2;

// The head of cudaMemPoolProps and CUmemPoolProps.
struct PoolProperties {
  int allocation_type, handle_types, location_type, location_id;
};
constexpr int kLocationDevice = 1;  // cudaMemLocationTypeDevice, CU_MEM_LOCATION_TYPE_DEVICE
void remember_pool(const void *pool, const PoolProperties &properties);

// min(what the device says, what the limit leaves): for cudaMemGetInfo and cuMemGetInfo.
void limit_memory_info(int device, size_t *free_bytes, size_t *total_bytes);

// Name of a device of this job's account, as NVML prints it; nullptr when it is none of the account's.
const char *device_name(int device);

// The next library's function of this name, nullptr when there is none. Found once a name; `name` must be a literal.
void *next_function(const char *name);
// Remembers what a look-up returned for a function that we intercept; the first one stays.
void set_next_function(const char *name, void *function);
// dlsym without us in between; RTLD_NEXT: behind the meter.
void *find_in(void *library, const char *name);
// After a successful look-up of the driver's `name` for a CUDA version (cuGetProcAddress): what the program gets is ours, and ours knows
// where to pass on. `per_thread`: the variant for per-thread default streams was asked for.
void take_over(const char *name, int version, bool per_thread, void **function);
// Set while this thread is inside an intercepted call: what the next library calls of ours is then passed on uncounted.
class Metered {
 public:
  Metered() : outermost_(depth_ == 0) { ++depth_; }
  ~Metered() { --depth_; }
  Metered(const Metered &) = delete;
  Metered &operator=(const Metered &) = delete;
  bool nested() const { return !outermost_; }

 private:
  static __thread int depth_ __attribute__((tls_model("initial-exec")));
  bool outermost_;
};

// Codes of the two interfaces (CUDA C API: cudaErrorMemoryAllocation, CUDA_ERROR_OUT_OF_MEMORY, …NotInitialized).
constexpr int kOutOfMemory = 2;
constexpr int kNotInitialized = 3;

// The call as it is, to the next library; "not initialized" where there is none.
template <class... Arguments>
int pass_on(const char *name, Arguments... arguments) {
  auto next = reinterpret_cast<int (*)(Arguments...)>(next_function(name));
  return next == nullptr ? kNotInitialized : next(arguments...);
}

}  // namespace gpumem::meter
