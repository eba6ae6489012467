// SPDX-License-Identifier: Apache-2.0
// See allocator_events.h. CUDA names come from cuda_names/, so that no environment needs CUDA headers.

#include "allocator_events.h"

#include "current.h"
#include "event_format.h"
#include "operators.h"

#include <c10/cuda/CUDACachingAllocator.h>
#include <torch/version.h>

#include <fcntl.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

// Of the calling thread: CUDA events recorded so far (libgpumem_vgpu.so).
extern "C" unsigned long long gpumem_events_recorded() __attribute__((weak));

namespace gpumem::tracer {
namespace {

using record::EventAction;
using record::EventRecord;

uint64_t now_ns(clockid_t clock) {
  timespec t;
  clock_gettime(clock, &t);
  return uint64_t(t.tv_sec) * 1000000000u + t.tv_nsec;
}

bool forked = false;  // this is a child of the process that records: its requests are not recorded. Asking getpid() is a system call an event

class Writer {
 public:
  bool open(const std::string& directory, std::string& why) {
    pid_ = getpid();
    pthread_atfork(nullptr, nullptr, [] { forked = true; });
    std::string events = directory + "/events-" + std::to_string(pid_) + ".bin";
    std::string lines = directory + "/process-" + std::to_string(pid_) + ".jsonl";
    events_ = ::open(events.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    lines_ = ::open(lines.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (events_ < 0 || lines_ < 0) {
      why = "cannot write " + (events_ < 0 ? events : lines) + ": " + strerror(errno);
      return false;
    }
    started_ns_ = now_ns(CLOCK_MONOTONIC);
    record::EventHeader header{};
    memcpy(header.magic, record::kEventMagic, sizeof header.magic);
    header.version = record::kEventVersion;
    header.record_bytes = sizeof(EventRecord);
    header.process = static_cast<uint64_t>(pid_);
    header.start_ns = now_ns(CLOCK_REALTIME);
    return put(events_, &header, sizeof header);
  }

  // Called under the allocator's lock of one device; several devices call at once.
  void add(EventAction action, int device, uint64_t stream, uint64_t address, uint64_t size, uint8_t pool = 0, uint8_t flags = 0) {
    if (forked) return;
    std::lock_guard<std::mutex> hold(mutex_);
    EventRecord& event = buffer_[used_++];
    event = EventRecord{action, static_cast<int8_t>(device), flags, pool, 0, 0, stream, address, size, now_ns(CLOCK_MONOTONIC) - started_ns_};
    if (action == EventAction::allocate) {
      event.flags = current.python ? 0 : record::kEventOnAutogradThread;
      event.op = current.op;
      event.module = current.module;
      if (event.op && !named_[event.op]) name(event.op);
    }
    if (used_ == kBuffered) flush();
    if (device < 0 || device >= kDevices) return;
    if (action == EventAction::segment_allocate || action == EventAction::segment_map) {
      reserved_[device] += size;
      if (reserved_[device] > peak_[device]) {
        peak_[device] = reserved_[device];
        write_peak(device);
      }
    } else if (action == EventAction::segment_free || action == EventAction::segment_unmap) {
      reserved_[device] -= std::min(reserved_[device], size);
    }
  }

  void mark(EventAction what, uint64_t number) {
    add(what, 0, 0, 0, number);
    write_out();
  }

  void write_out() {
    std::lock_guard<std::mutex> hold(mutex_);
    if (!forked) flush();
  }

 private:
  static constexpr size_t kBuffered = 1024;
  static constexpr int kDevices = 64;

  static bool put(int file, const void* bytes, size_t n) { return ::write(file, bytes, n) == static_cast<ssize_t>(n); }

  void flush() {
    if (used_ && !put(events_, buffer_, used_ * sizeof(EventRecord))) broken_ = true;
    used_ = 0;
  }

  void name(uint16_t op) {
    named_[op] = true;
    char line[320];
    int n = snprintf(line, sizeof line, "{\"event\":\"operator\",\"n\":%u,\"name\":\"%.200s\"}\n", unsigned{op}, operator_name(op).c_str());
    if (!put(lines_, line, n)) broken_ = true;
  }

  void write_peak(int device) {
    char line[96];
    int n = snprintf(line, sizeof line, "{\"event\":\"peak\",\"device\":%d,\"reserved\":%llu}\n", device,
                     static_cast<unsigned long long>(peak_[device]));
    if (!put(lines_, line, n)) broken_ = true;
  }

  std::mutex mutex_;
  pid_t pid_ = 0;
  int events_ = -1, lines_ = -1;
  bool broken_ = false;
  uint64_t started_ns_ = 0;
  uint64_t reserved_[kDevices] = {}, peak_[kDevices] = {};
  bool named_[65536] = {};  // operators whose line is written
  EventRecord buffer_[kBuffered];
  size_t used_ = 0;
};

// Which private pool an event belongs to, numbered from 1; 0: the default pools.
// PyTorch says it in a field that older ones lack: there, what is asked for on a capturing stream is of pool 255.
constexpr uint8_t kSomePool = 255;

template <class Entry>
auto pool_of(const Entry& entry, int) -> decltype(entry.mempool_.first, uint8_t()) {
  if (entry.mempool_.first == 0 && entry.mempool_.second == 0) return 0;
  static std::mutex mutex;
  static std::map<std::pair<uint64_t, uint64_t>, uint8_t> numbers;
  std::lock_guard<std::mutex> hold(mutex);
  const auto next = static_cast<uint8_t>(std::min<size_t>(numbers.size() + 1, kSomePool));
  return numbers.emplace(std::make_pair(entry.mempool_.first, entry.mempool_.second), next).first->second;
}

template <class Entry>
uint8_t pool_of(const Entry& entry, long) {
  const auto action = static_cast<EventAction>(entry.action_);
  if (action != EventAction::allocate && action != EventAction::segment_allocate && action != EventAction::segment_map) return 0;
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  return cudaStreamIsCapturing(entry.stream_, &status) == cudaSuccess && status != cudaStreamCaptureStatusNone ? kSomePool : 0;
}

// Small contents are real, so a block may begin with those of the one before. A library that reads back a count which its kernel
// would have written (thrust's, cub's: at the end of its scratch memory) must not take them for it: it reads 0.
void clean(char* block, size_t size) {
  constexpr size_t kCountsBytes = 1 << 10;
  std::memset(block, 0, std::min(size, kCountsBytes));
  if (size > kCountsBytes) std::memset(block + size - kCountsBytes, 0, kCountsBytes);
}

// The share of the device that the program allows itself, where this PyTorch can be asked.
template <class Allocator>
auto fraction_of(Allocator* allocator, int device, int) -> decltype(allocator->getMemoryFraction(static_cast<int8_t>(device))) {
  return allocator->getMemoryFraction(static_cast<int8_t>(device));
}
template <class Allocator>
double fraction_of(Allocator*, int, long) { return 1; }

// Whether the allocator had to wait for other streams before the block was free: then it recorded CUDA events between the request and
// the completion, or completes it in another thread. The virtual GPU counts them; without it nothing is said.
bool waited(EventAction action, uint64_t address) {
  static thread_local uint64_t requested, recorded_before;
  if (!gpumem_events_recorded) return false;
  if (action == EventAction::free_requested) {
    requested = address;
    recorded_before = gpumem_events_recorded();
  }
  return action == EventAction::free_completed && (address != requested || gpumem_events_recorded() != recorded_before);
}

Writer* writer = nullptr;  // never destroyed: the allocator calls until the process ends

}  // namespace

bool record_allocator_events(const std::string& directory, std::string& why) {
  if (writer) return true;
#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 2
  why = "PyTorch before 2.2 tells nobody what its allocator does";
  return false;
#else
  auto* opened = new Writer;
  if (!opened->open(directory, why)) {
    delete opened;
    return false;
  }
  writer = opened;
  try {
    c10::cuda::CUDACachingAllocator::attachAllocatorTraceTracker([](const c10::cuda::CUDACachingAllocator::TraceEntry& e) {
      const auto action = static_cast<EventAction>(e.action_);
      if (action == EventAction::segment_allocate || action == EventAction::segment_map) {
        static double known[64];  // 0: PyTorch's own 1
        const double fraction = fraction_of(c10::cuda::CUDACachingAllocator::get(), e.device_, 0);
        if (e.device_ >= 0 && e.device_ < 64 && fraction != (known[e.device_] == 0 ? 1 : known[e.device_])) {
          known[e.device_] = fraction;
          uint64_t bits;
          memcpy(&bits, &fraction, sizeof bits);
          writer->add(EventAction::memory_fraction, e.device_, 0, 0, bits);
        }
      }
      if (action == EventAction::allocate) clean(reinterpret_cast<char*>(e.addr_), e.size_);
      writer->add(action, e.device_, reinterpret_cast<uint64_t>(e.stream_), e.addr_, e.size_, pool_of(e, 0),
                  waited(action, e.addr_) ? record::kEventWaited : 0);
    });
  } catch (const std::exception& e) {
    why = e.what();
    return false;
  }
  return true;
#endif
}

void mark_step(uint64_t step) {
  if (writer) writer->mark(EventAction::step, step);
}

void mark_batch(uint64_t number) {
  if (writer) writer->mark(EventAction::batch, number);
}

void write_events_out() {
  if (writer) writer->write_out();
}

}  // namespace gpumem::tracer
