// SPDX-License-Identifier: Apache-2.0
// Small host memory and handles of the virtual GPU. Part of libgpumem_vgpu.so.
//
// Every handle that a program gets (stream, event, graph, pool, module, library handle) is a slot of one reserved arena:
// whether a pointer is a handle, and of which kind, is known without following it. Slots are 128 bytes and recycled.
// allocate_zeroed (internal.h) serves bookkeeping of any size from its own mapped pages.
#pragma once

#include "estimator/virtual_gpu/internal.h"

namespace gpumem::virtual_gpu {

constexpr size_t kObjectSize = 128;

// Tags of our own objects; libraries' kinds begin at 0x4c00.
enum ObjectKind : uint32_t {
  kFreeObject = 0,
  kStreamObject = 0x100, kEventObject, kGraphObject, kGraphExecObject, kGraphNodeObject,
  kPoolObject, kContextObject, kModuleObject, kFunctionObject, kLinkObject, kPhysicalObject, kUserObject,
  kArrayObject, kTextureObject, kMipmappedObject, kGreenObject, kResourceObject,
  kExternalMemoryObject, kExternalSemaphoreObject, kReferenceObject,
};

// A zeroed slot whose first word is the kind; nullptr when the host has no memory.
void *new_object(uint32_t kind);
// The pointer if it is a living object of that kind, else nullptr.
void *find_object(const void *pointer, uint32_t kind);
// An object of any kind was there once; none may be now.
bool was_object(const void *pointer);
void delete_object(void *object);

template <class T>
T *make(uint32_t kind) {
  static_assert(sizeof(T) <= kObjectSize, "an object's struct must fit a slot");
  return static_cast<T *>(new_object(kind));
}

template <class T>
T *find(const void *pointer, uint32_t kind) {
  return static_cast<T *>(find_object(pointer, kind));
}

}  // namespace gpumem::virtual_gpu
