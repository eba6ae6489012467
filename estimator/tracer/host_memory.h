// SPDX-License-Identifier: Apache-2.0
// Pages of large host tensors: giving them back, and what maps them. Runs inside the job's Python, in probes only.
#pragma once

#include <ATen/core/Tensor.h>

namespace gpumem::tracer {

// Makes a contiguous tensor's bytes read as zero, giving whole pages back to the host. False where the memory is not the
// plain heap's (pinned, shared, mapped, somebody else's), which must not be touched so: nothing was changed then.
bool make_zero(const at::Tensor& t);

// Whether these bytes are a private mapping of a file (safetensors, torch.load(mmap=True), numpy.memmap).
bool is_file_mapped(const c10::DataPtr& storage, const void* address);

// A private, writable mapping of a file has been made, `file` open for reading it from its start: owned by the callee. Its large
// holes are mapped anew, so that reading them costs no memory.
void note_mapping(const void* address, size_t size, int file);

// Writes bytes at a file's position and moves it past them; pages that nobody has touched become
// holes, and so do those of a noted mapping where its file has one. False: errno says why.
bool write_sparse(int file, const char* bytes, size_t size);

// Whether samples of the tensor's bytes are all zero.
bool reads_as_zero(const at::Tensor& t);

}  // namespace gpumem::tracer
