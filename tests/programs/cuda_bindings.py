# SPDX-License-Identifier: Apache-2.0
# What: NVIDIA's Python bindings of the runtime, the driver and NVRTC beside torch: memory, pools, virtual memory, a kernel compiled and launched.
# needs: cuda-bindings torch>=2.9
import ctypes

import torch
from cuda.bindings import driver, nvrtc, runtime

MIB = 1 << 20


def check(answer):
    error, rest = answer[0], answer[1:]
    assert int(error) == 0, error
    return rest[0] if len(rest) == 1 else rest or None


torch.ones(1, device="cuda")
free = lambda: torch.cuda.mem_get_info()[0]  # noqa: E731

assert check(runtime.cudaGetDeviceCount()) == 1
properties = check(runtime.cudaGetDeviceProperties(0))
seen = torch.cuda.get_device_properties(0)
assert properties.name.decode() == seen.name and properties.multiProcessorCount == seen.multi_processor_count
assert properties.totalGlobalMem == seen.total_memory and (properties.major, properties.minor) == (seen.major, seen.minor)

before = free()
pointer = check(runtime.cudaMalloc(16 * MIB))
assert before - free() == 16 * MIB
back = ctypes.create_string_buffer(4)
check(runtime.cudaMemset(pointer, 5, 4))
check(runtime.cudaMemcpy(ctypes.addressof(back), pointer, 4, runtime.cudaMemcpyKind.cudaMemcpyDeviceToHost))
assert back.raw == b"\5\5\5\5"
check(runtime.cudaFree(pointer))
assert int(runtime.cudaFree(pointer)[0]) == 1
runtime.cudaGetLastError()

# The driver
check(driver.cuInit(0))
device = check(driver.cuDeviceGet(0))
context = check(driver.cuDevicePrimaryCtxRetain(device))
check(driver.cuCtxSetCurrent(context))
assert check(driver.cuDeviceGetAttribute(driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device)) == seen.multi_processor_count

# Virtual memory management
wish = driver.CUmemAllocationProp()
wish.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
wish.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
wish.location.id = 0
unit = check(driver.cuMemGetAllocationGranularity(wish, driver.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM))
assert unit == 2 * MIB
before = free()
address = check(driver.cuMemAddressReserve(4 * unit, 0, 0, 0))
memory = check(driver.cuMemCreate(2 * unit, wish, 0))
check(driver.cuMemMap(address, 2 * unit, 0, memory, 0))
access = driver.CUmemAccessDesc()
access.location = wish.location
access.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
check(driver.cuMemSetAccess(address, 2 * unit, [access], 1))
assert before - free() == 2 * unit
check(driver.cuMemsetD32(address, 7, 1))
check(driver.cuMemUnmap(address, 2 * unit))
check(driver.cuMemRelease(memory))
check(driver.cuMemAddressFree(address, 4 * unit))
assert free() == before

# Pools of device and of host memory
for kind in ("Device", "Host"):
    wish = runtime.cudaMemPoolProps()
    wish.allocType = runtime.cudaMemAllocationType.cudaMemAllocationTypePinned
    wish.location.type = getattr(runtime.cudaMemLocationType, f"cudaMemLocationType{kind}")
    wish.location.id = 0
    pool = check(runtime.cudaMemPoolCreate(wish))
    block = check(runtime.cudaMallocFromPoolAsync(4 * MIB, pool, 0))
    assert (before - free() >= 4 * MIB) == (kind == "Device")
    about = check(runtime.cudaPointerGetAttributes(block))
    assert int(about.type) == (2 if kind == "Device" else 1), about.type
    check(runtime.cudaFreeAsync(block, 0))
    check(runtime.cudaDeviceSynchronize())
    check(runtime.cudaMemPoolDestroy(pool))
    assert free() == before

# Arrays and textures
channel = runtime.cudaChannelFormatDesc()
channel.x, channel.f = 32, runtime.cudaChannelFormatKind.cudaChannelFormatKindFloat
array = check(runtime.cudaMallocArray(channel, 1024, 512, 0))
assert before - free() >= 2 * MIB
values = (ctypes.c_float * 4)(1, 2, 3, 4)
check(runtime.cudaMemcpy2DToArray(array, 16, 3, ctypes.addressof(values), 16, 16, 1, runtime.cudaMemcpyKind.cudaMemcpyHostToDevice))
back = (ctypes.c_float * 4)()
check(runtime.cudaMemcpy2DFromArray(ctypes.addressof(back), 16, array, 16, 3, 16, 1, runtime.cudaMemcpyKind.cudaMemcpyDeviceToHost))
assert list(back) == [1, 2, 3, 4]
resource = runtime.cudaResourceDesc()
resource.resType = runtime.cudaResourceType.cudaResourceTypeArray
resource.res.array.array = array
texture = check(runtime.cudaCreateTextureObject(resource, runtime.cudaTextureDesc(), None))
assert int(texture) != 0
check(runtime.cudaDestroyTextureObject(texture))
check(runtime.cudaFreeArray(array))
assert free() == before

# A kernel: compiled by NVRTC, loaded by the driver, launched, not run
source = b'extern "C" __global__ void scale(float *x, float by) { x[blockIdx.x * blockDim.x + threadIdx.x] *= by; }'
program = check(nvrtc.nvrtcCreateProgram(source, b"scale.cu", 0, [], []))
options = [f"--gpu-architecture=sm_{seen.major}{seen.minor}".encode()]
check(nvrtc.nvrtcCompileProgram(program, 1, options))
cubin = b" " * check(nvrtc.nvrtcGetCUBINSize(program))
check(nvrtc.nvrtcGetCUBIN(program, cubin))
module = check(driver.cuModuleLoadData(cubin))
kernel = check(driver.cuModuleGetFunction(module, b"scale"))
x = torch.ones(256, device="cuda")
check(driver.cuLaunchKernel(kernel, 1, 1, 1, 256, 1, 1, 0, 0, ((x.data_ptr(), 2.0), (ctypes.c_void_p, ctypes.c_float)), 0))
check(driver.cuCtxSynchronize())
check(driver.cuModuleUnload(module))

# Graphs
stream = check(runtime.cudaStreamCreateWithFlags(runtime.cudaStreamNonBlocking))
check(runtime.cudaStreamBeginCapture(stream, runtime.cudaStreamCaptureMode.cudaStreamCaptureModeGlobal))
check(runtime.cudaMemsetAsync(x.data_ptr(), 0, 1024, stream))
graph = check(runtime.cudaStreamEndCapture(stream))
exec_ = check(runtime.cudaGraphInstantiate(graph, 0))
check(runtime.cudaGraphLaunch(exec_, stream))
check(runtime.cudaStreamSynchronize(stream))
check(runtime.cudaGraphExecDestroy(exec_))
check(runtime.cudaGraphDestroy(graph))
print("ok")
