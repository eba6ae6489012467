// SPDX-License-Identifier: Apache-2.0
// daemon/node/: what jobs leave behind: outcomes, restarts, spoiled books; and messages.
#include "tests/unit/node_fixture.h"

namespace gpumem::node {
namespace {

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
