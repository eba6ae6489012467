// SPDX-License-Identifier: Apache-2.0
// The file sequence-<pid>.bin of a record: what a program that really trains on the CPU allocated, and where. Needs no torch:
// written by the recorder inside the job's Python, read by rebuild.h. doc/contracts.md, "Record", describes it as well.
#pragma once

#include <cstdint>

namespace gpumem::xmem {

constexpr char kSequenceMagic[8] = {'G', 'P', 'U', 'M', 'S', 'E', 'Q', '1'};
constexpr uint32_t kSequenceVersion = 1;

// All fields little-endian. The file is a SequenceHeader and then whole SequenceEvents in the order in which they happened;
// an event's place in the file is its time. A torn last event is to be ignored.
struct SequenceHeader {
  char magic[8];
  uint32_t version;
  uint32_t event_bytes;  // sizeof(SequenceEvent): a reader skips what a later version has added
  uint64_t process;      // pid
};

enum class SequenceKind : uint8_t {
  op_begin = 1,         // first: autograd's sequence number, kNoSequence if none; second: kBackward…, 0 for most
  op_end = 2,           // first: the event number of its op_begin
  allocate = 3,         // first: address, second: bytes
  release = 4,          // first: address, second: bytes
  module_begin = 5,     // first: the module's number, second: 1 if its name says that it is a loss
  module_end = 6,       // first: the module's number
  iteration = 7,        // one begins; first: its number, from 0
  zero_grad_begin = 8,
  zero_grad_end = 9,
  step_begin = 10,
  step_end = 11,
  parameter = 12,       // lives on the device before training and all the time; first: bytes, second: 1 for a buffer
  data = 13,            // something that the program put on the device; first: bytes
  transformer = 14,     // the model is one of the transformers package
};

constexpr uint64_t kNoSequence = ~uint64_t{0};
constexpr uint64_t kBackwardNode = 1;       // a backward function; has the sequence number of its forward operator
constexpr uint64_t kBackwardNodeAround = 2; // the engine's frame around one, which has no number of its own

struct SequenceEvent {
  SequenceKind kind;
  uint8_t reserved[7];
  uint64_t first;
  uint64_t second;
};

static_assert(sizeof(SequenceHeader) == 24 && sizeof(SequenceEvent) == 24);

}  // namespace gpumem::xmem
