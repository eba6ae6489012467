// SPDX-License-Identifier: Apache-2.0
// db/: durability under SIGKILL, migrations, who sees what, margins and their history.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <random>
#include <set>

#include "base/file.h"
#include "db/database.h"
#include "db/history.h"
#include "db/migrations.h"

namespace gpumem::db {
namespace {

class Db : public ::testing::Test {
 protected:
  void SetUp() override {
    auto directory = make_temporary_directory(::testing::TempDir(), "db");
    ASSERT_TRUE(directory.ok());
    directory_ = *directory;
    path_ = directory_ + "/gpumem.db";
  }
  void TearDown() override { (void)remove_tree(directory_); }

  History open() {
    auto history = History::open(path_);
    EXPECT_TRUE(history.ok()) << history.error().message;
    return std::move(*history);
  }

  std::string directory_, path_;
};

std::string token_of(int number) {
  char text[33];
  std::snprintf(text, sizeof text, "%032x", static_cast<unsigned>(number));
  return text;
}

Decision decision_of(int number, std::uint32_t user_id, double at_s = 1000) {
  Decision decision;
  decision.token = token_of(number);
  decision.submitted_s = at_s;
  decision.user_id = user_id;
  decision.user = "user" + std::to_string(user_id);
  decision.fingerprint = "print";
  decision.family = "family";
  decision.gpu = "NVIDIA GeForce RTX 3060";
  decision.rule = "probe";
  decision.need_bytes = 3'000'000'000;
  decision.limit_mib = 3072;
  decision.margin = {100, 5.5, 7};
  decision.action = "rewrite";
  decision.gres = "shard:3072";
  return decision;
}

Job job_of(std::uint32_t job_id, std::uint32_t user_id, const std::string& token, double at_s = 2000) {
  Job job;
  job.cluster = "c";
  job.job_id = job_id;
  job.node = "n1";
  job.token = token;
  job.user_id = user_id;
  job.started_s = at_s;
  job.limit_mib = 3072;
  job.gpu = "NVIDIA GeForce RTX 3060";
  return job;
}

TEST_F(Db, ADecisionComesBackAsItWasRecorded) {
  {
    History history = open();
    ASSERT_TRUE(history.record_decision(decision_of(1, 1000)).ok());
  }
  History history = open();
  auto found = history.find_decision(Viewer::user(1000), token_of(1));
  ASSERT_TRUE(found.ok() && found->has_value());
  const Decision& decision = **found;
  EXPECT_EQ(decision.user, "user1000");
  EXPECT_EQ(decision.need_bytes, 3'000'000'000u);
  EXPECT_EQ(decision.margin.bytes, 100u);
  EXPECT_DOUBLE_EQ(decision.margin.percent, 5.5);
  EXPECT_EQ(decision.margin.margin_id, 7);
  EXPECT_EQ(decision.limit_mib, 3072u);
  EXPECT_EQ(decision.gres, "shard:3072");
  EXPECT_EQ(decision.reason, "");
}

TEST_F(Db, ATokenIsRecordedOnce) {
  History history = open();
  ASSERT_TRUE(history.record_decision(decision_of(1, 1000)).ok());
  auto again = history.record_decision(decision_of(1, 1001));
  ASSERT_FALSE(again.ok());
  EXPECT_EQ(again.error().kind, ErrorKind::invalid_argument);
  EXPECT_NE(again.error().message.find(path_), std::string::npos);
  EXPECT_NE(again.error().message.find("SQLite 1555"), std::string::npos) << again.error().message;
}

TEST_F(Db, TheFileIsForItsOwnerOnly) {
  History history = open();
  for (const char* suffix : {"", "-wal"}) {
    struct stat found {};
    ASSERT_EQ(::stat((path_ + suffix).c_str(), &found), 0) << suffix;
    EXPECT_EQ(found.st_mode & 0777, 0600u) << suffix;
  }
}

TEST_F(Db, NetworkFileSystemsAreKnownByNumber) {
  EXPECT_STREQ(network_file_system(0x6969), "NFS");
  EXPECT_STREQ(network_file_system(0x0bd00bd0), "Lustre");
  EXPECT_STREQ(network_file_system(static_cast<int>(0xff534d42)), "SMB");
  EXPECT_EQ(network_file_system(0xef53), nullptr);
  EXPECT_EQ(network_file_system(0x9123683e), nullptr);
}

TEST_F(Db, AFileThatIsNoDatabaseIsRefusedWithItsPath) {
  ASSERT_TRUE(write_file_atomically(path_, std::string(8192, 'x')).ok());
  auto history = History::open(path_);
  ASSERT_FALSE(history.ok());
  EXPECT_EQ(history.error().kind, ErrorKind::io);
  EXPECT_NE(history.error().message.find(path_), std::string::npos);
  EXPECT_NE(history.error().message.find("backup"), std::string::npos);
}

TEST_F(Db, ANewerSchemaIsRefusedAndLeftUntouched) {
  { History history = open(); }
  {
    auto database = Database::open(path_);
    ASSERT_TRUE(database.ok());
    ASSERT_TRUE((*database)->execute("PRAGMA user_version = 99").ok());
  }
  auto history = History::open(path_);
  ASSERT_FALSE(history.ok());
  EXPECT_EQ(history.error().kind, ErrorKind::unsupported);
  EXPECT_NE(history.error().message.find("version 99"), std::string::npos) << history.error().message;
}

TEST_F(Db, AFileOfVersion1KeepsItsRowsThroughLaterSteps) {
  {
    auto database = Database::open(path_);
    ASSERT_TRUE(database.ok());
    ASSERT_TRUE(migrate(**database, migrations().first(1)).ok());
    ASSERT_TRUE((*database)->execute("INSERT INTO margins VALUES (1, 'p', '', '', '', '', 5, 0, 0, 'root', 1)").ok());
  }
  std::vector<const char*> steps(migrations().begin(), migrations().end());
  steps.push_back("ALTER TABLE margins ADD COLUMN comment TEXT NOT NULL DEFAULT 'none'");
  auto database = Database::open(path_);
  ASSERT_TRUE(database.ok());
  ASSERT_TRUE(migrate(**database, steps).ok());
  ASSERT_TRUE(migrate(**database, steps).ok()) << "a second time there is nothing to do";
  Statement select(**database, "SELECT percent, comment FROM margins", "look");
  ASSERT_TRUE(select.step().value_or(false));
  EXPECT_DOUBLE_EQ(select.read<double>(), 5);
  EXPECT_EQ(select.read<std::string>(), "none");
  Statement version(**database, "PRAGMA user_version", "look");
  ASSERT_TRUE(version.step().value_or(false));
  EXPECT_EQ(version.read<int>(), static_cast<int>(steps.size()));
}

TEST_F(Db, JobsOfVersion1FindTheirDecisions) {
  {
    auto database = Database::open(path_);
    ASSERT_TRUE(database.ok());
    ASSERT_TRUE(migrate(**database, migrations().first(1)).ok());
    const std::string job = "INSERT INTO jobs VALUES (NULL, 'c', ?, NULL, NULL, 'n', 1, '" + token_of(1) +
                            "', ?, 'u', 5, NULL, NULL, 0, 0, '', '', 0, '', NULL, 0, 0, 0, NULL, 0, 'unknown', '')";
    for (const int user_id : {1000, 1001}) {
      Statement insert(**database, job.c_str(), "insert");
      insert.bind(user_id).bind(user_id);
      ASSERT_TRUE(insert.run().ok());
    }
    Statement decision(**database, "INSERT INTO decisions VALUES (?, 4, 1000, 'u', '', '', '', '', '', '', '', '', '', '', '', '', '', '', NULL, 0, 0, 0, NULL, 'keep', '', '', '')", "insert");
    decision.bind(token_of(1));
    ASSERT_TRUE(decision.run().ok());
  }
  History history = open();
  auto listed = history.list(Viewer::sees_all(), {});
  ASSERT_TRUE(listed.ok()) << listed.error().message;
  ASSERT_EQ(listed->size(), 2u);
  EXPECT_FALSE((*listed)[0].decision.has_value()) << "another user's token";
  EXPECT_EQ((*listed)[0].job->job_id, 1001u);
  EXPECT_TRUE((*listed)[1].decision.has_value());
  EXPECT_EQ((*listed)[1].job->job_id, 1000u);
}

// What people ask is answered on the daemon's loop: no question may read a whole table.
TEST_F(Db, QuestionsAreAnsweredFromIndexes) {
  { History history = open(); }
  auto database = Database::open(path_);
  ASSERT_TRUE(database.ok());
  for (const char* sql : {"SELECT * FROM decisions WHERE user_id = 1 AND submitted_s >= 2 ORDER BY submitted_s DESC LIMIT 3",
                          "SELECT * FROM decisions WHERE submitted_s >= 2 ORDER BY submitted_s DESC LIMIT 3",
                          "SELECT * FROM jobs j WHERE j.linked = 0 AND j.user_id = 1 AND j.started_s >= 2 ORDER BY j.started_s DESC LIMIT 3",
                          "SELECT * FROM jobs j WHERE j.linked = 0 AND j.started_s >= 2 ORDER BY j.started_s DESC LIMIT 3",
                          "SELECT * FROM jobs j WHERE j.ended_s IS NULL", "SELECT * FROM jobs j WHERE (j.job_id = 3 OR j.array_job_id = 3)",
                          "SELECT * FROM probes WHERE user_id = 1 AND fingerprint = '' AND gpu = '' ORDER BY finished_s DESC, id DESC LIMIT 1",
                          "SELECT * FROM decisions d JOIN jobs j ON j.token = d.token AND j.user_id = d.user_id WHERE d.user_id = 1 AND d.family = 'f'"}) {
    Statement plan(**database, (std::string("EXPLAIN QUERY PLAN ") + sql).c_str(), "explain");
    for (auto row = plan.step(); row.ok() && *row; row = plan.step()) {
      plan.skip(3);
      const std::string detail = plan.read<std::string>();
      EXPECT_TRUE(detail.find("SCAN") == std::string::npos || detail.find("USING INDEX") != std::string::npos) << sql << "\n" << detail;
      EXPECT_EQ(detail.find("TEMP B-TREE"), std::string::npos) << sql << "\n" << detail;
    }
  }
}

TEST_F(Db, AMigrationThatFailsChangesNothing) {
  std::vector<const char*> steps(migrations().begin(), migrations().end());
  steps.push_back("CREATE TABLE extra (x); CREATE TABLE extra (x)");
  { History history = open(); }
  auto database = Database::open(path_);
  ASSERT_TRUE(database.ok());
  auto migrated = migrate(**database, steps);
  ASSERT_FALSE(migrated.ok());
  EXPECT_NE(migrated.error().message.find("migration to version " + std::to_string(steps.size())), std::string::npos) << migrated.error().message;
  Statement version(**database, "PRAGMA user_version", "look");
  ASSERT_TRUE(version.step().value_or(false));
  EXPECT_EQ(version.read<int>(), static_cast<int>(migrations().size()));
  EXPECT_TRUE((*database)->execute("CREATE TABLE extra (x)").ok());
}

TEST_F(Db, AHeldFileIsUnavailableNotAHang) {
  History history = open();
  auto holder = Database::open(path_);
  ASSERT_TRUE(holder.ok());
  Transaction held(**holder);
  ASSERT_TRUE(held.begin().ok());
  auto recorded = history.record_decision(decision_of(1, 1000));
  ASSERT_FALSE(recorded.ok());
  EXPECT_EQ(recorded.error().kind, ErrorKind::unavailable);
  EXPECT_TRUE(history.find_decision(Viewer::sees_all(), token_of(1)).ok()) << "reading goes on";
}

TEST_F(Db, WorkThatFailsInOneCommitLeavesNothing) {
  History history = open();
  auto done = history.in_one_commit([&]() -> Status {
    if (auto first = history.record_decision(decision_of(1, 1000)); !first) return first;
    Probe probe;
    probe.fingerprint = "f";
    if (auto inner = history.record_probe(probe); !inner) return inner.error();
    return Error{ErrorKind::internal, "stop"};
  });
  ASSERT_FALSE(done.ok());
  EXPECT_EQ(done.error().message, "stop");
  EXPECT_FALSE(history.find_decision(Viewer::sees_all(), token_of(1))->has_value());
  EXPECT_FALSE(history.find_probe(0, "f", "")->has_value());
}

// A writer acknowledges each row on a pipe after record_decision() returned; it is killed at a random moment.
TEST_F(Db, EveryAcknowledgedRowSurvivesSigkill) {
  std::mt19937 random(20261121);
  std::set<int> acknowledged;
  { History history = open(); }
  for (int round = 0; round < 12; ++round) {
    int pipe_ends[2];
    ASSERT_EQ(::pipe(pipe_ends), 0);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      ::close(pipe_ends[0]);
      auto history = History::open(path_);
      if (!history) ::_exit(1);
      for (int number = round * 100000; ; ++number) {
        if (!history->record_decision(decision_of(number, 1000))) ::_exit(2);
        Job job = job_of(static_cast<std::uint32_t>(number), 1000, token_of(number));
        if (!history->start_job(job)) ::_exit(3);
        if (::write(pipe_ends[1], &number, sizeof number) != sizeof number) ::_exit(4);
      }
    }
    ::close(pipe_ends[1]);
    int number = 0;
    int wanted = 1 + static_cast<int>(random() % 20);
    while (wanted-- > 0) {
      ASSERT_EQ(::read(pipe_ends[0], &number, sizeof number), static_cast<ssize_t>(sizeof number));
      acknowledged.insert(number);
    }
    ::usleep(random() % 3000);
    ::kill(child, SIGKILL);
    while (::read(pipe_ends[0], &number, sizeof number) == static_cast<ssize_t>(sizeof number)) acknowledged.insert(number);
    ::close(pipe_ends[0]);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the writer itself failed with " << WEXITSTATUS(status);

    History history = open();
    for (const int row : acknowledged) {
      auto found = history.find_decision(Viewer::sees_all(), token_of(row));
      ASSERT_TRUE(found.ok() && found->has_value()) << "decision " << row << " was acknowledged and is lost";
      auto job = history.newest_run("c", static_cast<std::uint32_t>(row), "n1");
      ASSERT_TRUE(job.ok() && job->has_value()) << "job " << row << " was acknowledged and is lost";
    }
    auto database = Database::open(path_);
    ASSERT_TRUE(database.ok());
    Statement check(**database, "PRAGMA integrity_check", "check");
    ASSERT_TRUE(check.step().value_or(false));
    EXPECT_EQ(check.read<std::string>(), "ok");
  }
  EXPECT_GT(acknowledged.size(), 12u);
}

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
