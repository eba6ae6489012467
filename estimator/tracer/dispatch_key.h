// SPDX-License-Identifier: Apache-2.0
// The dispatch key under which the tracer sees every operator. Runs inside the job's Python, in probes only.
#pragma once

#include <c10/core/DispatchKey.h>
#include <torch/version.h>

namespace gpumem::tracer {

// Note [The dispatch key]
// A key below autograd and above the backends that nobody else uses: every operator passes it once, after autograd and
// autocast have had their say. Up to 2.14 `Fake` is declared and free, and lies above Python's modes and tensor subclasses, so
// that those are seen coming and left alone. PyTorch 2.15 uses it for fake tensors in C++; the key that PyTorch declares for
// its own tests of such modes takes its place there.
#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 15
#define GPUMEM_FOLLOW_KEY Fake
#else
#define GPUMEM_FOLLOW_KEY TESTING_ONLY_GenericMode
#endif
constexpr c10::DispatchKey kFollowKey = c10::DispatchKey::GPUMEM_FOLLOW_KEY;

}  // namespace gpumem::tracer
