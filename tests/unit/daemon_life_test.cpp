// SPDX-License-Identifier: Apache-2.0
// gpumemd as a process: crashes, reloads, ends, rude clients.
#include "tests/unit/daemon_fixture.h"

namespace gpumem {
namespace {

TEST_F(DaemonTest, KillBetweenRequestAndAnswerLeavesNoHalfRowAndTheNextStartCarriesOn) {
  start();
  behave("exec sleep 60");
  Client client = ask_in_background(submission());
  const pid_t probe = probe_pid();
  ASSERT_GT(probe, 0);
  stop(SIGKILL);
  Answer answer = finish(client);
  EXPECT_EQ(answer.status, client::CallStatus::bad_answer);
  EXPECT_TRUE(eventually([&] { return process_is_gone(probe); }));
  estimate("complete", 1000);
  write("log", "");
  start();
  EXPECT_TRUE(rows().empty());
  EXPECT_EQ(submit()["action"], "rewrite");
}

TEST_F(DaemonTest, AnAcknowledgedDecisionSurvivesKill) {
  start();
  const std::string token = submit()["token"];
  ASSERT_EQ(token.size(), 32u);
  stop(SIGKILL);
  const auto decision = history().find_decision(db::Viewer::sees_all(), token);
  ASSERT_TRUE(decision.ok() && decision->has_value());
  EXPECT_EQ((*decision)->rule, "probe");
}

TEST_F(DaemonTest, HangupReadsTheConfigurationAgainAndKeepsTheOldOneIfTheNewIsBad) {
  start();
  configure("apply", "[margin]\npercent = 50\n");
  ::kill(daemon_, SIGHUP);
  ASSERT_TRUE(eventually([&] { return log().find("configuration read again") != std::string::npos; })) << log();
  EXPECT_EQ(submit()["limit_mib"], "1500");
  configure("apply", "[margin]\npercnt = 10\n");
  ::kill(daemon_, SIGHUP);
  ASSERT_TRUE(eventually([&] { return log().find("unknown key 'margin.percnt'") != std::string::npos; })) << log();
  EXPECT_EQ(submit()["limit_mib"], "1500");
}

TEST_F(DaemonTest, TerminationAnswersWhoWaitsAndEndsInOrder) {
  start();
  behave("exec sleep 60");
  Client client = ask_in_background(submission());
  const pid_t probe = probe_pid();
  EXPECT_EQ(stop(SIGTERM), 0);
  Answer answer = finish(client);
  EXPECT_EQ(answer.status, client::CallStatus::error_reply);
  EXPECT_EQ(answer.error, "gpumemd is ending");
  EXPECT_TRUE(eventually([&] { return process_is_gone(probe); }));
  EXPECT_NE(::access((directory_ + "/socket").c_str(), F_OK), 0);
}

TEST_F(DaemonTest, RudeClientsHarmNobody) {
  start();
  std::vector<int> connections;
  for (const std::string& text : {std::string("GET / HTTP/1.0\r\n\r\n"), std::string("GPUM\x01\0\0\0\xff\xff\xff\xff", 12),
                                  std::string("GPUM\x02\0\0\0\x01\0\0\0x", 13), std::string("GPUM\x01\0\0\0\x05\0\0\0junk!", 17),
                                  std::string("GPUM\x01\0"), std::string("GPUM\x01\0\0\0\x40\0\0\0half", 16), std::string()}) {
    const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, (directory_ + "/socket").c_str(), sizeof address.sun_path - 1);
    ASSERT_EQ(::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    (void)!::send(fd, text.data(), text.size(), MSG_NOSIGNAL);
    connections.push_back(fd);
  }
  EXPECT_EQ(ask({{"type", "ping"}}).status, client::CallStatus::ok);
  Answer unknown = ask({{"type", "dance"}});
  EXPECT_EQ(unknown.status, client::CallStatus::error_reply);
  EXPECT_NE(unknown.error.find("'dance'"), std::string::npos);
  Answer bad = ask({{"type", "decide"}, {"command", "rm"}});
  EXPECT_EQ(bad.status, client::CallStatus::error_reply);
  // What is no frame is dropped at once; another major and a broken body get a sentence first.
  char byte;
  EXPECT_EQ(::recv(connections[0], &byte, 1, 0), 0);
  for (const int i : {1, 2, 3}) {
    char header[4];
    EXPECT_EQ(::recv(connections[static_cast<std::size_t>(i)], header, 4, MSG_WAITALL), 4) << i;
    EXPECT_EQ(std::memcmp(header, "GPUM", 4), 0);
  }
  for (const int fd : connections) ::close(fd);
  EXPECT_EQ(ask({{"type", "ping"}}).status, client::CallStatus::ok);
}

TEST_F(DaemonTest, OneDaemonASocketAndABadConfigurationIsAUsageError) {
  start();
  const pid_t first = daemon_;
  launch();
  int status = 0;
  ::waitpid(daemon_, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 1);
  EXPECT_NE(log().find("another gpumemd listens"), std::string::npos) << log();
  configure("sometimes");
  launch();
  ::waitpid(daemon_, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 2);
  daemon_ = first;
  EXPECT_EQ(ask({{"type", "ping"}}).status, client::CallStatus::ok);
}

}  // namespace
}  // namespace gpumem
