// SPDX-License-Identifier: Apache-2.0
// daemon/node/: environments, limits, outcomes and restarts, with real books in a temporary directory and a made-up /proc.
#include <gtest/gtest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <iterator>

#include "base/file.h"
#include "base/size.h"
#include "daemon/node/handlers.h"
#include "daemon/node/node.h"
#include "daemon/protocol/messages.h"

#ifndef PROFILES
#error "PROFILES must name the directory of the GPU profiles"
#endif

namespace gpumem::node {
namespace {

constexpr char kRtx3060[] = "NVIDIA GeForce RTX 3060";
constexpr int kExit1 = 1 << 8;  // wait(2)'s status of exit(1)

class NodeRole : public ::testing::Test {
 protected:
  void SetUp() override {
    auto directory = make_temporary_directory(::testing::TempDir(), "node");
    ASSERT_TRUE(directory.ok());
    directory_ = *directory;
    settings_.cluster = "c";
    settings_.node = "n1";
    settings_.virtual_gpus = {{"RTX 3060", 2}};
    settings_.state_directory = directory_ + "/state";
    settings_.profiles_directory = PROFILES;
    settings_.library_directory = "/lib/gpumem";
    settings_.stand_in_directory = "/lib/gpumem/bin";
    settings_.proc = directory_ + "/proc";
    ASSERT_TRUE(make_directories(settings_.proc + "/sys/kernel/random").ok());
    set_boot("boot-1");
    auto history = db::History::open(directory_ + "/gpumem.db");
    ASSERT_TRUE(history.ok());
    history_ = std::make_unique<db::History>(std::move(*history));
  }
  void TearDown() override {
    node_.reset();
    (void)remove_tree(directory_);
  }

  void set_boot(const std::string& id) { ASSERT_TRUE(write_file_atomically(settings_.proc + "/sys/kernel/random/boot_id", id + "\n").ok()); }
  void start_process(int pid, int ticks) {
    std::string stat = std::to_string(pid) + " (a) b) S";
    for (int field = 4; field < 22; ++field) stat += " 0";
    ASSERT_TRUE(make_directories(settings_.proc + "/" + std::to_string(pid)).ok());
    ASSERT_TRUE(write_file_atomically(settings_.proc + "/" + std::to_string(pid) + "/stat", stat + " " + std::to_string(ticks) + " 0\n").ok());
  }
  void end_process(int pid) { ASSERT_TRUE(remove_tree(settings_.proc + "/" + std::to_string(pid)).ok()); }

  void start_node() {
    node_.reset();
    auto node = Node::start(settings_, *history_, nullptr);
    ASSERT_TRUE(node.ok()) << node.error().message;
    node_ = std::move(*node);
  }

  JobStart batch(std::uint32_t job_id = 17, std::int32_t pid = 100) {
    start_process(pid, 555);
    JobStart start;
    start.job_id = job_id;
    start.step_id = kBatchStep;
    start.pid = pid;
    start.user_id = ::geteuid();
    start.user = "anna";
    start.shards = "4096";
    start.gpus = "1";
    start.visible_devices = "1";
    start.environment = {"LD_PRELOAD=/opt/x.so", "PATH=/usr/bin:/bin"};
    return start;
  }
  JobEnvironment must_start(const JobStart& start) {
    auto environment = node_->job_start(start);
    EXPECT_TRUE(environment.ok()) << environment.error().message;
    return environment.ok() ? *environment : JobEnvironment();
  }
  void must_end(const JobStart& start, int wait_status) {
    auto ended = node_->task_end({start.job_id, start.step_id, start.task_id, start.pid, wait_status});
    ASSERT_TRUE(ended.ok()) << ended.error().message;
  }
  db::Job job(std::uint32_t job_id = 17) {
    auto found = history_->newest_run("c", job_id, "n1");
    EXPECT_TRUE(found.ok() && found->has_value());
    return found.ok() && *found ? **found : db::Job();
  }
  db::Decision rewritten(const std::string& token) {
    db::Decision decision;
    decision.token = token;
    decision.user_id = ::geteuid();
    decision.action = "rewrite";
    decision.gres = "shard:4096";
    decision.need_bytes = 3 * kGiB;
    EXPECT_TRUE(history_->record_decision(decision).ok());
    return decision;
  }

  // A process of the job: takes memory as the meter (or the virtual GPU) would, and dies at once. True: it got it all.
  static bool take(const std::string& book_path, const std::string& key, int device, std::uint64_t context_bytes,
                   const std::vector<std::uint64_t>& sizes) {
    const pid_t child = ::fork();
    if (child == 0) {
      char error[256];
      book::Book book;
      if (book::open(&book, book_path.c_str(), true, error, sizeof error) != book::Status::ok) ::_exit(3);
      if (book::attach(&book, key.c_str()) != book::Status::ok) ::_exit(4);
      if (book::charge(&book, device, context_bytes, book::Charge::context) != book::Status::ok) ::_exit(1);
      for (const auto size : sizes) {
        if (book::charge(&book, device, size, book::Charge::allocation) != book::Status::ok) ::_exit(1);
      }
      ::_exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) <= 1) << status;
    return status == 0;
  }

  static std::string value(const JobEnvironment& environment, const std::string& name) {
    for (const auto& assignment : environment.set) {
      if (assignment.rfind(name + "=", 0) == 0) return assignment.substr(name.size() + 1);
    }
    return "(unset)";
  }

  std::string directory_;
  Settings settings_;
  std::unique_ptr<db::History> history_;
  std::unique_ptr<Node> node_;
};

TEST_F(NodeRole, ATaskOnVirtualGpusGetsBooksMeterAndStandInBeforeItsOwn) {
  start_node();
  const auto environment = must_start(batch());
  EXPECT_EQ(environment.refuse, "");
  EXPECT_EQ(value(environment, "LD_PRELOAD"),
            "/lib/gpumem/libgpumem_meter.so:/lib/gpumem/libgpumem_vgpu.so:/lib/gpumem/libcuda.so.1:/lib/gpumem/libnvidia-ml.so.1:/opt/x.so");
  EXPECT_EQ(value(environment, "PATH"), "/lib/gpumem/bin:/usr/bin:/bin");
  EXPECT_EQ(value(environment, "GPUMEM_JOB"), "17");
  EXPECT_EQ(value(environment, "GPUMEM_BOOK"), settings_.state_directory + "/books/node");
  EXPECT_EQ(value(environment, "GPUMEM_METER_BOOK"), settings_.state_directory + "/jobs/17");
  EXPECT_EQ(value(environment, "CUDA_VISIBLE_DEVICES"), "(unset)") << "Slurm's choice stays";
  EXPECT_NE(value(environment, "GPUMEM_METER_CONTEXT_BYTES"), "(unset)");

  const db::Job running = job();
  EXPECT_EQ(running.limit_mib, 4096u);
  EXPECT_TRUE(running.enforced);
  EXPECT_TRUE(running.is_virtual);
  EXPECT_EQ(running.gpu, kRtx3060);
  EXPECT_EQ(running.device_index, 1);
  EXPECT_FALSE(running.ended_s.has_value());
  struct stat book {};
  ASSERT_EQ(::stat(running.meter_book.c_str(), &book), 0);
  EXPECT_EQ(book.st_mode & 0777, 0600u);
  ASSERT_EQ(::stat((settings_.state_directory + "/books/node").c_str(), &book), 0);
  EXPECT_EQ(book.st_mode & 0777, 0666u);
  ASSERT_EQ(::stat((settings_.state_directory + "/books").c_str(), &book), 0);
  EXPECT_EQ(book.st_mode & 0777, 0711u) << "jobs reach books by name and cannot list them";
}

TEST_F(NodeRole, AStepThatInheritsOurPreloadsDoesNotGetThemTwice) {
  start_node();
  const auto first = must_start(batch());
  JobStart step = batch(17, 101);
  step.step_id = 0;
  step.environment = {"LD_PRELOAD=" + value(first, "LD_PRELOAD"), "PATH=" + value(first, "PATH")};
  const auto second = must_start(step);
  EXPECT_EQ(value(second, "LD_PRELOAD"), value(first, "LD_PRELOAD"));
  EXPECT_EQ(value(second, "PATH"), value(first, "PATH"));
  EXPECT_EQ(value(second, "GPUMEM_METER_BOOK"), value(first, "GPUMEM_METER_BOOK")) << "steps of a job share one book";
}

TEST_F(NodeRole, OnRealGpusOnlyTheMeterIsPreloaded) {
  settings_.virtual_gpus.clear();
  for (const auto& [bus, model] : {std::pair("0000:3b:00.0", "NVIDIA H200"), std::pair("0000:18:00.0", "NVIDIA A10")}) {
    const std::string directory = settings_.proc + "/driver/nvidia/gpus/" + bus;
    ASSERT_TRUE(make_directories(directory).ok());
    ASSERT_TRUE(write_file_atomically(directory + "/information", std::string("Model: \t\t ") + model + "\nGPU UUID: \t GPU-" + bus + "\n").ok());
  }
  start_node();
  ASSERT_EQ(node_->devices().all().size(), 2u);
  const auto environment = must_start(batch());
  EXPECT_EQ(value(environment, "LD_PRELOAD"), "/lib/gpumem/libgpumem_meter.so:/opt/x.so");
  EXPECT_EQ(value(environment, "GPUMEM_BOOK"), "(unset)");
  EXPECT_EQ(value(environment, "PATH"), "(unset)");
  EXPECT_EQ(job().gpu, "NVIDIA H200") << "PCI order, as in Slurm";
  EXPECT_EQ(job().device_uuid, "GPU-0000:3b:00.0");
  EXPECT_FALSE(job().is_virtual);
}

TEST_F(NodeRole, WhatAMeterSawOfCudnnOnRealGpusIsLearned) {
  settings_.virtual_gpus.clear();
  const std::string directory = settings_.proc + "/driver/nvidia/gpus/0000:18:00.0";
  ASSERT_TRUE(make_directories(directory).ok());
  ASSERT_TRUE(write_file_atomically(directory + "/information", "Model: \t NVIDIA A10\nGPU UUID: \t GPU-1\n").ok());
  start_node();
  JobStart start = batch();
  start.gpus = start.visible_devices = "0";
  const std::string seen = value(must_start(start), "GPUMEM_WORKSPACES_SEEN");
  ASSERT_EQ(seen, settings_.state_directory + "/jobs/17.workspaces");
  struct stat file {};
  ASSERT_EQ(::stat(seen.c_str(), &file), 0);
  EXPECT_EQ(file.st_mode & 0777, 0600u);
  const std::string line = "NVIDIA A10\t90100\t00000000000000ab\t4096\tconv_forward\n";
  ASSERT_TRUE(write_file_atomically(seen, line + "NVIDIA H200\t90100\t00000000000000ac\t4096\tnot this job's GPU\n").ok());
  must_end(start, 0);
  std::ifstream table(settings_.state_directory + "/workspaces.tsv");
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(table), {}), line);
}

TEST_F(NodeRole, VirtualGpusTeachNothing) {
  start_node();
  EXPECT_EQ(value(must_start(batch()), "GPUMEM_WORKSPACES_SEEN"), "(unset)");
}

TEST_F(NodeRole, TheLimitIsSlurmsAllocationNotTheTokens) {
  start_node();
  JobStart start = batch();
  start.token = rewritten("0123456789abcdef0123456789abcdef").token;
  start.shards = "1000";
  const auto environment = must_start(start);
  EXPECT_EQ(job().limit_mib, 1000u);
  EXPECT_FALSE(take(value(environment, "GPUMEM_METER_BOOK"), "17", 0, 0, {1001 * kMiB}));
  EXPECT_TRUE(take(value(environment, "GPUMEM_METER_BOOK"), "17", 0, 0, {1000 * kMiB}));
}

TEST_F(NodeRole, WithoutEnforcementTheMeterOnlyMeasures) {
  settings_.enforce = false;
  start_node();
  const auto environment = must_start(batch());
  EXPECT_TRUE(take(value(environment, "GPUMEM_METER_BOOK"), "17", 0, 0, {5000 * kMiB}));
  must_end(batch(), 0);
  EXPECT_FALSE(job().enforced);
  EXPECT_EQ(job().measured_peak_bytes, 5000 * kMiB);
}

TEST_F(NodeRole, ATokenWithShardsWithoutAnAllocationIsRefusedWithASentence) {
  start_node();
  JobStart start = batch();
  start.token = rewritten("0123456789abcdef0123456789abcdef").token;
  start.shards = "";
  start.gpus = "";
  start.visible_devices = "";
  const auto environment = must_start(start);
  EXPECT_NE(environment.refuse.find("shard:4096"), std::string::npos) << environment.refuse;
  EXPECT_TRUE(environment.set.empty());
  EXPECT_EQ(job().cause, db::Cause::refused);
  EXPECT_TRUE(job().ended_s.has_value());
  must_end(start, kExit1);
  EXPECT_EQ(job().cause, db::Cause::refused) << "the failed task's end changes nothing";
}

TEST_F(NodeRole, AnothersTokenDoesNotMakeATaskRefused) {
  start_node();
  JobStart start = batch();
  start.token = rewritten("0123456789abcdef0123456789abcdef").token;
  start.user_id = ::geteuid() + 1;
  start.shards = start.gpus = start.visible_devices = "";
  const auto environment = must_start(start);
  EXPECT_EQ(environment.refuse, "");
  EXPECT_TRUE(environment.set.empty()) << "no GPU: nothing to do";
}

TEST_F(NodeRole, AStepWithoutGresOfASharedJobSeesNoGpu) {
  start_node();
  JobStart start = batch();
  start.token = rewritten("0123456789abcdef0123456789abcdef").token;
  must_start(start);
  JobStart step = start;
  step.step_id = 0;
  step.pid = 101;
  step.shards = step.gpus = step.visible_devices = "";
  const auto environment = must_start(step);
  EXPECT_EQ(environment.refuse, "");
  EXPECT_EQ(value(environment, "CUDA_VISIBLE_DEVICES"), "");
  EXPECT_EQ(environment.unset, std::vector<std::string>{"GPUMEM_BOOK"});
}

TEST_F(NodeRole, AWholeGpuIsMeasuredWithoutALimit) {
  start_node();
  JobStart start = batch();
  start.shards = "";
  const auto environment = must_start(start);
  EXPECT_FALSE(job().limit_mib.has_value());
  EXPECT_TRUE(take(value(environment, "GPUMEM_METER_BOOK"), "17", 0, 100 * kMiB, {9000 * kMiB}));
  must_end(start, 0);
  EXPECT_EQ(job().measured_peak_bytes, 9100 * kMiB);
  EXPECT_EQ(job().context_bytes, 100 * kMiB);
}

TEST_F(NodeRole, TheExternStepIsNoTask) {
  start_node();
  JobStart start = batch();
  start.step_id = kExternStep;
  EXPECT_TRUE(must_start(start).set.empty());
  must_end(start, 0);
  EXPECT_FALSE(history_->newest_run("c", 17, "n1")->has_value());
}

TEST_F(NodeRole, TheOutcomeIsTheLargestPeakOverStepsAndTheBatchScriptsEnd) {
  start_node();
  const JobStart script = batch();
  const auto environment = must_start(script);
  const std::string book = value(environment, "GPUMEM_METER_BOOK");
  JobStart step = batch(17, 101);
  step.step_id = 0;
  must_start(step);
  EXPECT_TRUE(take(book, "17", 0, 50 * kMiB, {1000 * kMiB}));
  must_end(step, kExit1);
  EXPECT_FALSE(job().ended_s.has_value()) << "the script still runs";
  EXPECT_EQ(job().measured_peak_bytes, 1050 * kMiB);
  step.step_id = 1;
  must_start(step);
  EXPECT_TRUE(take(book, "17", 0, 50 * kMiB, {300 * kMiB}));
  must_end(step, 0);
  must_end(script, 0);
  EXPECT_TRUE(job().ended_s.has_value());
  EXPECT_EQ(job().cause, db::Cause::completed);
  EXPECT_EQ(job().exit_status, 0);
  EXPECT_EQ(job().measured_peak_bytes, 1050 * kMiB);
  EXPECT_EQ(history_->tasks_of(job().id)->size(), 3u);
}

TEST_F(NodeRole, ARefusalByTheLimitAndAFailureIsOomOnLimit) {
  start_node();
  const auto environment = must_start(batch());
  EXPECT_FALSE(take(value(environment, "GPUMEM_METER_BOOK"), "17", 0, 0, {4000 * kMiB, 200 * kMiB}));
  must_end(batch(), kExit1);
  EXPECT_EQ(job().cause, db::Cause::oom_on_limit);
  EXPECT_EQ(job().out_of_memory_count, 1u);
  EXPECT_EQ(job().out_of_memory_bytes, 200 * kMiB);
  EXPECT_EQ(job().measured_peak_bytes, 4000 * kMiB);
}

TEST_F(NodeRole, ARefusalThatTheProgramSurvivesIsNoFailure) {
  start_node();
  const auto environment = must_start(batch());
  EXPECT_FALSE(take(value(environment, "GPUMEM_METER_BOOK"), "17", 0, 0, {5000 * kMiB}));
  must_end(batch(), 0);
  EXPECT_EQ(job().cause, db::Cause::completed);
  EXPECT_EQ(job().out_of_memory_count, 1u);
}

TEST_F(NodeRole, ADeviceWithoutRoomIsOomOnDevice) {
  start_node();
  const auto environment = must_start(batch());
  EXPECT_TRUE(take(value(environment, "GPUMEM_METER_BOOK"), "17", 0, 0, {2000 * kMiB}));
  EXPECT_FALSE(take(value(environment, "GPUMEM_BOOK"), "17", 1, 0, {64 * kGiB}));
  must_end(batch(), kExit1);
  EXPECT_EQ(job().cause, db::Cause::oom_on_device);
}

TEST_F(NodeRole, ASignalIsKilledAndAFailureFailed) {
  start_node();
  must_start(batch());
  must_end(batch(), SIGTERM);
  EXPECT_EQ(job().cause, db::Cause::killed);
  EXPECT_EQ(job().signal, SIGTERM);
  must_start(batch(18, 200));
  must_end(batch(18, 200), kExit1);
  EXPECT_EQ(job(18).cause, db::Cause::failed);
  EXPECT_EQ(job(18).exit_status, 1);
  EXPECT_FALSE(job(18).measured_peak_bytes.has_value()) << "nothing went through the meter";
  EXPECT_NE(job(18).note.find("meter"), std::string::npos);
}

TEST_F(NodeRole, AJobWhoseMeterWasLostIsMeasuredByTheVirtualDevice) {
  start_node();
  const auto environment = must_start(batch());
  EXPECT_TRUE(take(value(environment, "GPUMEM_BOOK"), "17", 1, 10 * kMiB, {700 * kMiB}));
  must_end(batch(), 0);
  EXPECT_EQ(job().measured_peak_bytes, 710 * kMiB);
  EXPECT_NE(job().note.find("LD_PRELOAD"), std::string::npos) << job().note;
}

TEST_F(NodeRole, ABookThatItsUserSpoiledOrHoldsDoesNotStopTheDaemon) {
  start_node();
  const auto environment = must_start(batch());
  const std::string path = value(environment, "GPUMEM_METER_BOOK");
  ASSERT_EQ(::truncate(path.c_str(), 4096), 0);
  node_->tick();
  JobStart step = batch(17, 101);
  step.step_id = 0;
  must_start(step);
  EXPECT_FALSE(take(path, "17", 0, 0, {5000 * kMiB})) << "made anew, with the limit";
  must_end(step, kExit1);

  // A process that stands still with the book's lock, as a suspended job may.
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t holder = ::fork();
  if (holder == 0) {
    const int fd = ::open(path.c_str(), O_RDWR);
    struct flock everything {};
    everything.l_type = F_WRLCK;
    (void)!::write(ready[1], ::fcntl(fd, F_SETLK, &everything) == 0 ? "y" : "n", 1);
    ::pause();
    ::_exit(0);
  }
  char answer = 0;
  ASSERT_EQ(::read(ready[0], &answer, 1), 1);
  ASSERT_EQ(answer, 'y');
  node_->tick();
  must_end(batch(), kExit1);
  EXPECT_EQ(job().cause, db::Cause::oom_on_limit);
  ::kill(holder, SIGKILL);
  ::waitpid(holder, nullptr, 0);
  ::close(ready[0]);
  ::close(ready[1]);

  ASSERT_EQ(::unlink(path.c_str()), 0);
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  must_end(batch(), kExit1);
  EXPECT_TRUE(job().ended_s.has_value());
}

TEST_F(NodeRole, WhatAKilledProcessHeldIsTakenBack) {
  start_node();
  const auto environment = must_start(batch());
  EXPECT_TRUE(take(value(environment, "GPUMEM_BOOK"), "17", 1, 0, {700 * kMiB}));
  EXPECT_EQ(node_->devices().use_of(1)->used_bytes, 700 * kMiB);
  node_->tick();
  for (int i = 0; i < 500 && node_->devices().use_of(1)->used_bytes != 0; ++i) ::usleep(10000);
  EXPECT_EQ(node_->devices().use_of(1)->used_bytes, 0u);
  EXPECT_EQ(node_->devices().use_of(1)->peak_bytes, 700 * kMiB);
}

TEST_F(NodeRole, ARequeuedJobIsANewRunWithItsOwnBook) {
  start_node();
  const auto first = must_start(batch());
  EXPECT_TRUE(take(value(first, "GPUMEM_METER_BOOK"), "17", 0, 0, {3000 * kMiB}));
  must_end(batch(), kExit1);
  const auto second = must_start(batch(17, 300));
  EXPECT_EQ(value(second, "GPUMEM_JOB"), "17-2");
  EXPECT_NE(value(second, "GPUMEM_METER_BOOK"), value(first, "GPUMEM_METER_BOOK"));
  must_end(batch(17, 300), 0);
  EXPECT_EQ(job().run, 2u);
  EXPECT_FALSE(job().measured_peak_bytes.has_value()) << "the first run's peak is not the second's";
  EXPECT_EQ(history_->show(db::Viewer::sees_all(), "17")->size(), 2u);
}

TEST_F(NodeRole, AMessageSentTwiceIsOneTask) {
  start_node();
  const auto first = must_start(batch());
  const auto again = must_start(batch());
  EXPECT_EQ(first.set, again.set);
  EXPECT_EQ(job().run, 1u);
  EXPECT_EQ(history_->tasks_of(job().id)->size(), 1u);
}

TEST_F(NodeRole, ARestartTakesRunningJobsUpAndEndsThoseThatAreGone) {
  start_node();
  const auto environment = must_start(batch(17, 100));
  must_start(batch(18, 200));
  must_start(batch(19, 300));
  EXPECT_TRUE(take(value(environment, "GPUMEM_METER_BOOK"), "17", 0, 0, {500 * kMiB}));
  EXPECT_TRUE(take(settings_.state_directory + "/jobs/18", "18", 0, 0, {600 * kMiB}));
  node_.reset();
  end_process(200);
  start_process(300, 999);  // another process has the number now
  start_node();
  EXPECT_FALSE(job(17).ended_s.has_value());
  EXPECT_EQ(job(18).cause, db::Cause::daemon_restart);
  EXPECT_EQ(job(18).measured_peak_bytes, 600 * kMiB) << "the book outlives job and daemon";
  EXPECT_NE(job(18).note.find("exit status"), std::string::npos);
  EXPECT_EQ(job(19).cause, db::Cause::daemon_restart);
  must_end(batch(17, 100), 0);
  EXPECT_EQ(job(17).cause, db::Cause::completed);
  EXPECT_EQ(job(17).measured_peak_bytes, 500 * kMiB);
  must_end(batch(18, 200), kExit1);
  EXPECT_EQ(job(18).cause, db::Cause::failed) << "slurmstepd's word, even late, is better than none";
}

TEST_F(NodeRole, ARebootedNodeLostItsJobs) {
  start_node();
  must_start(batch());
  node_.reset();
  set_boot("boot-2");
  start_node();
  EXPECT_EQ(job().cause, db::Cause::node_lost);
}

TEST_F(NodeRole, AnUnknownTasksEndIsNoError) {
  start_node();
  must_end(batch(99), 0);
  EXPECT_FALSE(history_->newest_run("c", 99, "n1")->has_value());
}

TEST_F(NodeRole, ABookOfTheSameGpusIsKeptAndOneOfOthersReplacedOnlyWhenUnused) {
  start_node();
  const std::string path = settings_.state_directory + "/books/node";
  struct stat before {}, after {};
  ASSERT_EQ(::stat(path.c_str(), &before), 0);
  start_node();
  ASSERT_EQ(::stat(path.c_str(), &after), 0);
  EXPECT_EQ(before.st_ino, after.st_ino);
  node_.reset();

  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t user = ::fork();
  if (user == 0) {
    char error[256];
    book::Book book;
    const bool attached = book::open(&book, path.c_str(), true, error, sizeof error) == book::Status::ok &&
                          book::attach(&book, "1") == book::Status::ok;
    (void)!::write(ready[1], attached ? "y" : "n", 1);
    ::pause();
    ::_exit(0);
  }
  char answer = 0;
  ASSERT_EQ(::read(ready[0], &answer, 1), 1);
  ASSERT_EQ(answer, 'y');
  settings_.virtual_gpus = {{"NVIDIA H200", 1}};
  auto refused = Node::start(settings_, *history_, nullptr);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, ErrorKind::unavailable);
  EXPECT_NE(refused.error().message.find("(1)"), std::string::npos) << refused.error().message;
  ::kill(user, SIGKILL);
  ::waitpid(user, nullptr, 0);
  ::close(ready[0]);
  ::close(ready[1]);
  start_node();
  ASSERT_EQ(node_->devices().all().size(), 1u);
  EXPECT_EQ(node_->devices().all()[0].gpu, "NVIDIA H200");
}

TEST_F(NodeRole, AnUnknownModelInTheConfigurationIsNamed) {
  settings_.virtual_gpus = {{"Voodoo 2", 1}};
  auto node = Node::start(settings_, *history_, nullptr);
  ASSERT_FALSE(node.ok());
  EXPECT_NE(node.error().message.find("Voodoo 2"), std::string::npos) << node.error().message;
}

TEST_F(NodeRole, OnlySlurmIsBelieved) {
  start_node();
  protocol::Message start(protocol::kJobStart);
  Peer stranger;
  stranger.user_id = 1000;
  stranger.user = "anna";
  auto refused = answer_job_start(*node_, stranger, start);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, ErrorKind::permission);
  EXPECT_EQ(answer_task_end(*node_, stranger, protocol::Message(protocol::kTaskEnd)).error().kind, ErrorKind::permission);
}

TEST_F(NodeRole, MessagesGoInAndOutAsTheProtocolSays) {
  start_node();
  start_process(100, 5);
  Peer root;
  root.is_privileged = true;
  protocol::Message start(protocol::kJobStart);
  EXPECT_EQ(answer_job_start(*node_, root, start).error().kind, ErrorKind::protocol);
  start.add_number(protocol::field::kJobId, 21).add_number(protocol::field::kStepId, kBatchStep).add_number(protocol::field::kTaskId, 0);
  start.add_number(protocol::field::kPid, 100).add_number(protocol::field::kUserId, ::geteuid());
  start.add_number(protocol::field::kArrayJobId, 20).add_number(protocol::field::kArrayTaskId, 3);
  start.add(protocol::field::kShards, "2048").add(protocol::field::kGpus, "0").add(protocol::field::kEnvironment, "PATH=/bin");
  auto reply = answer_job_start(*node_, root, start);
  ASSERT_TRUE(reply.ok()) << reply.error().message;
  EXPECT_EQ(reply->type(), "job_environment");
  EXPECT_FALSE(reply->has(protocol::field::kRefuse));
  const auto set = reply->get_all(protocol::field::kSet);
  EXPECT_NE(std::find(set.begin(), set.end(), "PATH=/lib/gpumem/bin:/bin"), set.end());
  EXPECT_EQ(job(21).array_job_id, 20u);
  EXPECT_EQ(job(21).array_task_id, 3u);

  protocol::Message end(protocol::kTaskEnd);
  end.add_number(protocol::field::kJobId, 21).add_number(protocol::field::kStepId, kBatchStep).add_number(protocol::field::kTaskId, 0);
  end.add_number(protocol::field::kPid, 100);
  EXPECT_FALSE(answer_task_end(*node_, root, end).ok()) << "without a status";
  end.add_number(protocol::field::kWaitStatus, 0);
  auto done = answer_task_end(*node_, root, end);
  ASSERT_TRUE(done.ok());
  EXPECT_EQ(done->type(), "done");
  EXPECT_EQ(job(21).cause, db::Cause::completed);
}

TEST(Environment, ListsKeepTheirOrderAndLoseOnlyDuplicatesOfOurs) {
  EXPECT_EQ(put_in_front({"/a", "/b"}, "/x /b:/y::/x", ": "), "/a:/b:/x:/y:/x");
  EXPECT_EQ(put_in_front({"/a"}, "", ":"), "/a");
  EXPECT_TRUE(split_list("", ":").empty());
}

}  // namespace
}  // namespace gpumem::node
