// SPDX-License-Identifier: Apache-2.0
// nvidia-smi's stand-in on virtual GPUs: what job scripts ask of it, answered from the book.
// First in PATH of a job (or probe) that has virtual GPUs; options and output follow NVIDIA's nvidia-smi(1).
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

#include "estimator/virtual_gpu/nvidia_smi/queries.h"

namespace gpumem::nvidia_smi {
namespace {

constexpr const char kHelp[] =
    "nvidia-smi (stand-in for virtual GPUs, part of gpumem)\n"
    "\n"
    "  nvidia-smi [-i INDEX|UUID]                       a table of the GPUs and their processes\n"
    "  nvidia-smi -L                                    a line for each GPU\n"
    "  nvidia-smi --query-gpu=FIELD,… --format=csv[,noheader][,nounits] [-i …]\n"
    "  nvidia-smi --query-compute-apps=FIELD,… --format=csv[,noheader][,nounits]\n"
    "  nvidia-smi --help-query-gpu | --help-query-compute-apps | --version | --help\n";

struct Options {
  bool list = false;
  std::string gpu_fields, app_fields, format = "csv", only_device;
};

// "--name=value" or "--name value".
bool take_value(const std::string& name, int count, char** arguments, int* at, std::string* value) {
  const std::string argument = arguments[*at];
  if (argument == name && *at + 1 < count) {
    *value = arguments[++*at];
    return true;
  }
  if (argument.rfind(name + "=", 0) != 0) return false;
  *value = argument.substr(name.size() + 1);
  return true;
}

void print_list(const std::vector<Device>& devices) {
  for (const auto& device : devices) {
    std::printf("GPU %d: %s (UUID: %s)\n", device.index, device.description.name, device.description.uuid);
  }
}

constexpr int kTableWidth = 89;  // NVIDIA's own

void print_row(const std::string& text) { std::printf("| %-*.*s|\n", kTableWidth - 1, kTableWidth - 1, text.c_str()); }
void print_rule() { std::printf("+%s+\n", std::string(kTableWidth, '-').c_str()); }

template <class... Values>
std::string format(const char* pattern, Values... values) {
  char text[256];
  std::snprintf(text, sizeof text, pattern, values...);
  return text;
}

void print_table(const std::vector<Device>& devices, const std::vector<App>& apps) {
  const std::time_t now = std::time(nullptr);
  char date[64];
  std::strftime(date, sizeof date, "%a %b %e %H:%M:%S %Y", std::localtime(&now));
  std::puts(date);
  const char* driver = devices.empty() ? "" : devices[0].description.driver_version;
  const unsigned cuda = devices.empty() ? 0 : devices[0].description.cuda_version;
  print_rule();
  print_row(format("NVIDIA-SMI (gpumem: virtual GPUs)   Driver Version: %-14s   CUDA Version: %u.%u", driver, cuda / 1000, cuda % 1000 / 10));
  print_rule();
  print_row(format("GPU  %-36s %-20s %s", "Name", "Bus-Id", "Memory-Usage"));
  for (const auto& device : devices) {
    print_row(format("%3d  %-36.36s %-16.16s %8lluMiB / %8lluMiB", device.index, device.description.name, device.description.pci_bus_id,
                     to_mib(device.used_bytes), to_mib(device.total_bytes)));
  }
  print_rule();
  print_row("Processes:");
  print_row(format("GPU      PID  %-48s %s", "Process name", "GPU Memory Usage"));
  if (apps.empty()) print_row("No running processes found");
  for (const auto& app : apps) {
    print_row(format("%3d %8d  %-48.48s %8lluMiB", app.device_index, app.pid, app.name.c_str(), to_mib(app.used_bytes)));
  }
  print_rule();
}

int usage_error(const std::string& message) {
  std::fprintf(stderr, "nvidia-smi (stand-in for virtual GPUs): %s\n%s", message.c_str(), kHelp);
  return 2;
}

int run(int count, char** arguments) {
  Options options;
  for (int i = 1; i < count; ++i) {
    const std::string argument = arguments[i];
    std::string ignored;
    if (argument == "-h" || argument == "--help") {
      std::fputs(kHelp, stdout);
      return 0;
    }
    if (argument == "--version") {
      std::puts("NVIDIA-SMI version  : stand-in for virtual GPUs, part of gpumem");
      return 0;
    }
    if (argument == "--help-query-gpu" || argument == "--help-query-compute-apps") {
      std::fputs(field_names(argument == "--help-query-gpu").c_str(), stdout);
      return 0;
    }
    if (argument == "-L" || argument == "--list-gpus") {
      options.list = true;
    } else if (!take_value("--query-gpu", count, arguments, &i, &options.gpu_fields) &&
               !take_value("--query-compute-apps", count, arguments, &i, &options.app_fields) &&
               !take_value("--format", count, arguments, &i, &options.format) &&
               !take_value("-i", count, arguments, &i, &options.only_device) &&
               !take_value("--id", count, arguments, &i, &options.only_device)) {
      return usage_error("option '" + argument + "' is not known here");
    }
  }
  auto books = read_book(options.only_device);
  if (!books.ok()) {
    std::fprintf(stderr, "%s\n", books.error().message.c_str());
    return books.error().kind == ErrorKind::not_found ? 6 : 9;  // nvidia-smi(1): 6 no such device, 9 driver not loaded
  }
  const CsvFormat format = parse_format(options.format);
  if (!format.valid) return usage_error("--format must begin with csv");
  if (options.list) {
    print_list(books->devices);
  } else if (!options.gpu_fields.empty() || !options.app_fields.empty()) {
    auto text = options.gpu_fields.empty() ? query_apps(*books, options.app_fields, format) : query_gpus(*books, options.gpu_fields, format);
    if (!text.ok()) return usage_error(text.error().message);
    std::fputs(text->c_str(), stdout);
  } else {
    print_table(books->devices, books->apps);
  }
  return 0;
}

}  // namespace
}  // namespace gpumem::nvidia_smi

int main(int count, char** arguments) { return gpumem::nvidia_smi::run(count, arguments); }
