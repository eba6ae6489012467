// SPDX-License-Identifier: Apache-2.0
// The tracer as one translation unit: torch's headers are read once, so that it compiles in seconds in a job's environment.

#include "allocator_events.cpp"
#include "choices.cpp"
#include "cpu_run.cpp"
#include "fallback.cpp"
#include "generator_skips.cpp"
#include "host_memory.cpp"
#include "interface.cpp"
#include "lazy_host.cpp"
#include "lazy_recipes.cpp"
#include "loans.cpp"
#include "older_kernels.cpp"
#include "operators.cpp"
#include "python_handlers.cpp"
#include "sparse.cpp"
#include "storage_states.cpp"
#include "value_sizes.cpp"
