// SPDX-License-Identifier: Apache-2.0
// CUDA driver: modules, libraries and functions as Triton, NVRTC and inductor load them. Part of libgpumem_vgpu.so.
//
// Loaded code is not executed, so any image is accepted and any function name is found in it: what a kernel needs of
// shared memory or registers is in its image's notes, which are not read [plausible values are given].

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "estimator/virtual_gpu/device/kernels.h"
#include "estimator/virtual_gpu/device/objects.h"
#include "estimator/virtual_gpu/driver/driver.h"

namespace {

struct LoadedModule {
  uint32_t kind;
  int device;
  CodeVersion version;
  void *globals;      // one block of device memory that every global variable is said to be at
};

struct LoadedFunction {
  uint32_t kind;
  uint32_t dynamic_shared;
  LoadedModule *module;
  char *name;
};

constexpr size_t kGlobalBytes = 4096;

// `version`: of the image, asked only where a module can be made.
template <class Version>
Error load(void **module, const Version &version) {
  const Error error = check_current();
  if (error != cuda::kSuccess) return error;
  if (module == nullptr) return cuda::kInvalidValue;
  LoadedModule *made = make<LoadedModule>(kModuleObject);
  if (made == nullptr) return cuda::kOperatingSystem;
  made->device = thread_state.device;
  made->version = version(*current_device_description());
  *module = made;
  return cuda::kSuccess;
}
Error load_image(void **module, const void *image) {
  if (image == nullptr) return cuda::kInvalidValue;
  return load(module, [=](const book::DeviceDescription &facts) { return image_version(image, facts); });
}
Error load_file(void **module, const char *path) {
  const int descriptor = path != nullptr ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (descriptor < 0) return cuda::kFileNotFound;
  char byte;
  const Error error = pread(descriptor, &byte, 1, 0) != 1
                          ? cuda::kFileNotFound
                          : load(module, [=](const book::DeviceDescription &facts) { return file_version(descriptor, facts); });
  close(descriptor);
  return error;
}

Error get_function(void **function, void *module, const char *name) {
  LoadedModule *owner = find<LoadedModule>(module, kModuleObject);
  if (owner == nullptr) return cuda::kInvalidHandle;
  if (function == nullptr || name == nullptr) return cuda::kInvalidValue;
  LoadedFunction *made = make<LoadedFunction>(kFunctionObject);
  if (made == nullptr) return cuda::kOperatingSystem;
  made->module = owner;
  made->name = static_cast<char *>(allocate_zeroed(strlen(name) + 1));
  if (made->name != nullptr) strcpy(made->name, name);
  *function = made;
  return cuda::kSuccess;
}

Error get_global(uint64_t *pointer, size_t *bytes, void *module) {
  LoadedModule *owner = find<LoadedModule>(module, kModuleObject);
  if (owner == nullptr) return cuda::kInvalidHandle;
  if (owner->globals == nullptr) owner->globals = allocate_device_memory(owner->device, kGlobalBytes);
  if (owner->globals == nullptr) return cuda::kOutOfMemory;
  if (pointer != nullptr) *pointer = reinterpret_cast<uint64_t>(owner->globals);
  if (bytes != nullptr) *bytes = kGlobalBytes;
  return cuda::kSuccess;
}

Error unload(void *module) {
  LoadedModule *owner = find<LoadedModule>(module, kModuleObject);
  if (owner == nullptr) return cuda::kInvalidHandle;
  if (owner->globals != nullptr) free_device_memory(owner->globals);
  delete_object(owner);
  return cuda::kSuccess;
}

}  // namespace

GPUMEM_EXPORT int cuModuleLoadData(void **module, const void *image) { return load_image(module, image); }
GPUMEM_EXPORT int cuModuleLoadDataEx(void **module, const void *image, unsigned, int *, void **) { return load_image(module, image); }
GPUMEM_EXPORT int cuModuleLoadFatBinary(void **module, const void *image) { return load_image(module, image); }
GPUMEM_EXPORT int cuModuleLoad(void **module, const char *path) { return load_file(module, path); }
GPUMEM_EXPORT int cuModuleUnload(void *module) { return unload(module); }
GPUMEM_EXPORT int cuModuleGetLoadingMode(int *mode) {
  if (mode == nullptr) return cuda::kInvalidValue;
  *mode = 2;  // lazy, the default since CUDA 12.2
  return cuda::kSuccess;
}
GPUMEM_EXPORT int cuModuleGetFunction(void **function, void *module, const char *name) { return get_function(function, module, name); }
GPUMEM_EXPORT int cuModuleGetGlobal_v2(uint64_t *pointer, size_t *bytes, void *module, const char *) { return get_global(pointer, bytes, module); }

// Libraries and kernels (CUDA 12) are modules and functions without a context.
GPUMEM_EXPORT int cuLibraryLoadData(void **library, const void *image, int *, void **, unsigned, int *, void **, unsigned) { return load_image(library, image); }
GPUMEM_EXPORT int cuLibraryLoadFromFile(void **library, const char *path, int *, void **, unsigned, int *, void **, unsigned) { return load_file(library, path); }
GPUMEM_EXPORT int cuLibraryUnload(void *library) { return unload(library); }
GPUMEM_EXPORT int cuLibraryGetKernel(void **kernel, void *library, const char *name) { return get_function(kernel, library, name); }
GPUMEM_EXPORT int cuLibraryGetModule(void **module, void *library) {
  if (module == nullptr) return cuda::kInvalidValue;
  *module = library;
  return cuda::kSuccess;
}
GPUMEM_EXPORT int cuLibraryGetGlobal(uint64_t *pointer, size_t *bytes, void *library, const char *) { return get_global(pointer, bytes, library); }
// Managed variables are device memory here as others are.
GPUMEM_EXPORT int cuLibraryGetManaged(uint64_t *pointer, size_t *bytes, void *library, const char *) { return get_global(pointer, bytes, library); }
GPUMEM_EXPORT int cuKernelGetLibrary(void **library, void *kernel) {
  if (library == nullptr) return cuda::kInvalidValue;
  const LoadedFunction *object = find<LoadedFunction>(kernel, kFunctionObject);
  if (object == nullptr) return cuda::kInvalidHandle;
  *library = object->module;
  return cuda::kSuccess;
}
GPUMEM_EXPORT int cuKernelGetFunction(void **function, void *kernel) {
  if (function == nullptr) return cuda::kInvalidValue;
  *function = kernel;
  return cuda::kSuccess;
}

static int function_attribute(int *value, int attribute, const LoadedFunction *function) {
  if (value == nullptr) return cuda::kInvalidValue;
  const book::DeviceDescription *facts = current_device_description();
  if (function == nullptr || facts == nullptr) return cuda::kInvalidHandle;
  switch (attribute) {
    case 0: *value = static_cast<int>(facts->threads_per_block); break;
    case 4: *value = 32; break;                             // registers
    case 5: *value = function->module->version.ptx; break;
    case 6: *value = function->module->version.binary; break;
    case 8: *value = static_cast<int>(function->dynamic_shared != 0 ? function->dynamic_shared : facts->shared_per_block); break;
    case 9: *value = -1; break;
    default: *value = 0;
  }
  return cuda::kSuccess;
}
static int set_function_attribute(LoadedFunction *function, int attribute, int value) {
  const book::DeviceDescription *facts = current_device_description();
  if (function == nullptr || facts == nullptr) return cuda::kInvalidHandle;
  if (attribute != 8) return cuda::kSuccess;
  if (value < 0 || static_cast<uint32_t>(value) > facts->shared_per_block_optin) return cuda::kInvalidValue;
  function->dynamic_shared = static_cast<uint32_t>(value);
  return cuda::kSuccess;
}
GPUMEM_EXPORT int cuFuncGetAttribute(int *value, int attribute, void *function) {
  return function_attribute(value, attribute, find<LoadedFunction>(function, kFunctionObject));
}
GPUMEM_EXPORT int cuFuncSetAttribute(void *function, int attribute, int value) {
  return set_function_attribute(find<LoadedFunction>(function, kFunctionObject), attribute, value);
}
GPUMEM_EXPORT int cuKernelGetAttribute(int *value, int attribute, void *kernel, int) {
  return function_attribute(value, attribute, find<LoadedFunction>(kernel, kFunctionObject));
}
GPUMEM_EXPORT int cuKernelSetAttribute(int attribute, int value, void *kernel, int) {
  return set_function_attribute(find<LoadedFunction>(kernel, kFunctionObject), attribute, value);
}
static int check_function(const void *function) { return find_object(function, kFunctionObject) != nullptr ? check_ready() : cuda::kInvalidHandle; }
GPUMEM_EXPORT int cuFuncSetCacheConfig(void *function, int) { return check_function(function); }
GPUMEM_EXPORT int cuFuncSetSharedMemConfig(void *function, int) { return check_function(function); }
GPUMEM_EXPORT int cuKernelSetCacheConfig(void *function, int, int) { return check_function(function); }
GPUMEM_EXPORT int cuFuncGetModule(void **module, void *function) {
  if (module == nullptr) return cuda::kInvalidValue;
  const LoadedFunction *object = find<LoadedFunction>(function, kFunctionObject);
  if (object == nullptr) return cuda::kInvalidHandle;
  *module = object->module;
  return cuda::kSuccess;
}
GPUMEM_EXPORT int cuFuncGetName(const char **name, void *function) {
  if (name == nullptr) return cuda::kInvalidValue;
  const LoadedFunction *object = find<LoadedFunction>(function, kFunctionObject);
  if (object == nullptr) return cuda::kInvalidHandle;
  *name = object->name;
  return cuda::kSuccess;
}
GPUMEM_EXPORT int cuKernelGetName(const char **name, void *kernel) { return cuFuncGetName(name, kernel); }

GPUMEM_EXPORT int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, void *, int block_size, size_t shared) {
  if (blocks == nullptr) return cuda::kInvalidValue;
  const Error error = check_ready();
  if (error == cuda::kSuccess) *blocks = blocks_per_sm(*current_device_description(), block_size, shared);
  return error;
}
GPUMEM_EXPORT int cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, void *function, int block_size, size_t shared, unsigned) {
  return cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, block_size, shared);
}
GPUMEM_EXPORT int cuOccupancyMaxActiveClusters(int *clusters, void *, const cuda::DriverLaunchConfiguration *) {
  if (clusters == nullptr) return cuda::kInvalidValue;
  const Error error = check_ready();
  if (error == cuda::kSuccess) *clusters = static_cast<int>(current_device_description()->sm_count / 2);
  return error;
}

// The linker gives back what it was first given: nobody runs it.
struct Link {
  uint32_t kind;
  size_t size;
  void *data;
};
GPUMEM_EXPORT int cuLinkCreate_v2(unsigned, int *, void **, void **link) {
  if (link == nullptr) return cuda::kInvalidValue;
  *link = make<Link>(kLinkObject);
  return *link != nullptr ? cuda::kSuccess : cuda::kOperatingSystem;
}
// The first input stands for the result: nothing of it is run.
GPUMEM_EXPORT int cuLinkAddData_v2(void *handle, int, const void *data, size_t size, const char *, unsigned, int *, void **) {
  if (data == nullptr) return cuda::kInvalidValue;
  Link *link = find<Link>(handle, kLinkObject);
  if (link == nullptr) return cuda::kInvalidHandle;
  if (link->data != nullptr) return cuda::kSuccess;
  link->data = allocate_zeroed(size + 16);
  if (link->data == nullptr) return cuda::kOperatingSystem;
  memcpy(link->data, data, size);
  link->size = size;
  return cuda::kSuccess;
}
GPUMEM_EXPORT int cuLinkAddFile_v2(void *handle, int type, const char *path, unsigned, int *, void **) {
  if (path == nullptr) return cuda::kInvalidValue;
  if (find<Link>(handle, kLinkObject) == nullptr) return cuda::kInvalidHandle;
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return static_cast<Error>(301);  // CUDA_ERROR_FILE_NOT_FOUND
  char beginning[4096];
  const ssize_t bytes = read(fd, beginning, sizeof(beginning));
  close(fd);
  return bytes <= 0 ? static_cast<int>(cuda::kInvalidValue)
                    : cuLinkAddData_v2(handle, type, beginning, static_cast<size_t>(bytes), nullptr, 0, nullptr, nullptr);
}
GPUMEM_EXPORT int cuLinkComplete(void *handle, void **image, size_t *size) {
  if (image == nullptr) return cuda::kInvalidValue;
  Link *link = find<Link>(handle, kLinkObject);
  if (link == nullptr || link->data == nullptr) return cuda::kInvalidHandle;
  *image = link->data;
  if (size != nullptr) *size = link->size;
  return cuda::kSuccess;
}
GPUMEM_EXPORT int cuLinkDestroy(void *handle) {
  Link *link = find<Link>(handle, kLinkObject);
  if (link == nullptr) return cuda::kInvalidHandle;
  release_zeroed(link->data);
  delete_object(link);
  return cuda::kSuccess;
}

// Tensor maps are 128 opaque bytes that only kernels read.
GPUMEM_EXPORT int cuTensorMapEncodeTiled(void *map, int, unsigned, void *, const uint64_t *, const uint64_t *, const uint32_t *,
                                         const uint32_t *, int, int, int, int) {
  if (map == nullptr) return cuda::kInvalidValue;
  memset(map, 0, 128);
  return cuda::kSuccess;
}
