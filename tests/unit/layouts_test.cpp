// SPDX-License-Identifier: Apache-2.0
// Our declarations of CUDA's structures against the table from NVIDIA's headers, by generation. A part of virtual_gpu_test: it passes
// where it compiles.

#include <stddef.h>

#include <string_view>

#include "estimator/cuda_interface/types.h"
#include "estimator/virtual_gpu/device/graph_nodes.h"
#include "estimator/virtual_gpu/device/textures.h"

namespace cuda = gpumem::cuda;
namespace virtual_gpu = gpumem::virtual_gpu;

namespace {

#define CHECK_SIZE(type, bytes) static_assert(sizeof(cuda::type) == bytes, #type)
// A field that a minor version brought has the place of reserved ones; they are named here, everything else must be ours.
constexpr bool is_newer(std::string_view name) {
  for (std::string_view newer : {"localized", "localityDomainOrdinal", "unused", "deviceNodeUpdateStatus", "sharedMemoryMode", "ctx"})
    if (name == newer) return true;
  return false;
}
#define CHECK_FIELD(type, name, at)                                                                                        \
  static_assert([]<class T>(T *t) {                                                                                        \
    if constexpr (requires { t->name; }) return std::string_view(#name) == "reserved" || offsetof(T, name) == at;          \
    else return is_newer(#name);                                                                                           \
  }(static_cast<cuda::type *>(nullptr)), #type "." #name)
#define IGNORE(...)
// Structures that are kept and said again as they are: their sizes count.
#define CHECK_BYTES(expected, bytes) static_assert((expected) == (bytes));

#define SIZE(generation, structure, bytes) SIZE_##structure(generation, bytes)
#define FIELD(generation, structure, name, offset) FIELD_##structure(generation, name, offset)
#define SIZE_PointerAttributes(g, bytes) static_assert((g == 13 ? sizeof(cuda::PointerAttributes13) : sizeof(cuda::PointerAttributes)) == bytes);
#define FIELD_PointerAttributes(g, name, at) CHECK_FIELD(PointerAttributes13, name, at);
#define SIZE_FunctionAttributes(g, bytes) static_assert((g == 11 ? sizeof(cuda::FunctionAttributes) : sizeof(cuda::FunctionAttributes12)) == bytes);
#define FIELD_FunctionAttributes(g, name, at) CHECK_FIELD(FunctionAttributes12, name, at);
#define SIZE_MemoryLocation(g, bytes) CHECK_SIZE(MemoryLocation, bytes);
#define FIELD_MemoryLocation(g, name, at) CHECK_FIELD(MemoryLocation, name, at);
#define SIZE_MemoryAccess(g, bytes) CHECK_SIZE(MemoryAccess, bytes);
#define FIELD_MemoryAccess(g, name, at) CHECK_FIELD(MemoryAccess, name, at);
#define SIZE_MemoryPoolProperties(g, bytes) CHECK_SIZE(MemoryPoolProperties, bytes);
#define FIELD_MemoryPoolProperties IGNORE  // the tail differs by generation and is not looked at
#define SIZE_MemoryNodeParameters(g, bytes) CHECK_SIZE(MemoryNodeParameters, bytes);
#define FIELD_MemoryNodeParameters(g, name, at) CHECK_FIELD(MemoryNodeParameters, name, at);
#define SIZE_ConditionalNodeParameters(g, bytes) static_assert(bytes >= sizeof(cuda::ConditionalNodeParameters));
#define FIELD_ConditionalNodeParameters(g, name, at) CHECK_FIELD(ConditionalNodeParameters, name, at);
#define SIZE_PeerCopy3D(g, bytes) CHECK_SIZE(PeerCopy3D, bytes);
#define FIELD_PeerCopy3D(g, name, at) CHECK_FIELD(PeerCopy3D, name, at);
#define SIZE_LaunchConfiguration(g, bytes) CHECK_SIZE(LaunchConfiguration, bytes);
#define FIELD_LaunchConfiguration(g, name, at) CHECK_FIELD(LaunchConfiguration, name, at);
#define SIZE_PitchedPointer(g, bytes) CHECK_SIZE(PitchedPointer, bytes);
#define FIELD_PitchedPointer(g, name, at) CHECK_FIELD(PitchedPointer, name, at);
#define SIZE_Position(g, bytes) CHECK_SIZE(Position, bytes);
#define FIELD_Position(g, name, at) CHECK_FIELD(Position, name, at);
#define SIZE_Extent(g, bytes) CHECK_SIZE(Extent, bytes);
#define FIELD_Extent(g, name, at) CHECK_FIELD(Extent, name, at);
#define SIZE_Copy3D(g, bytes) CHECK_SIZE(Copy3D, bytes);
#define FIELD_Copy3D(g, name, at) CHECK_FIELD(Copy3D, name, at);
#define SIZE_GraphEdge(g, bytes) CHECK_SIZE(GraphEdge, bytes);
#define FIELD_GraphEdge(g, name, at) CHECK_FIELD(GraphEdge, name, at);
#define SIZE_GraphUpdateResult(g, bytes) CHECK_SIZE(GraphUpdateResult, bytes);
#define FIELD_GraphUpdateResult(g, name, at) CHECK_FIELD(GraphUpdateResult, name, at);
#define SIZE_GraphInstantiateParameters(g, bytes) CHECK_SIZE(GraphInstantiateParameters, bytes);
#define FIELD_GraphInstantiateParameters(g, name, at) CHECK_FIELD(GraphInstantiateParameters, name, at);
#define SIZE_HostNodeParameters IGNORE
#define FIELD_HostNodeParameters IGNORE
#define SIZE_IpcHandle(g, bytes) CHECK_SIZE(IpcHandle, bytes);
#define FIELD_IpcHandle(g, name, at) CHECK_FIELD(IpcHandle, name, at);
#define SIZE_PhysicalProperties(g, bytes) CHECK_SIZE(PhysicalProperties, bytes);
#define FIELD_PhysicalProperties(g, name, at) CHECK_FIELD(PhysicalProperties, name, at);
#define SIZE_PhysicalAccess(g, bytes) CHECK_SIZE(PhysicalAccess, bytes);
#define FIELD_PhysicalAccess(g, name, at) CHECK_FIELD(PhysicalAccess, name, at);
#define SIZE_DriverCopy2D(g, bytes) CHECK_SIZE(DriverCopy2D, bytes);
#define FIELD_DriverCopy2D(g, name, at) CHECK_FIELD(DriverCopy2D, name, at);
#define SIZE_DriverUuid(g, bytes) CHECK_SIZE(DriverUuid, bytes);
#define FIELD_DriverUuid(g, name, at) CHECK_FIELD(DriverUuid, name, at);
#define SIZE_DriverLaunchConfiguration(g, bytes) CHECK_SIZE(DriverLaunchConfiguration, bytes);
#define FIELD_DriverLaunchConfiguration(g, name, at) CHECK_FIELD(DriverLaunchConfiguration, name, at);
#define SIZE_DriverLegacyProperties(g, bytes) CHECK_SIZE(DriverLegacyProperties, bytes);
#define FIELD_DriverLegacyProperties(g, name, at) CHECK_FIELD(DriverLegacyProperties, name, at);
#define SIZE_ResourceDescription(g, bytes) CHECK_BYTES(g == 13 ? virtual_gpu::kLongResourceBytes : virtual_gpu::kResourceBytes, bytes)
#define FIELD_ResourceDescription IGNORE
#define SIZE_ViewDescription(g, bytes) CHECK_BYTES(g == 13 ? virtual_gpu::kLongViewBytes : virtual_gpu::kViewBytes, bytes)
#define FIELD_ViewDescription IGNORE
#define SIZE_DriverTextureDescription(g, bytes) CHECK_BYTES(virtual_gpu::kDriverTextureBytes, bytes)
#define FIELD_DriverTextureDescription IGNORE
#define SIZE_DriverResourceDescription(g, bytes) CHECK_BYTES(virtual_gpu::kLongResourceBytes, bytes)
#define FIELD_DriverResourceDescription IGNORE
#define SIZE_DriverViewDescription(g, bytes) CHECK_BYTES(virtual_gpu::kLongViewBytes, bytes)
#define FIELD_DriverViewDescription IGNORE
#define SIZE_FillNode(g, bytes) CHECK_BYTES(virtual_gpu::kFillBytes, bytes)
#define FIELD_FillNode IGNORE
#define SIZE_DriverFillNode(g, bytes) CHECK_BYTES(virtual_gpu::kFillBytes, bytes)
#define FIELD_DriverFillNode IGNORE
#define SIZE_DriverCopyNode(g, bytes) CHECK_BYTES(virtual_gpu::kDriverCopyBytes, bytes)
#define FIELD_DriverCopyNode IGNORE
#define SIZE_DriverHostNode(g, bytes) CHECK_BYTES(virtual_gpu::kHostBytes, bytes)
#define FIELD_DriverHostNode IGNORE
#define SIZE_SemaphoreNode(g, bytes) CHECK_BYTES(sizeof(virtual_gpu::SemaphoreNodeParameters), bytes)
#define FIELD_SemaphoreNode IGNORE
#define SIZE_DriverSemaphoreNode(g, bytes) CHECK_BYTES(sizeof(virtual_gpu::SemaphoreNodeParameters), bytes)
#define FIELD_DriverSemaphoreNode IGNORE
#define SIZE_SignalParameters(g, bytes) CHECK_BYTES(virtual_gpu::kSemaphoreBytes, bytes)
#define FIELD_SignalParameters IGNORE
#define SIZE_WaitParameters(g, bytes) CHECK_BYTES(virtual_gpu::kSemaphoreBytes, bytes)
#define FIELD_WaitParameters IGNORE
#define SIZE_DriverBatchNode(g, bytes) CHECK_BYTES(sizeof(virtual_gpu::BatchNodeParameters), bytes)
#define FIELD_DriverBatchNode IGNORE
#define SIZE_NvmlMemory IGNORE
#define FIELD_NvmlMemory IGNORE
#define SIZE_NvmlMemoryV2 IGNORE
#define FIELD_NvmlMemoryV2 IGNORE
#define SIZE_NvmlProcessV1 IGNORE
#define FIELD_NvmlProcessV1 IGNORE
#define SIZE_NvmlProcessV2 IGNORE
#define FIELD_NvmlProcessV2 IGNORE
#define SIZE_NvmlPci IGNORE
#define FIELD_NvmlPci IGNORE
#define SIZE_NvmlUtilization IGNORE
#define FIELD_NvmlUtilization IGNORE
#define SIZE_NvmlBar1 IGNORE
#define FIELD_NvmlBar1 IGNORE
#include "estimator/cuda_interface/layouts.def"

}  // namespace
