// SPDX-License-Identifier: Apache-2.0
// CUDA runtime: registration of device code, launches that run nothing, attributes, occupancy.
// Part of libgpumem_vgpu.so, preloaded into jobs.

#include <string.h>

#include "estimator/virtual_gpu/device/contents.h"
#include "estimator/virtual_gpu/device/kernels.h"
#include "estimator/virtual_gpu/runtime/runtime.h"

// --- What compilers put into programs. It runs when a library is loaded, so it only takes notes. ---

GPUMEM_EXPORT void **__cudaRegisterFatBinary(void *wrapper) { return register_module(wrapper); }
GPUMEM_EXPORT void __cudaRegisterFatBinaryEnd(void **) {}
GPUMEM_EXPORT void __cudaUnregisterFatBinary(void **module) { unregister_module(module); }
GPUMEM_EXPORT char __cudaInitModule(void **) { return 1; }
GPUMEM_EXPORT void __cudaRegisterFunction(void **module, const char *host, char *, const char *name, int, void *, void *,
                                          void *, void *, int *) {
  register_function(module, host, name);
}
GPUMEM_EXPORT void __cudaRegisterVar(void **, char *host, char *, const char *, int, size_t bytes, int, int) {
  register_variable(host, bytes);
}
GPUMEM_EXPORT void __cudaRegisterManagedVar(void **, void **host, char *, const char *, int, size_t bytes, int, int) {
  register_variable(host, bytes);
}

// --- Launches ---

static int launch(const void *function, cuda::Dim3 grid, cuda::Dim3 block, Stream stream) {
  const Error error = check_stream(stream);
  if (error != cuda::kSuccess) return done(error);
  if (function == nullptr) return done(static_cast<Error>(98));  // cudaErrorInvalidDeviceFunction
  const uint64_t threads = uint64_t{block.x} * block.y * block.z;
  const book::DeviceDescription *facts = current_device_description();
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || threads == 0 || threads > facts->threads_per_block || grid.y > 65535 || grid.z > 65535)
    return done(static_cast<Error>(9));  // cudaErrorInvalidConfiguration
  count_launch(stream);
  return cuda::kSuccess;
}

GPUMEM_EXPORT int cudaLaunchKernel(const void *function, cuda::Dim3 grid, cuda::Dim3 block, void **, size_t, Stream stream) {
  return launch(function, grid, block, stream);
}
GPUMEM_EXPORT int cudaLaunchCooperativeKernel(const void *function, cuda::Dim3 grid, cuda::Dim3 block, void **, size_t, Stream stream) {
  return launch(function, grid, block, stream);
}
GPUMEM_EXPORT int cudaLaunchKernelExC(const cuda::LaunchConfiguration *configuration, const void *function, void **) {
  if (configuration == nullptr) return done(cuda::kInvalidValue);
  return launch(function, configuration->gridDim, configuration->blockDim, configuration->stream);
}
GPUMEM_EXPORT int __cudaLaunchKernel(const void *function, cuda::Dim3 grid, cuda::Dim3 block, void **, size_t, Stream stream) {
  return launch(function, grid, block, stream);
}
GPUMEM_EXPORT int __cudaLaunchKernel_ptsz(const void *function, cuda::Dim3 grid, cuda::Dim3 block, void **, size_t, Stream stream) {
  return launch(function, grid, block, stream);
}
// A kernel handle is the address of its host function.
GPUMEM_EXPORT int __cudaGetKernel(const void **kernel, const void *function) {
  if (kernel == nullptr) return done(cuda::kInvalidValue);
  *kernel = function;
  return cuda::kSuccess;
}
GPUMEM_EXPORT int cudaGetKernel(const void **kernel, const void *function) { return __cudaGetKernel(kernel, function); }
GPUMEM_EXPORT int cudaGetFuncBySymbol(const void **function, const void *symbol) { return __cudaGetKernel(function, symbol); }
GPUMEM_EXPORT int cudaFuncGetName(const char **name, const void *function) {
  if (name == nullptr) return done(cuda::kInvalidValue);
  *name = function_name(function);
  return *name != nullptr ? cuda::kSuccess : done(static_cast<Error>(98));
}

// <<<>>> pushes its configuration and the stub pops it: nested at most by arguments that launch themselves.
namespace {
struct Pushed {
  cuda::Dim3 grid, block;
  size_t shared;
  Stream stream;
};
constexpr int kPushed = 8;
__thread Pushed pushed[kPushed];
__thread int pushed_count;
}  // namespace

GPUMEM_EXPORT unsigned __cudaPushCallConfiguration(cuda::Dim3 grid, cuda::Dim3 block, size_t shared, Stream stream) {
  if (pushed_count == kPushed) return 1;
  pushed[pushed_count++] = {grid, block, shared, stream};
  return 0;
}
GPUMEM_EXPORT int __cudaPopCallConfiguration(cuda::Dim3 *grid, cuda::Dim3 *block, size_t *shared, void *stream) {
  if (grid == nullptr || block == nullptr || shared == nullptr || stream == nullptr) return done(cuda::kInvalidValue);
  if (pushed_count == 0) return done(cuda::kMissingConfiguration);
  const Pushed &top = pushed[--pushed_count];
  *grid = top.grid;
  *block = top.block;
  *shared = top.shared;
  *static_cast<Stream *>(stream) = top.stream;
  return cuda::kSuccess;
}

// --- Attributes ---

static void fill_attributes(cuda::FunctionAttributes *attributes, const void *function) {
  const book::DeviceDescription *facts = current_device_description();
  const CodeVersion version = code_version(function, *facts);
  *attributes = {};
  attributes->maxThreadsPerBlock = static_cast<int>(facts->threads_per_block);
  attributes->numRegs = 32;
  attributes->ptxVersion = version.ptx;
  attributes->binaryVersion = version.binary;
  attributes->maxDynamicSharedSizeBytes = static_cast<int>(facts->shared_per_block);
  attributes->preferredShmemCarveout = -1;
}
VERSIONED(cudaFuncGetAttributes, CUDA11) int cudaFuncGetAttributes_cuda11(cuda::FunctionAttributes *attributes, const void *function) {
  if (attributes == nullptr) return done(cuda::kInvalidValue);
  const Error error = check_current();
  if (error == cuda::kSuccess) fill_attributes(attributes, function);
  return done(error);
}
static int function_attributes_12(cuda::FunctionAttributes12 *attributes, const void *function) {
  if (attributes == nullptr) return done(cuda::kInvalidValue);
  const Error error = check_current();
  if (error != cuda::kSuccess) return done(error);
  memset(attributes, 0, sizeof(*attributes));
  fill_attributes(reinterpret_cast<cuda::FunctionAttributes *>(attributes), function);
  return cuda::kSuccess;
}
VERSIONED(cudaFuncGetAttributes, CUDA12) int cudaFuncGetAttributes_cuda12(cuda::FunctionAttributes12 *attributes, const void *function) {
  return function_attributes_12(attributes, function);
}
VERSIONED(cudaFuncGetAttributes, CUDA13) int cudaFuncGetAttributes_cuda13(cuda::FunctionAttributes12 *attributes, const void *function) {
  return function_attributes_12(attributes, function);
}

static Error check_function(const void *function) { return function == nullptr ? static_cast<Error>(98) : check_current(); }  // cudaErrorInvalidDeviceFunction
GPUMEM_EXPORT int cudaFuncSetAttribute(const void *function, int attribute, int value) {
  if (function == nullptr) return done(check_function(function));
  const Error error = check_current();
  if (error != cuda::kSuccess) return done(error);
  constexpr int kMaxDynamicShared = 8;
  if (attribute == kMaxDynamicShared && value > static_cast<int>(current_device_description()->shared_per_block_optin))
    return done(cuda::kInvalidValue);
  return cuda::kSuccess;
}
GPUMEM_EXPORT int cudaFuncSetCacheConfig(const void *function, int) { return done(check_function(function)); }
GPUMEM_EXPORT int cudaFuncSetSharedMemConfig(const void *function, int) { return done(check_function(function)); }
GPUMEM_EXPORT int cudaKernelSetAttributeForDevice(const void *function, int, int, int) { return done(check_function(function)); }

static int occupancy(int *blocks, int block_size, size_t dynamic_shared) {
  const Error error = check_current();
  if (error != cuda::kSuccess) return done(error);
  if (blocks == nullptr || block_size <= 0) return done(cuda::kInvalidValue);
  *blocks = blocks_per_sm(*current_device_description(), block_size, dynamic_shared);
  return cuda::kSuccess;
}
GPUMEM_EXPORT int cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *, int block_size, size_t dynamic_shared) {
  return occupancy(blocks, block_size, dynamic_shared);
}
GPUMEM_EXPORT int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *, int block_size,
                                                                         size_t dynamic_shared, unsigned) {
  return occupancy(blocks, block_size, dynamic_shared);
}
GPUMEM_EXPORT int cudaOccupancyAvailableDynamicSMemPerBlock(size_t *bytes, const void *, int blocks, int) {
  if (bytes == nullptr) return done(cuda::kInvalidValue);
  const Error error = check_current();
  if (error != cuda::kSuccess) return done(error);
  const book::DeviceDescription *facts = current_device_description();
  const size_t share = facts->shared_per_sm / static_cast<unsigned>(blocks > 0 ? blocks : 1);
  *bytes = share < facts->shared_per_block_optin ? share : facts->shared_per_block_optin;
  return cuda::kSuccess;
}
GPUMEM_EXPORT int cudaOccupancyMaxActiveClusters(int *clusters, const void *, const cuda::LaunchConfiguration *) {
  if (clusters == nullptr) return done(cuda::kInvalidValue);
  const Error error = check_current();
  if (error == cuda::kSuccess) *clusters = static_cast<int>(current_device_description()->sm_count / 2);
  return done(error);
}
GPUMEM_EXPORT int cudaOccupancyMaxPotentialClusterSize(int *size, const void *, const cuda::LaunchConfiguration *) {
  if (size == nullptr) return done(cuda::kInvalidValue);
  const Error error = check_current();
  if (error == cuda::kSuccess) *size = 8;  // the portable maximum [CUDA C++ Programming Guide, Thread Block Clusters]
  return done(error);
}

// --- __device__ variables: each has device memory of its own once somebody asks ---

GPUMEM_EXPORT int cudaGetSymbolAddress(void **pointer, const void *symbol) {
  if (pointer == nullptr) return done(cuda::kInvalidValue);
  const Error error = check_current();
  if (error != cuda::kSuccess) return done(error);
  size_t bytes;
  *pointer = variable_memory(symbol, thread_state.device, &bytes);
  return done(*pointer != nullptr ? cuda::kSuccess : cuda::kInvalidSymbol);
}
GPUMEM_EXPORT int cudaGetSymbolSize(size_t *bytes, const void *symbol) {
  if (bytes == nullptr) return done(cuda::kInvalidValue);
  const Error error = check_current();
  if (error != cuda::kSuccess) return done(error);
  return done(variable_memory(symbol, thread_state.device, bytes) != nullptr ? cuda::kSuccess : cuda::kInvalidSymbol);
}
static int copy_symbol(const void *symbol, void *host, const void *from_host, size_t bytes, size_t offset, Stream stream) {
  const Error error = check_stream(stream);
  if (error != cuda::kSuccess) return done(error);
  size_t size = 0;
  char *memory = static_cast<char *>(variable_memory(symbol, thread_state.device, &size));
  if (memory == nullptr) return done(cuda::kInvalidSymbol);
  if (offset > size || bytes > size - offset) return done(cuda::kInvalidValue);
  queue_work(stream);
  if (from_host != nullptr)
    copy_contents(memory + offset, from_host, bytes);
  else
    copy_contents(host, memory + offset, bytes);
  return cuda::kSuccess;
}
GPUMEM_EXPORT int cudaMemcpyToSymbol(const void *symbol, const void *source, size_t bytes, size_t offset, int) {
  return copy_symbol(symbol, nullptr, source, bytes, offset, nullptr);
}
GPUMEM_EXPORT int cudaMemcpyToSymbolAsync(const void *symbol, const void *source, size_t bytes, size_t offset, int, Stream stream) {
  return copy_symbol(symbol, nullptr, source, bytes, offset, stream);
}
GPUMEM_EXPORT int cudaMemcpyFromSymbol(void *destination, const void *symbol, size_t bytes, size_t offset, int) {
  return copy_symbol(symbol, destination, nullptr, bytes, offset, nullptr);
}
GPUMEM_EXPORT int cudaMemcpyFromSymbolAsync(void *destination, const void *symbol, size_t bytes, size_t offset, int, Stream stream) {
  return copy_symbol(symbol, destination, nullptr, bytes, offset, stream);
}
