// SPDX-License-Identifier: Apache-2.0
// What copies and fills do to the bytes of virtual device memory. Part of libgpumem_vgpu.so.
//
// Note [Contents]
// Small contents are real: copies and fills of up to 64 KiB are done in place. Larger ones touch no page: the
// destination is forgotten (it reads as zero) and a note keeps where its bytes came from: a source on the host with a
// sampled checksum, or the byte of a fill. A copy to the host, of any size, writes all of its destination: what is in
// touched pages, zeros elsewhere, and what notes say laid over it. A noted host source that is gone or has changed reads
// as zero, never as stale bytes. Touched pages of forgotten memory are given back to the host.
//
// Kernels do not run, so what they would have written must not be read as what lay there before. With a tracer in the
// process (GPUMEM_TRACER) every operation's outputs are followed by it, and bytes in memory are always what they should be.
// Without one, bytes are believed only if no kernel was launched since they were written, or if exactly the same range is
// read back that was written (what a program copied to the device and now fetches); everything else reads as zero.
#pragma once

#include "estimator/virtual_gpu/internal.h"

namespace gpumem::virtual_gpu {

constexpr size_t kSmallCopy = size_t{64} << 10;

// The memory is about to be unmapped: its notes end.
void drop_contents(const void *address, size_t bytes);
// A launch was made (see above); cheap.
void contents_after_launch();

// Rows of `width` bytes, as cudaMemcpy2D.
void copy_rows(void *destination, size_t destination_pitch, const void *source, size_t source_pitch, size_t width, size_t height);
// A fill by elements of 2 or 4 bytes (cuMemsetD16, cuMemsetD32).
void fill_pattern(void *destination, uint32_t value, int element_bytes, size_t count);

}  // namespace gpumem::virtual_gpu
