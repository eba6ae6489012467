// SPDX-License-Identifier: Apache-2.0
// nvidia-smi's queries, answered from the book. Runs in nvidia-smi.
#include "estimator/virtual_gpu/nvidia_smi/queries.h"

#include <cstdlib>
#include <ctime>
#include <functional>
#include <sstream>


namespace gpumem::nvidia_smi {
namespace {

std::string mib(std::uint64_t bytes) { return std::to_string(to_mib(bytes)); }
std::string number(std::uint64_t value) { return std::to_string(value); }

template <class Row>
struct Field {
  const char* name;
  const char* unit;  // nullptr: none
  std::function<std::string(const Row&, const Books&)> value;
};

const std::vector<Field<Device>>& gpu_fields() {
  static const std::vector<Field<Device>> fields = {
      {"index", nullptr, [](const Device& d, const Books&) { return number(static_cast<std::uint64_t>(d.index)); }},
      {"name", nullptr, [](const Device& d, const Books&) { return std::string(d.description.name); }},
      {"gpu_name", nullptr, [](const Device& d, const Books&) { return std::string(d.description.name); }},
      {"uuid", nullptr, [](const Device& d, const Books&) { return std::string(d.description.uuid); }},
      {"gpu_uuid", nullptr, [](const Device& d, const Books&) { return std::string(d.description.uuid); }},
      {"serial", nullptr, [](const Device& d, const Books&) { return std::string(d.description.serial); }},
      {"pci.bus_id", nullptr, [](const Device& d, const Books&) { return std::string(d.description.pci_bus_id); }},
      {"gpu_bus_id", nullptr, [](const Device& d, const Books&) { return std::string(d.description.pci_bus_id); }},
      {"count", nullptr, [](const Device&, const Books& b) { return number(b.devices.size()); }},
      {"timestamp", nullptr, [](const Device&, const Books&) {
         const std::time_t now = std::time(nullptr);
         char text[32];
         std::strftime(text, sizeof text, "%Y/%m/%d %H:%M:%S.000", std::localtime(&now));
         return std::string(text);
       }},
      {"driver_version", nullptr, [](const Device& d, const Books&) { return std::string(d.description.driver_version); }},
      {"compute_cap", nullptr, [](const Device& d, const Books&) {
         return number(d.description.compute_major) + "." + number(d.description.compute_minor);
       }},
      {"memory.total", "MiB", [](const Device& d, const Books&) { return mib(d.total_bytes); }},
      {"memory.used", "MiB", [](const Device& d, const Books&) { return mib(d.used_bytes); }},
      {"memory.free", "MiB", [](const Device& d, const Books&) {
         return mib(d.total_bytes - (d.used_bytes < d.total_bytes ? d.used_bytes : d.total_bytes));
       }},
      {"memory.reserved", "MiB", [](const Device& d, const Books&) { return mib(d.description.nvml_reserved_bytes); }},
      // A virtual GPU runs no kernels: it is never busy, warm or clocked.
      {"utilization.gpu", "%", [](const Device&, const Books&) { return std::string("0"); }},
      {"utilization.memory", "%", [](const Device&, const Books&) { return std::string("0"); }},
      {"temperature.gpu", nullptr, [](const Device&, const Books&) { return std::string(); }},
      {"power.draw", "W", [](const Device&, const Books&) { return std::string(); }},
      {"power.limit", "W", [](const Device& d, const Books&) {
         return d.description.power_limit_mw == 0 ? std::string() : number(d.description.power_limit_mw / 1000) + ".00";
       }},
      {"fan.speed", "%", [](const Device&, const Books&) { return std::string(); }},
      {"pstate", nullptr, [](const Device&, const Books&) { return std::string(); }},
      {"clocks.max.sm", "MHz", [](const Device& d, const Books&) { return number(d.description.sm_clock_khz / 1000); }},
      {"clocks.max.memory", "MHz", [](const Device& d, const Books&) { return number(d.description.memory_clock_khz / 1000); }},
      {"compute_mode", nullptr, [](const Device&, const Books&) { return std::string("Default"); }},
      {"mig.mode.current", nullptr, [](const Device& d, const Books&) { return std::string(d.description.mig ? "Enabled" : ""); }},
  };
  return fields;
}

const std::vector<Field<App>>& app_fields() {
  static const std::vector<Field<App>> fields = {
      {"pid", nullptr, [](const App& a, const Books&) { return number(static_cast<std::uint64_t>(a.pid)); }},
      {"process_name", nullptr, [](const App& a, const Books&) { return a.name; }},
      {"name", nullptr, [](const App& a, const Books&) { return a.name; }},
      {"used_memory", "MiB", [](const App& a, const Books&) { return mib(a.used_bytes); }},
      {"used_gpu_memory", "MiB", [](const App& a, const Books&) { return mib(a.used_bytes); }},
      {"gpu_uuid", nullptr, [](const App& a, const Books&) { return a.device_uuid; }},
      {"gpu_name", nullptr, [](const App& a, const Books&) { return a.device_name; }},
  };
  return fields;
}

template <class Row>
Result<std::string> query(const Books& books, const std::vector<Row>& rows, const std::vector<Field<Row>>& known,
                          const std::string& names, const CsvFormat& format) {
  std::vector<const Field<Row>*> chosen;
  std::istringstream split(names);
  for (std::string name; std::getline(split, name, ',');) {
    const Field<Row>* found = nullptr;
    for (const auto& field : known) {
      if (name == field.name) found = &field;
    }
    if (found == nullptr) return Error{ErrorKind::invalid_argument, "Field \"" + name + "\" is not a valid field to query."};
    chosen.push_back(found);
  }
  std::string text;
  for (std::size_t i = 0; format.header && i < chosen.size(); ++i) {
    text += (i ? ", " : "") + std::string(chosen[i]->name) + (chosen[i]->unit ? " [" + std::string(chosen[i]->unit) + "]" : "");
  }
  if (format.header) text += "\n";
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      std::string value = chosen[i]->value(row, books);
      if (value.empty()) {
        value = "[N/A]";
      } else if (format.units && chosen[i]->unit) {
        value += " " + std::string(chosen[i]->unit);
      }
      text += (i ? ", " : "") + value;
    }
    text += "\n";
  }
  return text;
}

void add_process(void* context, const book::ProcessUse& process) {
  auto* books = static_cast<Books*>(context);
  if (!process.alive) return;
  for (auto& device : books->devices) {
    const auto& use = process.devices[device.index];
    if (use.context_bytes + use.allocated_bytes == 0) continue;
    const int pid = process.visible_pid != 0 ? process.visible_pid : process.pid;
    books->apps.push_back({device.index, device.description.uuid, device.description.name, pid, process.comm, use.context_bytes + use.allocated_bytes});
  }
}

bool matches(const Device& device, const std::string& only) {
  return only.empty() || only == std::to_string(device.index) || only == device.description.uuid;
}

}  // namespace

Result<Books> read_book(const std::string& only) {
  const char* path = std::getenv("GPUMEM_BOOK");
  if (path == nullptr) return Error{ErrorKind::unavailable, "nvidia-smi (stand-in): no virtual GPU here: GPUMEM_BOOK is not set"};
  book::Book book;
  char error[256] = "";
  if (book::open(&book, path, false, error, sizeof error) != book::Status::ok) {
    return Error{ErrorKind::unavailable, std::string("nvidia-smi (stand-in): ") + error};
  }
  Books books;
  for (int i = 0; i < book::device_count(book); ++i) {
    Device device = {i, *book::description(book, i), 0, 0};
    book::DeviceUse use = {};
    if (book::device_use(&book, i, &use) == book::Status::ok) device.used_bytes = use.used_bytes;
    device.total_bytes = device.description.nvml_total_bytes ? device.description.nvml_total_bytes : device.description.total_bytes;
    if (matches(device, only)) books.devices.push_back(device);
  }
  book::for_each_process(&book, add_process, &books);
  book::close(&book);
  if (books.devices.empty()) return Error{ErrorKind::not_found, "No devices were found"};
  return books;
}

CsvFormat parse_format(const std::string& text) {
  CsvFormat format;
  std::istringstream split(text);
  for (std::string word; std::getline(split, word, ',');) {
    if (word == "csv") format.valid = true;
    if (word == "noheader") format.header = false;
    if (word == "nounits") format.units = false;
  }
  return format;
}

Result<std::string> query_gpus(const Books& books, const std::string& fields, const CsvFormat& format) {
  return query(books, books.devices, gpu_fields(), fields, format);
}

Result<std::string> query_apps(const Books& books, const std::string& fields, const CsvFormat& format) {
  return query(books, books.apps, app_fields(), fields, format);
}

std::string field_names(bool of_gpus) {
  std::string text;
  if (of_gpus) {
    for (const auto& field : gpu_fields()) text += std::string(field.name) + "\n";
  } else {
    for (const auto& field : app_fields()) text += std::string(field.name) + "\n";
  }
  return text;
}

}  // namespace gpumem::nvidia_smi
