// SPDX-License-Identifier: Apache-2.0
// What gpumem calibrate finds out of the GPU in this machine, and the profile that is made of it.
//
// Driver and NVML are opened at run time, never linked. Everything here is plain values and blocking calls; the tables of
// functions are the seam where tests put a GPU of their own. Errors name the call that failed and its status.
#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"

namespace gpumem::cli {

// The CUDA driver's functions (cuda.h) and NVML's (nvml.h) that are asked. An NVML function may be missing.
struct DriverFunctions {
  int (*initialize)(unsigned) = nullptr;
  int (*driver_version)(int*) = nullptr;
  int (*device_count)(int*) = nullptr;
  int (*device)(int*, int) = nullptr;
  int (*name)(char*, int, int) = nullptr;
  int (*uuid)(unsigned char*, int) = nullptr;
  int (*total_memory)(std::size_t*, int) = nullptr;
  int (*attribute)(int*, int, int) = nullptr;
};
struct NvmlFunctions {
  int (*initialize)() = nullptr;
  int (*driver_version)(char*, unsigned) = nullptr;
  int (*device_by_uuid)(const char*, void**) = nullptr;
  int (*memory)(void*, unsigned long long*) = nullptr;  // total, free, used
  int (*power_limit)(void*, unsigned*) = nullptr;
};

// Looks them up in libcuda.so.1 and libnvidia-ml.so.1; without a driver: unavailable, and what to do.
Result<DriverFunctions> load_driver();
NvmlFunctions load_nvml();

struct DeviceFacts {
  std::string name, uuid, compute_capability, driver;
  int cuda_version = 0;                           // 12040
  std::map<std::string, std::uint64_t> fields;    // named as a profile's
};

// Asks the `index`th device. Fails with not_found for an index that does not exist, unavailable for a call that failed.
Result<DeviceFacts> read_device(const DriverFunctions& driver, const NvmlFunctions& nvml, int index);

// The profile: the facts, and what measure_gpu.py printed for each PyTorch (the first that has a value gives it).
// On a virtual GPU nothing is called measured, and the profile says that it must not be used.
nlohmann::json make_profile(const DeviceFacts& facts, const std::vector<nlohmann::json>& measurements, const std::string& date, bool on_virtual_gpu);

}  // namespace gpumem::cli
