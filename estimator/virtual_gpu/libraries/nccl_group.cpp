// SPDX-License-Identifier: Apache-2.0
// NCCL's operations: queued, then carried out together; see Note [Ranks] in nccl.h. Runs in the job's processes.
#include <string.h>
#include <time.h>

#include "estimator/virtual_gpu/libraries/nccl.h"

namespace gpumem::virtual_gpu::libraries::nccl {
namespace {

__thread Operation *group_first, *group_last;
__thread int group_depth;

constexpr size_t kPiece = 64 << 10;  // up to here device memory takes contents (device/contents.h)

void deliver(void *receive, size_t offset, const void *from, size_t bytes) {
  for (size_t at = 0; at < bytes; at += kPiece)
    copy_contents(static_cast<char *>(receive) + offset + at, static_cast<const char *>(from) + at, bytes - at < kPiece ? bytes - at : kPiece);
}

size_t ranks_of(const Operation &operation) { return static_cast<size_t>(operation.communicator->ranks); }
bool is_root(const Operation &operation) { return operation.peer == operation.communicator->rank; }
bool between_two(const Operation &operation) { return operation.what == What::send || operation.what == What::receive; }

// Does every rank give a part for each rank?
bool has_parts(const Operation &operation) {
  return operation.what == What::reduce_scatter || operation.what == What::all_to_all || operation.what == What::scatter;
}

size_t contribution_bytes(const Operation &operation) {
  const size_t bytes = operation.count * bytes_of(operation.type);
  return has_parts(operation) ? bytes * ranks_of(operation) : bytes;
}

size_t result_bytes(const Operation &operation) {
  const size_t bytes = operation.count * bytes_of(operation.type);
  const bool many = operation.what == What::all_gather || operation.what == What::all_to_all || (operation.what == What::gather && is_root(operation));
  return many ? bytes * ranks_of(operation) : bytes;
}

bool receives(const Operation &operation) {
  if (operation.what == What::send) return false;
  return (operation.what != What::reduce && operation.what != What::gather) || is_root(operation);
}

bool gives(const Operation &operation) {
  if (operation.what == What::broadcast || operation.what == What::scatter) return is_root(operation);
  return operation.what != What::receive;
}

// Whose contributions does this rank read?
bool needs(const Operation &operation, int rank) {
  switch (operation.what) {
    case What::broadcast:
    case What::scatter: return rank == operation.peer;
    case What::reduce:
    case What::gather: return is_root(operation);
    default: return true;
  }
}

// What a reduction does to a sum at last.
double final_factor(const Operation &operation, double ranks) {
  if (operation.reduction == kAverage) return 1 / ranks;
  const int own = operation.reduction - kOwn;
  return own >= 0 && own < operation.communicator->reductions ? operation.communicator->factors[own] : 1;
}

// Contributions are at `from(rank)`; the result goes to the program's buffer.
template <typename From>
bool give_result(const Operation &operation, From &&from) {
  const Communicator &communicator = *operation.communicator;
  const size_t bytes = operation.count * bytes_of(operation.type);
  switch (operation.what) {
    case What::broadcast: deliver(operation.receive, 0, from(operation.peer), bytes); return true;
    case What::scatter: deliver(operation.receive, 0, from(operation.peer) + bytes * static_cast<size_t>(communicator.rank), bytes); return true;
    case What::all_gather:
    case What::gather:
      for (int i = 0; i < communicator.ranks; i++) deliver(operation.receive, bytes * static_cast<size_t>(i), from(i), bytes);
      return true;
    case What::all_to_all:
      for (int i = 0; i < communicator.ranks; i++)
        deliver(operation.receive, bytes * static_cast<size_t>(i), from(i) + bytes * static_cast<size_t>(communicator.rank), bytes);
      return true;
    default: break;
  }
  void *sum = allocate_zeroed(bytes);
  if (sum == nullptr) return false;
  const size_t part = operation.what == What::reduce_scatter ? bytes * static_cast<size_t>(communicator.rank) : 0;
  memcpy(sum, from(0) + part, bytes);
  for (int i = 1; i < communicator.ranks; i++) reduce_values(sum, from(i) + part, operation.count, operation.type, operation.reduction);
  scale_values(sum, operation.count, operation.type, final_factor(operation, communicator.ranks));
  deliver(operation.receive, 0, sum, bytes);
  release_zeroed(sum);
  return true;
}

// Large results, and what nobody sends, hold nothing that anybody has computed.
void forget_result(const Operation &operation) {
  if (operation.receive == nullptr || !receives(operation)) return;
  const char *to = static_cast<const char *>(operation.receive), *from = static_cast<const char *>(operation.send);
  const size_t bytes = result_bytes(operation);
  const bool in_place = from != nullptr && from < to + bytes && to < from + contribution_bytes(operation);
  if (in_place || (operation.what == What::broadcast && is_root(operation))) return;
  forget_contents(operation.receive, bytes);
}

void copy_own(const Operation &operation, size_t offset) {
  const size_t bytes = operation.count * bytes_of(operation.type);
  char *own = static_cast<char *>(allocate_zeroed(bytes));
  if (own == nullptr) return;
  copy_contents(own, static_cast<const char *>(operation.send) + offset, bytes);
  double factor = 1;
  if (operation.what == What::all_reduce || operation.what == What::reduce || operation.what == What::reduce_scatter) {
    const int ranks = operation.communicator->ranks_known ? operation.communicator->ranks : 1;
    if (operation.reduction == kSum || operation.reduction >= kOwn) factor = ranks * final_factor(operation, ranks);
    if (operation.reduction == kProduct && ranks > 1) {
      char *once = static_cast<char *>(allocate_zeroed(bytes));
      if (once != nullptr) {
        memcpy(once, own, bytes);
        for (int i = 1; i < ranks; i++) reduce_values(own, once, operation.count, operation.type, kProduct);
        release_zeroed(once);
      }
    }
  }
  scale_values(own, operation.count, operation.type, factor);
  const bool many = operation.what == What::all_gather || operation.what == What::gather;
  for (size_t i = 0; i < (many ? ranks_of(operation) : 1); i++) deliver(operation.receive, bytes * i, own, bytes);
  release_zeroed(own);
}

// This rank's operation where the others are missing.
void answer_alone(const Operation &operation) {
  const bool scales = operation.what == What::all_gather || operation.what == What::gather || has_parts(operation);
  if (operation.what == What::send || !receives(operation)) return;
  if (!operation.carried || operation.receive == nullptr || (scales && !operation.communicator->ranks_known)) return forget_result(operation);
  const size_t bytes = operation.count * bytes_of(operation.type);
  switch (operation.what) {
    case What::receive: zero_result(operation.receive, bytes); return;
    case What::broadcast:
      // Another rank's broadcast leaves our buffer as it is: every rank has the same values.
      if (is_root(operation) && operation.send != operation.receive && operation.send != nullptr) copy_own(operation, 0);
      return;
    case What::all_to_all:
      if (operation.send == nullptr || operation.send == operation.receive) return;
      for (size_t i = 0; i < ranks_of(operation); i++)
        copy_contents(static_cast<char *>(operation.receive) + bytes * i, static_cast<const char *>(operation.send) + bytes * i, bytes);
      return;
    case What::scatter:
      if (!is_root(operation)) return zero_result(operation.receive, bytes);
      [[fallthrough]];
    case What::reduce_scatter:
      if (operation.send != nullptr) copy_own(operation, bytes * static_cast<size_t>(operation.communicator->rank));
      return;
    default:
      if (operation.send != nullptr) copy_own(operation, 0);
  }
}

// What came from a rank that we sent to in the same group is as much as we sent (Note [Ranks], all-to-all).
void answer_pairs_alone(Operation *first) {
  for (Operation *to = first; to != nullptr; to = to->next) {
    if (to->what != What::receive || to->done || to->communicator->exchange != nullptr || !to->carried) continue;
    for (Operation *from = first; from != nullptr; from = from->next) {
      if (from->what != What::send || from->posted || from->communicator != to->communicator || from->peer != to->peer) continue;
      from->posted = true;  // taken
      const size_t bytes = to->count * bytes_of(to->type);
      if (from->count * bytes_of(from->type) == bytes && from->send != nullptr && to->receive != nullptr) {
        deliver(to->receive, 0, from->send, bytes);
        to->done = true;
      }
      break;
    }
  }
}

// Each rank's broadcast in one group is an all-gather (PyTorch 2.15 writes it so): what others give is what we give.
void answer_broadcasts_alone(Operation *first) {
  const Operation *own = nullptr;
  for (const Operation *operation = first; operation != nullptr; operation = operation->next)
    if (operation->what == What::broadcast && is_root(*operation) && operation->communicator->exchange == nullptr) own = operation;
  if (own == nullptr || !own->carried || own->send == nullptr) return;
  for (Operation *operation = first; operation != nullptr; operation = operation->next) {
    if (operation->what != What::broadcast || operation->communicator != own->communicator || is_root(*operation)) continue;
    if (operation->count != own->count || operation->type != own->type || operation->receive == nullptr) continue;
    deliver(operation->receive, 0, own->send, own->count * bytes_of(own->type));
    operation->done = true;
  }
}

// One attempt, without waiting; true if something was achieved. Results are taken in order, so only where nothing is left before.
bool advance(Operation &operation, bool may_finish) {
  Communicator &communicator = *operation.communicator;
  if (operation.done) return false;
  if (communicator.exchange == nullptr || !operation.carried) {
    if (communicator.exchange == nullptr) answer_alone(operation);
    else forget_result(operation);
    return operation.done = true;
  }
  Exchange *exchange = communicator.exchange;
  const size_t bytes = operation.count * bytes_of(operation.type);
  if (operation.what == What::send)
    return operation.done = send_mail(exchange, communicator.rank, operation.peer, operation.sequence, operation.send, bytes);
  if (operation.what == What::receive) {
    const char *letter = mail(exchange, operation.peer, communicator.rank, operation.sequence);
    if (letter == nullptr) return false;
    deliver(operation.receive, 0, letter, bytes);
    done_with_mail(exchange, operation.peer, communicator.rank, operation.sequence);
    return operation.done = true;
  }
  bool progress = false;
  if (!operation.posted) {
    const size_t given = gives(operation) && operation.send != nullptr ? contribution_bytes(operation) : 0;
    if (!post(exchange, communicator.rank, operation.sequence, operation.send, given)) return false;
    operation.posted = progress = true;
  }
  if (!may_finish) return progress;
  if (receives(operation)) {
    for (int i = 0; i < communicator.ranks; i++)
      if (needs(operation, i) && posted(exchange, i, operation.sequence) == nullptr) return progress;
    give_result(operation, [&](int rank) { return posted(exchange, rank, operation.sequence); });
  }
  done_with(exchange, communicator.rank, operation.sequence);
  return operation.done = true;
}

// Does the operation wait for a rank that will not come any more?
bool waits_in_vain(const Operation &operation) {
  const Communicator &communicator = *operation.communicator;
  if (operation.done || communicator.exchange == nullptr) return false;
  if (operation.what == What::receive)
    return is_gone(communicator.exchange, operation.peer) && mail(communicator.exchange, operation.peer, communicator.rank, operation.sequence) == nullptr;
  if (operation.what == What::send) return is_gone(communicator.exchange, operation.peer);
  for (int i = 0; i < communicator.ranks; i++)
    if (i != communicator.rank && posted(communicator.exchange, i, operation.sequence) == nullptr && is_gone(communicator.exchange, i)) return true;
  return false;
}

void go_alone(Communicator *communicator) {
  if (communicator->exchange == nullptr) return;
  leave_exchange(communicator->exchange, communicator->rank);
  communicator->exchange = nullptr;
}

void carry_out(Operation *first) {
  struct timespec last, now, pause = {0, 100 * 1000};
  clock_gettime(CLOCK_MONOTONIC, &last);
  for (long round = 0;; round++) {
    bool progress = false, left = false;
    for (Operation *operation = first; operation != nullptr; operation = operation->next) {
      // A communicator's collectives are posted and finished in their order.
      bool may_post = true, may_finish = true;
      for (Operation *before = first; before != operation && may_post && !between_two(*operation); before = before->next) {
        if (before->done || before->communicator != operation->communicator || between_two(*before)) continue;
        may_finish = false;
        may_post = before->posted;
      }
      if (may_post) progress = advance(*operation, may_finish) || progress;
      left = left || !operation->done;
    }
    if (!left) return;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (progress) {
      last = now;
      continue;
    }
    const bool patience_ended = now.tv_sec - last.tv_sec > kPatience_s;
    if (patience_ended || round % 256 == 255) {
      for (Operation *operation = first; operation != nullptr; operation = operation->next) {
        if (operation->done || (!patience_ended && !waits_in_vain(*operation))) continue;
        if (patience_ended) note_guess("a rank waited in vain for another in a collective of NCCL and went on alone");
        go_alone(operation->communicator);
      }
    }
    nanosleep(&pause, nullptr);
  }
}

bool make_connections(const Operation &operation) {
  switch (operation.what) {
    case What::send:
    case What::receive: return connect(operation.communicator, Connection::peer, operation.peer);
    case What::all_reduce: return connect(operation.communicator, Connection::ring_and_tree, -1);
    default: return connect(operation.communicator, Connection::ring, -1);
  }
}

}  // namespace

void gather_words(Communicator *communicator, const int32_t *mine, int32_t *all) {
  Operation operation = {};
  operation.communicator = communicator;
  operation.what = What::all_gather;
  operation.send = mine;
  operation.receive = all;
  operation.count = 2;
  operation.type = 2;  // ncclInt32
  operation.carried = true;
  operation.sequence = communicator->sequence++;
  carry_out(&operation);
}

int queue(const Operation &asked, Stream stream) {
  Communicator *communicator = asked.communicator;
  if (communicator == nullptr) return kInvalidArgument;
  if ((between_two(asked) || !receives(asked) || asked.what == What::broadcast || asked.what == What::scatter) &&
      (asked.peer < 0 || (communicator->ranks_known && asked.peer >= communicator->ranks)))
    return kInvalidArgument;
  count_launch(stream);
  Operation operation = asked;
  if (!make_connections(operation)) return kUnhandledCudaError;
  const size_t bytes = contribution_bytes(operation);
  const size_t limit = between_two(operation) ? kCarriedFloats : carried_limit(operation.type);
  operation.carried = bytes > 0 && bytes <= limit && (communicator->exchange != nullptr || result_bytes(operation) <= kLargestResult);
  if (operation.carried && communicator->exchange != nullptr) {
    if (operation.what == What::send) operation.sequence = communicator->sent[operation.peer]++;
    else if (operation.what == What::receive) operation.sequence = communicator->received[operation.peer]++;
    else operation.sequence = communicator->sequence++;
  }
  operation.next = nullptr;
  if (group_depth == 0) {
    carry_out(&operation);
    return kSuccess;
  }
  Operation *kept = static_cast<Operation *>(allocate_zeroed(sizeof(Operation)));
  if (kept == nullptr) return kSystemError;
  *kept = operation;
  (group_last != nullptr ? group_last->next : group_first) = kept;
  group_last = kept;
  return kSuccess;
}

void begin_group() { group_depth++; }

int end_group() {
  if (group_depth == 0) return kInvalidUsage;
  if (--group_depth > 0) return kSuccess;
  Operation *first = group_first;
  group_first = group_last = nullptr;
  answer_pairs_alone(first);
  answer_broadcasts_alone(first);
  carry_out(first);
  while (first != nullptr) {
    Operation *next = first->next;
    release_zeroed(first);
    first = next;
  }
  return kSuccess;
}

}  // namespace gpumem::virtual_gpu::libraries::nccl
