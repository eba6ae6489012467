// SPDX-License-Identifier: Apache-2.0
// NVML (libnvidia-ml.so.1) of the virtual GPU, answered from the book. Part of libgpumem_vgpu.so, preloaded into jobs.
//
// Every device of the book is shown, in PCI bus order, whatever CUDA_VISIBLE_DEVICES says, as NVML does. Using NVML is no
// use of CUDA: it charges no context and does not matter to a forked child. What kernels would change (utilization,
// temperature, power) is that of an idle device: nothing runs here. Process ids are those that the caller can see.

#include <stdio.h>
#include <string.h>

#include "estimator/virtual_gpu/device/facts.h"
#include "estimator/virtual_gpu/device/state.h"

using namespace gpumem::virtual_gpu;
namespace book = gpumem::book;

namespace {

enum Result : int {
  kOk = 0, kUninitialized = 1, kInvalidArgument = 2, kNotSupported = 3, kNotFound = 6, kInsufficientSize = 7,
  kLibraryNotFound = 12, kNoDriver = 9, kUnknown = 999,
};

struct Memory {
  unsigned long long total, free, used;
};
struct MemoryV2 {
  unsigned version;
  unsigned long long total, reserved, free, used;
};
struct ProcessV1 {
  unsigned pid;
  unsigned long long usedGpuMemory;
};
struct ProcessV2 {
  unsigned pid;
  unsigned long long usedGpuMemory;
  unsigned gpuInstanceId, computeInstanceId;
};
struct Pci {
  char busIdLegacy[16];
  unsigned domain, bus, device, pciDeviceId, pciSubSystemId;
  char busId[32];
};
struct Utilization {
  unsigned gpu, memory;
};

char handles[book::kMaxDevices];       // a handle is an address in here: its offset is the index
int order[book::kMaxDevices];          // book's device behind each NVML index
int initialized;

int index_of(const void *handle) {
  const char *at = static_cast<const char *>(handle);
  if (at < handles || at >= handles + book::kMaxDevices || !initialized) return -1;
  const int index = static_cast<int>(at - handles);
  return index < book::device_count(state.book) ? index : -1;
}

const book::DeviceDescription *facts_of(const void *handle) {
  const int index = index_of(handle);
  return index < 0 ? nullptr : book::description(state.book, order[index]);
}

Result bad(const void *handle) { return !initialized ? kUninitialized : index_of(handle) < 0 ? kInvalidArgument : kOk; }

Result init() {
  if (!open_book()) return kNoDriver;
  const int count = book::device_count(state.book);
  for (int d = 0; d < count; ++d) {  // insertion sort by bus id
    int at = d;
    while (at > 0 && strcmp(book::description(state.book, d)->pci_bus_id, book::description(state.book, order[at - 1])->pci_bus_id) < 0) {
      order[at] = order[at - 1];
      --at;
    }
    order[at] = d;
  }
  __atomic_add_fetch(&initialized, 1, __ATOMIC_RELAXED);
  return kOk;
}

Result give_text(char *to, unsigned size, const char *text) {
  if (to == nullptr || strlen(text) + 1 > size) return kInsufficientSize;
  strcpy(to, text);
  return kOk;
}

template <class T>
Result give(const void *handle, T *to, T value) {
  const Result result = bad(handle);
  if (result == kOk && to == nullptr) return kInvalidArgument;
  if (result == kOk) *to = value;
  return result;
}

Result memory_of(const void *handle, MemoryV2 *memory) {
  const Result result = bad(handle);
  if (result != kOk) return result;
  const int device = order[index_of(handle)];
  const book::DeviceDescription &facts = *book::description(state.book, device);
  book::DeviceUse use;
  if (book::device_use(&state.book, device, &use) != book::Status::ok) return kUnknown;
  memory->total = facts.nvml_total_bytes != 0 ? facts.nvml_total_bytes : facts.total_bytes;
  memory->reserved = facts.nvml_reserved_bytes;
  memory->used = use.used_bytes;
  const unsigned long long taken = memory->reserved + memory->used;
  memory->free = memory->total > taken ? memory->total - taken : 0;
  return kOk;
}

struct Running {
  int device;
  unsigned capacity, count;
  void *to;
  bool v1;
};

void add_running(void *context, const book::ProcessUse &process) {
  Running *running = static_cast<Running *>(context);
  const book::ProcessUse::Device &use = process.devices[running->device];
  if (!process.alive || use.context_bytes + use.allocated_bytes == 0) return;
  const unsigned pid = static_cast<unsigned>(process.visible_pid != 0 ? process.visible_pid : process.pid);
  if (running->count < running->capacity) {
    if (running->v1)
      static_cast<ProcessV1 *>(running->to)[running->count] = {pid, use.context_bytes + use.allocated_bytes};
    else
      static_cast<ProcessV2 *>(running->to)[running->count] = {pid, use.context_bytes + use.allocated_bytes, 0xffffffffu, 0xffffffffu};
  }
  ++running->count;
}

Result running_processes(const void *handle, unsigned *count, void *to, bool v1) {
  const Result result = bad(handle);
  if (result != kOk) return result;
  if (count == nullptr) return kInvalidArgument;
  Running running{order[index_of(handle)], to == nullptr ? 0 : *count, 0, to, v1};
  if (book::for_each_process(&state.book, add_running, &running) != book::Status::ok) return kUnknown;
  const bool fits = running.count <= running.capacity;
  *count = running.count;
  return fits ? kOk : kInsufficientSize;
}

Result fill_pci(const void *handle, Pci *pci, bool legacy) {
  const Result result = bad(handle);
  if (result != kOk) return result;
  const book::DeviceDescription &facts = *facts_of(handle);
  unsigned domain, bus, device;
  bus_numbers(facts, &domain, &bus, &device);
  snprintf(pci->busIdLegacy, sizeof(pci->busIdLegacy), "%04X:%02X:%02X.0", domain & 0xffff, bus & 0xff, device & 0xff);
  pci->domain = domain;
  pci->bus = bus;
  pci->device = device;
  pci->pciDeviceId = 0x000010de;  // the vendor; the device's own number is not in the book
  if (legacy) return kOk;
  pci->pciSubSystemId = 0;
  snprintf(pci->busId, sizeof(pci->busId), "%08X:%02X:%02X.0", domain, bus & 0xff, device & 0xff);
  return kOk;
}

}  // namespace

GPUMEM_EXPORT int nvmlInit_v2() { return init(); }
GPUMEM_EXPORT int nvmlInit() { return init(); }
GPUMEM_EXPORT int nvmlInitWithFlags(unsigned) { return init(); }
GPUMEM_EXPORT int nvmlShutdown() {
  if (!initialized) return kUninitialized;
  __atomic_sub_fetch(&initialized, 1, __ATOMIC_RELAXED);
  return kOk;
}

GPUMEM_EXPORT const char *nvmlErrorString(int result) {
  switch (result) {
    case kOk: return "Success";
    case kUninitialized: return "Uninitialized";
    case kInvalidArgument: return "Invalid Argument";
    case kNotSupported: return "Not Supported";
    case kNotFound: return "Not Found";
    case kInsufficientSize: return "Insufficient Size";
    case kNoDriver: return "Driver Not Loaded";
    default: return "Unknown Error";
  }
}

// --- The system ---

GPUMEM_EXPORT int nvmlSystemGetDriverVersion(char *text, unsigned size) {
  return initialized ? give_text(text, size, book::description(state.book, 0)->driver_version) : kUninitialized;
}
GPUMEM_EXPORT int nvmlSystemGetNVMLVersion(char *text, unsigned size) {
  if (!initialized) return kUninitialized;
  const book::DeviceDescription &facts = *book::description(state.book, 0);
  char version[48];
  snprintf(version, sizeof(version), "%u.%s", facts.cuda_version / 1000, facts.driver_version);
  return give_text(text, size, version);
}
GPUMEM_EXPORT int nvmlSystemGetCudaDriverVersion_v2(int *version) {
  if (!initialized) return kUninitialized;
  *version = static_cast<int>(book::description(state.book, 0)->cuda_version);
  return kOk;
}
GPUMEM_EXPORT int nvmlSystemGetCudaDriverVersion(int *version) { return nvmlSystemGetCudaDriverVersion_v2(version); }
GPUMEM_EXPORT int nvmlSystemGetProcessName(unsigned pid, char *name, unsigned size) {
  char path[48], comm[64] = {};
  snprintf(path, sizeof(path), "/proc/%u/comm", pid);
  FILE *file = fopen(path, "re");
  if (file == nullptr) return kNotFound;
  const bool got = fgets(comm, sizeof(comm), file) != nullptr;
  fclose(file);
  comm[strcspn(comm, "\n")] = '\0';
  return got ? give_text(name, size, comm) : kNotFound;
}

// --- Devices ---

GPUMEM_EXPORT int nvmlDeviceGetCount_v2(unsigned *count) {
  if (!initialized) return kUninitialized;
  *count = static_cast<unsigned>(book::device_count(state.book));
  return kOk;
}
GPUMEM_EXPORT int nvmlDeviceGetCount(unsigned *count) { return nvmlDeviceGetCount_v2(count); }
GPUMEM_EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
  if (!initialized) return kUninitialized;
  if (index >= static_cast<unsigned>(book::device_count(state.book))) return kInvalidArgument;
  *handle = handles + index;
  return kOk;
}
GPUMEM_EXPORT int nvmlDeviceGetHandleByIndex(unsigned index, void **handle) { return nvmlDeviceGetHandleByIndex_v2(index, handle); }
GPUMEM_EXPORT int nvmlDeviceGetHandleByUUID(const char *uuid, void **handle) {
  if (!initialized) return kUninitialized;
  for (int n = 0; n < book::device_count(state.book); ++n) {
    if (strcmp(book::description(state.book, order[n])->uuid, uuid) != 0) continue;
    *handle = handles + n;
    return kOk;
  }
  return kNotFound;
}
GPUMEM_EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char *text, void **handle) {
  if (!initialized) return kUninitialized;
  for (int n = 0; n < book::device_count(state.book); ++n) {
    if (!same_bus_id(book::description(state.book, order[n])->pci_bus_id, text)) continue;
    *handle = handles + n;
    return kOk;
  }
  return kNotFound;
}
GPUMEM_EXPORT int nvmlDeviceGetHandleByPciBusId(const char *text, void **handle) { return nvmlDeviceGetHandleByPciBusId_v2(text, handle); }
GPUMEM_EXPORT int nvmlDeviceGetName(void *handle, char *name, unsigned size) {
  const Result result = bad(handle);
  return result != kOk ? result : give_text(name, size, facts_of(handle)->name);
}
GPUMEM_EXPORT int nvmlDeviceGetUUID(void *handle, char *uuid, unsigned size) {
  const Result result = bad(handle);
  return result != kOk ? result : give_text(uuid, size, facts_of(handle)->uuid);
}
GPUMEM_EXPORT int nvmlDeviceGetSerial(void *handle, char *serial, unsigned size) {
  const Result result = bad(handle);
  if (result != kOk) return result;
  return facts_of(handle)->serial[0] == '\0' ? kNotSupported : give_text(serial, size, facts_of(handle)->serial);
}
GPUMEM_EXPORT int nvmlDeviceGetIndex(void *handle, unsigned *index) { return give(handle, index, static_cast<unsigned>(index_of(handle))); }
GPUMEM_EXPORT int nvmlDeviceGetMinorNumber(void *handle, unsigned *number) { return give(handle, number, static_cast<unsigned>(index_of(handle))); }
GPUMEM_EXPORT int nvmlDeviceGetPciInfo_v3(void *handle, Pci *pci) { return fill_pci(handle, pci, false); }
GPUMEM_EXPORT int nvmlDeviceGetPciInfo_v2(void *handle, Pci *pci) { return fill_pci(handle, pci, true); }
GPUMEM_EXPORT int nvmlDeviceGetPciInfo(void *handle, Pci *pci) { return fill_pci(handle, pci, true); }
GPUMEM_EXPORT int nvmlDeviceGetCudaComputeCapability(void *handle, int *major, int *minor) {
  const Result result = bad(handle);
  if (result != kOk) return result;
  *major = static_cast<int>(facts_of(handle)->compute_major);
  *minor = static_cast<int>(facts_of(handle)->compute_minor);
  return kOk;
}
GPUMEM_EXPORT int nvmlDeviceGetBrand(void *handle, unsigned *brand) {
  const Result result = bad(handle);
  if (result != kOk) return result;
  *brand = strstr(facts_of(handle)->name, "GeForce") != nullptr ? 5 : 0;  // NVML_BRAND_GEFORCE, else unknown
  return kOk;
}
GPUMEM_EXPORT int nvmlDeviceGetMigMode(void *handle, unsigned *current, unsigned *pending) {
  const Result result = bad(handle);
  if (result != kOk) return result;
  *current = *pending = facts_of(handle)->mig;
  return kOk;
}
GPUMEM_EXPORT int nvmlDeviceIsMigDeviceHandle(void *handle, unsigned *is) { return give(handle, is, facts_of(handle) != nullptr ? facts_of(handle)->mig : 0u); }
GPUMEM_EXPORT int nvmlDeviceGetComputeMode(void *handle, int *mode) { return give(handle, mode, 0); }
GPUMEM_EXPORT int nvmlDeviceGetPersistenceMode(void *handle, int *mode) { return give(handle, mode, 1); }
GPUMEM_EXPORT int nvmlDeviceGetDisplayMode(void *handle, int *mode) { return give(handle, mode, 0); }
GPUMEM_EXPORT int nvmlDeviceGetDisplayActive(void *handle, int *mode) { return give(handle, mode, 0); }
GPUMEM_EXPORT int nvmlDeviceGetPerformanceState(void *handle, int *state_number) { return give(handle, state_number, 8); }
GPUMEM_EXPORT int nvmlDeviceGetEccMode(void *handle, int *current, int *pending) {
  const Result result = bad(handle);
  if (result != kOk) return result;
  *current = *pending = static_cast<int>(facts_of(handle)->ecc);
  return kOk;
}
GPUMEM_EXPORT int nvmlDeviceGetMemoryBusWidth(void *handle, unsigned *bits) {
  const Result result = bad(handle);
  if (result != kOk) return result;
  *bits = facts_of(handle)->memory_bus_bits;
  return *bits != 0 ? kOk : kNotSupported;
}

// Clock types: 0 graphics, 1 SM, 2 memory, 3 video; MHz.
GPUMEM_EXPORT int nvmlDeviceGetMaxClockInfo(void *handle, int type, unsigned *mhz) {
  const Result result = bad(handle);
  if (result != kOk) return result;
  *mhz = (type == 2 ? facts_of(handle)->memory_clock_khz : facts_of(handle)->sm_clock_khz) / 1000;
  return *mhz != 0 ? kOk : kNotSupported;
}
GPUMEM_EXPORT int nvmlDeviceGetClockInfo(void *handle, int type, unsigned *mhz) { return nvmlDeviceGetMaxClockInfo(handle, type, mhz); }
GPUMEM_EXPORT int nvmlDeviceGetUtilizationRates(void *handle, Utilization *utilization) {
  return give(handle, utilization, Utilization{0, 0});
}
GPUMEM_EXPORT int nvmlDeviceGetTemperature(void *handle, int, unsigned *celsius) { return give(handle, celsius, 35u); }
GPUMEM_EXPORT int nvmlDeviceGetPowerUsage(void *handle, unsigned *milliwatts) { return give(handle, milliwatts, 15000u); }
GPUMEM_EXPORT int nvmlDeviceGetPowerManagementLimit(void *handle, unsigned *milliwatts) {
  const Result result = bad(handle);
  if (result != kOk) return result;
  *milliwatts = facts_of(handle)->power_limit_mw;
  return *milliwatts != 0 ? kOk : kNotSupported;
}
GPUMEM_EXPORT int nvmlDeviceGetEnforcedPowerLimit(void *handle, unsigned *milliwatts) { return nvmlDeviceGetPowerManagementLimit(handle, milliwatts); }
GPUMEM_EXPORT int nvmlDeviceGetFanSpeed(void *handle, unsigned *) { return bad(handle) != kOk ? bad(handle) : kNotSupported; }
// No links and no peers over them.
GPUMEM_EXPORT int nvmlDeviceGetNvLinkState(void *handle, unsigned, int *) { return bad(handle) != kOk ? bad(handle) : kNotSupported; }
GPUMEM_EXPORT int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *handle, unsigned, Pci *) { return bad(handle) != kOk ? bad(handle) : kNotSupported; }
GPUMEM_EXPORT int nvmlDeviceGetNvLinkRemotePciInfo(void *handle, unsigned, Pci *) { return bad(handle) != kOk ? bad(handle) : kNotSupported; }
GPUMEM_EXPORT int nvmlDeviceGetNvLinkCapability(void *handle, unsigned, int, unsigned *) { return bad(handle) != kOk ? bad(handle) : kNotSupported; }
GPUMEM_EXPORT int nvmlDeviceGetNvLinkRemoteDeviceType(void *handle, unsigned, int *) { return bad(handle) != kOk ? bad(handle) : kNotSupported; }
GPUMEM_EXPORT int nvmlDeviceGetP2PStatus(void *one, void *other, int index, int *status) {
  const Result result = bad(one) != kOk ? bad(one) : bad(other);
  if (result != kOk) return result;
  *status = index == 0 || index == 1 ? 0 : 1;  // reads and writes over PCIe; no NVLink, no atomics
  return kOk;
}
GPUMEM_EXPORT int nvmlDeviceGetTopologyCommonAncestor(void *one, void *, int *level) { return give(one, level, 20); }  // host bridge

// --- Memory ---

GPUMEM_EXPORT int nvmlDeviceGetMemoryInfo(void *handle, Memory *memory) {
  MemoryV2 full = {};
  const Result result = memory_of(handle, &full);
  // Version 1 knows no reserved part and counts it as used.
  if (result == kOk) *memory = {full.total, full.free, full.total - full.free};
  return result;
}
GPUMEM_EXPORT int nvmlDeviceGetMemoryInfo_v2(void *handle, MemoryV2 *memory) {
  return memory == nullptr ? kInvalidArgument : memory_of(handle, memory);
}
GPUMEM_EXPORT int nvmlDeviceGetBAR1MemoryInfo(void *handle, Memory *memory) {
  constexpr unsigned long long kBar1 = 256ull << 20;
  return give(handle, memory, Memory{kBar1, kBar1, 0});
}
GPUMEM_EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *count, ProcessV2 *to) { return running_processes(handle, count, to, false); }
GPUMEM_EXPORT int nvmlDeviceGetComputeRunningProcesses_v2(void *handle, unsigned *count, ProcessV2 *to) { return running_processes(handle, count, to, false); }
GPUMEM_EXPORT int nvmlDeviceGetComputeRunningProcesses(void *handle, unsigned *count, ProcessV1 *to) { return running_processes(handle, count, to, true); }
static int no_processes(void *handle, unsigned *count) { return give(handle, count, 0u); }
GPUMEM_EXPORT int nvmlDeviceGetGraphicsRunningProcesses_v3(void *handle, unsigned *count, void *) { return no_processes(handle, count); }
GPUMEM_EXPORT int nvmlDeviceGetGraphicsRunningProcesses_v2(void *handle, unsigned *count, void *) { return no_processes(handle, count); }
GPUMEM_EXPORT int nvmlDeviceGetGraphicsRunningProcesses(void *handle, unsigned *count, void *) { return no_processes(handle, count); }
GPUMEM_EXPORT int nvmlDeviceGetMPSComputeRunningProcesses_v3(void *handle, unsigned *count, void *) { return no_processes(handle, count); }
