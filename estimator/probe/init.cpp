// SPDX-License-Identifier: Apache-2.0
// The first process beside a probed program.
#include "estimator/probe/init.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "base/clock.h"
#include "base/file.h"
#include "estimator/probe/processes.h"

namespace gpumem::probe {
namespace {

constexpr int kLookInterval_ms = 250;
// What root keeps inside its user namespace: rights over files and ids that it would have in its job, none over mounts.
constexpr int kKeptForRoot[] = {CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_FOWNER, CAP_FSETID, CAP_KILL, CAP_SETGID, CAP_SETUID};

void report(int fd, const nlohmann::json& object) {
  const std::string line = object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  std::size_t written = 0;
  while (written < line.size()) {
    const ssize_t count = ::write(fd, line.data() + written, line.size() - written);
    if (count <= 0 && errno != EINTR) return;
    if (count > 0) written += static_cast<std::size_t>(count);
  }
}

[[noreturn]] void refuse(int fd, const std::string& step) {
  report(fd, {{"failed_step", step}});
  ::_exit(1);
}

void raise_loopback() {
  FileDescriptor any_socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  std::strcpy(request.ifr_name, "lo");
  if (::ioctl(any_socket.get(), SIOCGIFFLAGS, &request) != 0) return;
  request.ifr_flags = static_cast<short>(request.ifr_flags | IFF_UP);
  ::ioctl(any_socket.get(), SIOCSIFFLAGS, &request);
}

void drop_capabilities() {
  const bool is_root = ::geteuid() == 0;
  std::uint64_t kept = 0;
  if (is_root) {
    for (int capability : kKeptForRoot) kept |= 1ull << capability;
  }
  for (int capability = 0; capability < 64; ++capability) {
    if (!(kept >> capability & 1)) ::prctl(PR_CAPBSET_DROP, capability, 0, 0, 0);
  }
  ::prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2] = {};
  data[0].effective = data[0].permitted = static_cast<std::uint32_t>(kept);
  ::syscall(SYS_capset, &header, data);
}

void set_limit(int resource, std::uint64_t value) {
  rlimit limit{};
  if (::getrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0) return;
  if (limit.rlim_max != RLIM_INFINITY && value > limit.rlim_max) value = limit.rlim_max;
  limit = {value, value};
  ::setrlimit(static_cast<__rlimit_resource>(resource), &limit);
}

void restrict_cpus(int cpus) {
  cpu_set_t allowed, fewer;
  if (cpus <= 0 || ::sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  CPU_ZERO(&fewer);
  for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&fewer) < cpus; ++cpu) {
    if (CPU_ISSET(cpu, &allowed)) CPU_SET(cpu, &fewer);
  }
  ::sched_setaffinity(0, sizeof fewer, &fewer);
}

// Limits of the program alone; RLIMIT_AS stays: virtual device memory is reserved address space.
void be_modest(const Program& program) {
  set_limit(RLIMIT_CORE, 0);
  if (program.cpu_seconds > 0) set_limit(RLIMIT_CPU, static_cast<std::uint64_t>(std::ceil(program.cpu_seconds)));
  if (program.file_bytes > 0) set_limit(RLIMIT_FSIZE, program.file_bytes);
  restrict_cpus(program.cpus);
  ::setpriority(PRIO_PROCESS, 0, std::min(19, ::getpriority(PRIO_PROCESS, 0) + 5));
  sched_param parameters{};
  ::sched_setscheduler(0, SCHED_BATCH, &parameters);
  constexpr int kIoprioWhoProcess = 1, kBestEffortLowest = (2 << 13) | 7;  // ioprio_set(2)
  ::syscall(SYS_ioprio_set, kIoprioWhoProcess, 0, kBestEffortLowest);
}

std::vector<char*> to_pointers(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (const auto& string : strings) pointers.push_back(const_cast<char*>(string.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// Becomes the program. A failure is written to its standard error and ends with 127 or 126, as in a shell.
[[noreturn]] void become_program(const Program& program, bool sandboxed) {
  ::setsid();
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  for (int number = 1; number < 32; ++number) ::signal(number, SIG_DFL);
  const int null = ::open("/dev/null", O_RDONLY);
  if (null >= 0) ::dup2(null, 0);
  if (program.output_fd != 2) ::dup2(program.output_fd, 2);
  ::dup2(2, 1);
  for (int fd = 3; fd < 1024; ++fd) ::close(fd);
  ::syscall(SYS_close_range, 3u, ~0u, 0u);
  be_modest(program);
  if (::chdir(program.working_directory.c_str()) != 0) {
    ::dprintf(2, "gpumem: cannot enter the working directory %s: %s\n", program.working_directory.c_str(), std::strerror(errno));
    ::_exit(126);
  }
  if (sandboxed) drop_capabilities();
  ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  auto arguments = to_pointers(program.arguments);
  auto environment = to_pointers(program.environment);
  ::environ = environment.data();  // execvp looks PATH up there
  ::execvp(arguments[0], arguments.data());
  const int reason = errno;
  ::dprintf(2, "gpumem: cannot run %s: %s\n", arguments[0], std::strerror(reason));
  ::_exit(reason == ENOENT ? 127 : 126);
}

void kill_everything(bool sandboxed, ProcessWatch& watch) {
  if (sandboxed) {
    ::kill(-1, SIGKILL);  // all of the pid namespace but init
  } else {
    // Until nobody is left: a process may fork between a look and its death.
    for (int round = 0; round < 50; ++round) {
      watch.look();
      const auto pids = watch.pids();
      if (pids.empty()) break;
      for (const pid_t pid : pids) ::kill(pid, SIGKILL);
      while (::waitpid(-1, nullptr, WNOHANG) > 0) {
      }
      ::usleep(2000);
    }
  }
  while (::waitpid(-1, nullptr, 0) > 0 || errno == EINTR) {
  }
}

nlohmann::json describe(const std::vector<TorchProcess>& processes) {
  nlohmann::json list = nlohmann::json::array();
  for (const auto& process : processes) {
    list.push_back({{"pid", process.pid},
                    {"command", process.command},
                    {"cuda_build", process.has_cuda_build},
                    {"virtual_gpu", process.has_virtual_gpu}});
  }
  return list;
}

}  // namespace

void run_init(const Program& program, const ViewPlan& view, bool sandboxed, int report_fd) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
  std::vector<std::string> notes;
  if (sandboxed) {
    if (auto entered = enter_view(view, notes); !entered) refuse(report_fd, entered.error().message);
    raise_loopback();
  } else {
    ::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
  }

  sigset_t watched;
  sigemptyset(&watched);
  sigaddset(&watched, SIGCHLD);
  sigaddset(&watched, SIGTERM);
  ::sigprocmask(SIG_BLOCK, &watched, nullptr);
  FileDescriptor signals(::signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK));

  const pid_t child = ::fork();
  if (child < 0) refuse(report_fd, errno_error("starting the program").message);
  if (child == 0) become_program(program, sandboxed);
  // A program with the same user id must not trace the process that guards it.
  if (sandboxed) ::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);

  nlohmann::json result = {{"notes", notes}};
  ProcessWatch watch(sandboxed);
  bool ended = false, stopped = false;
  std::uint64_t peak_bytes = 0;
  double last_look_s = 0;
  while (!ended && !stopped) {
    pollfd polled{signals.get(), POLLIN, 0};
    ::poll(&polled, 1, kLookInterval_ms);
    signalfd_siginfo info{};
    while (::read(signals.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
      if (info.ssi_signo == SIGTERM) stopped = true;
    }
    int status = 0;
    for (pid_t pid; (pid = ::waitpid(-1, &status, WNOHANG)) > 0;) {
      if (pid != child) continue;
      ended = true;
      if (WIFEXITED(status)) result["exit_status"] = WEXITSTATUS(status);
      if (WIFSIGNALED(status)) result["signal"] = WTERMSIG(status);
    }
    if (ended || monotonic_s() - last_look_s < kLookInterval_ms * 0.9e-3) continue;
    last_look_s = monotonic_s();
    watch.look();
    const std::uint64_t bytes = watch.resident_bytes(program.memory_bytes);
    peak_bytes = std::max(peak_bytes, bytes);
    if (program.memory_bytes > 0 && bytes > program.memory_bytes) {
      result["memory_exceeded_bytes"] = bytes;
      stopped = true;
    }
  }
  result["torch_processes"] = describe(watch.torch_processes());
  result["resident_peak_bytes"] = peak_bytes;
  result["stopped"] = stopped;
  // When the supervisor hears of the end, nothing runs any more: books and records are final.
  kill_everything(sandboxed, watch);
  report(report_fd, result);
  ::_exit(0);
}

}  // namespace gpumem::probe
