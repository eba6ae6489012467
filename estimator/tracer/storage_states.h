// SPDX-License-Identifier: Apache-2.0
// What the tracer knows of the bytes in a tensor's storage. Runs inside the job's Python, in probes only.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>

namespace gpumem::tracer {

// Note [States of a storage]
// Virtual device memory is host memory, so small contents can be real. A storage is
//   unknown      nobody told us: its bytes may be anything, nothing is computed from them
//   blank        allocated and not yet written; its bytes are zero
//   plausible    its bytes are a healthy stand-in (finite, a loss of 1.0, an index of 0) for values that were not computed
//   exact        its bytes are what a real GPU would have computed
// A state belongs to a storage *and its generation*: the table holds a weak reference, so that the address of a dead
// StorageImpl is never taken for a new one, and the data pointer, so that resizing or swapping the memory makes it unknown.
// Views share their base's storage and so its state. Large storages (limit_bytes) have no state: they are unknown.
enum class State : uint8_t { unknown, blank, plausible, exact };

// Largest storage whose contents are followed. Integers and masks steer programs (labels, attention masks) and are cheap;
// floating-point contents beyond a few thousand elements are the model's own data.
constexpr size_t kFloatLimitBytes = 64 << 10;
constexpr size_t kIntegerLimitBytes = 2 << 20;
// Where masks are made of 64-bit numbers (one_hot), as routers to experts do: 16384 tokens, two of 128 experts each.
constexpr size_t kLongLimitBytes = 32 << 20;
// Plausible and blank bytes are written up to this size only; what is larger and was not computed stays unknown (dropout's masks).
constexpr size_t kFillLimitBytes = 64 << 10;
// Plausible values are computed with only up to this size: enough for losses, norms and what is derived from them.
constexpr size_t kPlausibleLimitBytes = 2 << 10;

inline size_t limit_bytes(const at::Tensor& t) {
  return t.is_floating_point() || t.is_complex() ? kFloatLimitBytes : t.scalar_type() == c10::kLong ? kLongLimitBytes : kIntegerLimitBytes;
}

inline c10::StorageImpl* storage_of(const at::Tensor& t) { return t.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl(); }
inline bool is_fillable_storage(const at::Tensor& t) { return storage_of(t)->nbytes() <= kFillLimitBytes; }
// A single number is followed wherever it lies: mse_loss reduces into the storage of all its terms. What else such a storage holds has no
// state, as tensors of more elements are not small; nor has a view of one element of what is large, since nobody ever set one.
inline bool is_single(const at::Tensor& t) { return t.numel() == 1 && t.is_cuda(); }
inline bool is_fillable(const at::Tensor& t) { return is_fillable_storage(t) || is_single(t); }
inline bool is_small(const at::Tensor& t) { return storage_of(t)->nbytes() <= limit_bytes(t) || is_single(t); }
// Address of a storage's first byte, without materialising a lazily copied one.
inline char* bytes_of(const at::Tensor& t) { return static_cast<char*>(const_cast<void*>(storage_of(t)->data())); }
// True where the tensor's own elements make up its whole storage, so that writing it leaves no older byte.
inline bool covers_storage(const at::Tensor& t) { return t.numel() * t.itemsize() >= storage_of(t)->nbytes(); }

State state_of(const at::Tensor& t);
void set_state(const at::Tensor& t, State state);
// Of a storage that is small for its type.
State state_of_storage(c10::StorageImpl* storage);
void set_state_of_storage(c10::StorageImpl* storage, State state);

// Makes the tables usable in a child after fork() of a process with other threads. Call once.
void survive_fork();

}  // namespace gpumem::tracer
