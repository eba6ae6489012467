// SPDX-License-Identifier: Apache-2.0
// The dispatch key under which the tracer sees every operator. Runs inside the job's Python, in probes only.
#pragma once

#include <c10/core/DispatchKey.h>
#include <torch/version.h>

namespace gpumem::tracer {

// Note [The dispatch key]
// A key below autograd and above the backends that nobody else uses: every operator passes it once, after autograd and
// autocast have had their say. `Fake` is declared and free up to 2.14, and lies above Python's modes and tensor subclasses, so
// that those are seen coming and left alone; what they call inside is not followed, as Python's fallback blocks all keys
// above its own. Keys below it that nobody uses (CustomRNGKeyId) miss the factories, which BackendSelect sends straight
// to their backend.
#if TORCH_VERSION_MAJOR != 2 || TORCH_VERSION_MINOR >= 15
#error "PyTorch 2.15 and later use the dispatch key that the tracer needs: values are not followed there yet"
#endif
#define GPUMEM_FOLLOW_KEY Fake
constexpr c10::DispatchKey kFollowKey = c10::DispatchKey::GPUMEM_FOLLOW_KEY;

}  // namespace gpumem::tracer
