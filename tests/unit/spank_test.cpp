// SPDX-License-Identifier: Apache-2.0
// spank/: the plugin against a stub of Slurm (spank_stub) and a daemon that answers what the test says.
#include <gtest/gtest.h>

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include "daemon/protocol/fields.h"
#include "daemon/protocol/frame.h"
#include "tests/unit/spank_stub.h"

namespace {

using gpumem::protocol::Message;
namespace stub = spank_stub;

// Accepts one connection at a time, keeps the request and lets `answer` do what it wants with the descriptor.
class FakeDaemon {
 public:
  explicit FakeDaemon(std::function<void(int fd, const Message& request)> answer) : answer_(std::move(answer)) {
    directory_ = std::filesystem::temp_directory_path() / ("spank_test." + std::to_string(getpid()));
    std::filesystem::create_directories(directory_);
    listener_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path().c_str());
    unlink(address.sun_path);
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(listen(listener_, 8), 0);
    thread_ = std::thread([this] { serve(); });
  }
  ~FakeDaemon() {
    shutdown(listener_, SHUT_RDWR);
    thread_.join();
    close(listener_);
    std::filesystem::remove_all(directory_);
  }
  std::string path() const { return directory_ / "sock"; }
  const Message& request() const { return request_; }
  int requests() const { return requests_; }

 private:
  void serve() {
    for (;;) {
      const int fd = accept(listener_, nullptr, nullptr);
      if (fd < 0) return;
      request_ = read_request(fd);
      ++requests_;
      answer_(fd, request_);
      close(fd);
    }
  }
  static std::string read_exactly(int fd, size_t count) {
    std::string bytes(count, '\0');
    size_t have = 0;
    while (have < count) {
      const ssize_t got = read(fd, bytes.data() + have, count - have);
      if (got <= 0) return {};
      have += static_cast<size_t>(got);
    }
    return bytes;
  }
  static Message read_request(int fd) {
    const std::string header = read_exactly(fd, gpumem::protocol::kHeaderBytes);
    gpumem::protocol::FrameHeader decoded = {};
    if (header.empty()) return {};
    EXPECT_EQ(gpumem::protocol::decode_header(reinterpret_cast<const unsigned char*>(header.data()), &decoded),
              gpumem::protocol::HeaderStatus::ok);
    auto message = Message::from_body(read_exactly(fd, decoded.body_bytes));
    EXPECT_TRUE(message.ok());
    return message.ok() ? *message : Message();
  }

  std::filesystem::path directory_;
  std::function<void(int, const Message&)> answer_;
  Message request_;
  int requests_ = 0;
  int listener_ = -1;
  std::thread thread_;
};

void send_all(int fd, const std::string& bytes) {
  ASSERT_EQ(send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
}

auto replying(Message reply) {
  return [reply](int fd, const Message&) { send_all(fd, *reply.to_frame()); };
}

Message shard_decision() {
  return Message("decision")
      .add("token", "00112233445566778899aabbccddeeff")
      .add("action", "rewrite")
      .add("reset", "gpus")
      .add("reset", "tres-bind")
      .add("reset", "cpus-per-gpu")
      .add("set", "cpus-per-task=8")
      .add("set", "gres=shard:3072")
      .add("line", "3.0 GiB of a RTX 3060")
      .add("rule", "user");
}

class Spank : public testing::Test {
 protected:
  void SetUp() override {
    stub::reset("sbatch", S_CTX_ALLOCATOR);
    unsetenv("GPUMEM");
    unsetenv("SLURM_JOB_ID");
    unsetenv("SLURM_SHARDS_ON_NODE");
    setenv("XDG_CONFIG_HOME", "/nonexistent", 1);
  }
  // What a command does: plugin initialisation, option parsing, post_opt.
  int run(const std::string& socket, const char* wish = nullptr, const char* timeout = "20") {
    std::string socket_argument = "socket=" + socket;
    std::string timeout_argument = std::string("timeout=") + timeout;
    char* arguments[] = {socket_argument.data(), timeout_argument.data()};
    EXPECT_EQ(slurm_spank_init(stub::handle(), 2, arguments), 0);
    if (wish != nullptr && stub::give_option("gpumem", wish) != 0) return -1;
    return slurm_spank_init_post_opt(stub::handle(), 2, arguments);
  }
};

TEST_F(Spank, AJobWithoutGpuAsksNobody) {
  FakeDaemon daemon(replying(shard_decision()));
  stub::options()["gres"] = "license:1";
  EXPECT_EQ(run(daemon.path()), 0);
  EXPECT_EQ(daemon.requests(), 0);
  EXPECT_EQ(stub::options()["gres"], "license:1");
  EXPECT_TRUE(stub::printed().empty());
}

TEST_F(Spank, ARewriteResetsFirstAndSetsThen) {
  FakeDaemon daemon(replying(shard_decision()));
  stub::options()["gpus"] = "1";
  stub::options()["tres-bind"] = "gres/gpu:single:1";
  EXPECT_EQ(run(daemon.path()), 0);
  EXPECT_EQ(stub::options(), (std::map<std::string, std::string>{{"gres", "shard:3072"}, {"cpus-per-task", "8"}}));
  EXPECT_EQ(stub::job_control()["GPUMEM_TOKEN"], "00112233445566778899aabbccddeeff");
  ASSERT_EQ(stub::printed().size(), 1u);
  EXPECT_EQ(stub::printed()[0], "gpumem: 3.0 GiB of a RTX 3060");
}

TEST_F(Spank, EveryWayToAskForAGpuIsSeen) {
  const std::vector<std::pair<const char*, const char*>> ways = {
      {"gres", "gpu"}, {"gres", "gres:gpu:a100:1"}, {"gres", "license:2,gpu:1"}, {"gpus", "a100:1"},
      {"gpus-per-node", "1"}, {"gpus-per-task", "1"}, {"gpus-per-socket", "1"}, {"tres-per-task", "gres/gpu:1"}};
  for (const auto& [name, value] : ways) {
    SetUp();
    FakeDaemon daemon(replying(Message("decision").add("action", "keep").add("line", "")));
    stub::options()[name] = value;
    EXPECT_EQ(run(daemon.path()), 0);
    EXPECT_EQ(daemon.requests(), 1) << name << "=" << value;
    EXPECT_TRUE(stub::printed().empty());
  }
}

TEST_F(Spank, TheRequestCarriesOptionsScriptAndEnvironment) {
  const auto script = std::filesystem::temp_directory_path() / ("spank_script." + std::to_string(getpid()));
  std::ofstream(script) << "#!/bin/bash\npython train.py\n";
  const int saved = dup(0);
  const int file = open(script.c_str(), O_RDONLY);
  dup2(file, 0);
  FakeDaemon daemon(replying(Message("decision").add("action", "keep")));
  stub::options() = {{"gres", "gpu:1"}, {"partition", "main"}, {"chdir", "/data"}};
  setenv("SPANK_TEST_VARIABLE", "a b", 1);
  EXPECT_EQ(run(daemon.path(), "4G"), 0);
  dup2(saved, 0);
  close(saved);
  close(file);
  std::filesystem::remove(script);
  const Message& request = daemon.request();
  EXPECT_EQ(request.type(), "decide");
  EXPECT_EQ(request.get("command"), "sbatch");
  EXPECT_EQ(request.get("mode"), "4294967296");
  EXPECT_EQ(request.get("slurm_version"), "22.05.8");
  EXPECT_EQ(request.get("script"), "#!/bin/bash\npython train.py\n");
  EXPECT_EQ(request.get("working_directory"), "/data");
  EXPECT_EQ(request.get("option.partition"), "main");
  EXPECT_EQ(request.get("option.gres"), "gpu:1");
  EXPECT_FALSE(request.has("option.time"));
  const auto environment = request.get_all("environment");
  EXPECT_NE(std::find(environment.begin(), environment.end(), "SPANK_TEST_VARIABLE=a b"), environment.end());
}

TEST_F(Spank, AnOptionThatSlurmRefusesUndoesTheWholeRewrite) {
  FakeDaemon daemon(replying(shard_decision()));
  stub::options() = {{"gpus", "1"}, {"tres-bind", "x"}, {"cpus-per-gpu", "4"}};
  stub::refuse_to_set("gres");
  EXPECT_EQ(run(daemon.path()), 0);
  EXPECT_EQ(stub::options(), (std::map<std::string, std::string>{{"gpus", "1"}, {"tres-bind", "x"}, {"cpus-per-gpu", "4"}}));
  EXPECT_TRUE(stub::job_control().count("GPUMEM_TOKEN") == 0);
  ASSERT_EQ(stub::printed().size(), 1u);
  EXPECT_NE(stub::printed()[0].find("submitted as it was written"), std::string::npos);
}

TEST_F(Spank, AValueThatIsNoSizeIsAUsageError) {
  stub::options()["gres"] = "gpu:1";
  for (const char* wrong : {"abc", "", "-4G", "4Q", "0"}) EXPECT_NE(run("/nonexistent/sock", wrong), 0) << wrong;
  for (const char* right : {"auto", "off", "24G", "1.5GiB", "800"}) {
    SetUp();
    EXPECT_EQ(run("/nonexistent/sock", right), 0) << right;
  }
}

TEST_F(Spank, OffAsksNobodyHoweverItIsSaid) {
  FakeDaemon daemon(replying(shard_decision()));
  stub::options()["gres"] = "gpu:1";
  EXPECT_EQ(run(daemon.path(), "off"), 0);
  SetUp();
  stub::options()["gres"] = "gpu:1";
  setenv("GPUMEM", "off", 1);
  EXPECT_EQ(run(daemon.path()), 0);
  const auto config = std::filesystem::temp_directory_path() / ("spank_config." + std::to_string(getpid()));
  std::filesystem::create_directories(config / "gpumem");
  std::ofstream(config / "gpumem" / "off");
  SetUp();
  setenv("XDG_CONFIG_HOME", config.c_str(), 1);
  stub::options()["gres"] = "gpu:1";
  EXPECT_EQ(run(daemon.path()), 0);
  EXPECT_EQ(daemon.requests(), 0);
  // What is said for this one job counts more than the standing wish.
  EXPECT_EQ(run(daemon.path(), "auto"), 0);
  EXPECT_EQ(daemon.requests(), 1);
  std::filesystem::remove_all(config);
}

TEST_F(Spank, SallocAndSrunAskOnlyWhenASizeIsGiven) {
  FakeDaemon daemon(replying(shard_decision()));
  for (const auto& [name, context] : {std::pair{"salloc", S_CTX_ALLOCATOR}, std::pair{"srun", S_CTX_LOCAL}}) {
    stub::reset(name, context);
    stub::options()["gres"] = "gpu:1";
    const int before = daemon.requests();
    EXPECT_EQ(run(daemon.path()), 0);
    EXPECT_EQ(daemon.requests(), before);
    EXPECT_EQ(run(daemon.path(), "3G"), 0);
    EXPECT_EQ(daemon.requests(), before + 1);
    EXPECT_EQ(daemon.request().get("command"), name);
    EXPECT_EQ(stub::options()["gres"], "shard:3072");
  }
}

TEST_F(Spank, AStepInsideARewrittenJobInheritsItsShards) {
  stub::reset("srun", S_CTX_LOCAL);
  setenv("SLURM_JOB_ID", "7", 1);
  setenv("SLURM_SHARDS_ON_NODE", "3072", 1);
  stub::options() = {{"gpus", "1"}, {"gpu-bind", "closest"}, {"ntasks", "2"}};
  EXPECT_EQ(run("/nonexistent/sock"), 0);
  EXPECT_EQ(stub::options(), (std::map<std::string, std::string>{{"ntasks", "2"}}));
  stub::options() = {{"gres", "none"}};
  EXPECT_EQ(run("/nonexistent/sock"), 0);
  EXPECT_EQ(stub::options()["gres"], "none");
  unsetenv("SLURM_SHARDS_ON_NODE");
  stub::options() = {{"gpus", "1"}};
  EXPECT_EQ(run("/nonexistent/sock"), 0);
  EXPECT_EQ(stub::options()["gpus"], "1");
  EXPECT_TRUE(stub::printed().empty());
}

TEST_F(Spank, WhateverTheDaemonDoesTheJobIsSubmittedAsItWas) {
  Message newer("decision_of_tomorrow");
  const std::vector<std::pair<const char*, std::function<void(int, const Message&)>>> answers = {
      {"closes at once", [](int, const Message&) {}},
      {"nonsense", [](int fd, const Message&) { send_all(fd, std::string(64, 'x')); }},
      {"half a frame", [](int fd, const Message&) { send_all(fd, std::string("GPUM\1\0\0\0\x40\0\0\0type", 16)); }},
      {"an error", replying(Message("error").add("kind", "internal").add("message", "the disk is full"))},
      {"another reply", replying(newer)},
      {"no action", replying(Message("decision").add("token", "x"))},
      {"bad assignment", replying(Message("decision").add("action", "rewrite").add("set", "gres"))},
      {"unknown option", replying(Message("decision").add("action", "rewrite").add("reset", "gpus").add("set", "warp-drive=1"))},
      {"silence", [](int fd, const Message&) {
         char byte;
         while (read(fd, &byte, 1) > 0) {}
       }},
  };
  for (const auto& [name, answer] : answers) {
    SetUp();
    FakeDaemon daemon(answer);
    stub::options() = {{"gpus", "1"}};
    EXPECT_EQ(run(daemon.path(), nullptr, "0.5"), 0) << name;
    EXPECT_EQ(stub::options(), (std::map<std::string, std::string>{{"gpus", "1"}})) << name;
    EXPECT_EQ(stub::printed().size(), 1u) << name;
    EXPECT_TRUE(stub::job_control().empty()) << name;
  }
  SetUp();
  stub::options() = {{"gpus", "1"}};
  EXPECT_EQ(run("/nonexistent/sock"), 0);
  EXPECT_EQ(stub::options(), (std::map<std::string, std::string>{{"gpus", "1"}}));
  EXPECT_EQ(stub::printed().size(), 1u);
}

TEST_F(Spank, CtrlCSubmitsWithoutWaitingAndGivesSlurmItsHandlerBack) {
  const pthread_t submitter = pthread_self();
  FakeDaemon daemon([submitter](int fd, const Message&) {
    pthread_kill(submitter, SIGINT);
    char byte;
    while (read(fd, &byte, 1) > 0) {}
  });
  static volatile sig_atomic_t slurm_saw = 0;
  slurm_saw = 0;
  signal(SIGINT, [](int) { slurm_saw = 1; });
  stub::options() = {{"gpus", "1"}};
  EXPECT_EQ(run(daemon.path()), 0);
  EXPECT_EQ(slurm_saw, 0);
  ASSERT_EQ(stub::printed().size(), 1u);
  EXPECT_EQ(stub::printed()[0], "gpumem: interrupted: the job is submitted as it was written");
  raise(SIGINT);
  EXPECT_EQ(slurm_saw, 1);
  signal(SIGINT, SIG_DFL);
}

TEST_F(Spank, TheJobSeesNeitherTheOptionNorAnotherJobsToken) {
  FakeDaemon daemon(replying(Message("decision").add("action", "keep")));
  setenv("SLURM_SPANK_GPUMEM_TOKEN", "of the job that submits", 1);
  setenv("_SLURM_SPANK_OPTION_gpumem_gpumem", "3G", 1);
  stub::job_control()["_SLURM_SPANK_OPTION_gpumem_gpumem"] = "3G";
  stub::options()["gres"] = "gpu:1";
  EXPECT_EQ(run(daemon.path(), "3G"), 0);
  EXPECT_EQ(getenv("SLURM_SPANK_GPUMEM_TOKEN"), nullptr);
  EXPECT_EQ(getenv("_SLURM_SPANK_OPTION_gpumem_gpumem"), nullptr);
  EXPECT_TRUE(stub::job_control().empty());
}

TEST_F(Spank, OnTheNodeTheTaskGetsWhatTheDaemonSays) {
  FakeDaemon daemon(replying(Message("job_environment").add("set", "LD_PRELOAD=/a:/b").add("set", "GPUMEM_JOB=7").add("unset", "OLD")));
  stub::reset("slurmstepd", S_CTX_REMOTE);
  stub::job_environment() = {{"SLURM_SPANK_GPUMEM_TOKEN", "0011"}, {"SLURM_SHARDS_ON_NODE", "3072"}, {"SLURM_JOB_GPUS", "1"},
                             {"LD_PRELOAD", "/b"}, {"PATH", "/bin"}, {"OLD", "x"}};
  run(daemon.path());
  EXPECT_EQ(slurm_spank_task_init_privileged(stub::handle(), 0, nullptr), 0);
  EXPECT_EQ(stub::job_environment()["LD_PRELOAD"], "/a:/b");
  EXPECT_EQ(stub::job_environment()["GPUMEM_JOB"], "7");
  EXPECT_EQ(stub::job_environment().count("OLD"), 0u);
  const Message& request = daemon.request();
  EXPECT_EQ(request.type(), "job_start");
  EXPECT_EQ(request.get_number("job_id"), 42u);
  EXPECT_EQ(request.get("token"), "0011");
  EXPECT_EQ(request.get("shards"), "3072");
  EXPECT_EQ(request.get_all("environment"), (std::vector<std::string>{"LD_PRELOAD=/b", "PATH=/bin"}));
}

TEST_F(Spank, OnlyADeliberateRefusalFailsATask) {
  stub::reset("slurmstepd", S_CTX_REMOTE);
  stub::job_environment() = {{"SLURM_SPANK_GPUMEM_TOKEN", "0011"}};
  run("/nonexistent/sock");
  EXPECT_EQ(slurm_spank_task_init_privileged(stub::handle(), 0, nullptr), 0);
  EXPECT_EQ(slurm_spank_task_exit(stub::handle(), 0, nullptr), 0);
  FakeDaemon daemon(replying(Message("job_environment").add("refuse", "the job's shards are missing")));
  stub::reset("slurmstepd", S_CTX_REMOTE);
  stub::job_environment() = {{"SLURM_SPANK_GPUMEM_TOKEN", "0011"}};
  run(daemon.path());
  EXPECT_LT(slurm_spank_task_init_privileged(stub::handle(), 0, nullptr), 0);
  ASSERT_EQ(stub::printed().size(), 1u);
  EXPECT_EQ(stub::printed()[0], "gpumem: the job's shards are missing");
}

TEST_F(Spank, ATaskWithoutGpuAsksNobodyAndAnEndIsReported) {
  FakeDaemon daemon(replying(Message("done")));
  stub::reset("slurmstepd", S_CTX_REMOTE);
  run(daemon.path());
  EXPECT_EQ(slurm_spank_task_init_privileged(stub::handle(), 0, nullptr), 0);
  EXPECT_EQ(slurm_spank_task_exit(stub::handle(), 0, nullptr), 0);
  EXPECT_EQ(daemon.requests(), 0);
  stub::job_environment() = {{"SLURM_JOB_GPUS", "0"}};
  EXPECT_EQ(slurm_spank_task_exit(stub::handle(), 0, nullptr), 0);
  EXPECT_EQ(daemon.request().type(), "task_end");
  EXPECT_EQ(daemon.request().get_number("status"), 256u);
}

}  // namespace
