// SPDX-License-Identifier: Apache-2.0
// The client against servers that are absent, slow, rude or right.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "daemon/client/client.h"
#include "daemon/protocol/fields.h"
#include "daemon/protocol/frame.h"

namespace gpumem::client {
namespace {

using protocol::Message;

// A server of one connection whose behaviour a test gives.
class FakeServer {
 public:
  explicit FakeServer(std::function<void(int)> behaviour, int backlog = 4) {
    char name[] = "/tmp/gpumem-client-XXXXXX";
    directory_ = ::mkdtemp(name);
    path_ = directory_ + "/s";
    listener_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path_.c_str(), sizeof address.sun_path - 1);
    EXPECT_EQ(::bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::listen(listener_, backlog), 0);
    if (!behaviour) return;
    thread_ = std::thread([this, behaviour] {
      const int fd = ::accept(listener_, nullptr, nullptr);
      if (fd < 0) return;
      behaviour(fd);
      ::close(fd);
    });
  }
  ~FakeServer() {
    ::shutdown(listener_, SHUT_RDWR);
    if (thread_.joinable()) thread_.join();
    ::close(listener_);
    ::unlink(path_.c_str());
    ::rmdir(directory_.c_str());
  }
  const char* path() const { return path_.c_str(); }

 private:
  std::string directory_, path_;
  int listener_ = -1;
  std::thread thread_;
};

std::string frame(const Message& message) { return message.to_frame().value(); }

void send_text(int fd, const std::string& text) { (void)!::send(fd, text.data(), text.size(), MSG_NOSIGNAL); }

// Reads one whole request and returns it.
Message receive(int fd) {
  unsigned char header_bytes[protocol::kHeaderBytes];
  EXPECT_EQ(::recv(fd, header_bytes, sizeof header_bytes, MSG_WAITALL), static_cast<ssize_t>(sizeof header_bytes));
  protocol::FrameHeader header{};
  EXPECT_EQ(protocol::decode_header(header_bytes, &header), protocol::HeaderStatus::ok);
  std::string body(header.body_bytes, '\0');
  EXPECT_EQ(::recv(fd, body.data(), body.size(), MSG_WAITALL), static_cast<ssize_t>(body.size()));
  auto message = Message::from_body(body);
  EXPECT_TRUE(message.ok());
  return message.ok() ? std::move(message).value() : Message("bad");
}

// Keeps the connection open until the client has gone.
void wait_for_end(int fd) {
  char byte;
  while (::recv(fd, &byte, 1, 0) > 0) {
  }
}

class Call {
 public:
  explicit Call(const char* type = "ping") { request_begin(&request, type); }
  ~Call() {
    request_free(&request);
    reply_free(&reply);
  }
  CallStatus run(const char* path) { return call(path, &request, &options, &reply); }

  Request request = {};
  Reply reply = {};
  CallOptions options = {};
};

TEST(Client, SendsFieldsAndReadsTheReply) {
  FakeServer server([](int fd) {
    const Message request = receive(fd);
    Message reply("decision");
    reply.add("token", request.get("script")).add("set", "gres=shard:1").add("set", "mem=2M").add("json", std::string("a\0b", 3));
    send_text(fd, frame(reply));
  });
  Call ask("decide");
  request_add(&ask.request, "script", "#!/bin/sh\nx=1\n");
  request_add(&ask.request, "absent", nullptr);
  request_add_number(&ask.request, "deadline_s", 60);
  ASSERT_EQ(ask.run(server.path()), CallStatus::ok) << ask.reply.error;
  EXPECT_STREQ(reply_type(&ask.reply), "decision");
  EXPECT_STREQ(reply_text(&ask.reply, "token"), "#!/bin/sh\nx=1\n");
  EXPECT_STREQ(reply_text_at(&ask.reply, "set", 1), "mem=2M");
  EXPECT_EQ(reply_text_at(&ask.reply, "set", 2), nullptr);
  EXPECT_EQ(reply_text(&ask.reply, "nothing"), nullptr);
  size_t count = 0;
  const char* bytes = reply_bytes(&ask.reply, "json", &count);
  EXPECT_EQ(std::string(bytes, count), std::string("a\0b", 3));
}

TEST(Client, CallsBackForProgressWithText) {
  FakeServer server([](int fd) {
    receive(fd);
    send_text(fd, frame(Message("progress").add("text", "")));
    send_text(fd, frame(Message("progress").add("text", "step 1")) + frame(Message("progress").add("text", "step 2")));
    send_text(fd, frame(Message("pong")));
  });
  Call ask;
  std::vector<std::string> texts;
  ask.options.progress_context = &texts;
  ask.options.progress = [](void* context, const char* text) { static_cast<std::vector<std::string>*>(context)->push_back(text); };
  EXPECT_EQ(ask.run(server.path()), CallStatus::ok);
  EXPECT_EQ(texts, (std::vector<std::string>{"step 1", "step 2"}));
}

TEST(Client, ReadsAReplyThatComesByteByByte) {
  FakeServer server([](int fd) {
    receive(fd);
    for (const char c : frame(Message("pong").add("version", "1"))) {
      send_text(fd, std::string(1, c));
      ::usleep(1000);
    }
  });
  Call ask;
  EXPECT_EQ(ask.run(server.path()), CallStatus::ok);
  EXPECT_STREQ(reply_text(&ask.reply, "version"), "1");
}

TEST(Client, NobodyThereIsAbsent) {
  Call ask;
  EXPECT_EQ(ask.run("/tmp/gpumem-no-such-socket"), CallStatus::absent);
  EXPECT_NE(std::string(ask.reply.error).find("/tmp/gpumem-no-such-socket"), std::string::npos);
}

TEST(Client, AnEmptyOrTooLongPathIsAbsent) {
  Call ask;
  EXPECT_EQ(ask.run(""), CallStatus::absent);
  EXPECT_EQ(ask.run(std::string(200, 'x').c_str()), CallStatus::absent);
}

TEST(Client, ASocketThatNobodyMayOpenIsDenied) {
  if (::geteuid() == 0) {
    // Root may open anything: the denial is made in a child without its rights.
    const FakeServer server(nullptr);
    ::chmod(server.path(), 0);
    ::chmod(std::string(server.path()).substr(0, std::string(server.path()).rfind('/')).c_str(), 0755);
    const pid_t child = ::fork();
    if (child == 0) {
      if (::setuid(65534) != 0) ::_exit(2);
      Call ask;
      ::_exit(ask.run(server.path()) == CallStatus::denied ? 0 : 1);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
    return;
  }
  const FakeServer server(nullptr);
  ::chmod(server.path(), 0);
  Call ask;
  EXPECT_EQ(ask.run(server.path()), CallStatus::denied);
}

TEST(Client, SilenceEndsInATimeout) {
  FakeServer server([](int fd) { wait_for_end(fd); });
  Call ask;
  ask.options.silence_s = 0.05;
  EXPECT_EQ(ask.run(server.path()), CallStatus::timeout);
}

TEST(Client, AServerThatNeverAcceptsEndsInATimeout) {
  const FakeServer server(nullptr);
  Call ask;
  ask.options.silence_s = 0.05;
  EXPECT_EQ(ask.run(server.path()), CallStatus::timeout);
}

TEST(Client, AFullQueueEndsInATimeout) {
  const FakeServer server(nullptr, 0);
  std::vector<int> waiting;
  for (int i = 0; i < 4; ++i) {
    const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, server.path(), sizeof address.sun_path - 1);
    (void)!::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address);
    waiting.push_back(fd);
  }
  Call ask;
  ask.options.connect_s = 0.05;
  EXPECT_EQ(ask.run(server.path()), CallStatus::timeout);
  for (const int fd : waiting) ::close(fd);
}

TEST(Client, AServerThatDoesNotReadALargeRequestEndsInATimeout) {
  FakeServer server([](int fd) {
    ::usleep(300000);
    (void)fd;
  });
  Call ask;
  const std::string large(8 << 20, 'x');
  request_add_bytes(&ask.request, "script", large.data(), large.size());
  ask.options.connect_s = 0.05;
  EXPECT_EQ(ask.run(server.path()), CallStatus::timeout);
}

TEST(Client, AFloodOfProgressStillEndsAtTheTotal) {
  FakeServer server([](int fd) {
    const std::string one = frame(Message("progress").add("text", "x"));
    while (::send(fd, one.data(), one.size(), MSG_NOSIGNAL) > 0) {
    }
  });
  Call ask;
  ask.options.total_s = 0.2;
  EXPECT_EQ(ask.run(server.path()), CallStatus::timeout);
}

TEST(Client, ARaisedFlagInterrupts) {
  FakeServer server([](int fd) { wait_for_end(fd); });
  Call ask;
  volatile sig_atomic_t flag = 1;
  ask.options.interrupted = &flag;
  EXPECT_EQ(ask.run(server.path()), CallStatus::interrupted);
}

TEST(Client, NonsenseAndHalfAnswersAreBadAnswers) {
  const std::string whole = frame(Message("pong").add("version", "1"));
  std::string other_major = whole;
  other_major[4] = 9;
  const std::vector<std::string> answers = {"HTTP/1.1 200 OK\r\n\r\n hello there, and more", whole.substr(0, 5), whole.substr(0, whole.size() - 1),
                                            "", other_major, std::string("GPUM\x01\0\0\0\xff\xff\xff\xff", 12),
                                            std::string("GPUM\x01\0\0\0\x04\0\0\0junk", 16), std::string("GPUM\x01\0\0\0\0\0\0\0", 12)};
  for (const std::string& answer : answers) {
    FakeServer server([&](int fd) {
      receive(fd);
      send_text(fd, answer);
    });
    Call ask;
    EXPECT_EQ(ask.run(server.path()), CallStatus::bad_answer) << answer;
    EXPECT_NE(ask.reply.error[0], '\0');
    EXPECT_EQ(ask.reply.body, nullptr);
    EXPECT_EQ(reply_text(&ask.reply, "version"), nullptr);
  }
}

TEST(Client, AReplyLargerThanTheCallerWantsIsABadAnswer) {
  FakeServer server([](int fd) {
    receive(fd);
    send_text(fd, frame(Message("answer").add("json", std::string(5000, 'x'))));
  });
  Call ask;
  ask.options.largest_reply_bytes = 1000;
  EXPECT_EQ(ask.run(server.path()), CallStatus::bad_answer);
}

TEST(Client, AnErrorReplyCarriesItsSentence) {
  FakeServer server([](int fd) {
    receive(fd);
    send_text(fd, frame(Message("error").add("kind", "permission").add("message", "not yours")));
  });
  Call ask;
  EXPECT_EQ(ask.run(server.path()), CallStatus::error_reply);
  EXPECT_STREQ(ask.reply.error, "not yours");
  EXPECT_STREQ(ask.reply.error_kind, "permission");
}

TEST(Client, AnErrorSentBeforeTheRequestWasReadIsHeard) {
  FakeServer server([](int fd) { send_text(fd, frame(Message("error").add("kind", "protocol").add("message", "too large"))); ::usleep(100000); });
  Call ask;
  const std::string large(4 << 20, 'x');
  request_add_bytes(&ask.request, "script", large.data(), large.size());
  const CallStatus status = ask.run(server.path());
  EXPECT_TRUE(status == CallStatus::error_reply || status == CallStatus::bad_answer || status == CallStatus::failed) << static_cast<int>(status);
}

TEST(Client, ARequestThatCannotBeComposedFails) {
  Call large;
  const std::string huge(protocol::kLargestBodyBytes, 'x');
  request_add_bytes(&large.request, "script", huge.data(), huge.size());
  EXPECT_EQ(large.run("/tmp/gpumem-no-such-socket"), CallStatus::failed);
  Call name;
  request_add(&name.request, "a b", "x");
  EXPECT_EQ(name.run("/tmp/gpumem-no-such-socket"), CallStatus::failed);
}

}  // namespace
}  // namespace gpumem::client
