// SPDX-License-Identifier: Apache-2.0
// The socket protocol's codec: round trips, and everything that is not of the protocol.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "daemon/protocol/fields.h"
#include "daemon/protocol/frame.h"

namespace gpumem::protocol {
namespace {

Message round_trip(const Message& message) {
  auto frame = message.to_frame();
  EXPECT_TRUE(frame.ok());
  FrameHeader header{};
  EXPECT_EQ(decode_header(reinterpret_cast<const unsigned char*>(frame->data()), &header), HeaderStatus::ok);
  EXPECT_EQ(header.major, kMajor);
  EXPECT_EQ(header.body_bytes, frame->size() - kHeaderBytes);
  auto back = Message::from_body(std::string_view(*frame).substr(kHeaderBytes));
  EXPECT_TRUE(back.ok());
  return std::move(back).value();
}

TEST(Frame, HeaderIsTwelveLittleEndianBytes) {
  unsigned char bytes[kHeaderBytes];
  encode_header(0x00010203, bytes);
  EXPECT_EQ(std::memcmp(bytes, "GPUM\x01\x00\x00\x00\x03\x02\x01\x00", 12), 0);
}

TEST(Frame, OtherSpeechIsNotAFrame) {
  FrameHeader header{};
  EXPECT_EQ(decode_header(reinterpret_cast<const unsigned char*>("GET / HTTP/1"), &header), HeaderStatus::not_a_frame);
}

TEST(Frame, AnotherMajorIsLeftToTheReader) {
  FrameHeader header{};
  EXPECT_EQ(decode_header(reinterpret_cast<const unsigned char*>("GPUM\x07\x02\0\0\x01\0\0\0"), &header), HeaderStatus::ok);
  EXPECT_EQ(header.major, 7);
  EXPECT_EQ(header.minor, 2);
}

TEST(Frame, BodyBeyondTheLargestIsRefused) {
  unsigned char bytes[kHeaderBytes];
  encode_header(static_cast<std::uint32_t>(kLargestBodyBytes + 1), bytes);
  FrameHeader header{};
  EXPECT_EQ(decode_header(bytes, &header), HeaderStatus::too_large);
}

TEST(Fields, KeepOrderRepeatsAndAnyBytes) {
  Message message("decide");
  std::string all(256, '\0');
  for (int i = 0; i < 256; ++i) all[static_cast<std::size_t>(i)] = static_cast<char>(i);
  message.add("argument", "one").add("argument", "").add("script", all).add_number("limit_mib", 4096);
  const Message back = round_trip(message);
  EXPECT_EQ(back.fields(), message.fields());
  EXPECT_EQ(back.type(), "decide");
  EXPECT_EQ(back.get_all("argument"), (std::vector<std::string>{"one", ""}));
  EXPECT_EQ(back.get("script"), all);
  EXPECT_EQ(back.get_number("limit_mib"), 4096u);
}

TEST(Fields, NumbersAreWholeAndNotMoreThanFit) {
  Message message("x");
  message.add("a", "12x").add("b", "-1").add("c", "18446744073709551616").add("d", "").add("e", "18446744073709551615");
  for (const char* name : {"a", "b", "c", "d", "missing"}) EXPECT_FALSE(message.get_number(name)) << name;
  EXPECT_EQ(message.get_number("e"), 18446744073709551615ull);
}

TEST(Fields, MalformedBodiesAreErrors) {
  for (const char* body : {"", "x", "type", "type=", "type=4", "type=4:", "type=4:ping", "type=4:pin\n", "type=5:ping\n", "type=-1:\n",
                           "type=99999999999999999999:ping\n", "ty pe=4:ping\n", "=4:ping\n", "type:4=ping\n", "name=1:x\n",
                           "type=4:ping\ntrailing", "type=4:pingX"}) {
    const auto message = Message::from_body(body);
    ASSERT_FALSE(message.ok()) << body;
    EXPECT_EQ(message.error().kind, ErrorKind::protocol) << body;
  }
}

TEST(Fields, RandomDamageIsNeverReadBeyondTheBody) {
  Message message("decide");
  for (int i = 0; i < 20; ++i) message.add("environment", std::string(static_cast<std::size_t>(i), 'v'));
  auto frame = message.to_frame();
  ASSERT_TRUE(frame.ok());
  const std::string good = frame->substr(kHeaderBytes);
  std::mt19937 random(7);
  for (int round = 0; round < 20000; ++round) {
    std::string bad = good;
    for (int i = 0; i < 3; ++i) bad[random() % bad.size()] = static_cast<char>(random());
    bad.resize(random() % (bad.size() + 1));
    const std::string exact(bad);  // its own allocation: a sanitizer sees one byte too far
    const auto result = Message::from_body(exact);
    if (result.ok()) {
      EXPECT_FALSE(result->fields().empty());
    }
  }
}

TEST(Fields, AMessageTooLargeForAFrameIsAnError) {
  Message message("decide");
  message.add("script", std::string(kLargestBodyBytes, 'x'));
  EXPECT_FALSE(message.to_frame().ok());
}

TEST(Fields, AnInvalidNameIsAnError) {
  Message message("decide");
  message.add("a=b", "x");
  EXPECT_FALSE(message.to_frame().ok());
}

}  // namespace
}  // namespace gpumem::protocol
