// SPDX-License-Identifier: Apache-2.0
// The parts of the NCCL double: communicators, queued operations, values between local ranks, buffers.
// Part of libgpumem_vgpu.so; runs in the job's processes. libc only.
//
// Note [Ranks]
// A communicator's other ranks are real (processes of this job on this host) or not there (a probe that runs rank 0 of N:
// GPUMEM_ALONE is set by whoever started it so, or by the shim). Small operations carry values, large ones touch nothing:
//   real     each rank posts what it gives into a file that all map; a rank waits for what it needs, at most kPatience_s
//            and only while the others live. Who waits in vain goes on alone, and the estimate says so.
//   alone    every rank is taken to hold what this one holds: a gather is N times the own part, a sum N times the own
//            value, an all-to-all what was sent (as many tokens come as go). What a missing rank sends is unknown: zero.
// Operations of a group are taken together at its end, so that a process that holds several ranks, or sends and
// receives at once, never waits for itself. Large operations wait for nobody.
//
// Threads: as NCCL's: one communicator is used by one thread at a time. Units: bytes.
#pragma once

#include "estimator/virtual_gpu/libraries/library.h"

namespace gpumem::virtual_gpu::libraries::nccl {

enum : int { kSuccess = 0, kUnhandledCudaError = 1, kSystemError = 2, kInvalidArgument = 4, kInvalidUsage = 5 };

constexpr size_t kCarriedFloats = 64 << 10;     // largest contribution of a rank that carries values: floating point,
constexpr size_t kCarriedIntegers = 1 << 20;    // and integers, which steer programs (pickled objects, token counts)
constexpr size_t kLargestResult = 64 << 20;     // of a gather with many ranks
constexpr int kPatience_s = 60;

struct UniqueId {
  char bytes[128];
};

// --- Values (nccl_values.cpp). Types are ncclDataType_t, operations ncclRedOp_t. ---

size_t bytes_of(int type);
bool is_integer(int type);
inline size_t carried_limit(int type) { return is_integer(type) ? kCarriedIntegers : kCarriedFloats; }

enum Reduction : int { kSum = 0, kProduct = 1, kMax = 2, kMin = 3, kAverage = 4, kOwn = 5 };  // kOwn and above: sums of multiples
// into[i] = into[i] (operation) from[i]; an average is a sum until finish_average. Types that we do not compute with keep `into`.
void reduce_values(void *into, const void *from, size_t count, int type, int operation);
// values[i] *= factor.
void scale_values(void *values, size_t count, int type, double factor);
double read_value(const void *value, int type);

// --- Exchange between local ranks (nccl_exchange.cpp) ---

constexpr int kMostRanks = 64;  // with an exchange; beyond, ranks are alone
constexpr size_t kIdSize = 32;  // text that names an exchange, with its NUL

struct Exchange;
void new_exchange_id(char *id);
// An id that all who know `id` derive alike.
void derive_exchange_id(char *derived, const char *id, uint64_t number);
// Maps the exchange and waits for all ranks; nullptr where they did not come. `all_here`: the caller holds every rank.
Exchange *join_exchange(const char *id, int ranks, int rank, bool all_here);
void leave_exchange(Exchange *exchange, int rank);
// Is that rank's process over?
bool is_gone(Exchange *exchange, int rank);

// A rank's contribution to its `sequence`-th operation. False: the others have not read enough of the older ones yet.
bool post(Exchange *exchange, int rank, uint64_t sequence, const void *data, size_t bytes);
// Another's contribution, nullptr until it is there. It stays until this rank says done_with().
const char *posted(Exchange *exchange, int rank, uint64_t sequence);
void done_with(Exchange *exchange, int rank, uint64_t sequence);
// The same between two ranks.
bool send_mail(Exchange *exchange, int from, int to, uint64_t sequence, const void *data, size_t bytes);
const char *mail(Exchange *exchange, int from, int to, uint64_t sequence);
void done_with_mail(Exchange *exchange, int from, int to, uint64_t sequence);

// --- Communicators ---

struct Communicator {
  Handle *handle;
  int ranks, rank, device;
  bool ranks_known;          // false: a part of a communicator whose other members only the missing ranks know
  Exchange *exchange;        // nullptr: alone
  char id[kIdSize];
  uint64_t derived;          // communicators made from this one
  uint64_t sequence;         // next collective that carries values
  uint64_t sent[kMostRanks], received[kMostRanks];
  double factors[8];         // of reductions made by ncclRedOpCreatePreMulSum
  int reductions;
  // Buffers (nccl_buffers.cpp)
  uint64_t charged_bytes;
  bool has_ring, has_tree, in_notes;
  uint64_t peers[16];        // bit set of peers with point-to-point connections, the first 1024 ranks
};

inline Communicator *communicator_of(void *pointer) {
  Handle *handle = cast(pointer, kNccl);
  return handle != nullptr ? static_cast<Communicator *>(handle->data) : nullptr;
}

// --- Buffers ---
enum class Connection { ring, ring_and_tree, peer };
// Charges what NCCL allocates when a communicator first uses such connections. False: the device has no room.
bool connect(Communicator *communicator, Connection kind, int peer);
void release_buffers(Communicator *communicator);

// --- Operations (nccl_group.cpp) ---

enum class What : uint8_t { all_reduce, reduce, broadcast, all_gather, gather, reduce_scatter, scatter, all_to_all, send, receive };

struct Operation {
  Operation *next;
  Communicator *communicator;
  const void *send;
  void *receive;
  size_t count;
  int type, reduction, peer;  // peer: root, source or destination
  What what;
  bool carried, posted, done;
  uint64_t sequence;
};

// Queues an operation: at once, or at the end of the calling thread's group.
int queue(const Operation &operation, Stream stream);
// Two words of every rank, on the host; with an exchange only.
void gather_words(Communicator *communicator, const int32_t *mine, int32_t *all);
void begin_group();
int end_group();

}  // namespace gpumem::virtual_gpu::libraries::nccl
