// SPDX-License-Identifier: Apache-2.0
// cli/: what people read, and what they type.
#include <gtest/gtest.h>
#include <stdlib.h>
#include <time.h>

#include "cli/ask.h"
#include "cli/since.h"
#include "cli/tables.h"

namespace gpumem::cli {
namespace {

class Tables : public ::testing::Test {
 protected:
  void SetUp() override {
    ::setenv("TZ", "Europe/Berlin", 1);
    ::tzset();
  }
};

Json row() {
  return Json::parse(R"({"job": "20_3", "run": 1, "user": "anna", "name": "train.sh", "submitted_s": 1764000000, "gpu": "NVIDIA GeForce RTX 3060",
    "estimate_bytes": 5583457485, "limit_bytes": 6442450944, "measured_peak_bytes": 5368709120, "ratio": 0.9615, "rule": "probe",
    "outcome": "oom_on_limit", "virtual": true})");
}

TEST_F(Tables, AHistoryLineReadsAsPeopleSayIt) {
  const std::string text = format_history({{"rows", Json::array({row()})}});
  EXPECT_EQ(text,
            "JOB   USER  NAME      SUBMITTED            GPU       ESTIMATE    LIMIT  MEASURED  RATIO  RULE   OUTCOME\n"
            "20_3  anna  train.sh  2025-11-24 17:00:00  RTX 3060   5.2 GiB  6.0 GiB   5.0 GiB   0.96  probe  oom on limit (virtual)\n");
}

TEST_F(Tables, WhatIsNotKnownIsADashAndAWholeGpuIsNamed) {
  Json waiting = row();
  for (const char* key : {"job", "measured_peak_bytes", "ratio", "limit_bytes"}) waiting[key] = nullptr;
  waiting["outcome"] = "submitted";
  waiting["virtual"] = false;
  Json whole = row();
  whole["limit_bytes"] = nullptr;
  whole["run"] = 2;
  const std::string text = format_history({{"rows", Json::array({waiting, whole})}});
  EXPECT_NE(text.find("-           anna"), std::string::npos) << text;
  EXPECT_NE(text.find("submitted\n"), std::string::npos) << text;
  EXPECT_NE(text.find("whole GPU"), std::string::npos) << text;
  EXPECT_NE(text.find("20_3 run 2"), std::string::npos) << text;
  EXPECT_EQ(format_history({{"rows", Json::array()}}), "No jobs in the history.\n");
}

TEST_F(Tables, ColumnsCountCharactersNotBytes) {
  EXPECT_EQ(format_table({"A", "B"}, {{"é", "1"}, {"xy", "22"}}, "B"), "A    B\né    1\nxy  22\n");
}

TEST_F(Tables, ShowTellsTheLimitsOriginAndTheDecisionOnce) {
  const Json decision = Json::parse(R"({"token": "t1", "submitted_s": 1764000000, "user": "anna", "command": "sbatch", "pool": "demo", "mode": "apply",
    "rule": "probe", "need_bytes": 5368709120, "margin_bytes": 268435456, "margin_percent": 5.0, "margin_id": 0, "limit_mib": 5376, "action": "rewrite",
    "gres": "shard:5376", "estimate": {"status": "complete", "confidence": "high", "wall_s": 6.24, "notes": ["first", "second"]}})");
  const Json job = Json::parse(R"({"job": "20_3", "node": "n1", "run": 1, "user": "anna", "started_s": 1764000000, "ended_s": 1764000200, "runtime_s": 200,
    "limit_mib": 5376, "enforced": true, "gpu": "NVIDIA H200", "device_index": 1, "virtual": false, "measured_peak_bytes": 5368709120,
    "out_of_memory_count": 2, "out_of_memory_bytes": 2097152, "outcome": "completed", "exit_status": 0, "signal": null, "note": null})");
  const std::string text = format_show({{"entries", Json::array({{{"decision", decision}, {"job", job}}, {{"decision", decision}, {"job", job}}})}});
  for (const char* part : {"Job 20_3 on n1", "GPU 1: NVIDIA H200", "5.2 GiB", "3 min 20 s", "refused            2 times, last a request of 2.0 MiB",
                           "margin             256 MiB (5%, the default)", "submitted with --gres=shard:5376", "note               second", "6.2 s"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  }
  EXPECT_EQ(text.find("Decision t1"), text.rfind("Decision t1"));
  EXPECT_EQ(text.find("signal"), std::string::npos) << "what is not there has no line";
}

TEST_F(Tables, StatusShowsPoolsDevicesAndJobs) {
  const Json answer = Json::parse(R"({"daemon": {"version": "0.1.0", "pid": 7, "started_s": 1000, "roles": ["home", "node"]},
    "probes": {"running": 1, "waiting": 0, "at_once": 2}, "pools": [{"name": "demo", "mode": "apply", "partitions": [], "gpus": ["NVIDIA H200"]}],
    "devices": [{"index": 0, "gpu": "NVIDIA H200", "virtual": true, "jobs": 1, "used_bytes": 1073741824, "limits_bytes": 2147483648, "usable_bytes": null}],
    "jobs": [{"job": "17", "user": "anna", "name": null, "node": "n1", "device_index": 0, "used_bytes": 0, "measured_peak_bytes": 1073741824,
              "limit_bytes": null, "started_s": 990}]})");
  const std::string text = format_status(answer, 1090);
  for (const char* part : {"gpumemd 0.1.0, pid 7, up 1 min 30 s\n", "roles: home, node\n", "probes: 1 running, 0 waiting", "demo  apply  all",
                           "NVIDIA H200 (virtual)", "1 min 40 s", "whole GPU"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  }
}

TEST_F(Tables, MarginsNameWhomTheyAreForAndWhoSetThem) {
  const Json answer = Json::parse(R"({"default": {"percent": 5.0, "floor_bytes": 67108864},
    "margins": [{"pool": "demo", "gpu": null, "user": "anna", "account": null, "rule": null, "percent": 7.5, "floor_bytes": 0, "set_by": "root", "set_s": 1764000000}],
    "changes": [{"pool": null, "at_s": 1764000000, "by": "root", "percent_before": null, "floor_bytes_before": null, "percent_after": 7.5, "floor_bytes_after": 0}]})");
  const std::string text = format_margins(answer);
  for (const char* part : {"default: 5% of the need, at least 64.0 MiB", "pool demo, user anna    7.5%", "2025-11-24 17:00:00", "everything  unset  7.5%, 0 B"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  }
}

TEST_F(Tables, AnAnswerOfAnotherShapeIsDashesNotACrash) {
  for (const char* odd : {"{}", R"({"rows": 3, "entries": {}, "devices": "x", "jobs": [1], "margins": [null]})", R"({"rows": [{}], "entries": [{}]})"}) {
    const Json answer = Json::parse(odd);
    EXPECT_NO_THROW({
      format_history(answer);
      format_show(answer);
      format_status(answer, 0);
      format_margins(answer);
    }) << odd;
  }
}

TEST_F(Tables, SinceIsAnAgeOrALocalTime) {
  EXPECT_DOUBLE_EQ(*parse_since("30m", 10000), 8200);
  EXPECT_DOUBLE_EQ(*parse_since("1.5h", 10000), 4600);
  EXPECT_DOUBLE_EQ(*parse_since("2d", 1e6), 1e6 - 172800);
  EXPECT_DOUBLE_EQ(*parse_since("1w", 1e6), 1e6 - 604800);
  EXPECT_DOUBLE_EQ(*parse_since("2025-11-24", 0), 1763938800);
  EXPECT_DOUBLE_EQ(*parse_since("2025-11-24 17:00", 0), 1764000000);
  EXPECT_DOUBLE_EQ(*parse_since("2025-11-24T17:00:05", 0), 1764000005);
  for (const char* wrong : {"", "7", "d", "-3d", "7 days", "yesterday", "2025-02-31", "2025-11-24 25:00", "2025-11-24x", "2025-11-24 17", "infd", "2025-11"}) {
    EXPECT_FALSE(parse_since(wrong, 0).ok()) << wrong;
  }
}

TEST_F(Tables, PercentagesAreReadWithOrWithoutTheirSign) {
  EXPECT_DOUBLE_EQ(*parse_percent("8%"), 8);
  EXPECT_DOUBLE_EQ(*parse_percent("7.5"), 7.5);
  for (const char* wrong : {"", "%", "-1%", "8%%", "x", "inf"}) EXPECT_FALSE(parse_percent(wrong).ok()) << wrong;
}

TEST_F(Tables, WithoutADaemonTheErrorSaysWhereAndWhatToDo) {
  ::setenv("GPUMEM_SOCKET", "/nonexistent/gpumemd.sock", 1);
  auto answer = ask_daemon("status", {});
  ::unsetenv("GPUMEM_SOCKET");
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().kind, ErrorKind::unavailable);
  EXPECT_NE(answer.error().message.find("/nonexistent/gpumemd.sock"), std::string::npos);
  EXPECT_NE(answer.error().message.find("systemctl"), std::string::npos);
}

}  // namespace
}  // namespace gpumem::cli
