// SPDX-License-Identifier: Apache-2.0
// The commonest operators' own entries into the tracer, past the boxed fallback. Runs inside the job's Python, in probes only.
#pragma once

namespace gpumem::tracer {

// Note [Unboxed entries]
// The fallback sees every operator as a stack of IValues: for each call they are made, read, and made into C++ arguments again for the
// device's kernel, which costs more than what is then done in most calls: nothing. So the commonest operators have kernels of their own
// C++ signature at the tracer's key, all instances of one template. They do what the fallback does where that is little: hand on what is
// too large to be followed, mark results that nobody computed, compute small known tensors by a direct loop (direct.h) or PyTorch's CPU
// kernel. Whatever is not that (sparse, fake, batched, lazy, an operator that is sorted differently) they box for the fallback.
// Signatures are the headers' own (at::_ops::NAME::schema), so that another version's are right; an operator that a version does not
// have, or whose kernel has another type, is left to the fallback.

// Registers them. Once a process, with torch imported.
void enter_unboxed();

}  // namespace gpumem::tracer
