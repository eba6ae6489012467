// SPDX-License-Identifier: Apache-2.0
// CUDA driver and runtime: error logs (12.9 and later). Nothing is ever logged: callbacks are never called, and a log is empty.
// Part of libgpumem_vgpu.so, preloaded into jobs.

#include <fcntl.h>
#include <unistd.h>

#include "estimator/virtual_gpu/driver/driver.h"

namespace {
using Callback = void (*)(void *data, int level, char *message, size_t length);

// Callbacks are told apart by what they are registered with; the number only has to be valid until it is unregistered.
Error register_callback(Callback callback, void **handle) {
  if (callback == nullptr || handle == nullptr) return cuda::kInvalidValue;
  *handle = reinterpret_cast<void *>(callback);
  return cuda::kSuccess;
}
Error unregister_callback(void *handle) { return handle == nullptr ? cuda::kInvalidValue : cuda::kSuccess; }

Error current(unsigned *position, unsigned flags) {
  if (position == nullptr || flags != 0) return cuda::kInvalidValue;
  *position = 0;
  return cuda::kSuccess;
}
Error dump_to_file(const char *path, unsigned flags) {
  if (path == nullptr || flags != 0) return cuda::kInvalidValue;
  const int fd = ::open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) return cuda::kInvalidValue;
  ::close(fd);
  return cuda::kSuccess;
}
Error dump_to_memory(char *text, size_t *size, unsigned flags) {
  if (text == nullptr || size == nullptr || flags != 0) return cuda::kInvalidValue;
  if (*size > 0) text[0] = '\0';
  *size = 0;
  return cuda::kSuccess;
}
}  // namespace

GPUMEM_EXPORT Error cuLogsRegisterCallback(Callback callback, void *, void **handle) { return register_callback(callback, handle); }
GPUMEM_EXPORT Error cuLogsUnregisterCallback(void *handle) { return unregister_callback(handle); }
GPUMEM_EXPORT Error cuLogsCurrent(unsigned *position, unsigned flags) { return current(position, flags); }
GPUMEM_EXPORT Error cuLogsDumpToFile(unsigned *, const char *path, unsigned flags) { return dump_to_file(path, flags); }
GPUMEM_EXPORT Error cuLogsDumpToMemory(unsigned *, char *text, size_t *size, unsigned flags) { return dump_to_memory(text, size, flags); }

GPUMEM_EXPORT Error cudaLogsRegisterCallback(Callback callback, void *, void **handle) { return register_callback(callback, handle); }
GPUMEM_EXPORT Error cudaLogsUnregisterCallback(void *handle) { return unregister_callback(handle); }
GPUMEM_EXPORT Error cudaLogsCurrent(unsigned *position, unsigned flags) { return current(position, flags); }
GPUMEM_EXPORT Error cudaLogsDumpToFile(unsigned *, const char *path, unsigned flags) { return dump_to_file(path, flags); }
GPUMEM_EXPORT Error cudaLogsDumpToMemory(unsigned *, char *text, size_t *size, unsigned flags) { return dump_to_memory(text, size, flags); }
