// SPDX-License-Identifier: Apache-2.0
// Runs gpumem-probe and waits for its estimate.
#include "estimator/probe/client.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/file.h"

extern char** environ;

namespace gpumem::probe {
namespace {

constexpr int kAnswerFd = 3;

struct Started {
  pid_t pid = -1;
  FileDescriptor input, answer;
};

Result<Started> start(const std::string& program) {
  int input[2], answer[2];
  if (::pipe2(input, O_CLOEXEC) != 0) return errno_error("cannot make a pipe");
  FileDescriptor input_read(input[0]), input_write(input[1]);
  if (::pipe2(answer, O_CLOEXEC) != 0) return errno_error("cannot make a pipe");
  FileDescriptor answer_read(answer[0]);
  // dup2 onto itself would leave close-on-exec set: keep the source out of the way.
  FileDescriptor answer_write(::fcntl(answer[1], F_DUPFD_CLOEXEC, 10));
  ::close(answer[1]);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, input_read.get(), 0);
  posix_spawn_file_actions_adddup2(&actions, 2, 1);
  posix_spawn_file_actions_adddup2(&actions, answer_write.get(), kAnswerFd);
  std::string name = program;
  char* arguments[] = {name.data(), nullptr};
  Started started;
  const int status = ::posix_spawn(&started.pid, program.c_str(), &actions, nullptr, arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  if (status != 0) {
    return Error{ErrorKind::unavailable, "cannot run " + program + ": " + std::strerror(status) + " (is gpumem installed completely?)"};
  }
  started.input = std::move(input_write);
  started.answer = std::move(answer_read);
  return started;
}

void give(FileDescriptor& fd, const std::string& text) {
  struct sigaction ignore {}, before {};
  ignore.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &ignore, &before);
  for (std::size_t written = 0; written < text.size();) {
    const ssize_t count = ::write(fd.get(), text.data() + written, text.size() - written);
    if (count < 0 && errno != EINTR) break;
    if (count > 0) written += static_cast<std::size_t>(count);
  }
  fd.reset();
  ::sigaction(SIGPIPE, &before, nullptr);
}

}  // namespace

Result<nlohmann::json> ask_probe(const Request& request, const ClientOptions& options) {
  auto started = start(options.program);
  if (!started) return started.error();
  // A Ctrl-C goes to gpumem-probe as well: it ends the program in order and still answers.
  struct sigaction ignore {}, before {};
  ignore.sa_handler = SIG_IGN;
  ::sigaction(SIGINT, &ignore, &before);
  give(started->input, to_text(request));

  nlohmann::json estimate;
  std::string pending;
  char buffer[65536];
  for (;;) {
    const ssize_t count = ::read(started->answer.get(), buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    pending.append(buffer, static_cast<std::size_t>(count));
    for (std::size_t end; (end = pending.find('\n')) != std::string::npos; pending.erase(0, end + 1)) {
      const auto line = nlohmann::json::parse(pending.substr(0, end), nullptr, false);
      if (line.is_discarded() || !line.is_object()) continue;
      if (line.contains("estimate")) estimate = line["estimate"];
      if (line.contains("progress") && options.progress) {
        options.progress(line["progress"].value("text", ""), line["progress"].value("elapsed_s", 0.0));
      }
    }
  }
  int status = 0;
  while (::waitpid(started->pid, &status, 0) < 0 && errno == EINTR) {
  }
  ::sigaction(SIGINT, &before, nullptr);
  if (!estimate.is_object()) {
    std::string how = WIFSIGNALED(status) ? "signal " + std::to_string(WTERMSIG(status)) : "exit status " + std::to_string(WEXITSTATUS(status));
    return Error{ErrorKind::unavailable, "gpumem-probe ended without an estimate (" + how + ")"};
  }
  return estimate;
}

}  // namespace gpumem::probe
