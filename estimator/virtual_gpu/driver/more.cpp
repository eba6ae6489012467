// SPDX-License-Identifier: Apache-2.0
// CUDA driver: what newer programs use beside the main calls: flags in memory, loading on demand, occupancy, attributes of streams,
// contexts by name, graphs built by hand. Part of libgpumem_vgpu.so, preloaded into jobs.

#include <string.h>

#include "estimator/virtual_gpu/device/kernels.h"
#include "estimator/virtual_gpu/device/objects.h"
#include "estimator/virtual_gpu/driver/driver.h"

static int give(int error, void *to, const void *value, size_t bytes) {
  if (error != cuda::kSuccess) return error;
  if (to == nullptr) return cuda::kInvalidValue;
  memcpy(to, value, bytes);
  return cuda::kSuccess;
}

// --- Flags in memory: earlier work is done when a write is queued, and what a wait would wait for has happened ---

static int write_flag(Stream stream, uint64_t to, uint64_t value, size_t bytes) {
  Error error = check_stream(stream);
  if (error == cuda::kSuccess) error = to % bytes != 0 ? cuda::kInvalidValue : check_access(reinterpret_cast<void *>(to), bytes, true);
  if (error != cuda::kSuccess) return error;
  queue_work(stream);
  if (is_capturing(stream)) return cuda::kSuccess;
  if (bytes == 4)
    __atomic_store_n(reinterpret_cast<uint32_t *>(to), static_cast<uint32_t>(value), __ATOMIC_SEQ_CST);
  else
    __atomic_store_n(reinterpret_cast<uint64_t *>(to), value, __ATOMIC_SEQ_CST);
  return cuda::kSuccess;
}
static int wait_flag(Stream stream, uint64_t at, size_t bytes) {
  const Error error = check_stream(stream);
  return error != cuda::kSuccess ? error : check_access(reinterpret_cast<void *>(at), bytes, true);
}
GPUMEM_EXPORT int cuStreamWriteValue32_v2(Stream stream, uint64_t to, uint32_t value, unsigned) { return write_flag(stream, to, value, 4); }
DRIVER_ALIAS(cuStreamWriteValue32_v2_ptsz, cuStreamWriteValue32_v2);
GPUMEM_EXPORT int cuStreamWriteValue64_v2(Stream stream, uint64_t to, uint64_t value, unsigned) { return write_flag(stream, to, value, 8); }
DRIVER_ALIAS(cuStreamWriteValue64_v2_ptsz, cuStreamWriteValue64_v2);
GPUMEM_EXPORT int cuStreamWaitValue32_v2(Stream stream, uint64_t at, uint32_t, unsigned) { return wait_flag(stream, at, 4); }
DRIVER_ALIAS(cuStreamWaitValue32_v2_ptsz, cuStreamWaitValue32_v2);
GPUMEM_EXPORT int cuStreamWaitValue64_v2(Stream stream, uint64_t at, uint64_t, unsigned) { return wait_flag(stream, at, 8); }
DRIVER_ALIAS(cuStreamWaitValue64_v2_ptsz, cuStreamWaitValue64_v2);

struct BatchOperation {  // CUstreamBatchMemOpParams, a union of six words
  int operation;
  uint64_t address;
  uint64_t value;
  uint64_t rest[3];
};
static_assert(sizeof(BatchOperation) == 48);
GPUMEM_EXPORT int cuStreamBatchMemOp_v2(Stream stream, unsigned count, const BatchOperation *operations, unsigned) {
  const Error error = check_stream(stream);
  if (error != cuda::kSuccess) return error;
  if (operations == nullptr || count > 256) return cuda::kInvalidValue;
  for (unsigned n = 0; n < count; ++n) {
    const BatchOperation &op = operations[n];
    int result = cuda::kSuccess;
    switch (op.operation) {
      case 1: result = wait_flag(stream, op.address, 4); break;
      case 2: result = write_flag(stream, op.address, static_cast<uint32_t>(op.value), 4); break;
      case 3: case 6: break;  // flush remote writes, barrier
      case 4: result = wait_flag(stream, op.address, 8); break;
      case 5: result = write_flag(stream, op.address, op.value, 8); break;
      default: result = cuda::kInvalidValue;
    }
    if (result != cuda::kSuccess) return result;
  }
  return cuda::kSuccess;
}
DRIVER_ALIAS(cuStreamBatchMemOp_v2_ptsz, cuStreamBatchMemOp_v2);

// --- Streams ---

GPUMEM_EXPORT int cuStreamGetDevice(Stream stream, int *device) {
  const StreamObject *object = find_stream(stream);
  const int value = object != nullptr ? object->device : thread_state.device;
  return give(check_stream(stream), device, &value, sizeof(value));
}
DRIVER_ALIAS(cuStreamGetDevice_ptsz, cuStreamGetDevice);
GPUMEM_EXPORT int cuStreamGetCtx_v2(Stream stream, void **context, void **green) {
  const StreamObject *object = find_stream(stream);
  void *value = primary_context(object != nullptr ? object->device : thread_state.device);
  if (green != nullptr) *green = nullptr;
  return give(check_stream(stream), context, &value, sizeof(value));
}
DRIVER_ALIAS(cuStreamGetCtx_v2_ptsz, cuStreamGetCtx_v2);
GPUMEM_EXPORT int cuStreamGetAttribute(Stream stream, int, void *value) {
  const char zeros[64] = {};  // CUlaunchAttributeValue: nothing is set
  return give(check_stream(stream), value, zeros, sizeof(zeros));
}
DRIVER_ALIAS(cuStreamGetAttribute_ptsz, cuStreamGetAttribute);
GPUMEM_EXPORT int cuStreamSetAttribute(Stream stream, int, const void *value) {
  return value == nullptr ? cuda::kInvalidValue : check_stream(stream);
}
DRIVER_ALIAS(cuStreamSetAttribute_ptsz, cuStreamSetAttribute);
GPUMEM_EXPORT int cuStreamCopyAttributes(Stream to, Stream from) {
  const Error error = check_stream(to);
  return error != cuda::kSuccess ? error : check_stream(from);
}
DRIVER_ALIAS(cuStreamCopyAttributes_ptsz, cuStreamCopyAttributes);
GPUMEM_EXPORT int cuStreamAttachMemAsync(Stream stream, uint64_t pointer, size_t, unsigned) {
  const Error error = check_stream(stream);
  if (error != cuda::kSuccess) return error;
  return find_range(reinterpret_cast<void *>(pointer)).kind == RangeKind::managed ? cuda::kSuccess : cuda::kInvalidValue;
}
DRIVER_ALIAS(cuStreamAttachMemAsync_ptsz, cuStreamAttachMemAsync);

// --- First versions, of a time when sizes had 32 bits: what does not fit is the most that does ---

extern "C" int cuDeviceTotalMem_v2(size_t *, int);
extern "C" int cuMemGetInfo_v2(size_t *, size_t *);
static unsigned as_word(size_t bytes) { return bytes > 0xffffffff ? 0xffffffff : static_cast<unsigned>(bytes); }
GPUMEM_EXPORT int cuDeviceTotalMem(unsigned *bytes, int device) {
  size_t all = 0;
  const int error = cuDeviceTotalMem_v2(&all, device);
  const unsigned word = as_word(all);
  return give(error, bytes, &word, sizeof(word));
}
GPUMEM_EXPORT int cuMemGetInfo(unsigned *free_bytes, unsigned *total_bytes) {
  if (free_bytes == nullptr || total_bytes == nullptr) return cuda::kInvalidValue;
  size_t free_size = 0, total_size = 0;
  const int error = cuMemGetInfo_v2(&free_size, &total_size);
  if (error != cuda::kSuccess) return error;
  *free_bytes = as_word(free_size);
  *total_bytes = as_word(total_size);
  return cuda::kSuccess;
}

// --- Contexts ---

GPUMEM_EXPORT int cuCtxGetId(void *context, unsigned long long *id) {
  const int device = context == nullptr ? thread_state.device : context_device(context);
  if (device < 0) return cuda::kInvalidContext;
  const unsigned long long value = static_cast<unsigned long long>(device) + 1;
  return give(check_ready(), id, &value, sizeof(value));
}
GPUMEM_EXPORT int cuCtxGetDevice_v2(int *device, void *context) {
  const int value = context == nullptr ? thread_state.device : context_device(context);
  if (value < 0) return cuda::kInvalidContext;
  return give(check_ready(), device, &value, sizeof(value));
}
extern "C" int cuCtxSynchronize();
GPUMEM_EXPORT int cuCtxSynchronize_v2(void *context) {
  return context != nullptr && context_device(context) < 0 ? static_cast<int>(cuda::kInvalidContext) : cuCtxSynchronize();
}
// Everything queued in a context before or after: the default stream's work is no different here.
GPUMEM_EXPORT int cuCtxRecordEvent(void *context, void *event) { return context_device(context) < 0 ? cuda::kInvalidContext : record_event(event, nullptr); }
GPUMEM_EXPORT int cuCtxWaitEvent(void *context, void *event) { return context_device(context) < 0 ? cuda::kInvalidContext : wait_event(nullptr, event); }
GPUMEM_EXPORT int cuCtxGetSharedMemConfig(int *config) {
  const int four_byte_banks = 1;  // the only ones since compute capability 5.0
  return give(check_current(), config, &four_byte_banks, sizeof(four_byte_banks));
}
GPUMEM_EXPORT int cuCtxSetSharedMemConfig(int config) { return config < 0 || config > 2 ? cuda::kInvalidValue : check_current(); }
GPUMEM_EXPORT int cuCtxSetFlags(unsigned) { return check_current(); }
GPUMEM_EXPORT int cuCtxResetPersistingL2Cache() { return check_current(); }
GPUMEM_EXPORT int cuCtxGetExecAffinity(void *affinity, int type) {
  const struct {
    int type;
    unsigned sms;
  } value = {type, device_description(0) != nullptr ? current_device_description()->sm_count : 0};
  return type != 0 ? cuda::kInvalidValue : give(check_current(), affinity, &value, sizeof(value));
}
GPUMEM_EXPORT int cuDeviceGetExecAffinitySupport(int *supported, int, int) {
  const int value = 0;
  return give(check_ready(), supported, &value, sizeof(value));
}
// No process on a virtual GPU speaks to other devices through dma-buf.
GPUMEM_EXPORT int cuMemGetHandleForAddressRange(void *, uint64_t, size_t, int, unsigned long long) { return cuda::kNotSupported; }

// --- Functions ---

GPUMEM_EXPORT int cuFuncLoad(void *function) {
  return find_object(function, kFunctionObject) != nullptr ? check_current() : cuda::kInvalidHandle;
}
GPUMEM_EXPORT int cuFuncIsLoaded(int *state_of, void *function) {
  const int loaded = 1;
  return find_object(function, kFunctionObject) == nullptr ? static_cast<int>(cuda::kInvalidHandle)
                                                           : give(check_ready(), state_of, &loaded, sizeof(loaded));
}
GPUMEM_EXPORT int cuOccupancyAvailableDynamicSMemPerBlock(size_t *bytes, void *, int blocks, int) {
  const Error error = check_current();
  if (error != cuda::kSuccess) return error;
  const book::DeviceDescription *facts = current_device_description();
  size_t share = facts->shared_per_sm / static_cast<unsigned>(blocks > 0 ? blocks : 1);
  if (share > facts->shared_per_block_optin) share = facts->shared_per_block_optin;
  return give(error, bytes, &share, sizeof(share));
}
// The largest block that leaves a multiprocessor the most threads, as the driver's calculator finds it for 32 registers.
static int potential_block(int *grid, int *block, size_t (*shared_of)(int), size_t shared, int limit) {
  const Error error = check_current();
  if (error != cuda::kSuccess) return error;
  if (grid == nullptr || block == nullptr) return cuda::kInvalidValue;
  const book::DeviceDescription *facts = current_device_description();
  const int largest = limit > 0 && limit < static_cast<int>(facts->threads_per_block) ? limit : static_cast<int>(facts->threads_per_block);
  int best_threads = 0;
  *grid = *block = 0;
  for (int size = largest / 32 * 32; size >= 32; size -= 32) {
    const int blocks = blocks_per_sm(*facts, size, shared_of != nullptr ? shared_of(size) : shared);
    if (blocks * size <= best_threads) continue;
    best_threads = blocks * size;
    *block = size;
    *grid = blocks * static_cast<int>(facts->sm_count);
  }
  return cuda::kSuccess;
}
GPUMEM_EXPORT int cuOccupancyMaxPotentialBlockSize(int *grid, int *block, void *, size_t (*shared_of)(int), size_t shared, int limit) {
  return potential_block(grid, block, shared_of, shared, limit);
}
GPUMEM_EXPORT int cuOccupancyMaxPotentialBlockSizeWithFlags(int *grid, int *block, void *, size_t (*shared_of)(int), size_t shared, int limit, unsigned) {
  return potential_block(grid, block, shared_of, shared, limit);
}
GPUMEM_EXPORT int cuOccupancyMaxPotentialClusterSize(int *size, void *, const void *) {
  const int portable = 8;  // the portable maximum [CUDA C++ Programming Guide, Thread Block Clusters]
  return give(check_current(), size, &portable, sizeof(portable));
}

// Tensor maps are 128 opaque bytes that only kernels read.
static int zero_map(void *map) {
  if (map == nullptr) return cuda::kInvalidValue;
  memset(map, 0, 128);
  return cuda::kSuccess;
}
GPUMEM_EXPORT int cuTensorMapEncodeIm2col(void *map) { return zero_map(map); }
GPUMEM_EXPORT int cuTensorMapEncodeIm2colWide(void *map) { return zero_map(map); }
GPUMEM_EXPORT int cuTensorMapReplaceAddress(void *map, void *) { return map == nullptr ? cuda::kInvalidValue : cuda::kSuccess; }

// --- Managed memory and hints ---

// CUmem_range_attribute: no page is read-mostly, preferred, accessed or prefetched.
GPUMEM_EXPORT int cuMemRangeGetAttribute(void *data, size_t bytes, int attribute, uint64_t pointer, size_t count) {
  Error error = check_ready();
  if (error == cuda::kSuccess) error = check_access(reinterpret_cast<void *>(pointer), count, true);
  if (error != cuda::kSuccess) return error;
  if (data == nullptr || bytes < 4 || bytes % 4 != 0 || find_range(reinterpret_cast<void *>(pointer)).kind != RangeKind::managed)
    return cuda::kInvalidValue;
  const int nowhere = -2;  // CU_DEVICE_INVALID
  const int value = attribute >= 2 && attribute <= 4 ? nowhere : 0;
  for (size_t at = 0; at < bytes; at += 4) memcpy(static_cast<char *>(data) + at, &value, 4);
  return cuda::kSuccess;
}
GPUMEM_EXPORT int cuMemRangeGetAttributes(void **data, const size_t *bytes, const int *attributes, size_t many, uint64_t pointer, size_t count) {
  if (data == nullptr || bytes == nullptr || attributes == nullptr) return cuda::kInvalidValue;
  for (size_t n = 0; n < many; ++n) {
    const int error = cuMemRangeGetAttribute(data[n], bytes[n], attributes[n], pointer, count);
    if (error != cuda::kSuccess) return error;
  }
  return cuda::kSuccess;
}
