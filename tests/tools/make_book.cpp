// SPDX-License-Identifier: Apache-2.0
// make_book: makes a device book by hand, or prints one. A developer's and the tests' tool; not installed.
// make_book PATH [--name N] [--cc 8.6] [--sms 28] [--total BYTES] [--usable BYTES] [--context BYTES] [--count N]
//           [--shared | --meter] [--limit JOB:DEVICE:BYTES] [--cudnn FILE] [--cuda 12040];  make_book --print PATH

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>

#include "estimator/book/book.h"

namespace book = gpumem::book;

static int print(const char *path) {
  static book::Book book;
  char error[512];
  if (book::open(&book, path, false, error, sizeof error) != book::Status::ok) return fprintf(stderr, "%s\n", error), 1;
  static int devices;
  devices = book::device_count(book);
  for (int d = 0; d < devices; ++d) {
    book::DeviceUse use;
    book::device_use(&book, d, &use);
    printf("device %d '%s' used %" PRIu64 " peak %" PRIu64 " context %" PRIu64 "\n", d, book::description(book, d)->name,
           use.used_bytes, use.peak_bytes, use.context_bytes);
  }
  book::for_each_job(&book, [](void *, const book::JobUse &job) {
    for (int d = 0; d < devices; ++d)
      printf("job '%s' device %d used %" PRIu64 " peak %" PRIu64 " limit %" PRIu64 " oom %" PRIu64 "\n", job.job_key, d,
             job.devices[d].used_bytes, job.devices[d].peak_bytes, job.devices[d].limit_bytes,
             job.devices[d].out_of_memory_count);
  }, nullptr);
  book::for_each_process(&book, [](void *, const book::ProcessUse &p) {
    for (int d = 0; d < devices; ++d)
      printf("process %d '%s' job '%s' %s device %d context %" PRIu64 " allocated %" PRIu64 " peak %" PRIu64
             " calls %" PRIu64 " launches %" PRIu64 " oom %" PRIu64 " (%" PRIu64 ") host failures %u %s\n",
             static_cast<int>(p.pid), p.comm, p.job_key, p.alive ? "alive" : "ended", d, p.devices[d].context_peak_bytes,
             p.devices[d].allocated_bytes, p.devices[d].allocated_peak_bytes, p.devices[d].allocation_calls, p.launches,
             p.devices[d].out_of_memory_count, p.devices[d].out_of_memory_bytes, p.host_failures, p.host_failure);
  }, nullptr);
  book::for_each_missing(&book, [](void *, const book::MissingFunction &m) {
    printf("missing %s (%" PRIu64 " calls)\n", m.name, m.calls);
  }, nullptr);
  book::close(&book);
  return 0;
}

int main(int argc, char **argv) {
  if (argc == 3 && !strcmp(argv[1], "--print")) return print(argv[2]);
  if (argc < 2) return fprintf(stderr, "usage: make_book PATH [options] | make_book --print PATH\n"), 2;
  // The defaults are an RTX 3060: published figures, and 12 GiB as CUDA reports them.
  book::DeviceDescription d = {};
  strcpy(d.name, "NVIDIA GeForce RTX 3060");
  d.compute_major = 8, d.compute_minor = 6, d.sm_count = 28;
  d.sm_clock_khz = 1777000, d.memory_clock_khz = 7501000, d.memory_bus_bits = 192, d.l2_bytes = 2359296;
  d.shared_per_block = 49152, d.shared_per_block_optin = 101376, d.shared_per_sm = 102400, d.shared_reserved_per_block = 1024;
  d.registers_per_block = d.registers_per_sm = 65536;
  d.threads_per_block = 1024, d.threads_per_sm = 1536, d.blocks_per_sm = 16, d.warp_size = 32;
  d.power_limit_mw = 170000;
  d.total_bytes = 12622168064;
  d.context_bytes = 200u << 20;
  d.nvml_total_bytes = 12884901888;
  strcpy(d.driver_version, "580.65.06");
  d.cuda_version = 13000;
  int count = 1;
  book::Accounting accounting = book::Accounting::private_book;
  std::string limits;
  for (int i = 2; i < argc; ++i) {
    const std::string option = argv[i];
    if (option == "--shared") { accounting = book::Accounting::shared_book; continue; }
    if (option == "--meter") { accounting = book::Accounting::meter; continue; }
    if (++i >= argc) return fprintf(stderr, "make_book: %s needs a value\n", option.c_str()), 2;
    const char *value = argv[i];
    if (option == "--name") snprintf(d.name, sizeof d.name, "%s", value);
    else if (option == "--cc") sscanf(value, "%u.%u", &d.compute_major, &d.compute_minor);
    else if (option == "--sms") d.sm_count = static_cast<uint32_t>(atoi(value));
    else if (option == "--total") d.total_bytes = strtoull(value, nullptr, 10);
    else if (option == "--usable") d.usable_bytes = strtoull(value, nullptr, 10);
    else if (option == "--context") d.context_bytes = strtoull(value, nullptr, 10);
    else if (option == "--cuda") d.cuda_version = static_cast<uint32_t>(atoi(value));
    else if (option == "--count") count = atoi(value);
    else if (option == "--limit") limits = value;
    else if (option == "--cudnn") {
      std::ifstream file(value);
      const std::string text((std::istreambuf_iterator<char>(file)), {});
      snprintf(d.cudnn_device_json, sizeof d.cudnn_device_json, "%s", text.c_str());
    } else return fprintf(stderr, "make_book: unknown option %s\n", option.c_str()), 2;
  }
  if (accounting == book::Accounting::meter) d.usable_bytes = 0;
  else if (d.usable_bytes == 0) d.usable_bytes = d.total_bytes;
  static book::DeviceDescription devices[book::kMaxDevices];
  for (int n = 0; n < count && n < book::kMaxDevices; ++n) {
    devices[n] = d;
    snprintf(devices[n].uuid, sizeof d.uuid, "GPU-76470000-0000-4000-8000-%012x", n);
    snprintf(devices[n].pci_bus_id, sizeof d.pci_bus_id, "00000000:%02X:00.0", n + 1);
  }
  char error[512];
  if (book::create(argv[1], devices, count, accounting, accounting == book::Accounting::shared_book ? 0666 : 0600, error,
                   sizeof error) != book::Status::ok)
    return fprintf(stderr, "%s\n", error), 1;
  if (!limits.empty()) {
    static book::Book book;
    const size_t first = limits.find(':'), second = limits.find(':', first + 1);
    if (second == std::string::npos) return fprintf(stderr, "make_book: --limit JOB:DEVICE:BYTES\n"), 2;
    if (book::open(&book, argv[1], true, error, sizeof error) != book::Status::ok) return fprintf(stderr, "%s\n", error), 1;
    book::set_job_limit(&book, limits.substr(0, first).c_str(), atoi(limits.c_str() + first + 1),
                        strtoull(limits.c_str() + second + 1, nullptr, 10));
    book::close(&book);
  }
  return 0;
}
