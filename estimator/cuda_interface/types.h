// SPDX-License-Identifier: Apache-2.0
// Our own declarations of CUDA's public types, as far as the virtual GPU and the meter touch them.
// Facts only (names, numbers, layouts); tests/unit/layouts_test.cpp checks each layout against layouts.def, which
// regenerate.py derives from the headers of CUDA 11.8, 12 and 13. Field names are NVIDIA's, so that the check can name them.
// Where generations differ, the struct's name ends with the first generation that has the layout.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace gpumem::cuda {

// cudaError_t and CUresult: the same numbers mean the same since CUDA 11. errors.def has all of them with their texts.
enum Error : int {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,           // cudaErrorMemoryAllocation, CUDA_ERROR_OUT_OF_MEMORY
  kNotInitialized = 3,        // cudaErrorInitializationError
  kInvalidSymbol = 13,
  kInvalidMemcpyDirection = 21,
  kMissingConfiguration = 52,
  kNoDevice = 100,
  kInvalidDevice = 101,
  kInvalidContext = 201,
  kNotMapped = 211,
  kPeerAccessUnsupported = 217,
  kFileNotFound = 301,
  kOperatingSystem = 304,     // what a host failure is called: never out of memory
  kInvalidHandle = 400,
  kNotFound = 500,
  kNotReady = 600,
  kPeerAccessAlreadyEnabled = 704,
  kPeerAccessNotEnabled = 705,
  kHostMemoryAlreadyRegistered = 712,
  kHostMemoryNotRegistered = 713,
  kNotPermitted = 800,
  kNotSupported = 801,
  kStreamCaptureUnsupported = 900,
  kStreamCaptureInvalidated = 901,
  kStreamCaptureUnmatched = 903,
  kUnknown = 999,
};

enum CopyKind : int { kHostToHost = 0, kHostToDevice = 1, kDeviceToHost = 2, kDeviceToDevice = 3, kDefaultKind = 4 };

enum MemoryType : int { kUnregistered = 0, kHost = 1, kDevice = 2, kManaged = 3 };

enum CaptureStatus : int { kCaptureNone = 0, kCaptureActive = 1, kCaptureInvalidated = 2 };

enum LocationType : int { kLocationNone = 0, kLocationDevice = 1, kLocationHost = 2, kLocationNuma = 3, kLocationNumaCurrent = 4 };

struct Dim3 {
  unsigned x, y, z;
};

struct PointerAttributes {  // CUDA 11 and 12
  int type;
  int device;
  void *devicePointer;
  void *hostPointer;
};

struct PointerAttributes13 {
  int type;
  int device;
  void *devicePointer;
  void *hostPointer;
  long reserved[8];
};

struct FunctionAttributes {  // CUDA 11
  size_t sharedSizeBytes, constSizeBytes, localSizeBytes;
  int maxThreadsPerBlock, numRegs, ptxVersion, binaryVersion, cacheModeCA, maxDynamicSharedSizeBytes, preferredShmemCarveout;
};

struct FunctionAttributes12 {
  size_t sharedSizeBytes, constSizeBytes, localSizeBytes;
  int maxThreadsPerBlock, numRegs, ptxVersion, binaryVersion, cacheModeCA, maxDynamicSharedSizeBytes, preferredShmemCarveout;
  int clusterDimMustBeSet, requiredClusterWidth, requiredClusterHeight, requiredClusterDepth;
  int clusterSchedulingPolicyPreference, nonPortableClusterSizeAllowed;
  int reserved[16];
};

struct MemoryLocation {
  int type;
  int id;
};

struct MemoryAccess {
  MemoryLocation location;
  int flags;
};

struct MemoryPoolProperties {
  int allocType;
  int handleTypes;
  MemoryLocation location;
  void *win32SecurityAttributes;
  unsigned char reserved[64];
};

struct MemoryNodeParameters {
  MemoryPoolProperties poolProps;
  const void *accessDescs;
  size_t accessDescCount, bytesize;
  void *dptr;
};

struct ConditionalNodeParameters {
  unsigned long long handle;
  int type;
  unsigned size;
  void **phGraph_out;
};

struct LaunchConfiguration {
  Dim3 gridDim, blockDim;
  size_t dynamicSmemBytes;
  void *stream;
  void *attrs;
  unsigned numAttrs;
};

struct DriverLaunchConfiguration {
  unsigned gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes;
  void *hStream;
  void *attrs;
  unsigned numAttrs;
};

struct PitchedPointer {
  void *ptr;
  size_t pitch, xsize, ysize;
};

struct Position {
  size_t x, y, z;
};

struct Extent {
  size_t width, height, depth;
};

struct Copy3D {
  void *srcArray;
  Position srcPos;
  PitchedPointer srcPtr;
  void *dstArray;
  Position dstPos;
  PitchedPointer dstPtr;
  Extent extent;
  int kind;
};

struct PeerCopy3D {
  void *srcArray;
  Position srcPos;
  PitchedPointer srcPtr;
  int srcDevice;
  void *dstArray;
  Position dstPos;
  PitchedPointer dstPtr;
  int dstDevice;
  Extent extent;
};

struct DriverCopy2D {
  size_t srcXInBytes, srcY;
  int srcMemoryType;
  const void *srcHost;
  uint64_t srcDevice;
  void *srcArray;
  size_t srcPitch;
  size_t dstXInBytes, dstY;
  int dstMemoryType;
  void *dstHost;
  uint64_t dstDevice;
  void *dstArray;
  size_t dstPitch;
  size_t WidthInBytes, Height;
};

struct GraphEdge {
  unsigned char from_port, to_port, type, reserved[5];
};

struct GraphUpdateResult {
  int result;
  void *errorNode;
  void *errorFromNode;
};

struct GraphInstantiateParameters {
  unsigned long long flags;
  void *uploadStream;
  void *errNode_out;
  int result_out;
};

struct IpcHandle {
  char reserved[64];
};

struct PhysicalProperties {
  int type;
  int requestedHandleTypes;
  MemoryLocation location;
  void *win32HandleMetaData;
  unsigned char allocFlags[8];
};

struct PhysicalAccess {
  MemoryLocation location;
  int flags;
};

struct DriverUuid {
  char bytes[16];
};

struct DriverLegacyProperties {
  int maxThreadsPerBlock, maxThreadsDim[3], maxGridSize[3], sharedMemPerBlock, totalConstantMemory, SIMDWidth, memPitch,
      regsPerBlock, clockRate, textureAlign;
};

}  // namespace gpumem::cuda
