// SPDX-License-Identifier: Apache-2.0
// A GPU profile as a virtual device and as cuDNN's device description.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "estimator/gpus/profile.h"

namespace gpumem::gpus {
namespace {

// Not of the model but of the driver that a virtual host pretends to have: new enough for every supported build.
constexpr const char* kDriverVersion = "580.65.06";
constexpr std::uint32_t kCudaVersion = 13000;

void copy_text(char* destination, std::size_t size, const std::string& text) {
  std::snprintf(destination, size, "%s", text.c_str());
}

// UUIDs of virtual devices: stable for a model and index, and plainly made up (version 8, RFC 9562: custom).
std::string virtual_uuid(const std::string& name, int index, bool mig) {
  std::uint64_t hash = 1469598103934665603ull;  // FNV-1a
  for (unsigned char c : name) hash = (hash ^ c) * 1099511628211ull;
  char text[48];
  std::snprintf(text, sizeof text, "%s-%08x-%04x-8000-8000-%012x", mig ? "MIG" : "GPU", static_cast<unsigned>(hash >> 32),
                static_cast<unsigned>(hash & 0xffff), static_cast<unsigned>(index));
  return text;
}

}  // namespace

book::DeviceDescription describe_device(const Profile& profile, int index, std::uint64_t capacity_bytes) {
  book::DeviceDescription device{};
  auto number = [&](const char* field) { return static_cast<std::uint32_t>(profile.number(field)); };
  copy_text(device.name, sizeof device.name, profile.name);
  copy_text(device.uuid, sizeof device.uuid, virtual_uuid(profile.name, index, profile.number("mig") != 0));
  std::snprintf(device.pci_bus_id, sizeof device.pci_bus_id, "00000000:%02X:00.0", static_cast<unsigned>(index + 1));
  std::snprintf(device.serial, sizeof device.serial, "%d", index);
  device.compute_major = static_cast<std::uint32_t>(std::atoi(profile.compute_capability.c_str()));
  device.compute_minor = static_cast<std::uint32_t>(std::atoi(profile.compute_capability.c_str() + profile.compute_capability.find('.') + 1));
  device.sm_count = number("sm_count");
  device.sm_clock_khz = number("sm_clock_khz");
  device.memory_clock_khz = number("memory_clock_khz");
  device.memory_bus_bits = number("memory_bus_bits");
  device.l2_bytes = number("l2_bytes");
  device.shared_per_block = number("shared_per_block");
  device.shared_per_block_optin = number("shared_per_block_optin");
  device.shared_per_sm = number("shared_per_sm");
  device.shared_reserved_per_block = number("shared_reserved_per_block");
  device.registers_per_block = number("registers_per_block");
  device.registers_per_sm = number("registers_per_sm");
  device.threads_per_block = number("threads_per_block");
  device.threads_per_sm = number("threads_per_sm");
  device.blocks_per_sm = number("blocks_per_sm");
  device.warp_size = number("warp_size");
  device.mig = number("mig");
  device.copy_engines = number("copy_engines");
  device.ecc = number("ecc");
  device.power_limit_mw = number("power_limit_mw");
  device.total_bytes = profile.total_bytes();
  device.usable_bytes = capacity_bytes > 0 ? capacity_bytes : profile.usable_bytes();
  if (capacity_bytes > 0 && capacity_bytes < device.total_bytes) device.total_bytes = capacity_bytes;
  device.context_bytes = profile.context_bytes();
  device.nvml_total_bytes = profile.number("nvml_total_bytes");
  if (device.nvml_total_bytes < profile.total_bytes()) device.nvml_total_bytes = profile.total_bytes();
  device.nvml_reserved_bytes = device.nvml_total_bytes - profile.total_bytes();
  copy_text(device.driver_version, sizeof device.driver_version, kDriverVersion);
  device.cuda_version = kCudaVersion;
  copy_text(device.cudnn_device_json, sizeof device.cudnn_device_json, cudnn_device_json(profile));
  return device;
}

std::string cudnn_device_json(const Profile& profile) {
  if (!profile.cudnn_device.is_null()) return profile.cudnn_device.dump();
  const std::size_t dot = profile.compute_capability.find('.');
  const int major = std::atoi(profile.compute_capability.c_str());
  const int minor = std::atoi(profile.compute_capability.c_str() + dot + 1);
  const int version = major * 100 + minor * 10;  // cuDNN counts 8.6 as 860
  auto number = [&](const char* field) { return profile.number(field); };
  const nlohmann::ordered_json object = {
      {"cudaDeviceId", 0},
      {"deviceVer", version},
      {"driverVer", kCudaVersion},
      {"cudaDriverVersion", kCudaVersion},
      {"totalGlobalMem", profile.total_bytes()},
      {"maxGridSize", {2147483647, 65535, 65535}},
      {"maxBlockSize", {1024, 1024, 64}},
      {"regsPerBlock", number("registers_per_block")},
      {"multiProcessorCount", number("sm_count")},
      {"warpSize", number("warp_size")},
      {"sharedMemPerMultiprocessor", number("shared_per_sm")},
      {"maxSharedMemoryPerSM", number("shared_per_sm")},
      {"maxSharedMemoryPerBlock", number("shared_per_block")},
      {"maxSharedMemoryPerBlockOptin", number("shared_per_block_optin")},
      {"reservedSharedMemoryPerBlock", number("shared_reserved_per_block")},
      {"maxRegistersPerSM", number("registers_per_sm")},
      {"maxCtasPerSM", number("blocks_per_sm")},
      {"maxThreadsPerBlock", number("threads_per_block")},
      {"maxThreadsPerSM", number("threads_per_sm")},
      {"pciDeviceId", 0},
      {"isTccDriver", 0},
      {"supportCoopLaunch", 1},
      {"smClockRateKHz", number("sm_clock_khz")},
      {"memClockRateKHz", number("memory_clock_khz")},
      {"l2CacheSize", number("l2_bytes")},
      {"deviceName", profile.name},
      {"smVersion", version},
  };
  return object.dump();
}

}  // namespace gpumem::gpus
