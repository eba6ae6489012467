// SPDX-License-Identifier: Apache-2.0
// Runs one program in the sandbox to its end or its deadline.
#include "estimator/probe/supervise.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/clock.h"
#include "base/file.h"

namespace gpumem::probe {
namespace {

constexpr std::size_t kKeptOutput = 64 << 10;
// How long init may take to end everything and report before it is killed with all that is left.
constexpr double kGrace_s = 5;

Status write_proc(pid_t pid, const char* name, const std::string& text) {
  const std::string path = "/proc/" + std::to_string(pid) + "/" + name;
  FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!file.valid() || ::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    return errno_error("writing " + path);
  }
  return {};
}

// The user keeps their own ids; root keeps all of them where it may, for its programs read other users' files.
Status map_ids(pid_t pid) {
  if (::geteuid() == 0 && write_proc(pid, "uid_map", "0 0 4294967295\n") && write_proc(pid, "gid_map", "0 0 4294967295\n")) return {};
  const std::string uid = std::to_string(::geteuid()), gid = std::to_string(::getegid());
  if (auto done = write_proc(pid, "setgroups", "deny"); !done && done.error().kind != ErrorKind::not_found) return done;
  if (auto done = write_proc(pid, "uid_map", uid + " " + uid + " 1\n"); !done) return done;
  return write_proc(pid, "gid_map", gid + " " + gid + " 1\n");
}

// fork(), into new namespaces where asked; errno tells.
pid_t clone_into_namespaces(bool sandbox) {
  unsigned long flags = SIGCHLD;
  if (sandbox) {
    flags |= CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP;
  }
  return static_cast<pid_t>(::syscall(SYS_clone, flags, nullptr, nullptr, nullptr, nullptr));
}

std::string explain_clone_failure(int reason) {
  std::string text = std::string("creating user, mount, pid and network namespaces: ") + std::strerror(reason);
  if (reason == EPERM || reason == ENOSPC || reason == EACCES) {
    text += " (sysctl kernel.unprivileged_userns_clone, user.max_user_namespaces, kernel.apparmor_restrict_unprivileged_userns; "
            "a chroot allows none)";
  }
  return text;
}

void read_report(const std::string& text, RunResult& result) {
  const auto report = nlohmann::json::parse(text.substr(0, text.find('\n')), nullptr, false);
  if (report.is_discarded() || !report.is_object()) return;
  result.failed_step = report.value("failed_step", "");
  result.exit_status = report.value("exit_status", -1);
  result.signal = report.value("signal", 0);
  result.memory_exceeded_bytes = report.value("memory_exceeded_bytes", std::uint64_t{0});
  result.resident_peak_bytes = report.value("resident_peak_bytes", std::uint64_t{0});
  if (report.contains("notes")) result.notes = report["notes"].get<std::vector<std::string>>();
  if (!report.contains("torch_processes")) return;
  for (const auto& item : report["torch_processes"]) {
    TorchProcess process;
    process.pid = item.value("pid", 0);
    process.command = item.value("command", "");
    process.has_torch = true;
    process.has_cuda_build = item.value("cuda_build", false);
    process.has_virtual_gpu = item.value("virtual_gpu", false);
    result.torch_processes.push_back(process);
  }
}

// Appends what can be read now, keeping the end; closes the descriptor at its end.
void drain(FileDescriptor& source, std::string& sink, std::size_t kept, bool forward = false) {
  char buffer[65536];
  const ssize_t count = ::read(source.get(), buffer, sizeof buffer);
  if (count > 0) {
    // A reader that is gone costs the user this output, not the estimate.
    if (forward && ::write(2, buffer, static_cast<std::size_t>(count)) < 0) forward = false;
    sink.append(buffer, static_cast<std::size_t>(count));
    if (sink.size() > kept) sink.erase(0, sink.size() - kept);
  } else if (count == 0 || (errno != EINTR && errno != EAGAIN)) {
    source.reset();
  }
}

class Supervision {
 public:
  explicit Supervision(const RunOptions& options) : options_(options) {}
  Result<RunResult> run();

 private:
  Status start();
  void follow();

  const RunOptions& options_;
  RunResult result_;
  FileDescriptor report_, output_, signals_;
  pid_t init_ = -1;
  double start_s_ = 0;
};

Status Supervision::start() {
  auto report = make_pipe(), go = make_pipe(), output = make_pipe();
  if (!report) return report.error();
  if (!go) return go.error();
  if (!output) return output.error();
  Program program = options_.program;
  program.output_fd = options_.keep_output ? output->write_end.get() : 2;
  ::prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);  // else /proc/PID/uid_map of our child belongs to root

  init_ = clone_into_namespaces(options_.sandbox);
  if (init_ < 0) {
    result_.failed_step = explain_clone_failure(errno);
    return {};
  }
  if (init_ == 0) {
    sigset_t none;
    sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    ::setsid();  // a Ctrl-C at the terminal is for the supervisor, who ends us in order
    go->write_end.reset();
    report->read_end.reset();
    char byte = 0;
    if (::read(go->read_end.get(), &byte, 1) != 1) ::_exit(1);
    run_init(program, options_.view, options_.sandbox, report->write_end.get());
  }
  go->read_end.reset();
  if (options_.sandbox) {
    if (auto mapped = map_ids(init_); !mapped) {
      result_.failed_step = mapped.error().message;
      ::kill(init_, SIGKILL);
      ::waitpid(init_, nullptr, 0);
      return {};
    }
  }
  if (::write(go->write_end.get(), "g", 1) != 1) return errno_error("cannot start the probe's first process");
  report_ = std::move(report->read_end);
  if (options_.keep_output) output_ = std::move(output->read_end);
  return {};
}

void Supervision::follow() {
  std::string report;
  double asked_to_stop_s = 0, last_tick_s = 0;
  while (report_.valid()) {
    const double elapsed_s = monotonic_s() - start_s_;
    if (asked_to_stop_s == 0 && options_.timeout_s > 0 && elapsed_s >= options_.timeout_s) {
      result_.timed_out = true;
      asked_to_stop_s = monotonic_s();
      ::kill(init_, SIGTERM);
    }
    if (asked_to_stop_s > 0 && monotonic_s() - asked_to_stop_s > kGrace_s) {
      ::kill(init_, SIGKILL);
      break;
    }
    if (options_.tick && elapsed_s - last_tick_s >= 1) {
      last_tick_s = elapsed_s;
      options_.tick(elapsed_s);
    }
    int wait_ms = 1000;
    if (options_.timeout_s > 0 && asked_to_stop_s == 0) {
      wait_ms = std::clamp(static_cast<int>((options_.timeout_s - elapsed_s) * 1e3) + 1, 1, 1000);
    }
    pollfd polled[3] = {{report_.get(), POLLIN, 0}, {output_.get(), POLLIN, 0}, {signals_.get(), POLLIN, 0}};
    ::poll(polled, 3, wait_ms);
    if (polled[0].revents) drain(report_, report, 1 << 20);
    if (polled[1].revents) drain(output_, result_.output_tail, kKeptOutput, options_.forward_output);
    if (polled[2].revents) {
      signalfd_siginfo info{};
      if (::read(signals_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info) && asked_to_stop_s == 0) {
        result_.interrupted = true;
        asked_to_stop_s = monotonic_s();
        ::kill(init_, SIGTERM);
      }
    }
  }
  ::waitpid(init_, nullptr, 0);
  // What is left in the pipe: its writers are dead.
  for (pollfd polled{output_.get(), POLLIN, 0}; output_.valid() && ::poll(&polled, 1, 0) > 0;) {
    drain(output_, result_.output_tail, kKeptOutput, options_.forward_output);
  }
  read_report(report, result_);
}

Result<RunResult> Supervision::run() {
  sigset_t stopping, before;
  sigemptyset(&stopping);
  for (int number : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&stopping, number);
  ::sigprocmask(SIG_BLOCK, &stopping, &before);
  signals_ = FileDescriptor(::signalfd(-1, &stopping, SFD_CLOEXEC | SFD_NONBLOCK));
  start_s_ = monotonic_s();
  auto started = start();
  if (started && result_.failed_step.empty()) follow();
  result_.wall_s = monotonic_s() - start_s_;
  signals_.reset();
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  if (!started) return started.error();
  return std::move(result_);
}

}  // namespace

Result<RunResult> supervise(const RunOptions& options) { return Supervision(options).run(); }

}  // namespace gpumem::probe
