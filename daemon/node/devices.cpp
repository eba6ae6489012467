// SPDX-License-Identifier: Apache-2.0
// The node's GPUs.
#include "daemon/node/devices.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "base/file.h"
#include "daemon/node/snapshot.h"
#include "estimator/gpus/profile.h"

namespace gpumem::node {
namespace {

Result<std::vector<book::DeviceDescription>> describe_virtual_gpus(const Settings& settings) {
  std::vector<book::DeviceDescription> descriptions;
  for (const auto& wanted : settings.virtual_gpus) {
    auto profile = gpus::find_profile(settings.profiles_directory, wanted.gpu);
    if (!profile) return profile.error().with_context("node.virtual_gpus");
    for (std::int64_t i = 0; i < wanted.count; ++i) {
      descriptions.push_back(gpus::describe_device(*profile, static_cast<int>(descriptions.size()), 0));
    }
  }
  if (descriptions.size() > static_cast<std::size_t>(book::kMaxDevices)) {
    return Error{ErrorKind::invalid_argument, "node.virtual_gpus asks for " + std::to_string(descriptions.size()) +
                                                  " GPUs and a node has at most " + std::to_string(book::kMaxDevices)};
  }
  return descriptions;
}

bool describes(const book::Book& book, const std::vector<book::DeviceDescription>& wanted) {
  if (book::accounting(book) != book::Accounting::shared_book) return false;
  if (book::device_count(book) != static_cast<int>(wanted.size())) return false;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const auto* found = book::description(book, static_cast<int>(i));
    if (found == nullptr || std::memcmp(found, &wanted[i], sizeof wanted[i]) != 0) return false;
  }
  return true;
}

// The kernel knows who lives, by the locks on the book itself.
int living_processes(const std::string& path) {
  char error[512];
  book::Book book;
  if (book::open(&book, path.c_str(), false, error, sizeof error) != book::Status::ok) return 0;
  int alive = 0;
  (void)book::for_each_process(
      &book, [](void* context, const book::ProcessUse& process) { *static_cast<int*>(context) += process.alive ? 1 : 0; }, &alive);
  book::close(&book);
  return alive;
}

// "Model: \t\t NVIDIA H200" in /proc/driver/nvidia/gpus/BUS/information (NVIDIA driver README, chapter on /proc).
std::string information(const std::string& text, const std::string& key) {
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    if (line.compare(0, key.size(), key) == 0 && line.size() > key.size() && line[key.size()] == ':') {
      const std::size_t value = line.find_first_not_of(" \t", key.size() + 1);
      return value == std::string::npos ? std::string() : line.substr(value, line.find_last_not_of(" \t") + 1 - value);
    }
    begin = end + 1;
  }
  return {};
}

std::vector<Device> real_gpus(const Settings& settings) {
  const std::string directory = settings.proc + "/driver/nvidia/gpus";
  std::vector<std::string> buses;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(directory, error), end; !error && entry != end; entry.increment(error)) {
    buses.push_back(entry->path().string());
  }
  std::sort(buses.begin(), buses.end());
  std::vector<Device> devices;
  for (const auto& bus : buses) {
    const std::string text = read_file(bus + "/information", 1 << 16).value_or("");
    Device device;
    device.index = static_cast<int>(devices.size());
    device.gpu = information(text, "Model");
    device.uuid = information(text, "GPU UUID");
    if (auto profile = gpus::find_profile_of_device(settings.profiles_directory, device.gpu); profile && !device.gpu.empty()) {
      device.usable_bytes = profile->usable_bytes();
      device.context_bytes = profile->context_bytes();
    }
    devices.push_back(std::move(device));
  }
  return devices;
}

}  // namespace

Result<std::unique_ptr<Devices>> Devices::open(const Settings& settings) {
  std::unique_ptr<Devices> devices(new Devices());
  if (settings.virtual_gpus.empty()) {
    devices->devices_ = real_gpus(settings);
    return devices;
  }
  auto wanted = describe_virtual_gpus(settings);
  if (!wanted) return wanted.error();
  const std::string directory = settings.state_directory + "/books";
  // Jobs of all users reach the book through this directory and must not list it.
  if (auto made = make_directories(directory, 0711); !made) return made.error();
  const std::string path = directory + "/node";

  bool usable = false;
  if (::access(path.c_str(), F_OK) == 0) {
    auto snapshot = Snapshot::take(path);
    if (snapshot) {
      usable = describes(*snapshot->book(), *wanted);
      const int alive = usable ? 0 : living_processes(path);
      if (alive > 0) {
        return Error{ErrorKind::unavailable, path + " describes other virtual GPUs than node.virtual_gpus, and running processes (" +
                                                 std::to_string(alive) + ") use it; let those jobs end, then start gpumemd again"};
      }
    } else if (snapshot.error().kind != ErrorKind::unsupported) {
      return snapshot.error();
    }
    if (!usable && ::unlink(path.c_str()) != 0) return errno_error("cannot replace " + path);
  }
  char error[512] = "";
  if (!usable && book::create(path.c_str(), wanted->data(), static_cast<int>(wanted->size()), book::Accounting::shared_book, 0666,
                              error, sizeof error) != book::Status::ok) {
    return Error{ErrorKind::io, "cannot make the book of the shared virtual GPUs: " + std::string(error)};
  }
  devices->book_path_ = path;
  for (std::size_t i = 0; i < wanted->size(); ++i) {
    const auto& description = (*wanted)[i];
    devices->devices_.push_back({static_cast<int>(i), description.name, description.uuid, description.usable_bytes,
                                 description.context_bytes});
  }
  devices->reclaim();
  return devices;
}

const Device* Devices::find(int index) const {
  for (const auto& device : devices_) {
    if (device.index == index) return &device;
  }
  return nullptr;
}

Result<DeviceNow> Devices::use_of(int index) const {
  if (!are_virtual()) return Error{ErrorKind::unsupported, "the use of real GPUs is not sampled"};
  auto snapshot = Snapshot::take(book_path_);
  if (!snapshot) return snapshot.error();
  book::DeviceUse use{};
  const auto status = book::device_use(snapshot->book(), index, &use);
  if (status != book::Status::ok) return Error{ErrorKind::io, "cannot read " + book_path_ + ": " + book::status_text(status)};
  return DeviceNow{use.used_bytes, use.peak_bytes};
}

Result<book::JobUse> Devices::use_of_job(const std::string& job_key) const {
  if (!are_virtual()) return Error{ErrorKind::unsupported, "the use of real GPUs is not sampled"};
  auto snapshot = Snapshot::take(book_path_);
  if (!snapshot) return snapshot.error();
  book::JobUse use{};
  const auto status = book::job_use(snapshot->book(), job_key.c_str(), &use);
  if (status != book::Status::ok) return Error{ErrorKind::io, "cannot read " + book_path_ + ": " + book::status_text(status)};
  return use;
}

void Devices::reclaim() const {
  if (are_virtual()) reclaim_in_child(book_path_);
}

}  // namespace gpumem::node
