// SPDX-License-Identifier: Apache-2.0
// gpumemd as a process, with a probe program and a Slurm that the test plays.
//
// As an ordinary user the daemon serves that user. As root the client is another user, and the probe must run as that one.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "base/file.h"
#include "daemon/client/client.h"
#include "db/history.h"

namespace gpumem {

inline constexpr uid_t kOtherUser = 65534;  // "nobody": who asks when the tests run as root
inline constexpr double kPatience_s = 30;   // for what must come; no test waits so long when all is well

inline void pause_ms(int ms) { ::usleep(static_cast<useconds_t>(ms) * 1000); }

inline bool eventually(const std::function<bool()>& condition) {
  for (int i = 0; i < kPatience_s * 100; ++i) {
    if (condition()) return true;
    pause_ms(10);
  }
  return false;
}

// The fields of one answer, as a child process with the submitter's identity saw it.
struct Answer {
  client::CallStatus status = client::CallStatus::failed;
  std::map<std::string, std::string> fields;  // repeated ones joined by ' '
  std::string error;
  int progress = 0;
  const std::string& operator[](const std::string& name) { return fields[name]; }
};

using Fields = std::vector<std::pair<std::string, std::string>>;

class DaemonTest : public testing::Test {
 protected:
  void SetUp() override {
    // Not in /tmp: the state directory must be a place that the daemon accepts for a database.
    directory_ = *make_temporary_directory("/var/tmp", "gpumemd-test");
    ::chmod(directory_.c_str(), 0755);
    write("probe", std::string("#!/bin/sh\n") +
                       "cat > /dev/null\n"
                       "id -u >> " + directory_ + "/runs\n"
                       "echo $$ > " + directory_ + "/probe-pid\n"
                       ". " + directory_ + "/behaviour\n");
    write("facts", "#!/bin/sh\necho '{\"cluster\":\"t\",\"version\":\"22.05.8\",\"slurm_user_id\":64030,\"cpus_per_gpu\":4,\"mem_per_gpu_mib\":512,"
                   "\"partitions\":[{\"name\":\"main\",\"default\":true}]}'\n");
    for (const char* program : {"probe", "facts"}) ::chmod((directory_ + "/" + program).c_str(), 0755);
    for (const char* file : {"runs", "probe-pid"}) {
      write(file, "");
      ::chmod((directory_ + "/" + file).c_str(), 0666);
    }
    write("train.py", "import torch\n");
    estimate("complete", 1000);
    configure();
  }

  void TearDown() override {
    if (daemon_ > 0) stop(SIGKILL);
    EXPECT_TRUE(remove_tree(directory_).ok());
  }

inline   void write(const std::string& name, const std::string& text) { std::ofstream(directory_ + "/" + name) << text; }

inline   void configure(const std::string& mode = "apply", const std::string& more = "") {
    write("gpumem.conf", "[daemon]\nsocket = \"" + directory_ + "/socket\"\nstate_directory = \"" + directory_ + "/state\"\n" +
                             "profiles_directory = \"" PROFILES "\"\nroles = [\"home\", \"submit\"]\nlog_file = \"" + directory_ + "/log\"\n" +
                             "[slurm]\nfacts_program = \"" + directory_ + "/facts\"\n" +
                             "[submit]\nprobe_program = \"" + directory_ + "/probe\"\nprobes_at_once = 2\n" +
                             "[[pool]]\nname = \"main\"\ngpus = [\"RTX 3060\"]\nmode = \"" + mode + "\"\n" + more);
  }

  // What the next probes do: say this estimate.
inline   void estimate(const std::string& status, int need_mib, const std::string& before = "", const std::string& more = "") {
    std::ostringstream text;
    text << before << "\necho '{\"progress\":{\"text\":\"step 1\",\"elapsed_s\":0.1}}' >&3\n"
         << "echo '{\"estimate\":{\"version\":1,\"status\":\"" << status << "\"," << more << "\"need_bytes\":" << (static_cast<long long>(need_mib) << 20)
         << ",\"files\":[\"" << directory_ << "/train.py\",\"" << directory_ << "/config.json\"]}}' >&3\n";
    write("behaviour", text.str());
  }
inline   void behave(const std::string& script) { write("behaviour", script + "\n"); }

inline   void launch() {
    daemon_ = ::fork();
    if (daemon_ == 0) {
      const int log = ::open((directory_ + "/stderr").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
      ::dup2(log, 2);
      ::execl(GPUMEMD, "gpumemd", "-c", (directory_ + "/gpumem.conf").c_str(), nullptr);
      ::_exit(99);
    }
  }
inline   void start() {
    launch();
    ASSERT_TRUE(eventually([&] { return ask({{"type", "ping"}}).status == client::CallStatus::ok; })) << log();
    // Slurm's defaults have been read: before that nothing is rewritten.
    ASSERT_TRUE(eventually([&] { return log().find("Slurm 22.05.8") != std::string::npos; })) << log();
  }
inline   int stop(int signal) {
    ::kill(daemon_, signal);
    int status = 0;
    ::waitpid(daemon_, &status, 0);
    daemon_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
inline   std::string log() { return read_file(directory_ + "/log").value_or("") + read_file(directory_ + "/stderr").value_or(""); }
inline   int runs() {
    const std::string text = read_file(directory_ + "/runs").value_or("");
    return static_cast<int>(std::count(text.begin(), text.end(), '\n'));
  }
  uid_t submitter() const { return ::geteuid() == 0 ? kOtherUser : ::geteuid(); }

  // A client in a process of its own, as the submitter; `after` runs there once it is connected and has asked.
  struct Client {
    pid_t pid = -1;
    int result = -1;
  };
inline   Client ask_in_background(const Fields& fields) {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    Client started;
    started.result = ends[0];
    started.pid = ::fork();
    if (started.pid != 0) {
      ::close(ends[1]);
      return started;
    }
    if (::geteuid() == 0 && (::setgid(kOtherUser) != 0 || ::setuid(kOtherUser) != 0)) ::_exit(1);
    client::Request request = {};
    client::request_begin(&request, fields.front().second.c_str());
    for (std::size_t i = 1; i < fields.size(); ++i) client::request_add(&request, fields[i].first.c_str(), fields[i].second.c_str());
    client::Reply reply = {};
    client::CallOptions options = {};
    int progress = 0;
    options.progress_context = &progress;
    options.progress = [](void* count, const char*) { ++*static_cast<int*>(count); };
    options.total_s = kPatience_s;
    const auto status = client::call((directory_ + "/socket").c_str(), &request, &options, &reply);
    std::ostringstream out;
    out << static_cast<int>(status) << ' ' << progress << '\n' << reply.error << '\n';
    for (const char* name : {"type", "token", "action", "rule", "line", "limit_mib", "set", "reset", "json", "version"}) {
      std::string all;
      for (size_t i = 0; const char* text = client::reply_text_at(&reply, name, i); ++i) all += (i > 0 ? " " : "") + std::string(text);
      out << name << '=' << all << '\n';
    }
    const std::string text = out.str();
    (void)!::write(ends[1], text.data(), text.size());
    ::_exit(0);
  }
inline   Answer finish(Client& started) {
    std::string text;
    char buffer[4096];
    for (ssize_t count; (count = ::read(started.result, buffer, sizeof buffer)) > 0;) text.append(buffer, static_cast<std::size_t>(count));
    ::close(started.result);
    ::waitpid(started.pid, nullptr, 0);
    Answer answer;
    std::istringstream lines(text);
    int status = 0;
    std::string line;
    lines >> status >> answer.progress;
    answer.status = static_cast<client::CallStatus>(status);
    std::getline(lines, line);
    std::getline(lines, answer.error);
    while (std::getline(lines, line)) answer.fields[line.substr(0, line.find('='))] = line.substr(line.find('=') + 1);
    return answer;
  }
inline   Answer ask(const Fields& fields) {
    Client started = ask_in_background(fields);
    return finish(started);
  }
  static Fields submission(const Fields& more = {}) {
    Fields fields = {{"type", "decide"}, {"command", "sbatch"}, {"mode", "auto"}, {"slurm_version", "22.05.8"}, {"working_directory", "/tmp"},
                     {"script", "#!/bin/sh\npython train.py\n"}, {"script_path", "/tmp/job.sh"}, {"environment", "PATH=/usr/bin:/bin"},
                     {"option.gres", "gres:gpu:1"}};
    fields.insert(fields.end(), more.begin(), more.end());
    return fields;
  }
  Answer submit(const Fields& more = {}) { return ask(submission(more)); }

inline   db::History history() {
    auto opened = db::History::open(directory_ + "/state/gpumem.db");
    EXPECT_TRUE(opened.ok()) << opened.error().message;
    return std::move(opened).value();
  }
inline   std::vector<db::HistoryEntry> rows() { return history().list(db::Viewer::sees_all(), {}).value(); }
inline   bool process_is_gone(pid_t pid) {
    if (::kill(pid, 0) != 0) return true;
    // A zombie that waits for its reaper is gone enough.
    const std::string stat = read_file("/proc/" + std::to_string(pid) + "/stat").value_or("");
    const std::size_t name_end = stat.rfind(')');
    return name_end != std::string::npos && stat.compare(name_end + 2, 1, "Z") == 0;
  }
inline   pid_t probe_pid() {
    pid_t pid = 0;
    eventually([&] {
      pid = std::atoi(read_file(directory_ + "/probe-pid").value_or("").c_str());
      return pid > 0;
    });
    return pid;
  }

  std::string directory_;
  pid_t daemon_ = -1;
};

}  // namespace gpumem
