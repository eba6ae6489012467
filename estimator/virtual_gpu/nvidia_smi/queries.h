// SPDX-License-Identifier: Apache-2.0
// What nvidia-smi's stand-in reads from the book, and its comma-separated answers. Runs in nvidia-smi.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "base/size.h"
#include "estimator/book/book.h"

namespace gpumem::nvidia_smi {

struct Device {
  int index;
  book::DeviceDescription description;
  std::uint64_t used_bytes, total_bytes;  // as NVML counts: what the driver keeps is in neither
};

struct App {
  int device_index;
  std::string device_uuid, device_name;
  int pid;
  std::string name;
  std::uint64_t used_bytes;  // contexts included
};

struct Books {
  std::vector<Device> devices;
  std::vector<App> apps;
};

// The book that GPUMEM_BOOK names. `only` is an index or UUID, empty for all.
// Errors: unavailable (no virtual GPU here), not_found (no such device).
Result<Books> read_book(const std::string& only);

struct CsvFormat {
  bool valid = false, header = true, units = true;
};
CsvFormat parse_format(const std::string& text);

// The answer to --query-gpu and --query-compute-apps. invalid_argument names the field that is not known;
// a field that exists but is not known of a virtual GPU reads "[N/A]", as with NVIDIA's.
Result<std::string> query_gpus(const Books& books, const std::string& fields, const CsvFormat& format);
Result<std::string> query_apps(const Books& books, const std::string& fields, const CsvFormat& format);
// One field a line, for --help-query-….
std::string field_names(bool of_gpus);

inline unsigned long long to_mib(std::uint64_t bytes) { return bytes / kMiB; }

}  // namespace gpumem::nvidia_smi
