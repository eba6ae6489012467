// SPDX-License-Identifier: Apache-2.0
// A job's meter book.
#include "daemon/node/meter_book.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "base/file.h"
#include "daemon/node/snapshot.h"

namespace gpumem::node {
namespace {

Error book_error(const std::string& path, const char* what, const std::string& why) {
  return {ErrorKind::io, std::string("cannot ") + what + " the meter book " + path + ": " + why};
}

Status set_limits(const std::string& path, const std::string& job_key, std::uint64_t limit_bytes) {
  char error[512] = "";
  book::Book book;
  if (book::open(&book, path.c_str(), true, error, sizeof error) != book::Status::ok) return book_error(path, "open", error);
  Status done;
  for (int device = 0; done && device < book::device_count(book); ++device) {
    const auto status = book::set_job_limit(&book, job_key.c_str(), device, limit_bytes);
    if (status != book::Status::ok) done = book_error(path, "set the limit in", book::status_text(status));
  }
  book::close(&book);
  return done;
}

Status make_meter_book(const std::string& path, const std::vector<Device>& devices, const std::string& job_key,
                       std::uint64_t limit_bytes, std::uint32_t user_id) {
  if (auto made = make_directories(std::filesystem::path(path).parent_path().string(), 0711); !made) return made;
  std::vector<book::DeviceDescription> descriptions(std::min<std::size_t>(std::max<std::size_t>(devices.size(), 1), book::kMaxDevices));
  for (std::size_t i = 0; i < descriptions.size() && i < devices.size(); ++i) {
    std::snprintf(descriptions[i].name, sizeof descriptions[i].name, "%s", devices[i].gpu.c_str());
    std::snprintf(descriptions[i].uuid, sizeof descriptions[i].uuid, "%s", devices[i].uuid.c_str());
  }
  char error[512] = "";
  if (book::create(path.c_str(), descriptions.data(), static_cast<int>(descriptions.size()), book::Accounting::meter, 0600, error,
                   sizeof error) != book::Status::ok) {
    return book_error(path, "make", error);
  }
  // The limit stands before the user can reach the file.
  auto done = set_limits(path, job_key, limit_bytes);
  if (done && ::geteuid() == 0 && ::chown(path.c_str(), user_id, static_cast<gid_t>(-1)) != 0) {
    done = errno_error("cannot give the meter book " + path + " to its user");
  }
  if (!done) ::unlink(path.c_str());
  return done;
}

}  // namespace

Status prepare_meter_book(const std::string& path, const std::vector<Device>& devices, const std::string& job_key,
                          std::uint64_t limit_bytes, std::uint32_t user_id) {
  if (::access(path.c_str(), F_OK) == 0) {
    auto snapshot = Snapshot::take(path);
    book::JobUse use{};
    if (snapshot && book::job_use(snapshot->book(), job_key.c_str(), &use) == book::Status::ok) {
      return use.devices[0].limit_bytes == limit_bytes ? Status() : set_limits(path, job_key, limit_bytes);
    }
    // What its user has spoiled is made anew: the job stays limited.
    if (::unlink(path.c_str()) != 0) return errno_error("cannot replace the meter book " + path);
  }
  return make_meter_book(path, devices, job_key, limit_bytes, user_id);
}

Result<Metered> read_meter_book(const std::string& path, const std::string& job_key) {
  auto snapshot = Snapshot::take(path);
  if (!snapshot) return snapshot.error();
  book::Book* book = snapshot->book();
  book::JobUse job{};
  Metered metered;
  auto status = book::job_use(book, job_key.c_str(), &job);
  int busiest = 0;
  for (int device = 0; device < book::device_count(*book); ++device) {
    const auto& use = job.devices[device];
    if (use.peak_bytes > job.devices[busiest].peak_bytes) busiest = device;
    metered.out_of_memory_count += use.out_of_memory_count;
    metered.out_of_memory_bytes = std::max(metered.out_of_memory_bytes, use.out_of_memory_bytes);
  }
  metered.used_bytes = job.devices[busiest].used_bytes;
  metered.peak_bytes = job.devices[busiest].peak_bytes;

  book::DeviceUse device{};
  if (status == book::Status::ok) status = book::device_use(book, busiest, &device);
  metered.context_bytes = device.context_bytes;
  struct Walk {
    Metered* metered;
    int device;
  } walk{&metered, busiest};
  if (status == book::Status::ok) {
    status = book::for_each_process(
        book,
        [](void* context, const book::ProcessUse& process) {
          auto* found = static_cast<Walk*>(context);
          ++found->metered->processes;
          found->metered->context_bytes = std::max(found->metered->context_bytes, process.devices[found->device].context_peak_bytes);
        },
        &walk);
  }
  if (status != book::Status::ok) return book_error(path, "read", book::status_text(status));
  return metered;
}

}  // namespace gpumem::node
