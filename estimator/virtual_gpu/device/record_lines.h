// SPDX-License-Identifier: Apache-2.0
// Lines of a probe's record that the virtual GPU writes, and the one of device memory. Part of libgpumem_vgpu.so.
//
// Nothing is written, and nothing costs more than a look at the environment, where GPUMEM_RECORD names no directory. A line is one
// write: it survives _exit and SIGKILL. What cannot be written is not: the program must not feel it.
//
// Note [Device memory by time]
// PyTorch's events say when its allocator took memory; these lines say when anything of the process did, PyTorch's segments among
// them: memory-<pid>.jsonl (contracts: Record). A reader knows PyTorch's by their addresses, and from those how the two
// clocks differ; what is left are libraries, NCCL and the program's own cudaMalloc, each between the right two events.
// Time is Unix time at the first line and CLOCK_MONOTONIC from there, as the events have it: it never goes back.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace gpumem::virtual_gpu {

// Appends to FILE-<pid>.jsonl in the record's directory.
void write_record_line(const char *file, const char *line, size_t bytes);

// `device` is the program's ordinal; `what` the address, of physical memory the handle, of accounts without addresses 0.
// Taken is said after it was charged, returned before it is discharged: no address is said twice in between.
void record_taken(int device, uint64_t bytes, uintptr_t what);
void record_returned(int device, uint64_t bytes, uintptr_t what);
// Physical memory got an address.
void record_mapped(uintptr_t handle, uintptr_t address);

}  // namespace gpumem::virtual_gpu
