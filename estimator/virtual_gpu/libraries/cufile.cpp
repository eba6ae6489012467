// SPDX-License-Identifier: Apache-2.0
// cuFile (GPUDirect Storage, torch.cuda.gds): reads of files into device memory and writes from it. Part of libgpumem_vgpu.so.
//
// Files are read and written through a descriptor of ours without O_DIRECT, whose alignment our buffers need not have. Up to 64 KiB at once
// are real (Note [Contents] in device/contents.h); what is read beyond reads as zero afterwards, and the estimate says so. A write gives
// the file its whole length. Buffers that are registered cost nothing: they are the program's own. Data errors are -1 with errno or a
// negative code, as cufile.h says.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/types.h>
#include <unistd.h>

#include "estimator/virtual_gpu/device/memory.h"
#include "estimator/virtual_gpu/libraries/library.h"

using namespace gpumem::virtual_gpu;
using namespace gpumem::virtual_gpu::libraries;
namespace cuda = gpumem::cuda;

namespace {

// CUfileOpError; a CUfileError_t has it in its low half, and the driver's error above.
enum : long { kSuccess = 0, kNotInitialized = 5001, kPointerInvalid = 5012, kBadFileType = 5018, kInvalidValue = 5022, kNotRegistered = 5027, kNoDescriptor = 5031 };
constexpr int kVersion = 1150;                    // 1.15, of CUDA 13.0
constexpr int kOpaqueDescriptor = 1;              // CUfileFileHandleType
constexpr size_t kPiece = size_t{64} << 10;       // of contents; a multiple of any file's block

struct Description {  // CUfileDescr_t
  int type;
  union {
    int descriptor;
    void *handle;
  } handle;
  const void *operations;
};

int open_count;

Handle *file_of(const void *handle) { return cast(handle, kCufile); }
int descriptor_of(const Handle *file) { return static_cast<int>(file->number[0]); }

// As much of the file as there is from `offset` on, at most `size`; a negative code where the arguments are wrong.
ssize_t check(const Handle *file, const void *memory, size_t size, off_t offset) {
  if (file == nullptr) return -kNotRegistered;
  if (offset < 0 || size > SIZE_MAX / 2) return -kInvalidValue;
  if (check_access(memory, size, true) != cuda::kSuccess) return -kPointerInvalid;
  return static_cast<ssize_t>(size);
}

ssize_t read_file(void *handle, void *base, size_t size, off_t offset, off_t memory_offset) {
  const Handle *file = file_of(handle);
  char *to = static_cast<char *>(base) + memory_offset;
  const ssize_t allowed = check(file, to, size, offset);
  if (allowed <= 0) return allowed;
  const off_t end = lseek(descriptor_of(file), 0, SEEK_END);
  const size_t left = end > offset ? static_cast<size_t>(end - offset) : 0, bytes = left < size ? left : size;
  if (bytes > kPiece) {
    note_guess("cuFile: what is read from files to the GPU in pieces of more than 64 KiB is taken to be zero");
    forget_contents(to, bytes);
    return static_cast<ssize_t>(bytes);
  }
  void *piece = allocate_zeroed(kPiece);
  if (piece == nullptr) return errno = ENOMEM, -1;
  const ssize_t got = pread(descriptor_of(file), piece, bytes, offset);
  if (got > 0) copy_contents(to, piece, static_cast<size_t>(got));
  release_zeroed(piece);
  return got;
}

ssize_t write_file(void *handle, const void *base, size_t size, off_t offset, off_t memory_offset) {
  const Handle *file = file_of(handle);
  const char *from = static_cast<const char *>(base) + memory_offset;
  const ssize_t allowed = check(file, from, size, offset);
  if (allowed <= 0) return allowed;
  char *piece = static_cast<char *>(allocate_zeroed(kPiece));
  if (piece == nullptr) return errno = ENOMEM, -1;
  size_t written = 0;
  while (written < size) {
    const size_t bytes = size - written < kPiece ? size - written : kPiece;
    copy_contents(piece, from + written, bytes);
    const ssize_t put = pwrite(descriptor_of(file), piece, bytes, offset + static_cast<off_t>(written));
    if (put <= 0) break;
    written += static_cast<size_t>(put);
  }
  release_zeroed(piece);
  return written > 0 ? static_cast<ssize_t>(written) : -1;
}

long close_driver() {
  if (__atomic_load_n(&open_count, __ATOMIC_RELAXED) == 0) return kNotInitialized;
  __atomic_sub_fetch(&open_count, 1, __ATOMIC_RELAXED);
  return kSuccess;
}

// The arguments of asynchronous calls are read when the work is done: here, at once.
template <class Call>
long at_once(const size_t *size, const off_t *offset, const off_t *memory_offset, ssize_t *done, Stream stream, const Call &call) {
  if (size == nullptr || offset == nullptr || memory_offset == nullptr || done == nullptr) return kInvalidValue;
  count_launch(stream);
  *done = call(*size, *offset, *memory_offset);
  return kSuccess;
}

}  // namespace

GPUMEM_EXPORT long cuFileDriverOpen() {
  if (!ready()) return kNotInitialized;
  __atomic_add_fetch(&open_count, 1, __ATOMIC_RELAXED);
  return kSuccess;
}
GPUMEM_EXPORT long cuFileDriverClose() { return close_driver(); }
GPUMEM_EXPORT long cuFileDriverClose_v2() { return close_driver(); }
GPUMEM_EXPORT long cuFileUseCount() { return __atomic_load_n(&open_count, __ATOMIC_RELAXED); }
GPUMEM_EXPORT long cuFileGetVersion(int *version) { return version == nullptr ? kInvalidValue : (*version = kVersion, kSuccess); }
GPUMEM_EXPORT long cuFileDriverSetPollMode(bool, size_t) { return kSuccess; }
GPUMEM_EXPORT long cuFileDriverSetMaxDirectIOSize(size_t) { return kSuccess; }
GPUMEM_EXPORT long cuFileDriverSetMaxCacheSize(size_t) { return kSuccess; }
GPUMEM_EXPORT long cuFileDriverSetMaxPinnedMemSize(size_t) { return kSuccess; }

GPUMEM_EXPORT long cuFileHandleRegister(void **handle, const Description *file) {
  if (handle == nullptr || file == nullptr) return kInvalidValue;
  if (!ready()) return kNotInitialized;
  if (file->type != kOpaqueDescriptor) return kBadFileType;
  char path[40];
  snprintf(path, sizeof path, "/proc/self/fd/%d", file->handle.descriptor);
  const int flags = fcntl(file->handle.descriptor, F_GETFL);
  const int descriptor = flags < 0 ? -1 : open(path, (flags & O_ACCMODE) | O_CLOEXEC);
  if (descriptor < 0) return kNoDescriptor;
  Handle *made = new_handle(kCufile);
  if (made == nullptr) {
    close(descriptor);
    return kNoDescriptor;
  }
  made->number[0] = static_cast<uint64_t>(descriptor);
  *handle = made;
  return kSuccess;
}
GPUMEM_EXPORT void cuFileHandleDeregister(void *handle) {
  Handle *file = file_of(handle);
  if (file == nullptr) return;
  close(descriptor_of(file));
  delete_handle(file);
}

GPUMEM_EXPORT long cuFileBufRegister(const void *memory, size_t bytes, int) {
  return check_access(memory, bytes, true) == cuda::kSuccess ? kSuccess : kPointerInvalid;
}
GPUMEM_EXPORT long cuFileBufDeregister(const void *memory) { return find_device_memory(memory, nullptr, nullptr) ? kSuccess : kPointerInvalid; }

GPUMEM_EXPORT ssize_t cuFileRead(void *handle, void *base, size_t size, off_t offset, off_t memory_offset) {
  return read_file(handle, base, size, offset, memory_offset);
}
GPUMEM_EXPORT ssize_t cuFileWrite(void *handle, const void *base, size_t size, off_t offset, off_t memory_offset) {
  return write_file(handle, base, size, offset, memory_offset);
}
GPUMEM_EXPORT long cuFileReadAsync(void *handle, void *base, const size_t *size, const off_t *offset, const off_t *memory_offset, ssize_t *done, Stream stream) {
  return at_once(size, offset, memory_offset, done, stream, [=](size_t s, off_t o, off_t m) { return read_file(handle, base, s, o, m); });
}
GPUMEM_EXPORT long cuFileWriteAsync(void *handle, const void *base, const size_t *size, const off_t *offset, const off_t *memory_offset, ssize_t *done, Stream stream) {
  return at_once(size, offset, memory_offset, done, stream, [=](size_t s, off_t o, off_t m) { return write_file(handle, base, s, o, m); });
}
GPUMEM_EXPORT long cuFileStreamRegister(Stream, unsigned) { return kSuccess; }
GPUMEM_EXPORT long cuFileStreamDeregister(Stream) { return kSuccess; }
