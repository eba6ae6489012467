// SPDX-License-Identifier: Apache-2.0
// CUDA driver: allocation, virtual memory management, copies, pointers. Part of libgpumem_vgpu.so, preloaded into jobs.

#include <string.h>

#include "estimator/virtual_gpu/device/arrays.h"
#include "estimator/virtual_gpu/device/contents.h"
#include "estimator/virtual_gpu/device/ipc.h"
#include "estimator/virtual_gpu/device/physical.h"
#include "estimator/virtual_gpu/device/pools.h"
#include "estimator/virtual_gpu/device/shared.h"
#include "estimator/virtual_gpu/driver/driver.h"

using DevicePointer = uint64_t;

static void *address(DevicePointer pointer) { return reinterpret_cast<void *>(pointer); }

GPUMEM_EXPORT int cuMemAlloc_v2(DevicePointer *pointer, size_t bytes) {
  if (pointer == nullptr || bytes == 0) return cuda::kInvalidValue;
  Error error = check_current();
  void *made = nullptr;
  if (error == cuda::kSuccess) error = allocate_device(thread_state.device, bytes, &made);
  *pointer = reinterpret_cast<DevicePointer>(made);
  return error;
}
GPUMEM_EXPORT int cuMemFree_v2(DevicePointer pointer) {
  const Error error = check_current();
  return error != cuda::kSuccess ? error : free_device(address(pointer));
}
GPUMEM_EXPORT int cuMemAllocPitch_v2(DevicePointer *pointer, size_t *pitch, size_t width, size_t height, unsigned) {
  if (pitch == nullptr || pointer == nullptr) return cuda::kInvalidValue;
  *pitch = (width + 511) / 512 * 512;
  return cuMemAlloc_v2(pointer, *pitch * height);
}
GPUMEM_EXPORT int cuMemAllocManaged(DevicePointer *pointer, size_t bytes, unsigned) {
  if (pointer == nullptr) return cuda::kInvalidValue;
  Error error = check_current();
  void *made = nullptr;
  if (error == cuda::kSuccess) error = allocate_managed(thread_state.device, bytes, &made);
  *pointer = reinterpret_cast<DevicePointer>(made);
  return error;
}
GPUMEM_EXPORT int cuMemHostAlloc(void **pointer, size_t bytes, unsigned flags) {
  if (pointer == nullptr) return cuda::kInvalidValue;
  const Error error = check_current();
  return error != cuda::kSuccess ? error : allocate_pinned(bytes, flags, pointer);
}
GPUMEM_EXPORT int cuMemAllocHost_v2(void **pointer, size_t bytes) { return cuMemHostAlloc(pointer, bytes, 0); }
GPUMEM_EXPORT int cuMemFreeHost(void *pointer) {
  const Error error = check_current();
  return error != cuda::kSuccess ? error : free_pinned(pointer);
}
GPUMEM_EXPORT int cuMemHostRegister_v2(void *pointer, size_t bytes, unsigned flags) {
  const Error error = check_current();
  return error != cuda::kSuccess ? error : register_host(pointer, bytes, flags);
}
GPUMEM_EXPORT int cuMemHostUnregister(void *pointer) {
  const Error error = check_current();
  return error != cuda::kSuccess ? error : unregister_host(pointer);
}
GPUMEM_EXPORT int cuMemHostGetDevicePointer_v2(DevicePointer *pointer, void *host, unsigned) {
  if (pointer == nullptr) return cuda::kInvalidValue;
  *pointer = reinterpret_cast<DevicePointer>(host);
  const RangeKind kind = find_range(host).kind;
  return kind == RangeKind::pinned || kind == RangeKind::registered ? cuda::kSuccess : cuda::kInvalidValue;
}
GPUMEM_EXPORT int cuMemHostGetFlags(unsigned *flags, void *host) {
  if (flags == nullptr) return cuda::kInvalidValue;
  const Range range = find_range(host);
  *flags = range.flags;
  return range.kind == RangeKind::pinned || range.kind == RangeKind::registered ? cuda::kSuccess : cuda::kInvalidValue;
}
GPUMEM_EXPORT int cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes) {
  const Error error = check_current();
  return error != cuda::kSuccess ? error : memory_info(thread_state.device, free_bytes, total_bytes);
}
GPUMEM_EXPORT int cuMemGetAddressRange_v2(DevicePointer *base, size_t *size, DevicePointer pointer) {
  Range range = find_range(address(pointer));
  if (range.kind == RangeKind::slab) range = slab_block(range, address(pointer));
  if (!on_device(range.kind)) return cuda::kNotFound;
  if (base != nullptr) *base = range.start;
  if (size != nullptr) *size = range.size;
  return cuda::kSuccess;
}

// --- Virtual memory management ---

GPUMEM_EXPORT int cuMemGetAllocationGranularity(size_t *granularity, const cuda::PhysicalProperties *, int) {
  if (granularity == nullptr) return cuda::kInvalidValue;
  *granularity = kGranularity;
  return check_ready();
}
GPUMEM_EXPORT int cuMemAddressReserve(DevicePointer *pointer, size_t bytes, size_t alignment, DevicePointer wish, unsigned long long) {
  const Error error = check_ready();
  return error != cuda::kSuccess ? error : reserve_addresses(pointer, bytes, alignment, wish);
}
GPUMEM_EXPORT int cuMemAddressFree(DevicePointer pointer, size_t bytes) { return free_addresses(pointer, bytes); }
GPUMEM_EXPORT int cuMemCreate(uint64_t *handle, size_t bytes, const cuda::PhysicalProperties *properties, unsigned long long) {
  const Error error = check_ready();
  if (error != cuda::kSuccess) return error;
  if (handle == nullptr || properties == nullptr) return cuda::kInvalidValue;
  Physical *physical = nullptr;
  const Error made = create_physical(&physical, bytes, *properties);
  *handle = reinterpret_cast<uint64_t>(physical);
  return made;
}
GPUMEM_EXPORT int cuMemRelease(uint64_t handle) {
  Physical *physical = find_physical(handle);
  if (physical == nullptr) return cuda::kInvalidValue;
  release_physical(physical);
  return cuda::kSuccess;
}
GPUMEM_EXPORT int cuMemMap(DevicePointer pointer, size_t bytes, size_t offset, uint64_t handle, unsigned long long) {
  return map_physical(pointer, bytes, offset, find_physical(handle));
}
GPUMEM_EXPORT int cuMemUnmap(DevicePointer pointer, size_t bytes) { return unmap_physical(pointer, bytes); }
GPUMEM_EXPORT int cuMemSetAccess(DevicePointer pointer, size_t bytes, const cuda::PhysicalAccess *, size_t) {
  return is_mapped(pointer, bytes) ? cuda::kSuccess : cuda::kInvalidValue;
}
GPUMEM_EXPORT int cuMemGetAccess(unsigned long long *flags, const cuda::MemoryLocation *, DevicePointer pointer) {
  if (flags == nullptr) return cuda::kInvalidValue;
  *flags = is_mapped(pointer, 1) ? 3 : 0;  // read and write
  return cuda::kSuccess;
}
GPUMEM_EXPORT int cuMemRetainAllocationHandle(uint64_t *handle, void *pointer) {
  if (handle == nullptr) return cuda::kInvalidValue;
  const Range range = find_range(pointer);
  if (range.kind != RangeKind::mapped) return cuda::kInvalidValue;
  __atomic_add_fetch(&static_cast<Physical *>(range.owner)->references, 1, __ATOMIC_RELAXED);
  *handle = reinterpret_cast<uint64_t>(range.owner);
  return cuda::kSuccess;
}
GPUMEM_EXPORT int cuMemGetAllocationPropertiesFromHandle(cuda::PhysicalProperties *properties, uint64_t handle) {
  if (properties == nullptr) return cuda::kInvalidValue;
  const Physical *physical = find_physical(handle);
  if (physical == nullptr) return cuda::kInvalidValue;
  *properties = physical->properties;
  return cuda::kSuccess;
}
GPUMEM_EXPORT int cuMemExportToShareableHandle(void *shared, uint64_t handle, int type, unsigned long long) {
  Physical *physical = find_physical(handle);
  if (physical == nullptr || shared == nullptr) return cuda::kInvalidValue;
  constexpr int kFileDescriptor = 1;
  return type == kFileDescriptor ? export_physical(physical, static_cast<int *>(shared)) : cuda::kNotSupported;
}
GPUMEM_EXPORT int cuMemImportFromShareableHandle(uint64_t *handle, void *shared, int type) {
  if (handle == nullptr) return cuda::kInvalidValue;
  const Error error = check_ready();
  if (error != cuda::kSuccess) return error;
  constexpr int kFileDescriptor = 1;
  if (type != kFileDescriptor) return cuda::kNotSupported;
  Physical *physical = nullptr;
  const Error made = import_physical(static_cast<int>(reinterpret_cast<intptr_t>(shared)), &physical);
  *handle = reinterpret_cast<uint64_t>(physical);
  return made;
}

// --- Copies and fills ---

// Which sides must be memory that a device reaches
enum Reach { kAnywhere = 0, kToDevice = 1, kFromDevice = 2, kBoth = 3 };
static int copy(void *destination, const void *source, size_t bytes, Stream stream, Reach reach) {
  Error error = check_stream(stream);
  if (error != cuda::kSuccess) return error;
  if (bytes == 0) return cuda::kSuccess;
  error = check_access(destination, bytes, reach & kToDevice);
  if (error == cuda::kSuccess) error = check_access(source, bytes, reach & kFromDevice);
  if (error != cuda::kSuccess) return error;
  queue_work(stream);
  if (!is_capturing(stream)) copy_contents(destination, source, bytes);
  return cuda::kSuccess;
}

GPUMEM_EXPORT int cuMemcpy(DevicePointer to, DevicePointer from, size_t bytes) { return copy(address(to), address(from), bytes, nullptr, kAnywhere); }
GPUMEM_EXPORT int cuMemcpyAsync(DevicePointer to, DevicePointer from, size_t bytes, Stream s) { return copy(address(to), address(from), bytes, s, kAnywhere); }
GPUMEM_EXPORT int cuMemcpyHtoD_v2(DevicePointer to, const void *from, size_t bytes) { return copy(address(to), from, bytes, nullptr, kToDevice); }
GPUMEM_EXPORT int cuMemcpyHtoDAsync_v2(DevicePointer to, const void *from, size_t bytes, Stream s) { return copy(address(to), from, bytes, s, kToDevice); }
GPUMEM_EXPORT int cuMemcpyDtoH_v2(void *to, DevicePointer from, size_t bytes) { return copy(to, address(from), bytes, nullptr, kFromDevice); }
GPUMEM_EXPORT int cuMemcpyDtoHAsync_v2(void *to, DevicePointer from, size_t bytes, Stream s) { return copy(to, address(from), bytes, s, kFromDevice); }
GPUMEM_EXPORT int cuMemcpyDtoD_v2(DevicePointer to, DevicePointer from, size_t bytes) { return copy(address(to), address(from), bytes, nullptr, kBoth); }
GPUMEM_EXPORT int cuMemcpyDtoDAsync_v2(DevicePointer to, DevicePointer from, size_t bytes, Stream s) { return copy(address(to), address(from), bytes, s, kBoth); }
GPUMEM_EXPORT int cuMemcpyPeer(DevicePointer to, void *, DevicePointer from, void *, size_t bytes) { return copy(address(to), address(from), bytes, nullptr, kBoth); }
GPUMEM_EXPORT int cuMemcpyPeerAsync(DevicePointer to, void *, DevicePointer from, void *, size_t bytes, Stream s) { return copy(address(to), address(from), bytes, s, kBoth); }

// One side of a 2D copy; false when its array is none or its memory null.
static bool box_of(int type, const void *host, DevicePointer device, const void *array, size_t x, size_t y, size_t pitch, size_t width, Box *box) {
  constexpr int kOnHost = 1, kInArray = 3;  // CUmemorytype
  if (type == kInArray) return array_box(find_array(array), {x, y, 0}, false, box);
  char *base = type == kOnHost ? static_cast<char *>(const_cast<void *>(host)) : static_cast<char *>(address(device));
  *box = {base, pitch != 0 ? pitch : x + width, 0, x, y, 0, 0, 0, 0};  // a pitch of 0: rows without gaps
  return base != nullptr;
}
static int copy_2d(const cuda::DriverCopy2D *p, Stream stream) {
  const Error error = check_stream(stream);
  if (error != cuda::kSuccess) return error;
  Box to, from;
  if (p == nullptr || !box_of(p->dstMemoryType, p->dstHost, p->dstDevice, p->dstArray, p->dstXInBytes, p->dstY, p->dstPitch, p->WidthInBytes, &to) ||
      !box_of(p->srcMemoryType, p->srcHost, p->srcDevice, p->srcArray, p->srcXInBytes, p->srcY, p->srcPitch, p->WidthInBytes, &from))
    return cuda::kInvalidValue;
  return copy_box(to, from, p->WidthInBytes, p->Height, 1, stream);
}
GPUMEM_EXPORT int cuMemcpy2D_v2(const cuda::DriverCopy2D *parameters) { return copy_2d(parameters, nullptr); }
GPUMEM_EXPORT int cuMemcpy2DUnaligned_v2(const cuda::DriverCopy2D *parameters) { return copy_2d(parameters, nullptr); }
GPUMEM_EXPORT int cuMemcpy2DAsync_v2(const cuda::DriverCopy2D *parameters, Stream stream) { return copy_2d(parameters, stream); }

DRIVER_ALIAS(cuMemcpy_ptds, cuMemcpy);
DRIVER_ALIAS(cuMemcpyAsync_ptsz, cuMemcpyAsync);
DRIVER_ALIAS(cuMemcpyHtoD_v2_ptds, cuMemcpyHtoD_v2);
DRIVER_ALIAS(cuMemcpyHtoDAsync_v2_ptsz, cuMemcpyHtoDAsync_v2);
DRIVER_ALIAS(cuMemcpyDtoH_v2_ptds, cuMemcpyDtoH_v2);
DRIVER_ALIAS(cuMemcpyDtoHAsync_v2_ptsz, cuMemcpyDtoHAsync_v2);
DRIVER_ALIAS(cuMemcpyDtoD_v2_ptds, cuMemcpyDtoD_v2);
DRIVER_ALIAS(cuMemcpyDtoDAsync_v2_ptsz, cuMemcpyDtoDAsync_v2);

// --- What a pointer is ---

constexpr int kIsShared = -0x6770;  // our own, for the tracer: Note [Shared contents] in device/shared.h
GPUMEM_EXPORT int cuPointerGetAttribute(void *data, int attribute, DevicePointer pointer) {
  const Error error = check_ready();
  if (error != cuda::kSuccess) return error;
  if (data == nullptr) return cuda::kInvalidValue;
  if (attribute == kIsShared) {
    *static_cast<unsigned *>(data) = is_shared(address(pointer)) ? 1 : 0;
    return cuda::kSuccess;
  }
  Range range = find_range(address(pointer));
  if (range.kind == RangeKind::none || range.kind == RangeKind::reservation) return cuda::kInvalidValue;
  if (range.kind == RangeKind::slab) range = slab_block(range, address(pointer));
  const bool host = range.kind == RangeKind::pinned || range.kind == RangeKind::registered || range.kind == RangeKind::host_pool;
  const auto give = [data](const auto &value) { memcpy(data, &value, sizeof(value)); };
  switch (attribute) {
    case 1: give(primary_context(range.device < 0 ? 0 : range.device)); break;       // context
    case 2: give(host ? 1u : 2u); break;                                             // memory type
    case 3: give(pointer); break;                                                    // device pointer
    case 4:                                                                          // host pointer
      if (!host && range.kind != RangeKind::managed) return cuda::kInvalidValue;
      give(pointer);
      break;
    case 6: give(1u); break;                                                         // sync memops
    case 7: give(static_cast<unsigned long long>(range.start)); break;               // buffer id
    case 8: give(range.kind == RangeKind::managed ? 1u : 0u); break;                 // is managed
    case 9: give(static_cast<int>(range.device)); break;                             // device ordinal
    case 10: give(range.kind == RangeKind::device || range.kind == RangeKind::slab ? 1u : 0u); break;  // legacy IPC
    case 11: give(static_cast<DevicePointer>(range.start)); break;                   // range start
    case 12: give(range.size); break;                                                // range size
    case 13: give(1u); break;                                                        // mapped
    case 14: give(0ull); break;                                                      // allowed handle types
    case 15: give(0u); break;                                                        // GPUDirect RDMA
    case 16: give(3u); break;                                                        // access: read and write
    case 17: give(static_cast<void *>(nullptr)); break;                              // pool
    case 18: give(range.size); break;                                                // mapping size
    case 19: give(static_cast<DevicePointer>(range.start)); break;                   // mapping base
    case 20: give(static_cast<unsigned long long>(range.start)); break;              // memory block id
    default: return cuda::kInvalidValue;
  }
  return cuda::kSuccess;
}
// Unlike the single query, this one says "0" for what is not CUDA's.
GPUMEM_EXPORT int cuPointerGetAttributes(unsigned count, const int *attributes, void **data, DevicePointer pointer) {
  if (attributes == nullptr || data == nullptr) return cuda::kInvalidValue;
  const RangeKind kind = find_range(address(pointer)).kind;
  for (unsigned a = 0; a < count; ++a) {
    if (data[a] == nullptr) return cuda::kInvalidValue;
    if (kind == RangeKind::none || kind == RangeKind::reservation) {
      memset(data[a], 0, attributes[a] == 2 || attributes[a] == 8 || attributes[a] == 9 ? 4 : 8);
      if (attributes[a] == 9) memset(data[a], 0xff, 4);
      continue;
    }
    const int error = cuPointerGetAttribute(data[a], attributes[a], pointer);
    if (error != cuda::kSuccess && attributes[a] != 4) return error;
  }
  return check_ready();
}
GPUMEM_EXPORT int cuPointerSetAttribute(const void *value, int, DevicePointer pointer) {
  return value == nullptr || find_range(address(pointer)).kind == RangeKind::none ? cuda::kInvalidValue : check_ready();
}
// Hints change nothing here (Note [Managed memory] in device/memory.h).
static int hint(DevicePointer pointer, size_t bytes, Error error) { return error != cuda::kSuccess ? error : check_access(address(pointer), bytes, false); }
GPUMEM_EXPORT int cuMemAdvise(DevicePointer pointer, size_t bytes, int, int) { return hint(pointer, bytes, check_current()); }
GPUMEM_EXPORT int cuMemAdvise_v2(DevicePointer pointer, size_t bytes, int, cuda::MemoryLocation) { return hint(pointer, bytes, check_current()); }
GPUMEM_EXPORT int cuMemPrefetchAsync(DevicePointer pointer, size_t bytes, int, Stream stream) { return hint(pointer, bytes, check_stream(stream)); }
DRIVER_ALIAS(cuMemPrefetchAsync_ptsz, cuMemPrefetchAsync);
GPUMEM_EXPORT int cuMemPrefetchAsync_v2(DevicePointer pointer, size_t bytes, cuda::MemoryLocation, unsigned, Stream stream) {
  return hint(pointer, bytes, check_stream(stream));
}
DRIVER_ALIAS(cuMemPrefetchAsync_v2_ptsz, cuMemPrefetchAsync_v2);

// --- Stream-ordered allocation and IPC ---

GPUMEM_EXPORT int cuMemAllocFromPoolAsync(DevicePointer *pointer, size_t bytes, void *handle, Stream stream) {
  if (pointer == nullptr) return cuda::kInvalidValue;
  const Error error = check_stream(stream);
  if (error != cuda::kSuccess) return error;
  Pool *pool = find_pool(handle);
  void *made = nullptr;
  const Error result = pool == nullptr ? cuda::kInvalidValue : allocate_in_pool(pool, bytes, &made);
  *pointer = reinterpret_cast<DevicePointer>(made);
  return result;
}
DRIVER_ALIAS(cuMemAllocFromPoolAsync_ptsz, cuMemAllocFromPoolAsync);
GPUMEM_EXPORT int cuMemAllocAsync(DevicePointer *pointer, size_t bytes, Stream stream) {
  const Error error = check_stream(stream);
  return error != cuda::kSuccess ? static_cast<int>(error) : cuMemAllocFromPoolAsync(pointer, bytes, current_pool(thread_state.device), stream);
}
DRIVER_ALIAS(cuMemAllocAsync_ptsz, cuMemAllocAsync);
GPUMEM_EXPORT int cuMemFreeAsync(DevicePointer pointer, Stream stream) {
  const Error error = check_stream(stream);
  return error != cuda::kSuccess ? error : free_queued(address(pointer));
}
DRIVER_ALIAS(cuMemFreeAsync_ptsz, cuMemFreeAsync);

static Error give_pool(void **pool, int device, Pool *(*which)(int)) {
  if (pool == nullptr) return cuda::kInvalidValue;
  const Error error = check_ready();
  if (error != cuda::kSuccess) return error;
  if (device < 0 || device >= state.visible_count) return cuda::kInvalidDevice;
  *pool = which(device);
  return *pool != nullptr ? cuda::kSuccess : cuda::kOperatingSystem;
}
GPUMEM_EXPORT int cuDeviceGetDefaultMemPool(void **pool, int device) { return give_pool(pool, device, default_pool); }
GPUMEM_EXPORT int cuDeviceGetMemPool(void **pool, int device) { return give_pool(pool, device, current_pool); }
GPUMEM_EXPORT int cuDeviceSetMemPool(int device, void *handle) {
  Pool *pool = find_pool(handle);
  return pool == nullptr || device < 0 || device >= state.visible_count ? cuda::kInvalidValue : set_current_pool(device, pool);
}
GPUMEM_EXPORT int cuMemPoolCreate(void **pool, const cuda::MemoryPoolProperties *properties) {
  const Error error = check_ready();
  if (error != cuda::kSuccess) return error;
  return pool == nullptr || properties == nullptr ? cuda::kInvalidValue : create_pool_at(*properties, pool);
}
GPUMEM_EXPORT int cuMemPoolDestroy(void *handle) {
  Pool *pool = find_pool(handle);
  return pool == nullptr ? cuda::kInvalidValue : destroy_pool(pool);
}
GPUMEM_EXPORT int cuMemPoolGetAttribute(void *handle, int attribute, void *value) {
  if (value == nullptr) return cuda::kInvalidValue;
  Pool *pool = find_pool(handle);
  return pool == nullptr ? cuda::kInvalidValue : get_pool_attribute(pool, attribute, value);
}
GPUMEM_EXPORT int cuMemPoolSetAttribute(void *handle, int attribute, void *value) {
  if (value == nullptr) return cuda::kInvalidValue;
  Pool *pool = find_pool(handle);
  return pool == nullptr ? cuda::kInvalidValue : set_pool_attribute(pool, attribute, value);
}
GPUMEM_EXPORT int cuMemPoolTrimTo(void *handle, size_t keep) {
  Pool *pool = find_pool(handle);
  if (pool == nullptr) return cuda::kInvalidValue;
  trim_pool(pool, keep);
  return cuda::kSuccess;
}
GPUMEM_EXPORT int cuMemPoolSetAccess(void *handle, const void *, size_t) { return find_pool(handle) == nullptr ? cuda::kInvalidValue : cuda::kSuccess; }
GPUMEM_EXPORT int cuMemPoolGetAccess(int *flags, void *handle, const void *) {
  if (flags == nullptr) return cuda::kInvalidValue;
  *flags = 3;
  return find_pool(handle) == nullptr ? cuda::kInvalidValue : cuda::kSuccess;
}

GPUMEM_EXPORT int cuIpcGetMemHandle(cuda::IpcHandle *handle, DevicePointer pointer) { return export_memory(handle, address(pointer)); }
GPUMEM_EXPORT int cuIpcOpenMemHandle_v2(DevicePointer *pointer, cuda::IpcHandle handle, unsigned) {
  if (pointer == nullptr) return cuda::kInvalidValue;
  Error error = check_current();
  void *made = nullptr;
  if (error == cuda::kSuccess) error = import_memory(handle, &made);
  *pointer = reinterpret_cast<DevicePointer>(made);
  return error;
}
GPUMEM_EXPORT int cuIpcCloseMemHandle(DevicePointer pointer) { return close_imported(address(pointer)); }
GPUMEM_EXPORT int cuIpcGetEventHandle(cuda::IpcHandle *handle, void *event) {
  if (handle == nullptr) return cuda::kInvalidValue;
  return export_event(handle, event);
}
GPUMEM_EXPORT int cuIpcOpenEventHandle(void **event, cuda::IpcHandle handle) {
  if (event == nullptr) return cuda::kInvalidValue;
  return import_event(handle, event);
}
