// SPDX-License-Identifier: Apache-2.0
// Recognises cuDNN's execution plans: follows the backend descriptors that a program fills in and names what a plan computes.
// Compiled into the preloaded libraries (the meter writes keys, the virtual GPU looks them up) and into libworkspaces.a: libc only.
//
// Note [Key of a plan]
// A plan's workspace depends on the GPU, on cuDNN's version and on the operation graph that the plan was made for. Each
// descriptor has a hash over the attributes that were set (name, type, values; a descriptor among them counts by its own hash),
// independent of their order. Left out is what differs between runs without changing the choice: handles, device properties,
// unique ids and the alignment of addresses. An engine configuration that came from a heuristic has the hash of the heuristic's
// graph, so the key says what was asked, not what was answered: the plan in use is the answer that is learned.
// Numbers are those of cudnn_graph.h, unchanged since cuDNN 8.0.
//
// Threads: any. Fork: a child keeps what is known. Memory: mmap'ed, grows with the living descriptors (256 bytes each).
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace gpumem::workspaces {

// What a program does with cudnnBackend* functions. Call them after the real call has succeeded.
void created(const void *descriptor, int type);
void destroyed(const void *descriptor);
void attribute_set(const void *descriptor, int name, int type, int64_t count, const void *values);
// After GetAttribute: engine configurations that a heuristic gave.
void attribute_got(const void *descriptor, int name, int type, int64_t count, const void *values);

constexpr int kMaxLabel = 120;
struct Plan {
  uint64_t key;           // 0: not known
  char label[kMaxLabel];  // for people: "conv_forward f32 32x64x56x56, f32 64x64x3x3"
};
// What the plan computes; false when its making was not seen.
bool find_plan(const void *descriptor, Plan *plan);

// Note [The plan in use]
// A program that benchmarks (torch.backends.cudnn.benchmark) makes several plans for one graph and executes each up to four
// times; its choice depends on time and teaches nothing. A plan is in use from its fifth execution on.
constexpr uint32_t kInUseAfter = 5;
// Counts an execution. True exactly once: when the plan is in use and no other plan of its key was ever executed beside it.
bool executed(const void *descriptor, Plan *plan);

}  // namespace gpumem::workspaces
