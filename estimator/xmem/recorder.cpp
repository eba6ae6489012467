// SPDX-License-Identifier: Apache-2.0
// Records what a training program allocates on the CPU, operator by operator, for xMem's method. Compiled against the job's
// own torch by gpumem-tracer --recorder, loaded by the shim (_gpumem_shim/xmem.py) into the job's Python. Nothing throws out.
//
//   gpumem_recorder_start(file, why, n)     once a process; follows the calling thread; 0 on success, else why
//   gpumem_recorder_follow()                follows the calling thread (and the autograd threads that work for it)
//   gpumem_recorder_mark(kind, a, b)        an event that only Python knows of
//   gpumem_recorder_stop()                  records nothing more; 0 if everything has been written

#include "event_format.h"

#include <ATen/record_function.h>
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>

namespace gpumem::xmem {
namespace {

class Writer {
 public:
  bool open(const char* path) {
    pid_ = getpid();
    file_ = ::open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (file_ < 0) return false;
    SequenceHeader header{};
    memcpy(header.magic, kSequenceMagic, sizeof header.magic);
    header.version = kSequenceVersion;
    header.event_bytes = sizeof(SequenceEvent);
    header.process = static_cast<uint64_t>(pid_);
    return put(&header, sizeof header);
  }

  // Returns the event's number. Forked children write none.
  uint64_t add(SequenceKind kind, uint64_t first, uint64_t second) {
    std::lock_guard<std::mutex> hold(mutex_);
    if (stopped_ || getpid() != pid_) return 0;
    buffer_[used_++] = SequenceEvent{kind, {}, first, second};
    if (used_ == kBuffered) flush();
    return count_++;
  }

  bool stop() {
    std::lock_guard<std::mutex> hold(mutex_);
    if (getpid() == pid_ && !stopped_) flush();
    stopped_ = true;
    return !broken_;
  }

  bool stopped() const { return stopped_; }

 private:
  static constexpr size_t kBuffered = 16384;

  bool put(const void* bytes, size_t n) { return ::write(file_, bytes, n) == static_cast<ssize_t>(n); }
  void flush() {
    if (used_ != 0 && !put(buffer_, used_ * sizeof(SequenceEvent))) broken_ = true;
    used_ = 0;
  }

  std::mutex mutex_;
  pid_t pid_ = 0;
  int file_ = -1;
  bool broken_ = false, stopped_ = false;
  uint64_t count_ = 0;
  size_t used_ = 0;
  SequenceEvent buffer_[kBuffered];
};

Writer* writer = nullptr;  // never destroyed: tensors are freed until the process ends

// Asked by PyTorch's CPU allocator on every thread that it was pushed to.
struct Reporter : c10::MemoryReportingInfoBase {
  void reportMemoryUsage(void* pointer, int64_t bytes, size_t, size_t, c10::Device device) override {
    if (!device.is_cpu() || bytes == 0) return;
    const auto address = reinterpret_cast<uint64_t>(pointer);
    if (bytes > 0) writer->add(SequenceKind::allocate, address, static_cast<uint64_t>(bytes));
    else writer->add(SequenceKind::release, address, static_cast<uint64_t>(-bytes));
  }
  bool memoryProfilingEnabled() const override { return !writer->stopped(); }
};

struct Operator : at::ObserverContext {
  explicit Operator(uint64_t number) : number(number) {}
  uint64_t number;
};

std::unique_ptr<at::ObserverContext> begin_operator(const at::RecordFunction& function) {
  const int64_t sequence = function.seqNr();
  uint64_t role = 0;
  if (function.scope() == at::RecordScope::BACKWARD_FUNCTION) role = kBackwardNode;
  else if (strncmp(function.name(), "autograd::engine::evaluate_function", 35) == 0) role = kBackwardNodeAround;
  return std::make_unique<Operator>(writer->add(SequenceKind::op_begin, sequence < 0 ? kNoSequence : static_cast<uint64_t>(sequence), role));
}

void end_operator(const at::RecordFunction&, at::ObserverContext* context) {
  if (context != nullptr) writer->add(SequenceKind::op_end, static_cast<Operator*>(context)->number, 0);
}

void follow() {
  c10::ThreadLocalDebugInfo::_push(c10::DebugInfoKind::PROFILER_STATE, std::make_shared<Reporter>());
}

}  // namespace
}  // namespace gpumem::xmem

#define GPUMEM_EXPORT extern "C" __attribute__((visibility("default")))

GPUMEM_EXPORT int gpumem_recorder_start(const char* path, char* why, size_t n) {
  using namespace gpumem::xmem;
  try {
    auto opened = std::make_unique<Writer>();
    if (!opened->open(path)) {
      snprintf(why, n, "cannot write %s: %s", path, strerror(errno));
      return 1;
    }
    writer = opened.release();
    at::addGlobalCallback(at::RecordFunctionCallback(&begin_operator, &end_operator)
                              .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}));
    follow();
    return 0;
  } catch (const std::exception& e) {
    snprintf(why, n, "%s", e.what());
    return 1;
  }
}

GPUMEM_EXPORT void gpumem_recorder_follow() {
  try {
    if (gpumem::xmem::writer != nullptr) gpumem::xmem::follow();
  } catch (const std::exception&) {
  }
}

GPUMEM_EXPORT void gpumem_recorder_mark(int kind, uint64_t first, uint64_t second) {
  if (gpumem::xmem::writer != nullptr) gpumem::xmem::writer->add(static_cast<gpumem::xmem::SequenceKind>(kind), first, second);
}

GPUMEM_EXPORT int gpumem_recorder_stop() {
  return gpumem::xmem::writer == nullptr || gpumem::xmem::writer->stop() ? 0 : 1;
}
