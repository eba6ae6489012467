// SPDX-License-Identifier: Apache-2.0
// The file events-<pid>.bin of a record: what PyTorch's caching allocator was asked for, in order. Needs no torch: written by
// the tracer inside the job's Python, read by whoever replays a record. doc/contracts.md, "Record", describes it as well.
#pragma once

#include <cstdint>

namespace gpumem::record {

constexpr char kEventMagic[8] = {'G', 'P', 'U', 'M', 'E', 'V', 'T', '1'};
constexpr uint32_t kEventVersion = 1;

// All fields little-endian. The file is an EventHeader and then whole EventRecords; a torn last record is to be ignored.
struct EventHeader {
  char magic[8];
  uint32_t version;
  uint32_t record_bytes;   // sizeof(EventRecord): a reader skips what a later version has added
  uint64_t process;        // pid
  uint64_t start_ns;       // CLOCK_REALTIME when the file was opened; event times count from here
};

// Values of EventRecord::action: PyTorch's own order, fixed here.
enum class EventAction : uint8_t {
  allocate = 0,        // a block was handed out; size as requested, before rounding
  free_requested = 1,  // the program let go of it
  free_completed = 2,  // it is free (later than requested where another stream still used it)
  segment_allocate = 3,
  segment_free = 4,
  segment_map = 5,     // expandable segments
  segment_unmap = 6,
  snapshot = 7,
  out_of_memory = 8,   // address: bytes free on the device
  step = 128,          // the shim's mark: an optimizer step; size: its number
  batch = 130,         // the shim's mark: a DataLoader hands out a batch; size: its number in the lines "batch"
  memory_fraction = 129,  // set_per_process_memory_fraction has been called; size: the bits of the fraction as a double
};

enum EventFlags : uint8_t {
  kEventOnAutogradThread = 1,  // of allocate: asked for in the backward pass
  kEventWaited = 2,            // of free_completed: PyTorch waited for another stream that used it, however short the wait was
};

struct EventRecord {
  EventAction action;
  int8_t device;
  uint8_t flags;     // EventFlags
  uint8_t pool;      // private pool (CUDA graph, MemPool), numbered from 1; 0: the default pools
  uint16_t op;       // of allocate: number of the operator that asked (a line "operator" names it); 0: none
  uint16_t module;   // of allocate: number of the nn.Module whose forward asked (a line "module" names it); 0: none known
  uint64_t stream;   // handle; 0 is the default stream
  uint64_t address;
  uint64_t size;     // bytes
  uint64_t time_ns;  // since the header's start
};

static_assert(sizeof(EventHeader) == 32 && sizeof(EventRecord) == 40);

}  // namespace gpumem::record
