// SPDX-License-Identifier: Apache-2.0
// Calls every function of the runtime, the driver and NVML with wrong arguments, for virtual_gpu_test: all null; all pointing to
// zeros; handles and device pointers that are gone or never were. None may crash, and where arguments were wrong none may say
// success. Libc only. Exit status 0: all was refused; else the failing calls are on standard error.

#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern "C" {
#define F(name) int name();
namespace functions {
#include "estimator/cuda_interface/runtime_functions.def"
#include "estimator/cuda_interface/driver_functions.def"
#include "estimator/cuda_interface/nvml_functions.def"
}
#undef F
}

namespace {

using Function = long (*)(uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t);

struct Entry {
  const char *name;
  int (*function)();
};
constexpr Entry kFunctions[] = {
#define F(name) {#name, functions::name},
#include "estimator/cuda_interface/runtime_functions.def"
#include "estimator/cuda_interface/driver_functions.def"
#include "estimator/cuda_interface/nvml_functions.def"
#undef F
};
constexpr size_t kCount = sizeof kFunctions / sizeof kFunctions[0];

// Null or zero is a right argument for these (device 0, the default stream, nothing to free, a hint), or they have none.
constexpr const char *kNullIsRight[] = {
#include "tests/unit/programs/vgpu_null_is_right.def"
};
// What they call or return is the caller's own: a wrong function cannot be refused; registration has no error to give.
constexpr const char *kNotCalled[] = {
    "__cudaRegisterFatBinary", "__cudaRegisterFatBinaryEnd", "__cudaUnregisterFatBinary", "__cudaRegisterFunction", "__cudaRegisterVar",
    "__cudaRegisterManagedVar", "__cudaRegisterTexture", "__cudaRegisterSurface", "__cudaRegisterHostVar", "__cudaInitModule",
    "__cudaPushCallConfiguration", "cudaCreateChannelDesc", "cudaDeviceReset", "cudaThreadExit",
    "cuCtxPopCurrent",  // takes the context that cuCtxPopCurrent_v2 is to take
};
constexpr const char *kCallBack[] = {
    "cudaLaunchHostFunc", "cudaStreamAddCallback", "cuLaunchHostFunc", "cuLaunchHostFunc_ptsz",
    "cuStreamAddCallback", "cuStreamAddCallback_ptsz", "cuOccupancyMaxPotentialBlockSize", "cuOccupancyMaxPotentialBlockSizeWithFlags",
};
// What other names stand for: judged as that.
constexpr const char *kSame[][2] = {
#define SAME(name, function) {#name, #function},
#include "estimator/cuda_interface/other_names.def"
#undef SAME
};
const char *meant(const char *name) {
  for (const auto &pair : kSame)
    if (strcmp(pair[0], name) == 0) return pair[1];
  return name;
}
template <size_t N>
bool among(const char *name, const char *const (&names)[N]) {
  for (const char *one : names)
    if (strcmp(one, name) == 0) return true;
  return false;
}

alignas(64) char zeros[1 << 16];

Function find(const char *name) {
  for (const Entry &entry : kFunctions)
    if (strcmp(entry.name, name) == 0) return reinterpret_cast<Function>(reinterpret_cast<void *>(entry.function));
  fprintf(stderr, "no %s\n", name);
  _exit(2);
}
uintptr_t address(const void *pointer) { return reinterpret_cast<uintptr_t>(pointer); }
long call(const char *name, uintptr_t a = 0, uintptr_t b = 0, uintptr_t c = 0, uintptr_t d = 0, uintptr_t e = 0) {
  return static_cast<int>(find(name)(a, b, c, d, e, 0, 0, 0, 0, 0, 0));
}

// Goes through the table in children: one more after each crash. `value`: of every argument.
int sweep(const char *what, uintptr_t value, bool check_result) {
  int wrong = 0;
  for (size_t first = 0; first < kCount;) {
    int ends[2];
    if (pipe(ends) != 0) return 1;
    const pid_t child = fork();
    if (child == 0) {
      alarm(60);
      bool said_wrong = false;
      find("nvmlInit_v2")(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
      uintptr_t warm;
      call("cudaMalloc", address(&warm), 1);
      for (size_t f = first; f < kCount; ++f) {
        const char *name = kFunctions[f].name;
        if (write(ends[1], &f, sizeof f) != sizeof f) _exit(2);
        if (among(name, kNotCalled) || (value != 0 && among(meant(name), kCallBack))) continue;
        memset(zeros, 0, sizeof zeros);
        const long result = static_cast<int>(reinterpret_cast<Function>(reinterpret_cast<void *>(kFunctions[f].function))(value, value, value, value, value, value, value, value, value, value, value));
        if (!check_result || (result == 0) == among(meant(name), kNullIsRight)) continue;
        fprintf(stderr, "%s with %s: %ld\n", name, what, result);
        said_wrong = true;
      }
      _exit(said_wrong ? 3 : 0);
    }
    close(ends[1]);
    size_t at = first;
    for (size_t next; read(ends[0], &next, sizeof next) == sizeof next;) at = next;
    close(ends[0]);
    int status = 0;
    waitpid(child, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) break;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 3) return wrong + 1;
    fprintf(stderr, "%s with %s: %s %d\n", kFunctions[at].name, what, WIFSIGNALED(status) ? "signal" : "status", WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    ++wrong;
    first = at + 1;
  }
  return wrong;
}

int refused = 0, accepted = 0;
void refuse(const char *name, uintptr_t a = 0, uintptr_t b = 0, uintptr_t c = 0, uintptr_t d = 0, uintptr_t e = 0) {
  if (call(name, a, b, c, d, e) != 0) {
    ++refused;
    return;
  }
  ++accepted;
  fprintf(stderr, "%s(%zx, %zx, %zx, %zx) should have been refused\n", name, a, b, c, d);
}

// Every handle and pointer once: made, ended, and used again.
void gone() {
  struct Made {
    const char *make, *end;
    const char *const *uses;  // each takes the handle first
  };
  static const char *const stream_uses[] = {"cudaStreamDestroy", "cudaStreamSynchronize", "cudaStreamQuery", "cudaStreamEndCapture", "cuStreamDestroy_v2",
                                            "cuStreamSynchronize", "cuStreamQuery", nullptr};
  static const char *const event_uses[] = {"cudaEventDestroy", "cudaEventQuery", "cudaEventSynchronize", "cudaEventRecord", "cuEventDestroy_v2",
                                           "cuEventQuery", "cuEventRecord", "cuEventSynchronize", nullptr};
  static const char *const graph_uses[] = {"cudaGraphDestroy", "cuGraphDestroy", nullptr};
  const Made all[] = {{"cudaStreamCreate", "cudaStreamDestroy", stream_uses}, {"cudaEventCreate", "cudaEventDestroy", event_uses},
                      {"cudaGraphCreate", "cudaGraphDestroy", graph_uses}};
  for (const Made &one : all) {
    uintptr_t handle = 0;
    if (call(one.make, address(&handle)) != 0 || call(one.end, handle) != 0) ++accepted, fprintf(stderr, "%s failed\n", one.make);
    for (const char *const *use = one.uses; *use != nullptr; ++use) {
      refuse(*use, handle);
      refuse(*use, handle + 8);            // inside a slot
      refuse(*use, 0x123456789000);        // never was
      refuse(*use, address(zeros));        // somebody's memory
    }
  }
  const size_t sizes[] = {100, size_t{1} << 20, size_t{40} << 20};
  for (size_t size : sizes) {
    uintptr_t device = 0;
    call("cudaMalloc", address(&device), size);
    refuse("cudaFree", device + 256);
    refuse("cuMemFree_v2", device + 256);
    refuse("cudaFreeHost", device);
    // Beyond its end
    refuse("cudaMemset", device, 1, size + (size_t{64} << 20));
    refuse("cudaMemset", device, 1, ~size_t{0});
    refuse("cudaMemcpy", device, address(zeros), size + (size_t{64} << 20), 1);
    refuse("cudaMemcpy", device, device, ~size_t{0} - 5, 3);
    refuse("cuMemsetD32_v2", device, 1, ~size_t{0} / 2);
    refuse("cuMemsetD32_v2", device + 1, 1, 1);
    refuse("cudaMemcpy", address(zeros), device, 10, 99);
    if (call("cudaFree", device) != 0) ++accepted;
    refuse("cudaFree", device);
    refuse("cuMemFree_v2", device);
    refuse("cudaFreeAsync", device);
    refuse("cudaMemset", device, 1, 16);
    refuse("cudaMemcpy", device, address(zeros), 16, 1);
    refuse("cudaMemcpy", address(zeros), device, 16, 2);
    refuse("cudaMemcpy", address(zeros), device, 16, 4);
    refuse("cuMemcpyHtoD_v2", device, address(zeros), 16);
    refuse("cuMemcpyDtoH_v2", address(zeros), device, 16);
    refuse("cuMemcpyDtoD_v2", device, device, 16);
    refuse("cuMemsetD8_v2", device, 1, 16);
    refuse("cudaIpcGetMemHandle", address(zeros), device);
    refuse("cudaIpcCloseMemHandle", device);
    refuse("cuStreamWriteValue32_v2", 0, device, 1, 0);
  }
  uintptr_t pool = 0, block = 0;
  call("cudaMallocAsync", address(&block), 1000, 0);
  refuse("cudaFreeAsync", block + 512);
  if (call("cudaFreeAsync", block) != 0) ++accepted;
  refuse("cudaFreeAsync", block);
  refuse("cudaFree", block);
  refuse("cudaMemPoolDestroy", pool);
  refuse("cudaMemPoolTrimTo", address(zeros));
  uintptr_t host = 0;
  call("cudaHostAlloc", address(&host), 5000, 0);
  refuse("cudaFree", host);
  refuse("cudaFreeHost", host + 16);
  if (call("cudaFreeHost", host) != 0) ++accepted;
  refuse("cudaFreeHost", host);
  refuse("cudaHostUnregister", address(zeros));
  refuse("cudaHostRegister", address(zeros), 0);
  refuse("cudaMalloc", address(&host), ~size_t{0});
  refuse("cudaMalloc", address(&host), size_t{1} << 62);
  refuse("cudaMallocManaged", address(&host), ~size_t{0}, 1);
  refuse("cudaHostAlloc", address(&host), ~size_t{0} - 4096, 0);
  refuse("cudaMallocAsync", address(&host), ~size_t{0} - 100, 0);
  refuse("cuMemAddressReserve", address(&host), ~size_t{0} - ((size_t{2} << 20) - 1), 0, 0);
  refuse("cuMemAddressReserve", address(&host), size_t{1} << 21, 3, 0);
  refuse("cuMemAddressFree", 0x7000000000, size_t{1} << 21);
  refuse("cuMemUnmap", 0x7000000000, size_t{1} << 21);
  refuse("cuMemMap", 0x7000000000, size_t{1} << 21, 0, address(zeros));
  refuse("cuMemRelease", address(zeros));
  refuse("cudaSetDevice", 77);
  refuse("cudaSetDevice", static_cast<uintptr_t>(-1));
  refuse("cuCtxSetCurrent", address(zeros));
  refuse("cuModuleUnload", address(zeros));
  refuse("cudaGraphLaunch", address(zeros), 0);
  refuse("cudaStreamWaitEvent", 0, address(zeros), 0);
  refuse("cudaFreeArray", address(zeros));
  refuse("cudaDestroyTextureObject", address(zeros));
}

}  // namespace

int main() {
  int crashed = sweep("nulls", 0, true) + sweep("pointers to zeros", reinterpret_cast<uintptr_t>(zeros), false);
  gone();
  printf("%zu functions, %d refused\n", kCount, refused);
  return crashed + accepted > 0 ? 1 : 0;
}
