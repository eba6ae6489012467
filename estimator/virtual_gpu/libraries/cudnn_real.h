// SPDX-License-Identifier: Apache-2.0
// The real cuDNN that plans: heuristics, engine configurations and workspace sizes are its own. Runs in the job's processes.
//
// Note [cuDNN without a GPU]
// From 9.8 on cuDNN plans for a GPU that is not there, if a device-property descriptor (built from the JSON of the
// GPU's profile) takes the place of a handle. Which cuDNN is asked, in this order:
//   1. the job's own, if it is 9.8 or newer;
//   2. the one that GPUMEM_CUDNN names (absolute path of a libcudnn.so.9), loaded beside the job's own;
//   3. none: convolutions get one plan without workspace, and the estimate says so.
// Beside the job's own: cuDNN 9 is a thin libcudnn.so.9 that opens its parts by SONAME (libcudnn_graph.so.9, …), and the
// loader gives a part that is already loaded under that name to whoever asks. So the parts of the newer one are loaded
// first, by absolute path, and the job's own is never called, for calling it would load its parts; its version is read
// from its file. Preloading the newer one with LD_PRELOAD would also replace the job's version number and cost every process.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace gpumem::virtual_gpu::libraries {

struct RealCudnn {
  void *library;
  int (*create)(int type, void **descriptor);
  int (*destroy)(void *descriptor);
  int (*set)(void *descriptor, int name, int type, int64_t count, const void *values);
  int (*get)(void *descriptor, int name, int type, int64_t requested, int64_t *count, void *values);
  int (*finalize)(void *descriptor);
  size_t version;  // MAJOR*10000 + MINOR*100 + PATCH
};

// The cuDNN that plans, found at the first call; nullptr if there is none.
const RealCudnn *real_cudnn();

// A part of the cuDNN that plans ("libcudnn_adv.so.9"), loaded from its folder; nullptr if it is not there.
void *cudnn_part(const RealCudnn &real, const char *name);

// Version of the job's own cuDNN as cudnnGetVersion gives it (91900; 8907 for cuDNN 8); of the planning one, or 90000, if
// the job has none.
size_t job_cudnn_version();

// A function of the job's own cuDNN, nullptr unless it is new enough to plan (see the note: an older one is never called).
void *job_cudnn_function(const char *name);

// Of the file of a libcudnn_graph.so.9: its cuDNN version, or 0.
size_t cudnn_version_of_file(const char *path);

}  // namespace gpumem::virtual_gpu::libraries
