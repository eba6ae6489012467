// SPDX-License-Identifier: Apache-2.0
// db/: who sees which rows, measurements, tasks, margins and their history.
#include "tests/unit/db_fixture.h"

namespace gpumem::db {
namespace {

TEST_F(Db, ProbesArePerUserAndTheNewestAnswers) {
  History history = open();
  Probe probe;
  probe.user_id = 1000;
  probe.fingerprint = "f";
  probe.gpu = "g";
  probe.status = "complete";
  probe.finished_s = 10;
  probe.need_bytes = 1;
  probe.files = {{"/b", 2, 3}, {"/a", 4, 5}, {"/a", 4, 6}};
  ASSERT_TRUE(history.record_probe(probe).ok());
  probe.finished_s = 20;
  probe.need_bytes = std::nullopt;
  ASSERT_TRUE(history.record_probe(probe).ok());
  EXPECT_FALSE(history.find_probe(1001, "f", "g")->has_value());
  EXPECT_FALSE(history.find_probe(1000, "f", "other")->has_value());
  auto found = history.find_probe(1000, "f", "g");
  ASSERT_TRUE(found.ok() && found->has_value());
  EXPECT_DOUBLE_EQ((*found)->finished_s, 20);
  EXPECT_FALSE((*found)->need_bytes.has_value());
  ASSERT_EQ((*found)->files.size(), 2u);
  EXPECT_EQ((*found)->files[0].path, "/a");
  EXPECT_EQ((*found)->files[0].mtime_ns, 6);
  EXPECT_EQ(*history.forget_probes(15), 1u);
  EXPECT_TRUE(history.find_probe(1000, "f", "g")->has_value());
}

TEST_F(Db, UsersSeeTheirOwnRowsAndOperatorsAll) {
  History history = open();
  ASSERT_TRUE(history.record_decision(decision_of(1, 1000)).ok());
  ASSERT_TRUE(history.record_decision(decision_of(2, 1001)).ok());
  ASSERT_TRUE(history.start_job(job_of(7, 1000, token_of(1))).ok());
  ASSERT_TRUE(history.start_job(job_of(8, 1001, token_of(2))).ok());
  EXPECT_EQ(history.list(Viewer::user(1000), {})->size(), 1u);
  EXPECT_EQ(history.list(Viewer::sees_all(), {})->size(), 2u);
  EXPECT_EQ(history.list(Viewer::user(1000), {.user_id = 1001})->size(), 0u);
  EXPECT_EQ(history.list(Viewer::sees_all(), {.user_id = 1001})->size(), 1u);
  EXPECT_EQ(history.running(Viewer::user(1001))->size(), 1u);
  EXPECT_EQ(history.running(Viewer::user(1002))->size(), 0u);
  EXPECT_FALSE(history.find_decision(Viewer::user(1001), token_of(1))->has_value());
  for (const std::string& asked : {std::string("7"), token_of(1)}) {
    EXPECT_EQ(history.show(Viewer::user(1000), asked)->size(), 1u);
    auto others = history.show(Viewer::user(1001), asked);
    ASSERT_FALSE(others.ok());
    EXPECT_EQ(others.error().kind, ErrorKind::not_found) << "as if it did not exist";
  }
  EXPECT_EQ(history.show(Viewer::sees_all(), "99").error().kind, ErrorKind::not_found);
  EXPECT_EQ(history.show(Viewer::sees_all(), "7; DROP").error().kind, ErrorKind::invalid_argument);
}

TEST_F(Db, AForgedTokenShowsNothingOfItsOwner) {
  History history = open();
  ASSERT_TRUE(history.record_decision(decision_of(1, 1000)).ok());
  ASSERT_TRUE(history.start_job(job_of(8, 1001, token_of(1))).ok());
  auto seen = history.list(Viewer::user(1001), {});
  ASSERT_TRUE(seen.ok());
  ASSERT_EQ(seen->size(), 1u);
  EXPECT_FALSE((*seen)[0].decision.has_value());
  EXPECT_EQ((*seen)[0].job->job_id, 8u);
  auto owners = history.list(Viewer::user(1000), {});
  ASSERT_EQ(owners->size(), 1u);
  EXPECT_FALSE((*owners)[0].job.has_value());
  EXPECT_TRUE(history.measured_by_fingerprint(1000, "print", "NVIDIA GeForce RTX 3060", true)->empty());
}

TEST_F(Db, TheHistoryIsNewestFirstAndBounded) {
  History history = open();
  for (int i = 1; i <= 5; ++i) ASSERT_TRUE(history.record_decision(decision_of(i, 1000, i * 10)).ok());
  auto listed = history.list(Viewer::user(1000), {.since_s = 20, .limit = 3});
  ASSERT_EQ(listed->size(), 3u);
  EXPECT_DOUBLE_EQ((*listed)[0].decision->submitted_s, 50);
  EXPECT_DOUBLE_EQ((*listed)[2].decision->submitted_s, 30);
  EXPECT_EQ(history.list(Viewer::user(1000), {.since_s = 20, .limit = 0})->size(), 4u);
}

TEST_F(Db, ArrayTasksAndRequeuesShareADecision) {
  History history = open();
  ASSERT_TRUE(history.record_decision(decision_of(1, 1000)).ok());
  for (std::uint32_t index = 0; index < 3; ++index) {
    Job job = job_of(20 + index, 1000, token_of(1));
    job.array_job_id = 20;
    job.array_task_id = index;
    ASSERT_TRUE(history.start_job(job).ok());
  }
  Job requeued = job_of(21, 1000, token_of(1), 3000);
  requeued.run = 2;
  requeued.array_job_id = 20;
  requeued.array_task_id = 1;
  ASSERT_TRUE(history.start_job(requeued).ok());
  EXPECT_EQ(history.show(Viewer::user(1000), "20")->size(), 4u);
  EXPECT_EQ(history.show(Viewer::user(1000), "20_1")->size(), 2u);
  EXPECT_EQ(history.show(Viewer::user(1000), token_of(1))->size(), 4u);
  EXPECT_EQ((*history.newest_run("c", 21, "n1"))->run, 2u);
}

TEST_F(Db, MeasuredPeaksAreOfThisUserAndGpuAndRealUnlessAskedOtherwise) {
  History history = open();
  ASSERT_TRUE(history.record_decision(decision_of(1, 1000)).ok());
  Job job = job_of(7, 1000, token_of(1));
  job.is_virtual = true;
  auto row = history.start_job(job);
  ASSERT_TRUE(row.ok());
  const std::string gpu = "NVIDIA GeForce RTX 3060";
  EXPECT_TRUE(history.measured_by_fingerprint(1000, "print", gpu, true)->empty()) << "it still runs";
  job.id = *row;
  job.ended_s = 2100;
  job.measured_peak_bytes = 12345;
  job.cause = Cause::oom_on_limit;
  ASSERT_TRUE(history.update_job(job).ok());
  EXPECT_TRUE(history.measured_by_fingerprint(1000, "print", gpu, false)->empty());
  auto measured = history.measured_by_fingerprint(1000, "print", gpu, true);
  ASSERT_EQ(measured->size(), 1u);
  EXPECT_EQ((*measured)[0].peak_bytes, 12345u);
  EXPECT_EQ((*measured)[0].cause, Cause::oom_on_limit);
  EXPECT_EQ((*measured)[0].need_bytes, 3'000'000'000u);
  EXPECT_EQ(history.measured_by_family(1000, "family", gpu, true)->size(), 1u);
  EXPECT_TRUE(history.measured_by_family(1001, "family", gpu, true)->empty());
  EXPECT_TRUE(history.measured_by_family(1000, "family", "NVIDIA H200", true)->empty());
}

TEST_F(Db, TasksAreKeptAndEndedByTheirKey) {
  History history = open();
  auto row = history.start_job(job_of(7, 1000, ""));
  ASSERT_TRUE(row.ok());
  Task task{.job_row = *row, .step_id = 0xfffffffb, .task_id = 0, .pid = 42, .pid_start_ticks = 99, .boot_id = "b", .started_s = 5};
  ASSERT_TRUE(history.start_task(task).ok());
  ASSERT_TRUE(history.start_task(task).ok()) << "a retried message";
  task.ended_s = 6;
  task.exit_status = 3;
  task.cause = Cause::failed;
  ASSERT_TRUE(history.update_task(task).ok());
  auto tasks = history.tasks_of(*row);
  ASSERT_EQ(tasks->size(), 1u);
  EXPECT_EQ((*tasks)[0].exit_status, 3);
  EXPECT_EQ((*tasks)[0].step_id, 0xfffffffbu);
  EXPECT_EQ((*tasks)[0].pid_start_ticks, 99u);
  task.task_id = 1;
  EXPECT_EQ(history.update_task(task).error().kind, ErrorKind::not_found);
  task.job_row = 12345;
  EXPECT_FALSE(history.start_task(task).ok()) << "a task needs its job";
  EXPECT_EQ(history.unfinished_jobs("n1")->size(), 1u);
  EXPECT_TRUE(history.unfinished_jobs("n2")->empty());
}

TEST_F(Db, TheMarginThatNamesMostIsInForce) {
  History history = open();
  auto set = [&](MarginScope scope, double percent) {
    ASSERT_TRUE(history.set_margin(scope, percent, 0, 0, "root", 1).ok());
  };
  const MarginScope need{.pool = "p", .gpu = "g", .user = "u", .account = "a", .rule = "probe"};
  auto in_force = [&] { return (*history.margin_for(need))->percent; };
  EXPECT_FALSE(history.margin_for(need)->has_value());
  set({}, 1);
  EXPECT_DOUBLE_EQ(in_force(), 1);
  set({.pool = "p"}, 2);
  EXPECT_DOUBLE_EQ(in_force(), 2);
  set({.gpu = "g"}, 3);
  EXPECT_DOUBLE_EQ(in_force(), 3);
  set({.user = "u"}, 4);
  EXPECT_DOUBLE_EQ(in_force(), 4);
  set({.pool = "p", .gpu = "g"}, 5);
  EXPECT_DOUBLE_EQ(in_force(), 5) << "two named fields beat one, whichever";
  set({.pool = "p", .gpu = "g", .user = "somebody else"}, 6);
  EXPECT_DOUBLE_EQ(in_force(), 5);
  set({.pool = "p", .gpu = "g", .rule = "probe"}, 7);
  EXPECT_DOUBLE_EQ(in_force(), 7);
  set({.pool = "p", .account = "a", .rule = "probe"}, 8);
  EXPECT_DOUBLE_EQ(in_force(), 8);
  set({.pool = "p", .gpu = "g", .user = "u"}, 9);
  EXPECT_DOUBLE_EQ(in_force(), 9);
}

TEST_F(Db, EveryChangeOfAMarginIsKeptWithWhoAndWhen) {
  History history = open();
  const MarginScope scope{.pool = "p", .user = "u"};
  ASSERT_TRUE(history.set_margin(scope, 5, 10, 0, "root", 100).ok());
  ASSERT_TRUE(history.set_margin(scope, 8, 20, 1000, "anna", 200).ok());
  ASSERT_TRUE(history.unset_margin(scope, 1001, "bob", 300).ok());
  EXPECT_TRUE(history.margins()->empty());
  EXPECT_EQ(history.unset_margin(scope, 0, "root", 400).error().kind, ErrorKind::not_found);
  auto changes = history.margin_changes();
  ASSERT_EQ(changes->size(), 3u);
  const MarginChange &unset = (*changes)[0], &changed = (*changes)[1], &first = (*changes)[2];
  EXPECT_EQ(first.by, "root");
  EXPECT_FALSE(first.percent_before.has_value());
  EXPECT_EQ(first.percent_after, 5);
  EXPECT_EQ(changed.by, "anna");
  EXPECT_DOUBLE_EQ(changed.at_s, 200);
  EXPECT_EQ(changed.percent_before, 5);
  EXPECT_EQ(changed.percent_after, 8);
  EXPECT_EQ(changed.floor_bytes_before, 10u);
  EXPECT_EQ(changed.floor_bytes_after, 20u);
  EXPECT_EQ(unset.by_user_id, 1001u);
  EXPECT_FALSE(unset.percent_after.has_value());
  EXPECT_EQ(unset.scope, scope);
}

TEST_F(Db, AMarginBeyondReasonIsRefused) {
  History history = open();
  for (const double percent : {-1.0, 1001.0, 0.0 / 0.0}) {
    auto set = history.set_margin({}, percent, 0, 0, "root", 1);
    ASSERT_FALSE(set.ok());
    EXPECT_EQ(set.error().kind, ErrorKind::invalid_argument);
  }
  EXPECT_TRUE(history.margin_changes()->empty());
}

}  // namespace
}  // namespace gpumem::db
