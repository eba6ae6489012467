// SPDX-License-Identifier: Apache-2.0
// gpumemd as a process: its decisions.
#include "tests/unit/daemon_fixture.h"

namespace gpumem {
namespace {

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

}  // namespace
}  // namespace gpumem
