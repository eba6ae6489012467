// SPDX-License-Identifier: Apache-2.0
// What every library of NVIDIA's does alike: handles are made and destroyed, keep a stream and a few numbers, and versions are
// those of the real library where the process has it. Part of libgpumem_vgpu.so; runs in the job's processes.
//
// Success is 0 in all of them. Threads: as the real libraries (library.h).
#pragma once

#include "estimator/virtual_gpu/libraries/library.h"

namespace gpumem::virtual_gpu::libraries {

// One kind of handle: its tag, and the library's words for what can be wrong (its public header).
struct HandleRules {
  HandleKind kind;
  int no_handle;     // what was given is none of that kind
  int bad_argument;  // no place for the result
  int not_ready;     // no virtual GPU
  int no_memory;     // no room for the context, or no memory on the host
};

// A handle of the current device, whose context is charged with it. `out` is written on success only.
int create_handle(const HandleRules &rules, void **out);
// Parameters, descriptors and the like: no device is used for them.
int create_object(const HandleRules &rules, void **out);
// What handle->data names is the caller's to release before.
int destroy_handle(const HandleRules &rules, void *handle);

int set_stream(const HandleRules &rules, void *handle, Stream stream);
int get_stream(const HandleRules &rules, const void *handle, Stream *stream);
// Handle::number[index], for modes.
int set_number(const HandleRules &rules, void *handle, int index, int value);
int get_number(const HandleRules &rules, const void *handle, int index, int *value);

// libraryPropertyType: 0 major, 1 minor, 2 patch. Of the real library that the process has loaded, else `fallback`.
struct LibraryVersion {
  const char *const *sonames;  // ends with nullptr
  const char *function;        // "cusolverGetProperty"
  int fallback[3];
  int bad_argument;
};
int library_property(const LibraryVersion &version, int part, int *value);
// major × `major_unit` + minor × 100 + patch, as the library's VERSION constant is made of them.
int library_version(const LibraryVersion &version, int major_unit);

}  // namespace gpumem::virtual_gpu::libraries
