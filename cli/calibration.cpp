// SPDX-License-Identifier: Apache-2.0
// Asking the CUDA driver and NVML what a GPU is, and making a profile of the answers.
#include "cli/calibration.h"

#include <dlfcn.h>

#include <cstdio>

namespace gpumem::cli {
namespace {

template <class Function>
void look_up(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
}

struct Attribute {
  const char* field;
  int number;  // CUdevice_attribute
};
constexpr Attribute kAttributes[] = {
    {"threads_per_block", 1},       {"shared_per_block", 8},        {"warp_size", 10},
    {"registers_per_block", 12},    {"sm_clock_khz", 13},           {"sm_count", 16},
    {"ecc", 32},                    {"memory_clock_khz", 36},       {"memory_bus_bits", 37},
    {"l2_bytes", 38},               {"threads_per_sm", 39},         {"copy_engines", 40},
    {"shared_per_sm", 81},          {"registers_per_sm", 82},       {"shared_per_block_optin", 97},
    {"blocks_per_sm", 106},         {"shared_reserved_per_block", 111},
};
constexpr int kMajor = 75, kMinor = 76;

Error failed(const char* call, int status) {
  return {ErrorKind::unavailable, std::string(call) + " failed with CUDA status " + std::to_string(status) +
                                      ": is the NVIDIA driver loaded, and may this user use the GPU?"};
}

std::string uuid_text(const unsigned char* bytes) {
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", bytes[i]);
    text += digits;
    if (i == 3 || i == 5 || i == 7 || i == 9) text += '-';
  }
  return text;
}

void ask_nvml(const NvmlFunctions& nvml, DeviceFacts& facts) {
  if (nvml.initialize == nullptr || nvml.initialize() != 0) return;
  char version[96] = {};
  if (nvml.driver_version != nullptr && nvml.driver_version(version, sizeof version) == 0) facts.driver = version;
  void* device = nullptr;
  if (nvml.device_by_uuid == nullptr) return;
  // The driver's UUID has the same digits whether it is a whole GPU's or a MIG instance's.
  if (nvml.device_by_uuid(facts.uuid.c_str(), &device) != 0) {
    const std::string instance = "MIG" + facts.uuid.substr(3);
    if (nvml.device_by_uuid(instance.c_str(), &device) != 0) return;
    facts.uuid = instance;
    facts.fields["mig"] = 1;
  }
  unsigned long long memory[3] = {};
  if (nvml.memory != nullptr && nvml.memory(device, memory) == 0) facts.fields["nvml_total_bytes"] = memory[0];
  unsigned milliwatts = 0;
  if (nvml.power_limit != nullptr && nvml.power_limit(device, &milliwatts) == 0) facts.fields["power_limit_mw"] = milliwatts;
}

bool has_number(const nlohmann::json& measurement, const char* key) {
  return measurement.contains(key) && measurement[key].is_number_unsigned() && measurement[key].get<std::uint64_t>() > 0;
}

}  // namespace

Result<DriverFunctions> load_driver() {
  void* library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return Error{ErrorKind::unavailable, std::string("no CUDA driver here (") + ::dlerror() + "): run this on a machine with the GPU"};
  }
  DriverFunctions driver;
  look_up(library, "cuInit", driver.initialize);
  look_up(library, "cuDriverGetVersion", driver.driver_version);
  look_up(library, "cuDeviceGetCount", driver.device_count);
  look_up(library, "cuDeviceGet", driver.device);
  look_up(library, "cuDeviceGetName", driver.name);
  look_up(library, "cuDeviceGetUuid_v2", driver.uuid);  // a MIG instance's own, where the plain one gives its parent's
  if (driver.uuid == nullptr) look_up(library, "cuDeviceGetUuid", driver.uuid);
  look_up(library, "cuDeviceTotalMem_v2", driver.total_memory);
  look_up(library, "cuDeviceGetAttribute", driver.attribute);
  if (!driver.initialize || !driver.driver_version || !driver.device_count || !driver.device || !driver.name || !driver.uuid ||
      !driver.total_memory || !driver.attribute) {
    return Error{ErrorKind::unavailable, "libcuda.so.1 lacks functions that every driver since CUDA 9 has"};
  }
  return driver;
}

NvmlFunctions load_nvml() {
  NvmlFunctions nvml;
  void* library = ::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return nvml;
  look_up(library, "nvmlInit_v2", nvml.initialize);
  look_up(library, "nvmlSystemGetDriverVersion", nvml.driver_version);
  look_up(library, "nvmlDeviceGetHandleByUUID", nvml.device_by_uuid);
  look_up(library, "nvmlDeviceGetMemoryInfo", nvml.memory);
  look_up(library, "nvmlDeviceGetEnforcedPowerLimit", nvml.power_limit);
  return nvml;
}

Result<DeviceFacts> read_device(const DriverFunctions& driver, const NvmlFunctions& nvml, int index) {
  if (int status = driver.initialize(0); status != 0) return failed("cuInit", status);
  int count = 0;
  if (int status = driver.device_count(&count); status != 0) return failed("cuDeviceGetCount", status);
  if (index < 0 || index >= count) {
    return Error{ErrorKind::not_found, "there is no GPU " + std::to_string(index) + ": CUDA sees " + std::to_string(count) +
                                           " here (CUDA_VISIBLE_DEVICES hides others)"};
  }
  int device = 0;
  if (int status = driver.device(&device, index); status != 0) return failed("cuDeviceGet", status);
  DeviceFacts facts;
  char name[256] = {};
  if (int status = driver.name(name, sizeof name, device); status != 0) return failed("cuDeviceGetName", status);
  facts.name = name;
  unsigned char uuid[16] = {};
  if (int status = driver.uuid(uuid, device); status != 0) return failed("cuDeviceGetUuid", status);
  facts.uuid = uuid_text(uuid);
  std::size_t total = 0;
  if (int status = driver.total_memory(&total, device); status != 0) return failed("cuDeviceTotalMem", status);
  facts.fields["total_bytes"] = total;
  int major = 0, minor = 0;
  if (int status = driver.attribute(&major, kMajor, device); status != 0) return failed("cuDeviceGetAttribute", status);
  if (int status = driver.attribute(&minor, kMinor, device); status != 0) return failed("cuDeviceGetAttribute", status);
  facts.compute_capability = std::to_string(major) + "." + std::to_string(minor);
  for (const auto& attribute : kAttributes) {
    int value = 0;  // an older driver may lack the newer attributes: the compute capability's own number then counts
    if (driver.attribute(&value, attribute.number, device) == 0 && value >= 0) facts.fields[attribute.field] = static_cast<std::uint64_t>(value);
  }
  if (facts.fields["shared_per_block_optin"] == 0) facts.fields.erase("shared_per_block_optin");
  (void)driver.driver_version(&facts.cuda_version);
  ask_nvml(nvml, facts);
  return facts;
}

nlohmann::json make_profile(const DeviceFacts& facts, const std::vector<nlohmann::json>& measurements, const std::string& date, bool on_virtual_gpu) {
  const std::string source = on_virtual_gpu ? "assumed" : "measured";
  const std::string with = (facts.driver.empty() ? "CUDA " + std::to_string(facts.cuda_version / 1000) + "." + std::to_string(facts.cuda_version % 1000 / 10)
                                                 : "driver " + facts.driver) + ", " + date;
  const std::string where = on_virtual_gpu ? "a virtual GPU's answer: nothing was measured" : "gpumem calibrate: " + with;
  const auto field = [&](std::uint64_t value, const std::string& how) {
    return nlohmann::json{{"value", value}, {"source", source}, {"where", how}};
  };
  nlohmann::json profile = {{"version", 1}, {"name", facts.name}, {"aliases", nlohmann::json::array()}, {"compute_capability", facts.compute_capability}};
  if (on_virtual_gpu) profile["virtual"] = true;
  auto& fields = profile["fields"] = nlohmann::json::object();
  for (const auto& [name, value] : facts.fields) fields[name] = field(value, where);
  for (const auto& measured : measurements) {
    const std::string torch = measured.value("torch", "?");
    const std::string how = on_virtual_gpu ? where : where + ", torch " + torch;
    for (const char* key : {"usable_bytes", "h2d_bytes_per_s", "d2h_bytes_per_s", "d2d_bytes_per_s"}) {
      if (has_number(measured, key) && !fields.contains(key)) fields[key] = field(measured[key].get<std::uint64_t>(), how);
    }
    if (has_number(measured, "warm_bytes")) {
      profile["contexts"].push_back({{"torch", torch},
                                     {"cuda", measured.value("cuda", "")},
                                     {"driver", measured.value("driver", facts.driver)},
                                     {"bare_bytes", has_number(measured, "bare_bytes") ? measured["bare_bytes"].get<std::uint64_t>() : 0},
                                     {"warm_bytes", measured["warm_bytes"].get<std::uint64_t>()},
                                     {"source", source},
                                     {"where", where}});
    }
    if (measured.contains("cudnn_device") && measured["cudnn_device"].is_object() && !profile.contains("cudnn_device")) {
      profile["cudnn_device"] = measured["cudnn_device"];
    }
  }
  return profile;
}

}  // namespace gpumem::cli
