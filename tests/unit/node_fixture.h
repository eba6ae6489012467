// SPDX-License-Identifier: Apache-2.0
// A node with its books in a temporary directory and a made-up /proc, for the tests of daemon/node/.
#pragma once

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

inline constexpr char kRtx3060[] = "NVIDIA GeForce RTX 3060";
inline constexpr int kExit1 = 1 << 8;  // wait(2)'s status of exit(1)

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

inline   void set_boot(const std::string& id) { ASSERT_TRUE(write_file_atomically(settings_.proc + "/sys/kernel/random/boot_id", id + "\n").ok()); }
inline   void start_process(int pid, int ticks) {
    std::string stat = std::to_string(pid) + " (a) b) S";
    for (int field = 4; field < 22; ++field) stat += " 0";
    ASSERT_TRUE(make_directories(settings_.proc + "/" + std::to_string(pid)).ok());
    ASSERT_TRUE(write_file_atomically(settings_.proc + "/" + std::to_string(pid) + "/stat", stat + " " + std::to_string(ticks) + " 0\n").ok());
  }
inline   void end_process(int pid) { ASSERT_TRUE(remove_tree(settings_.proc + "/" + std::to_string(pid)).ok()); }

inline   void start_node() {
    node_.reset();
    auto node = Node::start(settings_, *history_, nullptr);
    ASSERT_TRUE(node.ok()) << node.error().message;
    node_ = std::move(*node);
  }

inline   JobStart batch(std::uint32_t job_id = 17, std::int32_t pid = 100) {
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
inline   JobEnvironment must_start(const JobStart& start) {
    auto environment = node_->job_start(start);
    EXPECT_TRUE(environment.ok()) << environment.error().message;
    return environment.ok() ? *environment : JobEnvironment();
  }
inline   void must_end(const JobStart& start, int wait_status) {
    auto ended = node_->task_end({start.job_id, start.step_id, start.task_id, start.pid, wait_status});
    ASSERT_TRUE(ended.ok()) << ended.error().message;
  }
inline   db::Job job(std::uint32_t job_id = 17) {
    auto found = history_->newest_run("c", job_id, "n1");
    EXPECT_TRUE(found.ok() && found->has_value());
    return found.ok() && *found ? **found : db::Job();
  }
inline   db::Decision rewritten(const std::string& token) {
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
inline   static bool take(const std::string& book_path, const std::string& key, int device, std::uint64_t context_bytes,
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

inline   static std::string value(const JobEnvironment& environment, const std::string& name) {
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

}  // namespace gpumem::node
