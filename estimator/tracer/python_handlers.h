// SPDX-License-Identifier: Apache-2.0
// Values inside dispatch modes and tensor subclasses written in Python. Runs inside the job's Python, in probes only.
#pragma once

namespace gpumem::tracer {

// Note [Python's handlers]
// Where PyTorch hands an operator to Python (TorchDispatchMode: FlopCounterMode, FakeTensorMode, the policies of selective
// checkpointing; subclasses with __torch_dispatch__: DTensor, jagged tensors), it excludes all keys above Python's own for as long
// as the handler runs, the tracer's among them. What a handler computes is as real as anything else: it must be followed, or what it
// writes keeps the values of before. So the one function through which PyTorch calls handlers (PyInterpreterVTable::dispatch)
// is replaced by one that takes the tracer's key out of the excluded ones meanwhile. Where the key lies below Python's (2.15 on) there
// is nothing to do.

// Once a process, with torch imported. False: what handlers compute is not followed.
bool follow_python_handlers();

}  // namespace gpumem::tracer
