// SPDX-License-Identifier: Apache-2.0
// Workspaces that real jobs on the nodes were seen to use: the table that GPUMEM_WORKSPACES names (doc/contracts.md,
// "Learned workspaces"), asked for plans that the job's own cuDNN cannot make here. Without the variable nothing is followed.
// Threads: any.
#pragma once

#include <stdint.h>

namespace gpumem::virtual_gpu::libraries {

// What the program does with backend descriptors (estimator/workspaces/plans.h).
void descriptor_created(const void *descriptor, int type);
void descriptor_destroyed(const void *descriptor);
void attribute_set(const void *descriptor, int name, int type, int64_t count, const void *values);
void attribute_got(const void *descriptor, int name, int type, int64_t count, const void *values);

// The workspace that this plan had on a real GPU of the current device's model under the job's own cuDNN version; false when
// nobody has seen it. A learned size is said in the estimate.
bool learned_workspace(const void *plan, int64_t *workspace_bytes);

}  // namespace gpumem::virtual_gpu::libraries
