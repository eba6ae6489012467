// SPDX-License-Identifier: Apache-2.0
// daemon/home/queries: who may see and change what, and the JSON of the answers.
#include <gtest/gtest.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/size.h"
#include "daemon/home/queries.h"
#include "daemon/protocol/messages.h"

#ifndef PROFILES
#error "PROFILES must name the directory of the GPU profiles"
#endif

namespace gpumem::home {
namespace {

namespace field = protocol::field;
using nlohmann::json;
using protocol::Message;

constexpr char kToken[] = "0123456789abcdef0123456789abcdef";

class Queries : public ::testing::Test {
 protected:
  void SetUp() override {
    auto directory = make_temporary_directory(::testing::TempDir(), "queries");
    ASSERT_TRUE(directory.ok());
    directory_ = *directory;
    auto history = db::History::open(directory_ + "/gpumem.db");
    ASSERT_TRUE(history.ok());
    history_ = std::make_unique<db::History>(std::move(*history));
    anna_.user_id = 1000;
    anna_.user = "anna";
    bob_.user_id = 1001;
    bob_.user = "bob";
    operator_.user_id = 0;
    operator_.user = "root";
    operator_.is_operator = operator_.is_privileged = true;
    config_.pools.emplace_back();
    config_.pools[0].name = "demo";
    config_.pools[0].mode = "apply";
  }
  void TearDown() override { (void)remove_tree(directory_); }

  void record_annas_job() {
    db::Decision decision;
    decision.token = kToken;
    decision.submitted_s = 1000;
    decision.user_id = 1000;
    decision.user = "anna";
    decision.script_name = "train.sh";
    decision.gpu = "NVIDIA GeForce RTX 3060";
    decision.rule = "probe";
    decision.action = "rewrite";
    decision.gres = "shard:4096";
    decision.limit_mib = 4096;
    decision.need_bytes = 2 * kGiB;
    decision.estimate_json = R"({"status": "complete", "notes": ["one"]})";
    ASSERT_TRUE(history_->record_decision(decision).ok());
    db::Job job;
    job.cluster = "c";
    job.job_id = 17;
    job.node = "n1";
    job.token = kToken;
    job.user_id = 1000;
    job.user = "anna";
    job.started_s = 1010;
    job.ended_s = 1100;
    job.limit_mib = 4096;
    job.is_virtual = true;
    job.gpu = "NVIDIA GeForce RTX 3060";
    job.measured_peak_bytes = 3 * kGiB;
    job.cause = db::Cause::completed;
    job.exit_status = 0;
    auto row = history_->start_job(job);
    ASSERT_TRUE(row.ok());
    db::Task task;
    task.job_row = *row;
    task.ended_s = 1100;
    task.cause = db::Cause::completed;
    ASSERT_TRUE(history_->start_task(task).ok());
  }

  static json json_of(const Result<Message>& answer) {
    EXPECT_TRUE(answer.ok()) << answer.error().message;
    if (!answer.ok()) return json::object();
    EXPECT_EQ(answer->type(), "answer");
    return json::parse(answer->get(field::kJson));
  }

  std::string directory_;
  std::unique_ptr<db::History> history_;
  Peer anna_, bob_, operator_;
  config::Config config_;
};

TEST_F(Queries, ARowHoldsBothHalvesOfAJob) {
  record_annas_job();
  const json answer = json_of(answer_history(*history_, anna_, Message(protocol::kHistory)));
  ASSERT_EQ(answer["rows"].size(), 1u);
  const json& row = answer["rows"][0];
  EXPECT_EQ(row["job"], "17");
  EXPECT_EQ(row["user"], "anna");
  EXPECT_EQ(row["estimate_bytes"], 2 * kGiB);
  EXPECT_EQ(row["limit_bytes"], 4 * kGiB);
  EXPECT_EQ(row["measured_peak_bytes"], 3 * kGiB);
  EXPECT_DOUBLE_EQ(row["ratio"].get<double>(), 1.5);
  EXPECT_EQ(row["outcome"], "completed");
  EXPECT_EQ(row["virtual"], true);
}

TEST_F(Queries, AnothersRowsAreForOperators) {
  record_annas_job();
  EXPECT_TRUE(json_of(answer_history(*history_, bob_, Message(protocol::kHistory)))["rows"].empty());
  for (const char* asked : {"*", "root", "no-such-user-here"}) {
    Message request(protocol::kHistory);
    request.add(field::kUser, asked);
    auto answer = answer_history(*history_, bob_, request);
    ASSERT_FALSE(answer.ok()) << asked;
    EXPECT_EQ(answer.error().kind, ErrorKind::permission) << asked;
  }
  Message show(protocol::kShow);
  show.add(field::kJob, "17");
  EXPECT_EQ(answer_show(*history_, bob_, show).error().kind, ErrorKind::not_found);
  Message by_token(protocol::kShow);
  by_token.add(field::kJob, kToken);
  EXPECT_EQ(answer_show(*history_, bob_, by_token).error().kind, ErrorKind::not_found);

  Message all(protocol::kHistory);
  all.add(field::kUser, "*");
  EXPECT_EQ(json_of(answer_history(*history_, operator_, all))["rows"].size(), 1u);
  EXPECT_TRUE(json_of(answer_history(*history_, operator_, Message(protocol::kHistory)))["rows"].empty()) << "one's own unless asked";
  Message unknown(protocol::kHistory);
  unknown.add(field::kUser, "no-such-user-here");
  EXPECT_EQ(answer_history(*history_, operator_, unknown).error().kind, ErrorKind::not_found);
}

TEST_F(Queries, ShowHasTheEstimateAsJsonAndTheTasks) {
  record_annas_job();
  Message request(protocol::kShow);
  request.add(field::kJob, "17");
  const json answer = json_of(answer_show(*history_, anna_, request));
  ASSERT_EQ(answer["entries"].size(), 1u);
  const json& entry = answer["entries"][0];
  EXPECT_EQ(entry["decision"]["estimate"]["notes"][0], "one");
  EXPECT_EQ(entry["decision"]["gres"], "shard:4096");
  EXPECT_EQ(entry["job"]["runtime_s"], 90);
  EXPECT_EQ(entry["job"]["tasks"].size(), 1u);
  EXPECT_TRUE(entry["job"]["note"].is_null());
}

TEST_F(Queries, BytesThatAreNoUtf8DoNotBreakAnAnswer) {
  db::Decision decision;
  decision.token = kToken;
  decision.user_id = 1000;
  decision.action = "keep";
  decision.script_name = "caf\xe9.sh";
  ASSERT_TRUE(history_->record_decision(decision).ok());
  EXPECT_EQ(json_of(answer_history(*history_, anna_, Message(protocol::kHistory)))["rows"].size(), 1u);
}

TEST_F(Queries, OnlyOperatorsChangeMarginsAndTheirNamesAreKept) {
  Message set(protocol::kMarginSet);
  set.add(field::kPool, "demo").add(field::kGpu, "H200").add(field::kPercent, "8").add_number(field::kFloorBytes, 256 * kMiB);
  auto refused = answer_margin_set(*history_, anna_, config_, PROFILES, set);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, ErrorKind::permission);
  const json margin = json_of(answer_margin_set(*history_, operator_, config_, PROFILES, set));
  EXPECT_EQ(margin["margin"]["gpu"], "NVIDIA H200") << "stored by its full name, which decisions carry";
  EXPECT_EQ(margin["margin"]["set_by"], "root");
  EXPECT_EQ(margin["margin"]["floor_bytes"], 256 * kMiB);

  const json list = json_of(answer_margin_list(*history_, anna_, config_));
  EXPECT_EQ(list["margins"].size(), 1u);
  EXPECT_EQ(list["default"]["percent"], config_.margin.percent);
  Message unset(protocol::kMarginUnset);
  unset.add(field::kPool, "demo").add(field::kGpu, "NVIDIA H200");
  EXPECT_EQ(answer_margin_unset(*history_, anna_, PROFILES, unset).error().kind, ErrorKind::permission);
  json_of(answer_margin_unset(*history_, operator_, PROFILES, unset));
  EXPECT_EQ(answer_margin_unset(*history_, operator_, PROFILES, unset).error().kind, ErrorKind::not_found);
  EXPECT_EQ(json_of(answer_margin_list(*history_, anna_, config_))["changes"].size(), 2u);
}

TEST_F(Queries, AMarginForSomethingUnknownIsRefused) {
  auto kind_of = [&](const char* name, const char* value, const char* percent) {
    Message set(protocol::kMarginSet);
    set.add(name, value).add(field::kPercent, percent);
    auto answer = answer_margin_set(*history_, operator_, config_, PROFILES, set);
    return answer.ok() ? std::string("ok") : std::string(error_kind_name(answer.error().kind));
  };
  EXPECT_EQ(kind_of(field::kPool, "nowhere", "5"), "not_found");
  EXPECT_EQ(kind_of(field::kUser, "no-such-user-here", "5"), "not_found");
  EXPECT_EQ(kind_of(field::kRule, "user", "5"), "invalid_argument");
  EXPECT_EQ(kind_of(field::kPool, "demo", "many"), "invalid_argument");
  EXPECT_EQ(kind_of(field::kPool, "demo", "2000"), "invalid_argument");
  EXPECT_NE(kind_of(field::kGpu, "Voodoo", "5"), "ok");
  EXPECT_EQ(kind_of(field::kRule, "probe", "5"), "ok");
}

TEST_F(Queries, AUsersMarginIsNotShownToOthers) {
  ASSERT_TRUE(history_->set_margin({.user = "anna"}, 9, 0, 0, "root", 1).ok());
  EXPECT_EQ(json_of(answer_margin_list(*history_, anna_, config_))["margins"].size(), 1u);
  EXPECT_TRUE(json_of(answer_margin_list(*history_, bob_, config_))["margins"].empty());
  EXPECT_TRUE(json_of(answer_margin_list(*history_, bob_, config_))["changes"].empty());
  EXPECT_EQ(json_of(answer_margin_list(*history_, operator_, config_))["margins"].size(), 1u);
}

TEST_F(Queries, StatusTellsDevicesToAllAndJobsToTheirOwners) {
  node::Settings settings;
  settings.node = "n1";
  settings.virtual_gpus = {{"RTX 3060", 2}};
  settings.state_directory = directory_ + "/state";
  settings.profiles_directory = PROFILES;
  auto node = node::Node::start(settings, *history_, nullptr);
  ASSERT_TRUE(node.ok()) << node.error().message;
  node::JobStart start;
  start.job_id = 5;
  start.step_id = node::kBatchStep;
  start.pid = ::getpid();
  start.user_id = 1000;
  start.user = "anna";
  start.shards = "4096";
  start.gpus = "1";
  if (::geteuid() != 0) start.user_id = ::geteuid();
  anna_.user_id = start.user_id;
  auto environment = (*node)->job_start(start);
  ASSERT_TRUE(environment.ok()) << environment.error().message;

  const DaemonStatus status{.started_s = 1, .config = &config_, .probes = {1, 2, 3}, .node = node->get()};
  const json own = json_of(answer_status(*history_, anna_, status));
  ASSERT_EQ(own["devices"].size(), 2u);
  EXPECT_EQ(own["devices"][1]["jobs"], 1);
  EXPECT_EQ(own["devices"][1]["limits_bytes"], 4 * kGiB);
  EXPECT_EQ(own["devices"][0]["jobs"], 0);
  EXPECT_EQ(own["devices"][0]["used_bytes"], 0);
  ASSERT_EQ(own["jobs"].size(), 1u);
  EXPECT_EQ(own["jobs"][0]["job"], "5");
  EXPECT_EQ(own["probes"]["waiting"], 2);
  EXPECT_EQ(own["pools"][0]["mode"], "apply");
  const json others = json_of(answer_status(*history_, bob_, status));
  EXPECT_TRUE(others["jobs"].empty());
  EXPECT_EQ(others["devices"][1]["jobs"], 1);
}

}  // namespace
}  // namespace gpumem::home
