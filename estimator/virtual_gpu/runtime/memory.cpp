// SPDX-License-Identifier: Apache-2.0
// CUDA runtime: allocation, copies, fills, pointers. Part of libgpumem_vgpu.so, preloaded into jobs.

#include <string.h>

#include "estimator/virtual_gpu/device/arrays.h"
#include "estimator/virtual_gpu/device/contents.h"
#include "estimator/virtual_gpu/device/ipc.h"
#include "estimator/virtual_gpu/device/pools.h"
#include "estimator/virtual_gpu/runtime/runtime.h"

GPUMEM_EXPORT int cudaMalloc(void **pointer, size_t bytes) {
  if (pointer == nullptr) return done(cuda::kInvalidValue);
  const Error error = check_current();
  return done(error != cuda::kSuccess ? error : allocate_device(thread_state.device, bytes, pointer));
}

GPUMEM_EXPORT int cudaFree(void *pointer) {
  const Error error = check_current();
  return done(error != cuda::kSuccess ? error : free_device(pointer));
}

GPUMEM_EXPORT int cudaMallocManaged(void **pointer, size_t bytes, unsigned) {
  if (pointer == nullptr) return done(cuda::kInvalidValue);
  const Error error = check_current();
  return done(error != cuda::kSuccess ? error : allocate_managed(thread_state.device, bytes, pointer));
}

// A pitch of 512 bytes is what current devices give for linear memory [observed on compute capability 7 to 9].
GPUMEM_EXPORT int cudaMallocPitch(void **pointer, size_t *pitch, size_t width, size_t height) {
  if (pointer == nullptr || pitch == nullptr) return done(cuda::kInvalidValue);
  *pitch = (width + 511) / 512 * 512;
  return cudaMalloc(pointer, *pitch * height);
}

GPUMEM_EXPORT int cudaMalloc3D(cuda::PitchedPointer *pointer, cuda::Extent extent) {
  if (pointer == nullptr) return done(cuda::kInvalidValue);
  const size_t pitch = (extent.width + 511) / 512 * 512;
  *pointer = {nullptr, pitch, extent.width, extent.height};
  return cudaMalloc(&pointer->ptr, pitch * extent.height * extent.depth);
}

GPUMEM_EXPORT int cudaHostAlloc(void **pointer, size_t bytes, unsigned flags) {
  if (pointer == nullptr) return done(cuda::kInvalidValue);
  const Error error = check_current();
  return done(error != cuda::kSuccess ? error : allocate_pinned(bytes, flags, pointer));
}
GPUMEM_EXPORT int cudaMallocHost(void **pointer, size_t bytes) { return cudaHostAlloc(pointer, bytes, 0); }

GPUMEM_EXPORT int cudaFreeHost(void *pointer) {
  const Error error = check_current();
  return done(error != cuda::kSuccess ? error : free_pinned(pointer));
}

GPUMEM_EXPORT int cudaHostRegister(void *pointer, size_t bytes, unsigned flags) {
  const Error error = check_current();
  return done(error != cuda::kSuccess ? error : register_host(pointer, bytes, flags));
}

GPUMEM_EXPORT int cudaHostUnregister(void *pointer) {
  const Error error = check_current();
  return done(error != cuda::kSuccess ? error : unregister_host(pointer));
}

static bool is_host_range(const void *pointer) {
  const RangeKind kind = find_range(pointer).kind;
  return kind == RangeKind::pinned || kind == RangeKind::registered;
}

GPUMEM_EXPORT int cudaHostGetDevicePointer(void **device, void *host, unsigned) {
  if (device == nullptr) return done(cuda::kInvalidValue);
  const Error error = check_current();
  if (error != cuda::kSuccess) return done(error);
  if (!is_host_range(host)) return done(cuda::kInvalidValue);
  *device = host;
  return cuda::kSuccess;
}

GPUMEM_EXPORT int cudaHostGetFlags(unsigned *flags, void *host) {
  if (flags == nullptr) return done(cuda::kInvalidValue);
  const Error error = check_current();
  if (error != cuda::kSuccess) return done(error);
  if (!is_host_range(host)) return done(cuda::kInvalidValue);
  *flags = find_range(host).flags;
  return cuda::kSuccess;
}

GPUMEM_EXPORT int cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes) {
  const Error error = check_current();
  return done(error != cuda::kSuccess ? error : memory_info(thread_state.device, free_bytes, total_bytes));
}

// --- Copies and fills ---

static int copy(void *destination, const void *source, size_t bytes, int kind, Stream stream) {
  if (bytes == 0) return done(check_ready());
  const Error error = check_stream(stream);
  if (error != cuda::kSuccess) return done(error);
  if (kind < cuda::kHostToHost || kind > cuda::kDefaultKind) return done(cuda::kInvalidMemcpyDirection);
  Error access = check_access(destination, bytes, kind == cuda::kHostToDevice || kind == cuda::kDeviceToDevice);
  if (access == cuda::kSuccess) access = check_access(source, bytes, kind == cuda::kDeviceToHost || kind == cuda::kDeviceToDevice);
  if (access != cuda::kSuccess) return done(access);
  queue_work(stream);
  if (!is_capturing(stream)) copy_contents(destination, source, bytes);
  return cuda::kSuccess;
}

// Bytes from the first to the last of a box of rows; what overflows is too much for any memory.
static size_t span_of(size_t pitch, size_t width, size_t height) {
  size_t bytes;
  if (__builtin_mul_overflow(pitch, height - 1, &bytes) || __builtin_add_overflow(bytes, width, &bytes)) return SIZE_MAX;
  return bytes;
}

static int copy_2d(void *destination, size_t destination_pitch, const void *source, size_t source_pitch, size_t width,
                   size_t height, Stream stream) {
  const Error error = check_stream(stream);
  if (error != cuda::kSuccess) return done(error);
  if (width > destination_pitch || width > source_pitch) return done(static_cast<Error>(12));  // cudaErrorInvalidPitchValue
  if (width == 0 || height == 0) return cuda::kSuccess;
  Error access = check_access(destination, span_of(destination_pitch, width, height), false);
  if (access == cuda::kSuccess) access = check_access(source, span_of(source_pitch, width, height), false);
  if (access != cuda::kSuccess) return done(access);
  queue_work(stream);
  if (!is_capturing(stream)) copy_rows(destination, destination_pitch, source, source_pitch, width, height);
  return cuda::kSuccess;
}

GPUMEM_EXPORT int cudaMemcpy(void *destination, const void *source, size_t bytes, int kind) {
  synchronize_stream(nullptr);
  return copy(destination, source, bytes, kind, nullptr);
}
GPUMEM_EXPORT int cudaMemcpyAsync(void *destination, const void *source, size_t bytes, int kind, Stream stream) {
  return copy(destination, source, bytes, kind, stream);
}
GPUMEM_EXPORT int cudaMemcpyPeer(void *destination, int, const void *source, int, size_t bytes) {
  return copy(destination, source, bytes, cuda::kDeviceToDevice, nullptr);
}
GPUMEM_EXPORT int cudaMemcpyPeerAsync(void *destination, int, const void *source, int, size_t bytes, Stream stream) {
  return copy(destination, source, bytes, cuda::kDeviceToDevice, stream);
}
GPUMEM_EXPORT int cudaMemcpy2D(void *destination, size_t destination_pitch, const void *source, size_t source_pitch,
                               size_t width, size_t height, int) {
  return copy_2d(destination, destination_pitch, source, source_pitch, width, height, nullptr);
}
GPUMEM_EXPORT int cudaMemcpy2DAsync(void *destination, size_t destination_pitch, const void *source, size_t source_pitch,
                                    size_t width, size_t height, int, Stream stream) {
  return copy_2d(destination, destination_pitch, source, source_pitch, width, height, stream);
}

// One side of a 3D copy; false when its array is none.
static bool box_of(const void *array, const cuda::PitchedPointer &pointer, const cuda::Position &at, Box *box) {
  if (array != nullptr) return array_box(find_array(array), at, true, box);
  *box = {static_cast<char *>(pointer.ptr), pointer.pitch, pointer.ysize, at.x, at.y, at.z, 0, 0, 0};
  return pointer.ptr != nullptr;
}
static int copy_3d(const cuda::Copy3D *p, Stream stream) {
  const Error error = check_stream(stream);
  if (error != cuda::kSuccess) return done(error);
  Box to, from;
  if (p == nullptr || !box_of(p->dstArray, p->dstPtr, p->dstPos, &to) || !box_of(p->srcArray, p->srcPtr, p->srcPos, &from))
    return done(cuda::kInvalidValue);
  // With an array, the extent counts its elements.
  const size_t element = to.element != 0 ? to.element : from.element != 0 ? from.element : 1;
  return done(copy_box(to, from, p->extent.width * element, p->extent.height, p->extent.depth, stream));
}
GPUMEM_EXPORT int cudaMemcpy3D(const cuda::Copy3D *parameters) { return copy_3d(parameters, nullptr); }
GPUMEM_EXPORT int cudaMemcpy3DAsync(const cuda::Copy3D *parameters, Stream stream) { return copy_3d(parameters, stream); }
static int copy_3d_peer(const cuda::PeerCopy3D *p, Stream stream) {
  if (p == nullptr) return done(cuda::kInvalidValue);
  const cuda::Copy3D within{p->srcArray, p->srcPos, p->srcPtr, p->dstArray, p->dstPos, p->dstPtr, p->extent, 0};
  return copy_3d(&within, stream);
}
GPUMEM_EXPORT int cudaMemcpy3DPeer(const cuda::PeerCopy3D *parameters) { return copy_3d_peer(parameters, nullptr); }
GPUMEM_EXPORT int cudaMemcpy3DPeerAsync(const cuda::PeerCopy3D *parameters, Stream stream) { return copy_3d_peer(parameters, stream); }

static int fill(void *destination, int value, size_t bytes, Stream stream) {
  const Error error = check_stream(stream);
  if (error != cuda::kSuccess) return done(error);
  if (bytes == 0) return cuda::kSuccess;
  const Error access = check_access(destination, bytes, true);
  if (access != cuda::kSuccess) return done(access);
  queue_work(stream);
  if (!is_capturing(stream)) fill_contents(destination, value, bytes);
  return cuda::kSuccess;
}
GPUMEM_EXPORT int cudaMemset(void *destination, int value, size_t bytes) { return fill(destination, value, bytes, nullptr); }
GPUMEM_EXPORT int cudaMemsetAsync(void *destination, int value, size_t bytes, Stream stream) {
  return fill(destination, value, bytes, stream);
}
GPUMEM_EXPORT int cudaMemset2DAsync(void *destination, size_t pitch, int value, size_t width, size_t height, Stream stream) {
  const Error error = check_stream(stream);
  if (error != cuda::kSuccess) return done(error);
  if (width > pitch) return done(static_cast<Error>(12));
  if (width == 0 || height == 0) return cuda::kSuccess;
  const Error access = check_access(destination, span_of(pitch, width, height), true);
  if (access != cuda::kSuccess) return done(access);
  for (size_t row = 0; row < height; ++row) {
    const int filled = fill(static_cast<char *>(destination) + row * pitch, value, width, stream);
    if (filled != cuda::kSuccess) return filled;
  }
  return cuda::kSuccess;
}
GPUMEM_EXPORT int cudaMemset2D(void *destination, size_t pitch, int value, size_t width, size_t height) {
  return cudaMemset2DAsync(destination, pitch, value, width, height, nullptr);
}

// --- What a pointer is ---

static Error pointer_attributes(const void *pointer, int *type, int *device, void **on_device_at, void **on_host_at) {
  const Error error = check_ready();
  if (error != cuda::kSuccess) return error;
  const Range range = find_range(pointer);
  void *address = const_cast<void *>(pointer);
  *device = range.kind == RangeKind::none ? -2 : range.device;  // cudaInvalidDeviceId
  *on_device_at = *on_host_at = nullptr;
  switch (range.kind) {
    case RangeKind::none: case RangeKind::reservation:
      *type = cuda::kUnregistered;
      *device = -2;
      *on_host_at = address;
      break;
    case RangeKind::pinned: case RangeKind::registered: case RangeKind::host_pool:
      *type = cuda::kHost;
      *on_device_at = *on_host_at = address;
      break;
    case RangeKind::managed:
      *type = cuda::kManaged;
      *on_device_at = *on_host_at = address;
      break;
    default:
      *type = cuda::kDevice;
      *on_device_at = address;
  }
  return cuda::kSuccess;
}

// CUDA 13 added reserved words, which its library leaves to the caller; the fields before them did not move.
GPUMEM_EXPORT int cudaPointerGetAttributes(cuda::PointerAttributes *attributes, const void *pointer) {
  if (attributes == nullptr) return done(cuda::kInvalidValue);
  return done(pointer_attributes(pointer, &attributes->type, &attributes->device, &attributes->devicePointer, &attributes->hostPointer));
}

// --- Managed memory: hints change nothing here ---

static int hint(const void *pointer, size_t bytes, Error error) { return done(error != cuda::kSuccess ? error : check_access(pointer, bytes, false)); }
GPUMEM_EXPORT int cudaMemPrefetchAsync_v2(const void *p, size_t bytes, cuda::MemoryLocation, unsigned, Stream stream) { return hint(p, bytes, check_stream(stream)); }
VERSIONED(cudaMemPrefetchAsync, CUDA11) int cudaMemPrefetchAsync_cuda11(const void *p, size_t bytes, int, Stream stream) { return hint(p, bytes, check_stream(stream)); }
VERSIONED(cudaMemPrefetchAsync, CUDA12) int cudaMemPrefetchAsync_cuda12(const void *p, size_t bytes, int, Stream stream) { return hint(p, bytes, check_stream(stream)); }
VERSIONED(cudaMemPrefetchAsync, CUDA13)
int cudaMemPrefetchAsync_cuda13(const void *p, size_t bytes, cuda::MemoryLocation, unsigned, Stream stream) { return hint(p, bytes, check_stream(stream)); }
// The location, an int or a struct of eight bytes, is not looked at.
GPUMEM_EXPORT int cudaMemAdvise(const void *p, size_t bytes, int) { return hint(p, bytes, check_current()); }
GPUMEM_EXPORT int cudaMemAdvise_v2(const void *p, size_t bytes, int) { return hint(p, bytes, check_current()); }

// --- Stream-ordered allocation ---

GPUMEM_EXPORT int cudaMallocFromPoolAsync(void **pointer, size_t bytes, void *handle, Stream stream) {
  if (pointer == nullptr) return done(cuda::kInvalidValue);
  const Error error = check_stream(stream);
  if (error != cuda::kSuccess) return done(error);
  Pool *pool = find_pool(handle);
  return done(pool == nullptr ? cuda::kInvalidValue : allocate_in_pool(pool, bytes, pointer));
}
GPUMEM_EXPORT int cudaMallocAsync(void **pointer, size_t bytes, Stream stream) {
  if (pointer == nullptr) return done(cuda::kInvalidValue);
  const Error error = check_stream(stream);
  if (error != cuda::kSuccess) return done(error);
  Pool *pool = current_pool(thread_state.device);
  return done(pool == nullptr ? cuda::kOperatingSystem : allocate_in_pool(pool, bytes, pointer));
}
GPUMEM_EXPORT int cudaFreeAsync(void *pointer, Stream stream) {
  const Error error = check_stream(stream);
  return done(error != cuda::kSuccess ? error : free_queued(pointer));
}

static int give_pool(void **pool, int device, Pool *(*which)(int)) {
  if (pool == nullptr) return done(cuda::kInvalidValue);
  const Error error = check_ready();
  if (error != cuda::kSuccess) return done(error);
  if (pool == nullptr) return done(cuda::kInvalidValue);
  if (device < 0 || device >= state.visible_count) return done(cuda::kInvalidDevice);
  *pool = which(device);
  return *pool != nullptr ? cuda::kSuccess : done(cuda::kOperatingSystem);
}
GPUMEM_EXPORT int cudaDeviceGetDefaultMemPool(void **pool, int device) { return give_pool(pool, device, default_pool); }
GPUMEM_EXPORT int cudaDeviceGetMemPool(void **pool, int device) { return give_pool(pool, device, current_pool); }
GPUMEM_EXPORT int cudaDeviceSetMemPool(int device, void *handle) {
  Pool *pool = find_pool(handle);
  if (pool == nullptr || device < 0 || device >= state.visible_count) return done(cuda::kInvalidValue);
  return done(set_current_pool(device, pool));
}
GPUMEM_EXPORT int cudaMemPoolCreate(void **pool, const cuda::MemoryPoolProperties *properties) {
  if (pool == nullptr || properties == nullptr) return done(cuda::kInvalidValue);
  const Error error = check_ready();
  if (error != cuda::kSuccess) return done(error);
  return done(create_pool_at(*properties, pool));
}
GPUMEM_EXPORT int cudaMemPoolDestroy(void *handle) {
  Pool *pool = find_pool(handle);
  return done(pool == nullptr ? cuda::kInvalidValue : destroy_pool(pool));
}
GPUMEM_EXPORT int cudaMemPoolGetAttribute(void *handle, int attribute, void *value) {
  Pool *pool = find_pool(handle);
  return done(pool == nullptr || value == nullptr ? cuda::kInvalidValue : get_pool_attribute(pool, attribute, value));
}
GPUMEM_EXPORT int cudaMemPoolSetAttribute(void *handle, int attribute, void *value) {
  Pool *pool = find_pool(handle);
  return done(pool == nullptr || value == nullptr ? cuda::kInvalidValue : set_pool_attribute(pool, attribute, value));
}
GPUMEM_EXPORT int cudaMemPoolTrimTo(void *handle, size_t keep) {
  Pool *pool = find_pool(handle);
  if (pool == nullptr) return done(cuda::kInvalidValue);
  trim_pool(pool, keep);
  return cuda::kSuccess;
}
// All virtual devices reach each other, so access is always there.
GPUMEM_EXPORT int cudaMemPoolSetAccess(void *handle, const void *, size_t) {
  return done(find_pool(handle) == nullptr ? cuda::kInvalidValue : cuda::kSuccess);
}
GPUMEM_EXPORT int cudaMemPoolGetAccess(int *flags, void *handle, const void *) {
  if (flags == nullptr) return done(cuda::kInvalidValue);
  if (find_pool(handle) == nullptr) return done(cuda::kInvalidValue);
  *flags = 3;  // read and write
  return cuda::kSuccess;
}

// --- Sharing with other processes of the job ---

GPUMEM_EXPORT int cudaIpcGetMemHandle(cuda::IpcHandle *handle, void *pointer) {
  const Error error = check_current();
  return done(error != cuda::kSuccess ? error : export_memory(handle, pointer));
}
GPUMEM_EXPORT int cudaIpcOpenMemHandle(void **pointer, cuda::IpcHandle handle, unsigned) {
  const Error error = check_current();
  return done(error != cuda::kSuccess ? error : import_memory(handle, pointer));
}
GPUMEM_EXPORT int cudaIpcCloseMemHandle(void *pointer) {
  const Error error = check_current();
  return done(error != cuda::kSuccess ? error : close_imported(pointer));
}
