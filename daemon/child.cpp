// SPDX-License-Identifier: Apache-2.0
// fork, identity, exec, pipes and the end of child processes.
#include "daemon/child.h"

#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/file.h"

namespace gpumem {
namespace {

constexpr double kTermGrace_s = 2.0;   // between SIGTERM and SIGKILL
constexpr double kPipeGrace_s = 0.5;   // for what a dead child's own children still hold open
constexpr std::size_t kErrorTailBytes = 4096;

void set_nonblocking(int fd) { ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK); }

[[noreturn]] void die(const char* what) {
  char text[256];
  const int length = std::snprintf(text, sizeof text, "cannot %s: %s\n", what, std::strerror(errno));
  if (::write(2, text, static_cast<std::size_t>(length)) < 0) ::_exit(126);
  ::_exit(126);
}

void close_from(int first) {
#ifdef SYS_close_range
  if (::syscall(SYS_close_range, static_cast<unsigned>(first), ~0u, 0u) == 0) return;
#endif
  const long most = ::sysconf(_SC_OPEN_MAX);
  for (int fd = first; fd < (most > 0 && most < 65536 ? most : 65536); ++fd) ::close(fd);
}

void become(const Identity& identity) {
  if (::getuid() == identity.user_id && ::geteuid() == identity.user_id) return;  // an ordinary user's daemon serves itself
  if (::initgroups(identity.user.c_str(), identity.group_id) != 0) die("take the user's groups");
  if (::setresgid(identity.group_id, identity.group_id, identity.group_id) != 0) die("take the user's group");
  if (::setresuid(identity.user_id, identity.user_id, identity.user_id) != 0) die("become the user");
  // Proof that there is no way back.
  if (::setuid(0) == 0 || ::getuid() != identity.user_id) die("give up root");
}

// Runs in the child; never returns.
[[noreturn]] void run_child(const ChildOptions& options, int input, int answer, int errors, char* const* arguments,
                            char* const* environment) {
  ::setsid();
  struct sigaction act {};
  act.sa_handler = SIG_DFL;
  for (int number = 1; number < 65; ++number) ::sigaction(number, &act, nullptr);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  // Above what they are about to be moved to.
  input = ::fcntl(input, F_DUPFD, 10);
  answer = ::fcntl(answer, F_DUPFD, 10);
  errors = ::fcntl(errors, F_DUPFD, 10);
  if (input < 0 || answer < 0 || errors < 0) ::_exit(126);
  const int nowhere = ::open("/dev/null", O_WRONLY);
  if (::dup2(errors, 2) < 0 || ::dup2(input, 0) < 0 || ::dup2(options.answer_fd == 1 ? answer : nowhere, 1) < 0) ::_exit(126);
  if (options.answer_fd == 3 && ::dup2(answer, 3) < 0) ::_exit(126);
  close_from(options.answer_fd == 3 ? 4 : 3);
  ::umask(022);
  if (::chdir("/") != 0) die("change to /");
  rlimit no_core{0, 0};
  ::setrlimit(RLIMIT_CORE, &no_core);
  if (options.background) {
    // Failing is harmless: the child is only a worse neighbour.
    if (::setpriority(PRIO_PROCESS, 0, 10) != 0) errno = 0;
    const int score = ::open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (score >= 0) {
      if (::write(score, "500", 3) != 3) errno = 0;
      ::close(score);
    }
  }
  const pid_t parent = ::getppid();
  if (options.identity != nullptr) become(*options.identity);
  // After the identity, whose change clears it.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(126);
  if (options.work) {
    options.work(options.answer_fd);
    ::_exit(0);
  }
  ::execve(arguments[0], arguments, environment);
  char text[512];
  std::snprintf(text, sizeof text, "start %s", arguments[0]);
  die(text);
}

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> list;
  for (const std::string& text : texts) list.push_back(const_cast<char*>(text.c_str()));
  list.push_back(nullptr);
  return list;
}

}  // namespace

struct Children::Child {
  ChildOptions options;
  pid_t pid = -1;
  FileDescriptor input, answer, errors;
  ReadEvent answer_event, error_event;
  Event input_event;
  Timer timer;
  std::size_t written = 0;
  std::size_t answered_bytes = 0;
  std::string line;
  bool exited = false;
  bool terminated = false;  // SIGTERM was sent
  ChildEnd end;
};

Result<Identity> find_identity(uid_t user_id) {
  static std::map<uid_t, Identity> known;  // only the loop's thread comes here
  const auto found = known.find(user_id);
  if (found != known.end()) return found->second;
  std::vector<char> buffer(65536);
  passwd entry{};
  passwd* result = nullptr;
  const int status = ::getpwuid_r(user_id, &entry, buffer.data(), buffer.size(), &result);
  if (status != 0 || result == nullptr) {
    return Error{ErrorKind::not_found, "user id " + std::to_string(user_id) + " has no account on this host"};
  }
  const Identity identity{entry.pw_uid, entry.pw_gid, entry.pw_name, entry.pw_dir};
  known.emplace(user_id, identity);
  return identity;
}

Children::Children(event_base* base) : base_(base), child_signal_(base, SIGCHLD, [this] { reap(); }) { child_signal_.start(); }

Children::~Children() {
  for (const auto& [id, child] : children_) {
    if (!child->exited) ::kill(-child->pid, SIGKILL);
  }
}

Result<std::uint64_t> Children::start(ChildOptions options) {
  if (options.identity != nullptr && options.identity->user_id == 0) {
    return Error{ErrorKind::permission, "nothing is run for a user as root"};
  }
  auto input = make_pipe();
  auto answer = make_pipe();
  auto errors = make_pipe();
  for (const auto* pipe : {&input, &answer, &errors}) {
    if (!*pipe) return pipe->error();
  }
  const std::vector<char*> arguments = pointers(options.arguments);
  const std::vector<char*> environment = pointers(options.environment);
  const pid_t pid = ::fork();
  if (pid < 0) return errno_error("cannot start a process");
  if (pid == 0) {
    run_child(options, input->read_end.get(), answer->write_end.get(), errors->write_end.get(), arguments.data(),
              environment.data());
  }
  const std::uint64_t id = next_id_++;
  auto child = std::make_unique<Child>();
  child->options = std::move(options);
  child->pid = pid;
  child->input = std::move(input->write_end);
  child->answer = std::move(answer->read_end);
  child->errors = std::move(errors->read_end);
  for (const FileDescriptor* fd : {&child->input, &child->answer, &child->errors}) set_nonblocking(fd->get());
  child->answer_event = ReadEvent(base_, child->answer.get(), [this, id] { read_answer(id); });
  child->answer_event.start();
  child->error_event = ReadEvent(base_, child->errors.get(), [this, id] { read_errors(id); });
  child->error_event.start();
  child->input_event = Event(base_, child->input.get(), EV_WRITE | EV_PERSIST, [this, id] { write_input(id); });
  child->input_event.start();
  child->timer = Timer(base_, [this, id] { escalate(id, true); });
  child->timer.start(child->options.timeout_s);
  children_.emplace(id, std::move(child));
  return id;
}

void Children::write_input(std::uint64_t id) {
  const auto found = children_.find(id);
  if (found == children_.end()) return;
  Child& child = *found->second;
  const std::string& input = child.options.input;
  while (child.written < input.size()) {
    // SIGPIPE is ignored by the daemon.
    const ssize_t count = ::write(child.input.get(), input.data() + child.written, input.size() - child.written);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return;
    if (count < 0) break;
    child.written += static_cast<std::size_t>(count);
  }
  child.input_event = Event();
  child.input.reset();
  child.options.input.clear();
}

void Children::read_answer(std::uint64_t id) {
  const auto found = children_.find(id);
  if (found == children_.end()) return;
  Child& child = *found->second;
  char buffer[65536];
  const ssize_t count = ::read(child.answer.get(), buffer, sizeof buffer);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (count <= 0) {
    child.answer_event = ReadEvent();
    child.answer.reset();
    finish_if_done(id);
    return;
  }
  child.answered_bytes += static_cast<std::size_t>(count);
  if (child.answered_bytes > child.options.largest_answer_bytes) {
    if (!child.end.too_long) {
      child.end.too_long = true;
      escalate(id, false);
    }
    return;
  }
  child.line.append(buffer, static_cast<std::size_t>(count));
  std::size_t start = 0;
  for (std::size_t newline; (newline = child.line.find('\n', start)) != std::string::npos; start = newline + 1) {
    if (child.options.on_line) child.options.on_line(std::string_view(child.line).substr(start, newline - start));
    if (children_.find(id) == children_.end()) return;
  }
  child.line.erase(0, start);
}

void Children::read_errors(std::uint64_t id) {
  const auto found = children_.find(id);
  if (found == children_.end()) return;
  Child& child = *found->second;
  char buffer[16384];
  const ssize_t count = ::read(child.errors.get(), buffer, sizeof buffer);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (count <= 0) {
    child.error_event = ReadEvent();
    child.errors.reset();
    finish_if_done(id);
    return;
  }
  std::string& tail = child.end.error_tail;
  tail.append(buffer, static_cast<std::size_t>(count));
  if (tail.size() > kErrorTailBytes) tail.erase(0, tail.size() - kErrorTailBytes);
}

void Children::reap() {
  std::vector<std::uint64_t> ended;
  for (const auto& [id, child] : children_) {
    if (child->exited) continue;
    int status = 0;
    if (::waitpid(child->pid, &status, WNOHANG) != child->pid) continue;
    child->exited = true;
    if (WIFEXITED(status)) child->end.exit_status = WEXITSTATUS(status);
    if (WIFSIGNALED(status)) child->end.signal = WTERMSIG(status);
    // What it left behind in its session has no business any more.
    ::kill(-child->pid, SIGKILL);
    child->timer = Timer(base_, [this, id = id] {
      const auto found = children_.find(id);
      if (found == children_.end()) return;
      found->second->answer.reset();
      found->second->errors.reset();
      finish_if_done(id);
    });
    child->timer.start(kPipeGrace_s);
    ended.push_back(id);
  }
  for (const std::uint64_t id : ended) finish_if_done(id);
}

void Children::kill(std::uint64_t id) {
  const auto found = children_.find(id);
  if (found == children_.end()) return;
  found->second->end.killed = true;
  if (!found->second->terminated) escalate(id, false);
}

void Children::escalate(std::uint64_t id, bool timed_out) {
  const auto found = children_.find(id);
  if (found == children_.end() || found->second->exited) return;
  Child& child = *found->second;
  if (timed_out && !child.terminated) child.end.timed_out = true;
  ::kill(-child.pid, child.terminated ? SIGKILL : SIGTERM);
  // Before its setsid() the group does not exist yet.
  ::kill(child.pid, child.terminated ? SIGKILL : SIGTERM);
  child.terminated = true;
  child.timer.start(kTermGrace_s);
}

void Children::finish_if_done(std::uint64_t id) {
  const auto found = children_.find(id);
  if (found == children_.end()) return;
  Child& child = *found->second;
  if (!child.exited || child.answer.valid() || child.errors.valid()) return;
  const std::unique_ptr<Child> last = std::move(found->second);
  children_.erase(found);
  if (!last->line.empty() && last->options.on_line) last->options.on_line(last->line);
  if (last->options.on_end) last->options.on_end(last->end);
}

}  // namespace gpumem
