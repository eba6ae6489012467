// SPDX-License-Identifier: Apache-2.0
// gpumemd as a process, with a probe program and a Slurm that the test plays: decisions, crashes, reloads, rude clients.
//
// As an ordinary user the daemon serves that user. As root the client is another user, and the probe must run as that one.
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
namespace {

constexpr uid_t kOtherUser = 65534;  // "nobody": who asks when the tests run as root
constexpr double kPatience_s = 30;   // for what must come; no test waits so long when all is well

void pause_ms(int ms) { ::usleep(static_cast<useconds_t>(ms) * 1000); }

bool eventually(const std::function<bool()>& condition) {
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

  void write(const std::string& name, const std::string& text) { std::ofstream(directory_ + "/" + name) << text; }

  void configure(const std::string& mode = "apply", const std::string& more = "") {
    write("gpumem.conf", "[daemon]\nsocket = \"" + directory_ + "/socket\"\nstate_directory = \"" + directory_ + "/state\"\n" +
                             "profiles_directory = \"" PROFILES "\"\nroles = [\"home\", \"submit\"]\nlog_file = \"" + directory_ + "/log\"\n" +
                             "[slurm]\nfacts_program = \"" + directory_ + "/facts\"\n" +
                             "[submit]\nprobe_program = \"" + directory_ + "/probe\"\nprobes_at_once = 2\n" +
                             "[[pool]]\nname = \"main\"\ngpus = [\"RTX 3060\"]\nmode = \"" + mode + "\"\n" + more);
  }

  // What the next probes do: say this estimate.
  void estimate(const std::string& status, int need_mib, const std::string& before = "", const std::string& more = "") {
    std::ostringstream text;
    text << before << "\necho '{\"progress\":{\"text\":\"step 1\",\"elapsed_s\":0.1}}' >&3\n"
         << "echo '{\"estimate\":{\"version\":1,\"status\":\"" << status << "\"," << more << "\"need_bytes\":" << (static_cast<long long>(need_mib) << 20)
         << ",\"files\":[\"" << directory_ << "/train.py\",\"" << directory_ << "/config.json\"]}}' >&3\n";
    write("behaviour", text.str());
  }
  void behave(const std::string& script) { write("behaviour", script + "\n"); }

  void launch() {
    daemon_ = ::fork();
    if (daemon_ == 0) {
      const int log = ::open((directory_ + "/stderr").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
      ::dup2(log, 2);
      ::execl(GPUMEMD, "gpumemd", "-c", (directory_ + "/gpumem.conf").c_str(), nullptr);
      ::_exit(99);
    }
  }
  void start() {
    launch();
    ASSERT_TRUE(eventually([&] { return ask({{"type", "ping"}}).status == client::CallStatus::ok; })) << log();
    // Slurm's defaults have been read: before that nothing is rewritten.
    ASSERT_TRUE(eventually([&] { return log().find("Slurm 22.05.8") != std::string::npos; })) << log();
  }
  int stop(int signal) {
    ::kill(daemon_, signal);
    int status = 0;
    ::waitpid(daemon_, &status, 0);
    daemon_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  std::string log() { return read_file(directory_ + "/log").value_or("") + read_file(directory_ + "/stderr").value_or(""); }
  int runs() {
    const std::string text = read_file(directory_ + "/runs").value_or("");
    return static_cast<int>(std::count(text.begin(), text.end(), '\n'));
  }
  uid_t submitter() const { return ::geteuid() == 0 ? kOtherUser : ::geteuid(); }

  // A client in a process of its own, as the submitter; `after` runs there once it is connected and has asked.
  struct Client {
    pid_t pid = -1;
    int result = -1;
  };
  Client ask_in_background(const Fields& fields) {
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
  Answer finish(Client& started) {
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
  Answer ask(const Fields& fields) {
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

  db::History history() {
    auto opened = db::History::open(directory_ + "/state/gpumem.db");
    EXPECT_TRUE(opened.ok()) << opened.error().message;
    return std::move(opened).value();
  }
  std::vector<db::HistoryEntry> rows() { return history().list(db::Viewer::sees_all(), {}).value(); }
  bool process_is_gone(pid_t pid) {
    if (::kill(pid, 0) != 0) return true;
    // A zombie that waits for its reaper is gone enough.
    const std::string stat = read_file("/proc/" + std::to_string(pid) + "/stat").value_or("");
    const std::size_t name_end = stat.rfind(')');
    return name_end != std::string::npos && stat.compare(name_end + 2, 1, "Z") == 0;
  }
  pid_t probe_pid() {
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

TEST_F(DaemonTest, DecidesFromAProbeThatRunsAsTheSubmitter) {
  start();
  Answer answer = submit();
  ASSERT_EQ(answer.status, client::CallStatus::ok) << answer.error;
  EXPECT_EQ(answer["action"], "rewrite") << answer["line"];
  EXPECT_EQ(answer["rule"], "probe");
  EXPECT_EQ(answer["set"], "gres=shard:1064 cpus-per-task=4 mem=512M");
  EXPECT_EQ(answer["token"].size(), 32u);
  EXPECT_GE(answer.progress, 1);
  EXPECT_EQ(read_file(directory_ + "/runs").value_or(""), std::to_string(submitter()) + "\n");
  const auto decision = history().find_decision(db::Viewer::user(submitter()), answer["token"]);
  ASSERT_TRUE(decision.ok() && decision->has_value());
  EXPECT_EQ((*decision)->gres, "shard:1064");
  EXPECT_EQ((*decision)->need_bytes, 1000ull << 20);
  EXPECT_EQ((*decision)->margin.bytes, 64ull << 20);
}

TEST_F(DaemonTest, ARepeatedSubmissionIsAnsweredFromTheProbeBefore) {
  start();
  const std::string first = submit()["token"];
  Answer second = submit();
  EXPECT_EQ(second["action"], "rewrite") << second["line"];
  EXPECT_EQ(runs(), 1);
  EXPECT_NE(second["token"], first);
  EXPECT_NE(second["line"].find("[probe of "), std::string::npos) << second["line"];
}

TEST_F(DaemonTest, AChangedFileOrEnvironmentMeansANewProbe) {
  start();
  submit();
  write("train.py", "import torch  # changed\n");
  submit();
  EXPECT_EQ(runs(), 2);
  submit({{"environment", "BATCH=128"}});
  EXPECT_EQ(runs(), 3);
  write("config.json", "{}");  // looked for by the program and not there before
  submit();
  EXPECT_EQ(runs(), 4);
}

TEST_F(DaemonTest, AFileWrittenWhileTheProbeRanIsNoGroundForALaterAnswer) {
  start();
  estimate("complete", 1000, "touch -d '+1 minute' " + directory_ + "/train.py 2>/dev/null; sleep 0.1");
  ::chmod((directory_ + "/train.py").c_str(), 0666);
  if (::geteuid() == 0) {
    EXPECT_EQ(::chown((directory_ + "/train.py").c_str(), kOtherUser, kOtherUser), 0);
  }
  submit();
  submit();
  EXPECT_EQ(runs(), 2);
}

TEST_F(DaemonTest, IdenticalSubmissionsShareOneProbe) {
  start();
  estimate("complete", 1000, "sleep 0.5");
  Client first = ask_in_background(submission());
  Client second = ask_in_background(submission());
  Answer a = finish(first), b = finish(second);
  EXPECT_EQ(a["action"], "rewrite");
  EXPECT_EQ(b["action"], "rewrite");
  EXPECT_NE(a["token"], b["token"]);
  EXPECT_EQ(runs(), 1);
}

TEST_F(DaemonTest, AClientThatGoesAwayEndsItsProbe) {
  start();
  behave("exec sleep 60");
  Client client = ask_in_background(submission());
  const pid_t probe = probe_pid();
  ASSERT_GT(probe, 0);
  ::kill(client.pid, SIGKILL);
  finish(client);
  EXPECT_TRUE(eventually([&] { return process_is_gone(probe); }));
  EXPECT_TRUE(rows().empty());
}

TEST_F(DaemonTest, TheDeadlineIsAnAnswer) {
  start();
  behave("exec sleep 60");
  Answer answer = submit({{"deadline_s", "1"}});
  EXPECT_EQ(answer["action"], "keep");
  EXPECT_EQ(answer["rule"], "deadline");
  EXPECT_NE(answer["line"].find("submitted as it was"), std::string::npos) << answer["line"];
}

TEST_F(DaemonTest, WhatCannotBeEstimatedIsSubmittedAsItWasAndSaysWhy) {
  start();
  const std::vector<std::pair<std::string, std::string>> behaviours = {
      {"exit 3", "ended with status 3"},
      {"echo cannot mount >&2; exit 1", "cannot mount"},
      {"kill -9 $$", "signal 9"},
      {"echo nonsense >&3", "without an estimate"},
      {"echo '{\"estimate\":{\"status\":\"complete\"}}' >&3", "gives no need"},
      {"echo '{\"estimate\":{\"status\":\"unsupported\",\"reason\":\"no_torch\",\"error\":\"No Python that imported torch ran.\"}}' >&3",
       "No Python that imported torch ran: submitted"},
      {"echo '{\"estimate\":{\"status\":\"failed\",\"error\":\"the program ended with status 1\"}}' >&3", "the program ended with status 1"},
      {"head -c 20000000 /dev/zero >&3", "more than gpumemd accepts"},
  };
  int number = 0;
  for (const auto& [behaviour, text] : behaviours) {
    behave(behaviour);
    Answer answer = submit({{"argument", std::to_string(++number)}});
    EXPECT_EQ(answer["action"], "keep") << behaviour;
    EXPECT_EQ(answer["rule"], "unsupported") << behaviour;
    EXPECT_NE(answer["line"].find(text), std::string::npos) << behaviour << ": " << answer["line"];
    EXPECT_NE(answer["line"].find("submitted as it was"), std::string::npos) << answer["line"];
  }
}

TEST_F(DaemonTest, AJobThatFitsNoGpuIsToldSo) {
  start();
  estimate("out_of_memory", 13000, "", "\"error\":\"out of memory\",");
  Answer answer = submit();
  EXPECT_EQ(answer["rule"], "too_large");
  EXPECT_EQ(answer["action"], "keep");
  EXPECT_NE(answer["line"].find("smaller batch"), std::string::npos) << answer["line"];
}

TEST_F(DaemonTest, TheUsersSizeNeedsNoProbe) {
  start();
  Answer answer = ask({{"type", "decide"}, {"command", "srun"}, {"mode", "6442450944"}, {"slurm_version", "22.05.8"}, {"option.gpus", "1"}});
  EXPECT_EQ(answer["rule"], "user");
  EXPECT_EQ(answer["reset"], "gpus");
  EXPECT_EQ(answer["set"], "gres=shard:6144 cpus-per-task=4 mem=512M");
  EXPECT_EQ(runs(), 0);
}

TEST_F(DaemonTest, JobsWithoutAGpuAndOtherRequestsAreLeftAloneInSilence) {
  start();
  Answer none = ask({{"type", "decide"}, {"command", "sbatch"}, {"mode", "auto"}, {"script", "x"}});
  EXPECT_EQ(none["action"], "keep");
  EXPECT_EQ(none["token"], "");
  EXPECT_EQ(none["rule"], "not_asked");
  Answer several = ask({{"type", "decide"}, {"command", "sbatch"}, {"mode", "auto"}, {"script", "x"}, {"option.gpus", "4"}});
  EXPECT_EQ(several["rule"], "left_alone");
  EXPECT_EQ(several["line"], "");
  Answer pipe = ask({{"type", "decide"}, {"command", "sbatch"}, {"mode", "auto"}, {"option.gpus", "1"}});
  EXPECT_EQ(pipe["rule"], "left_alone");
  EXPECT_NE(pipe["line"].find("pipe"), std::string::npos);
  EXPECT_EQ(runs(), 0);
}

TEST_F(DaemonTest, ObserveAnswersAtOnceAndRecordsTheProbeLater) {
  configure("observe");
  estimate("complete", 1000, "while test ! -e " + directory_ + "/go; do sleep 0.05; done");
  start();
  Answer answer = submit();  // comes while the probe still waits
  EXPECT_EQ(answer["action"], "keep");
  EXPECT_EQ(answer["line"], "");
  EXPECT_EQ(answer["rule"], "pending");
  ASSERT_EQ(answer["token"].size(), 32u);
  write("go", "");
  std::optional<db::Decision> decision;
  EXPECT_TRUE(eventually([&] {
    decision = history().find_decision(db::Viewer::sees_all(), answer["token"]).value();
    return decision && decision->rule == "probe";
  }));
  EXPECT_EQ(decision->action, "keep");
  EXPECT_EQ(decision->limit_mib, 1064u);
  EXPECT_EQ(decision->line, "");
}

TEST_F(DaemonTest, KillBetweenRequestAndAnswerLeavesNoHalfRowAndTheNextStartCarriesOn) {
  start();
  behave("exec sleep 60");
  Client client = ask_in_background(submission());
  const pid_t probe = probe_pid();
  ASSERT_GT(probe, 0);
  stop(SIGKILL);
  Answer answer = finish(client);
  EXPECT_EQ(answer.status, client::CallStatus::bad_answer);
  EXPECT_TRUE(eventually([&] { return process_is_gone(probe); }));
  estimate("complete", 1000);
  write("log", "");
  start();
  EXPECT_TRUE(rows().empty());
  EXPECT_EQ(submit()["action"], "rewrite");
}

TEST_F(DaemonTest, AnAcknowledgedDecisionSurvivesKill) {
  start();
  const std::string token = submit()["token"];
  ASSERT_EQ(token.size(), 32u);
  stop(SIGKILL);
  const auto decision = history().find_decision(db::Viewer::sees_all(), token);
  ASSERT_TRUE(decision.ok() && decision->has_value());
  EXPECT_EQ((*decision)->rule, "probe");
}

TEST_F(DaemonTest, HangupReadsTheConfigurationAgainAndKeepsTheOldOneIfTheNewIsBad) {
  start();
  configure("apply", "[margin]\npercent = 50\n");
  ::kill(daemon_, SIGHUP);
  ASSERT_TRUE(eventually([&] { return log().find("configuration read again") != std::string::npos; })) << log();
  EXPECT_EQ(submit()["limit_mib"], "1500");
  configure("apply", "[margin]\npercnt = 10\n");
  ::kill(daemon_, SIGHUP);
  ASSERT_TRUE(eventually([&] { return log().find("unknown key 'margin.percnt'") != std::string::npos; })) << log();
  EXPECT_EQ(submit()["limit_mib"], "1500");
}

TEST_F(DaemonTest, TerminationAnswersWhoWaitsAndEndsInOrder) {
  start();
  behave("exec sleep 60");
  Client client = ask_in_background(submission());
  const pid_t probe = probe_pid();
  EXPECT_EQ(stop(SIGTERM), 0);
  Answer answer = finish(client);
  EXPECT_EQ(answer.status, client::CallStatus::error_reply);
  EXPECT_EQ(answer.error, "gpumemd is ending");
  EXPECT_TRUE(eventually([&] { return process_is_gone(probe); }));
  EXPECT_NE(::access((directory_ + "/socket").c_str(), F_OK), 0);
}

TEST_F(DaemonTest, RudeClientsHarmNobody) {
  start();
  std::vector<int> connections;
  for (const std::string& text : {std::string("GET / HTTP/1.0\r\n\r\n"), std::string("GPUM\x01\0\0\0\xff\xff\xff\xff", 12),
                                  std::string("GPUM\x02\0\0\0\x01\0\0\0x", 13), std::string("GPUM\x01\0\0\0\x05\0\0\0junk!", 17),
                                  std::string("GPUM\x01\0"), std::string("GPUM\x01\0\0\0\x40\0\0\0half", 16), std::string()}) {
    const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, (directory_ + "/socket").c_str(), sizeof address.sun_path - 1);
    ASSERT_EQ(::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    (void)!::send(fd, text.data(), text.size(), MSG_NOSIGNAL);
    connections.push_back(fd);
  }
  EXPECT_EQ(ask({{"type", "ping"}}).status, client::CallStatus::ok);
  Answer unknown = ask({{"type", "dance"}});
  EXPECT_EQ(unknown.status, client::CallStatus::error_reply);
  EXPECT_NE(unknown.error.find("'dance'"), std::string::npos);
  Answer bad = ask({{"type", "decide"}, {"command", "rm"}});
  EXPECT_EQ(bad.status, client::CallStatus::error_reply);
  // What is no frame is dropped at once; another major and a broken body get a sentence first.
  char byte;
  EXPECT_EQ(::recv(connections[0], &byte, 1, 0), 0);
  for (const int i : {1, 2, 3}) {
    char header[4];
    EXPECT_EQ(::recv(connections[static_cast<std::size_t>(i)], header, 4, MSG_WAITALL), 4) << i;
    EXPECT_EQ(std::memcmp(header, "GPUM", 4), 0);
  }
  for (const int fd : connections) ::close(fd);
  EXPECT_EQ(ask({{"type", "ping"}}).status, client::CallStatus::ok);
}

TEST_F(DaemonTest, OneDaemonASocketAndABadConfigurationIsAUsageError) {
  start();
  const pid_t first = daemon_;
  launch();
  int status = 0;
  ::waitpid(daemon_, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 1);
  EXPECT_NE(log().find("another gpumemd listens"), std::string::npos) << log();
  configure("sometimes");
  launch();
  ::waitpid(daemon_, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 2);
  daemon_ = first;
  EXPECT_EQ(ask({{"type", "ping"}}).status, client::CallStatus::ok);
}

}  // namespace
}  // namespace gpumem
