// SPDX-License-Identifier: Apache-2.0
// Writes the allocator's events and every new peak of reserved memory to the record. Runs inside the job's Python.
#pragma once

#include <cstdint>
#include <string>

namespace gpumem::tracer {

// Attaches to PyTorch's CUDA caching allocator, which must be initialised (a CUDA context exists). `directory` is the record's;
// files are named by pid. False, and why, where the files cannot be written.
// Events are buffered; each new peak is written at once, as a line {"event":"peak"} of process-<pid>.jsonl.
// A child after fork() writes nothing: its addresses would be the parent's.
bool record_allocator_events(const std::string& directory, std::string& why);

// Puts a step mark among the events and writes the buffer out.
void mark_step(uint64_t step);
// The same of a batch that a DataLoader hands out.
void mark_batch(uint64_t number);

// Writes the buffer out: at the program's end. What comes later is written at the next mark.
void write_events_out();

}  // namespace gpumem::tracer
