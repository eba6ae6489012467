// SPDX-License-Identifier: Apache-2.0
// Runs a program to its end within a deadline.
#include "base/subprocess.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>

#include "base/clock.h"
#include "base/file.h"

extern char** environ;

namespace gpumem {
namespace {

std::vector<char*> to_pointers(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  pointers.reserve(strings.size() + 1);
  for (const auto& string : strings) pointers.push_back(const_cast<char*>(string.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// Appends what can be read now; closes the descriptor at its end.
void drain(FileDescriptor& source, std::string& sink) {
  char buffer[65536];
  const ssize_t count = ::read(source.get(), buffer, sizeof buffer);
  if (count > 0) {
    sink.append(buffer, static_cast<std::size_t>(count));
  } else if (count == 0 || errno != EINTR) {
    source.reset();
  }
}

void feed(FileDescriptor& sink, const std::string& source, std::size_t& written) {
  const ssize_t count = ::write(sink.get(), source.data() + written, source.size() - written);
  if (count > 0) written += static_cast<std::size_t>(count);
  if ((count < 0 && errno != EINTR && errno != EAGAIN) || written == source.size()) sink.reset();
}

}  // namespace

Result<SubprocessResult> run_subprocess(const SubprocessOptions& options) {
  auto in = make_pipe(), out = make_pipe(), err = make_pipe();
  if (!in) return in.error();
  if (!out) return out.error();
  if (!err) return err.error();

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in->read_end.get(), 0);
  posix_spawn_file_actions_adddup2(&actions, out->write_end.get(), 1);
  if (options.capture_stderr) posix_spawn_file_actions_adddup2(&actions, err->write_end.get(), 2);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  // Its own process group, so that a timeout reaches grandchildren; default SIGPIPE whatever the caller ignores.
  sigset_t defaults;
  sigemptyset(&defaults);
  sigaddset(&defaults, SIGPIPE);
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF);

  auto arguments = to_pointers(options.arguments);
  auto environment = to_pointers(options.environment);
  pid_t pid = -1;
  const int status = ::posix_spawnp(&pid, arguments[0], &actions, &attributes, arguments.data(),
                                    options.environment.empty() ? environ : environment.data());
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (status != 0) {
    errno = status;
    return errno_error("cannot run " + options.arguments[0]);
  }
  in->read_end.reset();
  out->write_end.reset();
  err->write_end.reset();
  if (!options.capture_stderr) err->read_end.reset();
  ::fcntl(in->write_end.get(), F_SETFL, O_NONBLOCK);
  if (options.input.empty()) in->write_end.reset();

  SubprocessResult result;
  std::size_t written = 0;
  const double deadline_s = options.timeout_s > 0 ? monotonic_s() + options.timeout_s : 0;
  // A caller that ignores no SIGPIPE must not die because the program closed its input early.
  struct sigaction ignore {}, before {};
  ignore.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &ignore, &before);
  while (out->read_end.valid() || err->read_end.valid()) {
    pollfd polled[3] = {{out->read_end.get(), POLLIN, 0}, {err->read_end.get(), POLLIN, 0}, {in->write_end.get(), POLLOUT, 0}};
    int wait_ms = -1;
    if (deadline_s > 0 && !result.timed_out) {
      wait_ms = static_cast<int>(std::ceil(std::max(0.0, deadline_s - monotonic_s()) * 1e3));
    }
    const int ready = ::poll(polled, 3, wait_ms);
    if (ready < 0 && errno != EINTR) break;
    if (ready == 0) {
      result.timed_out = true;
      ::kill(-pid, SIGKILL);
      break;
    }
    if (polled[0].revents) drain(out->read_end, result.output);
    if (polled[1].revents) drain(err->read_end, result.error_output);
    if (polled[2].revents) feed(in->write_end, options.input, written);
  }
  in->write_end.reset();
  // Output can end before the program does: the deadline still holds.
  int wait_status = 0;
  while (::waitpid(pid, &wait_status, deadline_s > 0 && !result.timed_out ? WNOHANG : 0) != pid) {
    if (deadline_s > 0 && !result.timed_out && monotonic_s() > deadline_s) {
      result.timed_out = true;
      ::kill(-pid, SIGKILL);
    }
    if (!result.timed_out && deadline_s > 0) ::usleep(5000);
  }
  ::sigaction(SIGPIPE, &before, nullptr);
  if (WIFEXITED(wait_status)) result.exit_status = WEXITSTATUS(wait_status);
  if (WIFSIGNALED(wait_status)) result.signal = WTERMSIG(wait_status);
  return result;
}

}  // namespace gpumem
