// SPDX-License-Identifier: Apache-2.0
// db/: durability under SIGKILL, migrations, files that are none.
#include "tests/unit/db_fixture.h"

namespace gpumem::db {
namespace {

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

}  // namespace
}  // namespace gpumem::db
