// SPDX-License-Identifier: Apache-2.0
// NCCL without a network: its public functions. What its ranks hear of each other is in nccl.h, Note [Ranks].
// Runs in the job's processes. Operations complete when they are queued.
#include "estimator/virtual_gpu/libraries/nccl.h"

#include <stdlib.h>
#include <string.h>

using namespace gpumem::virtual_gpu;
using namespace gpumem::virtual_gpu::libraries;
using namespace gpumem::virtual_gpu::libraries::nccl;

namespace {

const char *const kSonames[] = {"libnccl.so.2", nullptr};
constexpr char kMagic[] = "gpumem:";
constexpr size_t kMagicSize = sizeof kMagic - 1;

__thread bool out_of_memory;  // the thread's last failure, for ncclGetLastError

bool alone() {
  const char *text = getenv("GPUMEM_ALONE");
  return text != nullptr && text[0] != '\0' && strcmp(text, "0") != 0;
}

// The name of the exchange in an id of ours; false where the id is somebody else's.
bool exchange_id(const UniqueId &id, char *text) {
  if (memcmp(id.bytes, kMagic, kMagicSize) != 0) return false;
  size_t n = 0;
  for (const char *at = id.bytes + kMagicSize; n + 1 < kIdSize && ((*at >= '0' && *at <= '9') || (*at >= 'a' && *at <= 'f')); at++) text[n++] = *at;
  text[n] = '\0';
  return n > 0;
}

// `id` nullptr: without the others.
int make_communicator(void **out, int ranks, int rank, const char *id, bool all_here, int device) {
  if (out == nullptr || ranks < 1 || rank < 0 || rank >= ranks) return kInvalidArgument;
  if (!ready()) return kUnhandledCudaError;
  if (!use_device(device)) return out_of_memory = true, kUnhandledCudaError;
  Handle *handle = new_handle(kNccl);
  auto *communicator = static_cast<Communicator *>(allocate_zeroed(sizeof(Communicator)));
  if (handle == nullptr || communicator == nullptr) return kSystemError;
  handle->device = device;
  handle->data = communicator;
  communicator->handle = handle;
  communicator->ranks = ranks;
  communicator->rank = rank;
  communicator->ranks_known = true;
  communicator->device = device;
  if (ranks > 1 && id != nullptr) {
    strncpy(communicator->id, id, kIdSize - 1);
    communicator->exchange = join_exchange(id, ranks, rank, all_here);
    if (communicator->exchange == nullptr) note_guess("the other ranks of a communicator of NCCL did not come: this rank went on alone");
  }
  *out = handle;
  return kSuccess;
}

int init_rank(void **out, int ranks, const UniqueId &id, int rank) {
  char text[kIdSize];
  return make_communicator(out, ranks, rank, !alone() && exchange_id(id, text) ? text : nullptr, false, current_device());
}

int end_communicator(void *pointer) {
  Communicator *communicator = communicator_of(pointer);
  if (communicator == nullptr) return kInvalidArgument;
  if (communicator->exchange != nullptr) leave_exchange(communicator->exchange, communicator->rank);
  release_buffers(communicator);
  delete_handle(communicator->handle);
  release_zeroed(communicator);
  return kSuccess;
}

int collective(What what, const void *send, void *receive, size_t count, int type, int reduction, int peer, void *pointer, Stream stream) {
  Operation operation = {};
  operation.what = what;
  operation.communicator = communicator_of(pointer);
  operation.send = send;
  operation.receive = receive;
  operation.count = count;
  operation.type = type;
  operation.reduction = reduction;
  operation.peer = peer;
  const int status = queue(operation, stream);
  out_of_memory = status == kUnhandledCudaError;
  return status;
}

// The ranks of our color in the order of their keys, then of their old ranks. With the others here only.
int split_for_real(Communicator *from, int color, int key, void **out) {
  const size_t ranks = static_cast<size_t>(from->ranks);
  const int32_t mine[2] = {color, key};
  auto *all = static_cast<int32_t *>(allocate_zeroed(ranks * sizeof mine));
  if (all == nullptr) return kSystemError;
  gather_words(from, mine, all);
  int size = 0, rank = 0;
  for (int i = 0; i < from->ranks; i++) {
    if (all[2 * i] != color) continue;
    size++;
    rank += i != from->rank && (all[2 * i + 1] < key || (all[2 * i + 1] == key && i < from->rank));
  }
  release_zeroed(all);
  char id[kIdSize];
  derive_exchange_id(id, from->id, ++from->derived << 32 | static_cast<uint32_t>(color));
  if (color < 0) return *out = nullptr, kSuccess;
  return make_communicator(out, size, rank, from->exchange != nullptr ? id : nullptr, false, from->device);
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
  memset(id, 0, sizeof *id);
  memcpy(id->bytes, kMagic, kMagicSize);
  new_exchange_id(id->bytes + kMagicSize);
  return kSuccess;
}
GPUMEM_EXPORT const char *ncclGetErrorString(int result) {
  static const char *const kTexts[] = {"no error", "unhandled cuda error", "unhandled system error", "internal error", "invalid argument",
                                       "invalid usage", "remote process exited or there was a network error", "NCCL operation in progress"};
  return result >= 0 && result < 8 ? kTexts[result] : "unknown result code";
}
GPUMEM_EXPORT const char *ncclGetLastError(void *) { return out_of_memory ? "Cuda failure 2 'out of memory'" : ""; }
GPUMEM_EXPORT void ncclResetDebugInit() {}

GPUMEM_EXPORT int ncclCommInitRank(void **out, int ranks, UniqueId id, int rank) { return init_rank(out, ranks, id, rank); }
GPUMEM_EXPORT int ncclCommInitRankConfig(void **out, int ranks, UniqueId id, int rank, void *) { return init_rank(out, ranks, id, rank); }
GPUMEM_EXPORT int ncclCommInitRankScalable(void **out, int ranks, int rank, int count, UniqueId *ids, void *) {
  if (count < 1 || ids == nullptr) return kInvalidArgument;
  return init_rank(out, ranks, ids[0], rank);
}
GPUMEM_EXPORT int ncclCommInitAll(void **out, int count, const int *devices) {
  if (out == nullptr || count < 1) return kInvalidArgument;
  char id[kIdSize] = {};
  new_exchange_id(id);
  for (int i = 0; i < count; i++) {
    int status = make_communicator(out + i, count, i, id, true, devices != nullptr ? devices[i] : i);
    if (status != kSuccess) return status;
  }
  return kSuccess;
}
// How many ranks share our color is known to the others only. Where they are missing, the new communicator has as many
// ranks as the old one and carries no values whose size depends on it. A rank without a color gets none.
GPUMEM_EXPORT int ncclCommSplit(void *pointer, int color, int key, void **out, void *) {
  Communicator *communicator = communicator_of(pointer);
  if (communicator == nullptr || out == nullptr) return kInvalidArgument;
  if (communicator->exchange != nullptr) return split_for_real(communicator, color, key, out);
  if (color < 0) return *out = nullptr, kSuccess;
  int status = make_communicator(out, communicator->ranks, communicator->rank, nullptr, false, communicator->device);
  if (status == kSuccess) communicator_of(*out)->ranks_known = communicator->ranks == 1;
  return status;
}
GPUMEM_EXPORT int ncclCommShrink(void *pointer, int *excluded, int count, void **out, void *, int) {
  Communicator *communicator = communicator_of(pointer);
  if (communicator == nullptr || count < 0 || (count > 0 && excluded == nullptr)) return kInvalidArgument;
  int below = 0;
  for (int i = 0; i < count; i++) below += excluded[i] < communicator->rank;
  char id[kIdSize];
  derive_exchange_id(id, communicator->id, ++communicator->derived << 32);
  return make_communicator(out, communicator->ranks - count, communicator->rank - below, communicator->exchange != nullptr ? id : nullptr, false,
                           communicator->device);
}
GPUMEM_EXPORT int ncclCommDestroy(void *pointer) { return end_communicator(pointer); }
GPUMEM_EXPORT int ncclCommAbort(void *pointer) { return end_communicator(pointer); }
GPUMEM_EXPORT int ncclCommFinalize(void *pointer) { return communicator_of(pointer) != nullptr ? kSuccess : kInvalidArgument; }
GPUMEM_EXPORT int ncclCommRevoke(void *pointer, int) { return communicator_of(pointer) != nullptr ? kSuccess : kInvalidArgument; }
GPUMEM_EXPORT int ncclCommGetAsyncError(void *pointer, int *error) {
  if (communicator_of(pointer) == nullptr || error == nullptr) return kInvalidArgument;
  *error = kSuccess;
  return kSuccess;
}
#define QUESTION(name, answer)                                                \
  GPUMEM_EXPORT int name(void *pointer, int *value) {                         \
    Communicator *communicator = communicator_of(pointer);                    \
    if (communicator == nullptr || value == nullptr) return kInvalidArgument; \
    *value = communicator->answer;                                            \
    return kSuccess;                                                          \
  }
QUESTION(ncclCommCount, ranks)
QUESTION(ncclCommUserRank, rank)
QUESTION(ncclCommCuDevice, device)

GPUMEM_EXPORT int ncclMemAlloc(void **pointer, size_t bytes) {
  if (pointer == nullptr) return kInvalidArgument;
  *pointer = allocate_device_memory(current_device(), bytes);
  out_of_memory = *pointer == nullptr;
  return *pointer != nullptr ? kSuccess : kUnhandledCudaError;
}
GPUMEM_EXPORT int ncclMemFree(void *pointer) { return pointer == nullptr || free_device_memory(pointer) ? kSuccess : kInvalidArgument; }
GPUMEM_EXPORT int ncclCommRegister(void *pointer, void *buffer, size_t, void **out) {
  if (communicator_of(pointer) == nullptr || out == nullptr) return kInvalidArgument;
  *out = buffer;
  return kSuccess;
}
GPUMEM_EXPORT int ncclCommDeregister(void *pointer, void *) { return communicator_of(pointer) != nullptr ? kSuccess : kInvalidArgument; }
GPUMEM_EXPORT int ncclCommWindowRegister(void *pointer, void *buffer, size_t bytes, void **window, int) { return ncclCommRegister(pointer, buffer, bytes, window); }
GPUMEM_EXPORT int ncclCommWindowDeregister(void *pointer, void *) { return communicator_of(pointer) != nullptr ? kSuccess : kInvalidArgument; }
GPUMEM_EXPORT int ncclRedOpCreatePreMulSum(int *operation, void *scalar, int type, int, void *pointer) {
  Communicator *communicator = communicator_of(pointer);
  if (communicator == nullptr || operation == nullptr || scalar == nullptr) return kInvalidArgument;
  constexpr int kMost = sizeof communicator->factors / sizeof communicator->factors[0];
  char value[8] = {};
  copy_contents(value, scalar, bytes_of(type));
  const int number = communicator->reductions < kMost ? communicator->reductions++ : kMost - 1;
  communicator->factors[number] = read_value(value, type);
  *operation = kOwn + number;
  return kSuccess;
}
GPUMEM_EXPORT int ncclRedOpDestroy(int operation, void *pointer) {
  Communicator *communicator = communicator_of(pointer);
  if (communicator == nullptr) return kInvalidArgument;
  if (operation == kOwn + communicator->reductions - 1) communicator->reductions--;
  return kSuccess;
}
GPUMEM_EXPORT int ncclGroupStart() { return begin_group(), kSuccess; }
GPUMEM_EXPORT int ncclGroupEnd() { return end_group(); }
GPUMEM_EXPORT int ncclGroupSimulateEnd(void *) { return kSuccess; }

GPUMEM_EXPORT int ncclAllReduce(const void *send, void *receive, size_t count, int type, int reduction, void *pointer, Stream stream) {
  return collective(What::all_reduce, send, receive, count, type, reduction, 0, pointer, stream);
}
GPUMEM_EXPORT int ncclReduce(const void *send, void *receive, size_t count, int type, int reduction, int root, void *pointer, Stream stream) {
  return collective(What::reduce, send, receive, count, type, reduction, root, pointer, stream);
}
GPUMEM_EXPORT int ncclBroadcast(const void *send, void *receive, size_t count, int type, int root, void *pointer, Stream stream) {
  return collective(What::broadcast, send, receive, count, type, kSum, root, pointer, stream);
}
GPUMEM_EXPORT int ncclBcast(void *buffer, size_t count, int type, int root, void *pointer, Stream stream) {
  return collective(What::broadcast, buffer, buffer, count, type, kSum, root, pointer, stream);
}
GPUMEM_EXPORT int ncclAllGather(const void *send, void *receive, size_t count, int type, void *pointer, Stream stream) {
  return collective(What::all_gather, send, receive, count, type, kSum, 0, pointer, stream);
}
GPUMEM_EXPORT int ncclGather(const void *send, void *receive, size_t count, int type, int root, void *pointer, Stream stream) {
  return collective(What::gather, send, receive, count, type, kSum, root, pointer, stream);
}
GPUMEM_EXPORT int ncclReduceScatter(const void *send, void *receive, size_t count, int type, int reduction, void *pointer, Stream stream) {
  return collective(What::reduce_scatter, send, receive, count, type, reduction, 0, pointer, stream);
}
GPUMEM_EXPORT int ncclScatter(const void *send, void *receive, size_t count, int type, int root, void *pointer, Stream stream) {
  return collective(What::scatter, send, receive, count, type, kSum, root, pointer, stream);
}
GPUMEM_EXPORT int ncclAlltoAll(const void *send, void *receive, size_t count, int type, void *pointer, Stream stream) {
  return collective(What::all_to_all, send, receive, count, type, kSum, 0, pointer, stream);
}
GPUMEM_EXPORT int ncclSend(const void *send, size_t count, int type, int peer, void *pointer, Stream stream) {
  return collective(What::send, send, nullptr, count, type, kSum, peer, pointer, stream);
}
GPUMEM_EXPORT int ncclRecv(void *receive, size_t count, int type, int peer, void *pointer, Stream stream) {
  return collective(What::receive, nullptr, receive, count, type, kSum, peer, pointer, stream);
}
