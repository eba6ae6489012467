// SPDX-License-Identifier: Apache-2.0
// Texture and surface objects. Part of libgpumem_vgpu.so, preloaded into jobs.
//
// Handles that keep what they were made from, to say it again: only kernels would read through them. The runtime and the driver
// describe a resource and a view alike (the driver and CUDA 13 with reserved words behind, which read as zero) and the way of reading
// each in its own manner: an object's is told by the interface that made it.
#pragma once

#include "estimator/virtual_gpu/device/state.h"

namespace gpumem::virtual_gpu {

constexpr size_t kResourceBytes = 64, kViewBytes = 48;     // of cudaResourceDesc, cudaResourceViewDesc: what has a meaning
constexpr size_t kLongResourceBytes = 144, kLongViewBytes = 112;  // CUDA_RESOURCE_DESC, CUDA_RESOURCE_VIEW_DESC, and the runtime's of CUDA 13
// cudaTextureDesc of CUDA 11, and since its _v2; CUDA_TEXTURE_DESC.
constexpr size_t kOldTextureBytes = 68, kTextureBytes = 72, kDriverTextureBytes = 104;

// `how`: a description of so many bytes; `view` may be null.
Error make_texture(unsigned long long *texture, const void *resource, const void *how, size_t how_bytes, const void *view);
Error make_surface(unsigned long long *surface, const void *resource);
// Written with zeros behind, as long as the caller's structure is.
Error texture_resource(void *resource, size_t bytes, unsigned long long texture);
Error surface_resource(void *resource, size_t bytes, unsigned long long surface);
Error texture_how(void *how, size_t bytes, unsigned long long texture);
Error texture_view(void *view, size_t bytes, unsigned long long texture);
Error delete_texture(unsigned long long texture);
Error delete_surface(unsigned long long surface);

}  // namespace gpumem::virtual_gpu
