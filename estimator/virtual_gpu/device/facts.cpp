// SPDX-License-Identifier: Apache-2.0
// Device properties, attributes and limits from the book's description. Part of libgpumem_vgpu.so, preloaded into jobs.

#include "estimator/virtual_gpu/device/facts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "estimator/virtual_gpu/device/memory.h"

namespace gpumem::virtual_gpu {
namespace {

struct Field {
  int generation;
  const char *name;
  uint16_t offset;
};
constexpr Field kFields[] = {
#define SIZE(generation, bytes)
#define FIELD(generation, name, offset) {generation, #name, offset},
#include "estimator/cuda_interface/device_properties.def"
#undef SIZE
#undef FIELD
};

constexpr size_t kPropertySizes[] = {
#define SIZE(generation, bytes) bytes,
#define FIELD(generation, name, offset)
#include "estimator/cuda_interface/device_properties.def"
#undef SIZE
#undef FIELD
};
static_assert(sizeof(kPropertySizes) / sizeof(kPropertySizes[0]) == 3, "CUDA 11, 12 and 13");

// Writes fields by name where the generation has them.
struct Writer {
  char *properties;
  int generation;
  void put(const char *name, const void *value, size_t bytes) const {
    for (const Field &field : kFields)
      if (field.generation == generation && strcmp(field.name, name) == 0) memcpy(properties + field.offset, value, bytes);
  }
  void put_size(const char *name, size_t value) const { put(name, &value, sizeof(value)); }
};

// Fields that are an attribute under another name, all of them int.
struct IntField {
  const char *name;
  int attribute;
};
constexpr IntField kIntFields[] = {
    {"regsPerBlock", 12}, {"warpSize", 10}, {"maxThreadsPerBlock", 1}, {"clockRate", 13}, {"major", 75}, {"minor", 76},
    {"deviceOverlap", 15}, {"multiProcessorCount", 16}, {"integrated", 18}, {"canMapHostMemory", 19}, {"maxTexture1D", 21},
    {"maxTexture1DMipmap", 77}, {"maxTexture1DLinear", 69}, {"maxTextureCubemap", 52}, {"maxSurface1D", 55},
    {"maxSurfaceCubemap", 66}, {"concurrentKernels", 31}, {"ECCEnabled", 32}, {"pciBusID", 33}, {"pciDeviceID", 34},
    {"pciDomainID", 50}, {"asyncEngineCount", 40}, {"unifiedAddressing", 41}, {"memoryClockRate", 36}, {"memoryBusWidth", 37},
    {"l2CacheSize", 38}, {"persistingL2CacheMaxSize", 108}, {"maxThreadsPerMultiProcessor", 39}, {"streamPrioritiesSupported", 78},
    {"globalL1CacheSupported", 79}, {"localL1CacheSupported", 80}, {"regsPerMultiprocessor", 82}, {"managedMemory", 83},
    {"singleToDoublePrecisionPerfRatio", 87}, {"pageableMemoryAccess", 88}, {"concurrentManagedAccess", 89},
    {"computePreemptionSupported", 90}, {"canUseHostPointerForRegisteredMem", 91}, {"cooperativeLaunch", 95},
    {"cooperativeMultiDeviceLaunch", 96}, {"maxBlocksPerMultiProcessor", 106}, {"accessPolicyMaxWindowSize", 109},
    {"hostRegisterSupported", 99}, {"memoryPoolsSupported", 115}, {"memoryPoolSupportedHandleTypes", 119}, {"clusterLaunch", 120},
    {"ipcEventSupported", 125}, {"deviceNumaId", 131}, {"hostNumaId", 134},
};

size_t limits[16];

int hex_digit(char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1; }

}  // namespace

void uuid_bytes(const book::DeviceDescription &facts, unsigned char *bytes) {
  memset(bytes, 0, 16);
  int digits = 0;
  const char *text = strchr(facts.uuid, '-');
  for (; text != nullptr && *text != '\0' && digits < 32; ++text) {
    const int digit = hex_digit(*text);
    if (digit < 0) continue;
    bytes[digits / 2] = static_cast<unsigned char>(bytes[digits / 2] | digit << (digits % 2 == 0 ? 4 : 0));
    ++digits;
  }
}

void bus_numbers(const book::DeviceDescription &facts, unsigned *domain, unsigned *bus, unsigned *device) {
  if (sscanf(facts.pci_bus_id, "%x:%x:%x", domain, bus, device) != 3) *domain = *bus = *device = 0;
}

bool has_nvlink(const char *name) {
  static const char *const kWords[] = {"SXM", "HBM3", "H200", "B200", "B300", "GH200", "DGX", "H800", "A800"};
  if (strstr(name, "PCIe") != nullptr) return false;
  for (const char *word : kWords)
    if (strstr(name, word) != nullptr) return true;
  return false;
}

bool same_bus_id(const char *a, const char *b) {
  unsigned numbers[2][4] = {};
  const char *texts[2] = {a, b};
  for (int i = 0; i < 2; ++i) {
    unsigned *n = numbers[i];
    if (sscanf(texts[i], "%x:%x:%x.%x", &n[0], &n[1], &n[2], &n[3]) >= 3) continue;
    n[0] = 0;  // "bus:device.function" is of domain 0
    if (sscanf(texts[i], "%x:%x.%x", &n[1], &n[2], &n[3]) != 3) return false;
  }
  return memcmp(numbers[0], numbers[1], sizeof(numbers[0])) == 0;
}

bool device_attribute(const book::DeviceDescription &facts, int, int attribute, int *value) {
  unsigned domain, bus, slot;
  bus_numbers(facts, &domain, &bus, &slot);
  const int major = static_cast<int>(facts.compute_major);
  int64_t v = 0;
  switch (attribute) {
    case 1: v = facts.threads_per_block; break;
    case 2: case 3: v = 1024; break;
    case 4: v = 64; break;
    case 5: v = 2147483647; break;
    case 6: case 7: v = 65535; break;
    case 8: v = facts.shared_per_block; break;
    case 9: v = 65536; break;
    case 10: v = facts.warp_size; break;
    case 11: v = 2147483647; break;
    case 12: v = facts.registers_per_block; break;
    case 13: v = facts.sm_clock_khz; break;
    case 14: v = 512; break;
    case 15: v = 1; break;
    case 16: v = facts.sm_count; break;
    case 17: case 18: v = 0; break;
    case 19: v = 1; break;
    case 20: v = 0; break;
    case 21: case 22: v = 131072; break;
    case 23: v = 65536; break;
    case 24: case 25: case 26: v = 16384; break;
    case 27: case 28: v = 32768; break;
    case 29: v = 2048; break;
    case 30: v = 512; break;
    case 31: v = 1; break;
    case 32: v = facts.ecc; break;
    case 33: v = bus; break;
    case 34: v = slot; break;
    case 35: v = 0; break;
    case 36: v = facts.memory_clock_khz; break;
    case 37: v = facts.memory_bus_bits; break;
    case 38: v = facts.l2_bytes; break;
    case 39: v = facts.threads_per_sm; break;
    case 40: v = facts.copy_engines != 0 ? facts.copy_engines : major >= 7 ? 3 : 2; break;
    case 41: v = 1; break;
    case 42: v = 32768; break;
    case 43: v = 2048; break;
    case 45: case 46: v = 32768; break;
    case 47: case 48: v = 8192; break;
    case 49: v = 32768; break;
    case 50: v = domain; break;
    case 51: v = 32; break;
    case 52: case 53: v = 32768; break;
    case 54: v = 2046; break;
    case 55: v = 32768; break;
    case 56: v = 131072; break;
    case 57: v = 65536; break;
    case 58: case 59: case 60: v = 16384; break;
    case 61: case 63: case 64: v = 32768; break;
    case 62: case 65: v = 2048; break;
    case 66: case 67: v = 32768; break;
    case 68: v = 2046; break;
    case 69: v = 268435456; break;
    case 70: v = 131072; break;
    case 71: v = 65000; break;
    case 72: v = 2097120; break;
    case 73: case 74: case 77: v = 32768; break;
    case 75: v = major; break;
    case 76: v = facts.compute_minor; break;
    case 78: case 79: case 80: v = 1; break;
    case 81: v = facts.shared_per_sm; break;
    case 82: v = facts.registers_per_sm; break;
    case 83: v = 1; break;
    case 87: v = (facts.compute_major == 8 && facts.compute_minor == 0) || facts.compute_major == 9 ? 2 : facts.compute_major == 8 ? 64 : 32; break;
    case 89: case 90: v = 1; break;
    case 92: case 93: case 94: v = 0; break;  // stream memory operations: not simulated
    case 95: v = 1; break;
    case 97: v = facts.shared_per_block_optin; break;
    case 99: v = 1; break;
    case 102: v = 1; break;   // virtual memory management
    case 103: v = 1; break;   // physical memory shared by file descriptor
    case 106: v = facts.blocks_per_sm; break;
    case 108: v = facts.l2_bytes / 4 * 3; break;
    case 109: v = 134213632; break;
    case 111: v = facts.shared_reserved_per_block; break;
    case 112: case 113: case 114: v = 0; break;
    case 115: v = 1; break;
    case 116: v = 0; break;
    case 119: v = 1; break;   // pools are shared by file descriptor
    case 120: v = major >= 9; break;
    case 125: v = 1; break;
    case 126: v = major >= 9 ? 4 : 1; break;
    case 127: v = major >= 9; break;  // tensor maps
    case 131: case 134: v = -1; break;
    case 132: v = major >= 9 && has_nvlink(facts.name); break;  // multicast
    default:
      if (attribute <= 0 || attribute > 160) return false;
      v = 0;
  }
  *value = static_cast<int>(v);
  return true;
}

bool fill_properties(void *properties, int device, int generation) {
  const book::DeviceDescription *facts = device_description(device);
  if (facts == nullptr) return false;
  memset(properties, 0, kPropertySizes[generation - 11]);
  const Writer writer{static_cast<char *>(properties), generation};
  char name[256] = {};
  snprintf(name, sizeof(name), "%s", facts->name);
  writer.put("name", name, sizeof(name));
  unsigned char uuid[16];
  uuid_bytes(*facts, uuid);
  writer.put("uuid", uuid, sizeof(uuid));
  writer.put_size("totalGlobalMem", facts->total_bytes);
  writer.put_size("sharedMemPerBlock", facts->shared_per_block);
  writer.put_size("memPitch", 2147483647);
  writer.put_size("totalConstMem", 65536);
  writer.put_size("textureAlignment", 512);
  writer.put_size("texturePitchAlignment", 32);
  writer.put_size("surfaceAlignment", 512);
  writer.put_size("sharedMemPerMultiprocessor", facts->shared_per_sm);
  writer.put_size("sharedMemPerBlockOptin", facts->shared_per_block_optin);
  writer.put_size("reservedSharedMemPerBlock", facts->shared_reserved_per_block);
  const int threads[3] = {1024, 1024, 64}, grid[3] = {2147483647, 65535, 65535};
  writer.put("maxThreadsDim", threads, sizeof(threads));
  writer.put("maxGridSize", grid, sizeof(grid));
  const int texture2d[2] = {131072, 65536}, texture3d[3] = {16384, 16384, 16384};
  writer.put("maxTexture2D", texture2d, sizeof(texture2d));
  writer.put("maxTexture3D", texture3d, sizeof(texture3d));
  for (const IntField &field : kIntFields) {
    int value = 0;
    device_attribute(*facts, device, field.attribute, &value);
    writer.put(field.name, &value, sizeof(value));
  }
  return true;
}

// Defaults of CUDA: stack 1 KiB, printf 1 MiB, device heap 8 MiB.
bool get_limit(int limit, size_t *value) {
  constexpr size_t kDefaults[] = {1024, 1 << 20, 8 << 20, 2, 2048, 64, 0};
  if (limit < 0 || limit > 6 || value == nullptr) return false;
  *value = limits[limit] != 0 ? limits[limit] : kDefaults[limit];
  return true;
}

bool set_limit(int limit, size_t value) {
  if (limit < 0 || limit > 6) return false;
  limits[limit] = value;
  return true;
}

}  // namespace gpumem::virtual_gpu
