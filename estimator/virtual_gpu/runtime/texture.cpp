// SPDX-License-Identifier: Apache-2.0
// CUDA runtime: texture and surface objects (device/textures.h). Part of libgpumem_vgpu.so, preloaded into jobs.
// The structures grew with the generations: 11's texture lacks its last word unless a function is named _v2, and 13's resources and views
// have reserved words behind.

#include "estimator/virtual_gpu/device/textures.h"
#include "estimator/virtual_gpu/runtime/runtime.h"

using Texture = unsigned long long;

#define CREATED(name, version, function, bytes)                                                                  \
  VERSIONED(name, version) int function(Texture *texture, const void *resource, const void *how, const void *view) { \
    return done(make_texture(texture, resource, how, bytes, view));                                              \
  }
CREATED(cudaCreateTextureObject, CUDA11, cudaCreateTextureObject_cuda11, kOldTextureBytes)
CREATED(cudaCreateTextureObject, CUDA12, cudaCreateTextureObject_cuda12, kTextureBytes)
CREATED(cudaCreateTextureObject, CUDA13, cudaCreateTextureObject_cuda13, kTextureBytes)
#undef CREATED
GPUMEM_EXPORT int cudaCreateTextureObject_v2(Texture *texture, const void *resource, const void *how, const void *view) {
  return done(make_texture(texture, resource, how, kTextureBytes, view));
}
GPUMEM_EXPORT int cudaDestroyTextureObject(Texture texture) { return done(delete_texture(texture)); }
GPUMEM_EXPORT int cudaCreateSurfaceObject(Texture *surface, const void *resource) { return done(make_surface(surface, resource)); }
GPUMEM_EXPORT int cudaDestroySurfaceObject(Texture surface) { return done(delete_surface(surface)); }

#define TOLD(name, version, function, question, bytes) \
  VERSIONED(name, version) int function(void *out, Texture object) { return done(question(out, bytes, object)); }
TOLD(cudaGetTextureObjectTextureDesc, CUDA11, cudaGetTextureObjectTextureDesc_cuda11, texture_how, kOldTextureBytes)
TOLD(cudaGetTextureObjectTextureDesc, CUDA12, cudaGetTextureObjectTextureDesc_cuda12, texture_how, kTextureBytes)
TOLD(cudaGetTextureObjectTextureDesc, CUDA13, cudaGetTextureObjectTextureDesc_cuda13, texture_how, kTextureBytes)
TOLD(cudaGetTextureObjectResourceDesc, CUDA11, cudaGetTextureObjectResourceDesc_cuda11, texture_resource, kResourceBytes)
TOLD(cudaGetTextureObjectResourceDesc, CUDA12, cudaGetTextureObjectResourceDesc_cuda12, texture_resource, kResourceBytes)
TOLD(cudaGetTextureObjectResourceDesc, CUDA13, cudaGetTextureObjectResourceDesc_cuda13, texture_resource, kLongResourceBytes)
TOLD(cudaGetTextureObjectResourceViewDesc, CUDA11, cudaGetTextureObjectResourceViewDesc_cuda11, texture_view, kViewBytes)
TOLD(cudaGetTextureObjectResourceViewDesc, CUDA12, cudaGetTextureObjectResourceViewDesc_cuda12, texture_view, kViewBytes)
TOLD(cudaGetTextureObjectResourceViewDesc, CUDA13, cudaGetTextureObjectResourceViewDesc_cuda13, texture_view, kLongViewBytes)
TOLD(cudaGetSurfaceObjectResourceDesc, CUDA11, cudaGetSurfaceObjectResourceDesc_cuda11, surface_resource, kResourceBytes)
TOLD(cudaGetSurfaceObjectResourceDesc, CUDA12, cudaGetSurfaceObjectResourceDesc_cuda12, surface_resource, kResourceBytes)
TOLD(cudaGetSurfaceObjectResourceDesc, CUDA13, cudaGetSurfaceObjectResourceDesc_cuda13, surface_resource, kLongResourceBytes)
#undef TOLD
GPUMEM_EXPORT int cudaGetTextureObjectTextureDesc_v2(void *how, Texture texture) { return done(texture_how(how, kTextureBytes, texture)); }
