// SPDX-License-Identifier: Apache-2.0
// NCCL without a network: this process is one rank, the others are not there. Runs in the job's processes.
//
// Communicators are made at once. Collectives of at most 64 KiB carry values, as if every rank had ours (so shape and
// parameter checks agree); larger ones touch nothing. Operations complete when they are queued.
#include <string.h>

#include "estimator/virtual_gpu/libraries/library.h"

using namespace gpumem::virtual_gpu;
using namespace gpumem::virtual_gpu::libraries;

namespace {

enum : int { kSuccess = 0, kUnhandledCudaError = 1, kSystemError = 2, kInvalidArgument = 4 };
constexpr size_t kCarried = 64 * 1024;  // bytes of the whole result

const char *const kSonames[] = {"libnccl.so.2", nullptr};

struct UniqueId {
  char bytes[128];
};
enum Number { kRanks, kRank };

// ncclDataType_t, nccl.h.
size_t bytes_of(int type) {
  switch (type) {
    case 0: case 1: case 10: case 11: return 1;
    case 6: case 9: return 2;
    case 4: case 5: case 8: return 8;
    default: return 4;
  }
}

int make_communicator(void **out, int ranks, int rank) {
  if (out == nullptr || ranks < 1 || rank < 0 || rank >= ranks) return kInvalidArgument;
  if (!ready() || !use_device(current_device())) return kUnhandledCudaError;
  Handle *communicator = new_handle(kNccl);
  if (communicator == nullptr) return kSystemError;
  communicator->number[kRanks] = static_cast<uint64_t>(ranks);
  communicator->number[kRank] = static_cast<uint64_t>(rank);
  *out = communicator;
  return kSuccess;
}

int end_communicator(void *pointer) {
  Handle *communicator = cast(pointer, kNccl);
  if (communicator == nullptr) return kInvalidArgument;
  delete_handle(communicator);
  return kSuccess;
}

// Small results take the values of `send`.
void carry(void *receive, const void *send, size_t bytes) {
  if (bytes <= kCarried && receive != nullptr && send != nullptr && receive != send) copy_contents(receive, send, bytes);
}

Handle *queued(void *pointer, Stream stream) {
  Handle *communicator = cast(pointer, kNccl);
  if (communicator != nullptr) count_launch(stream);
  return communicator;
}

}  // namespace

GPUMEM_EXPORT int ncclGetVersion(int *version) {
  using Function = int (*)(int *);
  if (version == nullptr) return kInvalidArgument;
  if (auto real = reinterpret_cast<Function>(loaded_function(kSonames, "ncclGetVersion"))) return real(version);
  *version = 22105;
  return kSuccess;
}
GPUMEM_EXPORT int ncclGetUniqueId(UniqueId *id) {
  if (id == nullptr) return kInvalidArgument;
  memset(id, 1, sizeof *id);
  return kSuccess;
}
GPUMEM_EXPORT const char *ncclGetErrorString(int result) {
  static const char *const kTexts[] = {"no error", "unhandled cuda error", "unhandled system error", "internal error", "invalid argument",
                                       "invalid usage", "remote process exited or there was a network error", "NCCL operation in progress"};
  return result >= 0 && result < 8 ? kTexts[result] : "unknown result code";
}
GPUMEM_EXPORT const char *ncclGetLastError(void *) { return ""; }
GPUMEM_EXPORT void ncclResetDebugInit() {}

GPUMEM_EXPORT int ncclCommInitRank(void **out, int ranks, UniqueId, int rank) { return make_communicator(out, ranks, rank); }
GPUMEM_EXPORT int ncclCommInitRankConfig(void **out, int ranks, UniqueId, int rank, void *) { return make_communicator(out, ranks, rank); }
GPUMEM_EXPORT int ncclCommInitRankScalable(void **out, int ranks, int rank, int, UniqueId *, void *) { return make_communicator(out, ranks, rank); }
GPUMEM_EXPORT int ncclCommInitAll(void **out, int count, const int *) {
  for (int i = 0; i < count; i++) {
    int status = make_communicator(out + i, count, i);
    if (status != kSuccess) return status;
  }
  return kSuccess;
}
// How many ranks share our color is known to the others only: taken to be all. A rank without a color gets none.
GPUMEM_EXPORT int ncclCommSplit(void *pointer, int color, int, void **out, void *) {
  Handle *communicator = cast(pointer, kNccl);
  if (communicator == nullptr || out == nullptr) return kInvalidArgument;
  if (color < 0) return *out = nullptr, kSuccess;
  return make_communicator(out, static_cast<int>(communicator->number[kRanks]), static_cast<int>(communicator->number[kRank]));
}
GPUMEM_EXPORT int ncclCommShrink(void *pointer, int *excluded, int count, void **out, void *, int) {
  Handle *communicator = cast(pointer, kNccl);
  if (communicator == nullptr || count < 0 || (count > 0 && excluded == nullptr)) return kInvalidArgument;
  int rank = static_cast<int>(communicator->number[kRank]), below = 0;
  for (int i = 0; i < count; i++) below += excluded[i] < rank;
  return make_communicator(out, static_cast<int>(communicator->number[kRanks]) - count, rank - below);
}
GPUMEM_EXPORT int ncclCommDestroy(void *pointer) { return end_communicator(pointer); }
GPUMEM_EXPORT int ncclCommAbort(void *pointer) { return end_communicator(pointer); }
GPUMEM_EXPORT int ncclCommFinalize(void *pointer) { return cast(pointer, kNccl) != nullptr ? kSuccess : kInvalidArgument; }
GPUMEM_EXPORT int ncclCommRevoke(void *pointer, int) { return cast(pointer, kNccl) != nullptr ? kSuccess : kInvalidArgument; }
GPUMEM_EXPORT int ncclCommGetAsyncError(void *pointer, int *error) {
  if (cast(pointer, kNccl) == nullptr || error == nullptr) return kInvalidArgument;
  *error = kSuccess;
  return kSuccess;
}
#define QUESTION(name, answer)                                                \
  GPUMEM_EXPORT int name(void *pointer, int *value) {                         \
    Handle *communicator = cast(pointer, kNccl);                              \
    if (communicator == nullptr || value == nullptr) return kInvalidArgument; \
    *value = static_cast<int>(answer);                                        \
    return kSuccess;                                                          \
  }
QUESTION(ncclCommCount, communicator->number[kRanks])
QUESTION(ncclCommUserRank, communicator->number[kRank])
QUESTION(ncclCommCuDevice, communicator->device)

GPUMEM_EXPORT int ncclMemAlloc(void **pointer, size_t bytes) {
  if (pointer == nullptr) return kInvalidArgument;
  *pointer = allocate_device_memory(current_device(), bytes);
  return *pointer != nullptr ? kSuccess : kUnhandledCudaError;
}
GPUMEM_EXPORT int ncclMemFree(void *pointer) { return pointer == nullptr || free_device_memory(pointer) ? kSuccess : kInvalidArgument; }
GPUMEM_EXPORT int ncclCommRegister(void *pointer, void *buffer, size_t, void **out) {
  if (cast(pointer, kNccl) == nullptr || out == nullptr) return kInvalidArgument;
  *out = buffer;
  return kSuccess;
}
GPUMEM_EXPORT int ncclCommDeregister(void *pointer, void *) { return cast(pointer, kNccl) != nullptr ? kSuccess : kInvalidArgument; }
GPUMEM_EXPORT int ncclCommWindowRegister(void *pointer, void *buffer, size_t bytes, void **window, int) { return ncclCommRegister(pointer, buffer, bytes, window); }
GPUMEM_EXPORT int ncclCommWindowDeregister(void *pointer, void *) { return cast(pointer, kNccl) != nullptr ? kSuccess : kInvalidArgument; }
GPUMEM_EXPORT int ncclRedOpCreatePreMulSum(int *operation, void *, int, int, void *pointer) {
  if (cast(pointer, kNccl) == nullptr || operation == nullptr) return kInvalidArgument;
  *operation = 5;  // the first one after the built-in operations
  return kSuccess;
}
GPUMEM_EXPORT int ncclRedOpDestroy(int, void *pointer) { return cast(pointer, kNccl) != nullptr ? kSuccess : kInvalidArgument; }
GPUMEM_EXPORT int ncclGroupStart() { return kSuccess; }
GPUMEM_EXPORT int ncclGroupEnd() { return kSuccess; }
GPUMEM_EXPORT int ncclGroupSimulateEnd(void *) { return kSuccess; }

GPUMEM_EXPORT int ncclAllReduce(const void *send, void *receive, size_t count, int type, int, void *pointer, Stream stream) {
  if (queued(pointer, stream) == nullptr) return kInvalidArgument;
  carry(receive, send, count * bytes_of(type));
  return kSuccess;
}
GPUMEM_EXPORT int ncclReduce(const void *send, void *receive, size_t count, int type, int, int root, void *pointer, Stream stream) {
  Handle *communicator = queued(pointer, stream);
  if (communicator == nullptr) return kInvalidArgument;
  if (static_cast<uint64_t>(root) == communicator->number[kRank]) carry(receive, send, count * bytes_of(type));
  return kSuccess;
}
// Another rank's broadcast leaves our buffer as it is: every rank has the same values.
GPUMEM_EXPORT int ncclBroadcast(const void *send, void *receive, size_t count, int type, int root, void *pointer, Stream stream) {
  Handle *communicator = queued(pointer, stream);
  if (communicator == nullptr) return kInvalidArgument;
  if (static_cast<uint64_t>(root) == communicator->number[kRank]) carry(receive, send, count * bytes_of(type));
  return kSuccess;
}
GPUMEM_EXPORT int ncclBcast(void *, size_t, int, int, void *pointer, Stream stream) { return queued(pointer, stream) != nullptr ? kSuccess : kInvalidArgument; }
GPUMEM_EXPORT int ncclAllGather(const void *send, void *receive, size_t count, int type, void *pointer, Stream stream) {
  Handle *communicator = queued(pointer, stream);
  if (communicator == nullptr) return kInvalidArgument;
  size_t bytes = count * bytes_of(type), ranks = static_cast<size_t>(communicator->number[kRanks]);
  if (bytes == 0 || bytes * ranks > kCarried || send == nullptr || receive == nullptr) return kSuccess;
  // Put together on the host first, so that all of the result is one piece of known contents.
  char gathered[kCarried];
  copy_contents(gathered, send, bytes);
  for (size_t i = 1; i < ranks; i++) memcpy(gathered + i * bytes, gathered, bytes);
  copy_contents(receive, gathered, bytes * ranks);
  return kSuccess;
}
GPUMEM_EXPORT int ncclGather(const void *send, void *receive, size_t count, int type, int root, void *pointer, Stream stream) {
  Handle *communicator = cast(pointer, kNccl);
  if (communicator == nullptr) return kInvalidArgument;
  if (static_cast<uint64_t>(root) == communicator->number[kRank]) return ncclAllGather(send, receive, count, type, pointer, stream);
  count_launch(stream);
  return kSuccess;
}
GPUMEM_EXPORT int ncclReduceScatter(const void *send, void *receive, size_t count, int type, int, void *pointer, Stream stream) {
  Handle *communicator = queued(pointer, stream);
  if (communicator == nullptr || send == nullptr) return kInvalidArgument;
  size_t bytes = count * bytes_of(type);
  carry(receive, static_cast<const char *>(send) + bytes * communicator->number[kRank], bytes);
  return kSuccess;
}
GPUMEM_EXPORT int ncclScatter(const void *send, void *receive, size_t count, int type, int root, void *pointer, Stream stream) {
  Handle *communicator = queued(pointer, stream);
  if (communicator == nullptr) return kInvalidArgument;
  size_t bytes = count * bytes_of(type);
  if (static_cast<uint64_t>(root) == communicator->number[kRank] && send != nullptr)
    carry(receive, static_cast<const char *>(send) + bytes * communicator->number[kRank], bytes);
  return kSuccess;
}
GPUMEM_EXPORT int ncclAlltoAll(const void *send, void *receive, size_t count, int type, void *pointer, Stream stream) {
  Handle *communicator = queued(pointer, stream);
  if (communicator == nullptr) return kInvalidArgument;
  size_t bytes = count * bytes_of(type) * static_cast<size_t>(communicator->number[kRanks]);
  carry(receive, send, bytes);
  return kSuccess;
}
GPUMEM_EXPORT int ncclSend(const void *, size_t, int, int, void *pointer, Stream stream) { return queued(pointer, stream) != nullptr ? kSuccess : kInvalidArgument; }
// What another rank would have sent reads as zero.
GPUMEM_EXPORT int ncclRecv(void *receive, size_t count, int type, int, void *pointer, Stream stream) {
  if (queued(pointer, stream) == nullptr) return kInvalidArgument;
  size_t bytes = count * bytes_of(type);
  if (bytes <= kCarried) zero_result(receive, bytes);
  return kSuccess;
}
