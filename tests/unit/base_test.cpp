// SPDX-License-Identifier: Apache-2.0
// base/: sizes and their text, files, subprocesses.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/size.h"
#include "base/subprocess.h"

namespace gpumem {
namespace {

TEST(Size, UnitsAreBinaryWhateverTheirSpelling) {
  for (const char* text : {"24G", "24g", "24GB", "24GiB", "24 GiB", "24576M", "24576"}) {
    auto bytes = parse_size(text);
    ASSERT_TRUE(bytes.ok()) << text;
    EXPECT_EQ(*bytes, 24 * kGiB) << text;
  }
  EXPECT_EQ(*parse_size("1.5G"), 1536 * kMiB);
  EXPECT_EQ(*parse_size("512B"), 512u);
}

TEST(Size, WhatIsNotASizeIsRefusedWithAnExample) {
  for (const char* text : {"", "abc", "-1G", "0", "0G", "12X", "12GiBs", "nan", "inf", "1e3G", "99999999T", "G"}) {
    auto bytes = parse_size(text);
    EXPECT_FALSE(bytes.ok()) << text;
    if (!bytes.ok()) {
      EXPECT_NE(bytes.error().message.find("24G"), std::string::npos);
    }
  }
}

TEST(Size, TextIsShortAndHasAUnit) {
  EXPECT_EQ(format_size(0), "0 B");
  EXPECT_EQ(format_size(5583457485), "5.2 GiB");
  EXPECT_EQ(format_size(310 * kMiB), "310 MiB");
  EXPECT_EQ(format_size(kGiB - 1), "1.0 GiB");
  EXPECT_EQ(to_mib_ceil(kMiB + 1), 2u);
}

TEST(Clock, DurationsReadAsPeopleSayThem) {
  EXPECT_EQ(format_duration(0.25), "250 ms");
  EXPECT_EQ(format_duration(6.24), "6.2 s");
  EXPECT_EQ(format_duration(200), "3 min 20 s");
  EXPECT_EQ(format_duration(7500), "2 h 5 min");
}

TEST(File, AnAtomicWriteReplacesTheWholeContentAndLeavesNoOtherFile) {
  auto directory = make_temporary_directory(::testing::TempDir(), "base");
  ASSERT_TRUE(directory.ok());
  const std::string path = *directory + "/a/b/file";
  ASSERT_TRUE(make_directories(*directory + "/a/b").ok());
  ASSERT_TRUE(write_file_atomically(path, "one", 0600).ok());
  ASSERT_TRUE(write_file_atomically(path, "two", 0640).ok());
  EXPECT_EQ(*read_file(path), "two");
  struct stat found {};
  ASSERT_EQ(::stat(path.c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777, 0640u);
  EXPECT_FALSE(read_file(path, 2).ok());
  ASSERT_TRUE(remove_tree(*directory).ok());
  EXPECT_EQ(read_file(path).error().kind, ErrorKind::not_found);
}

TEST(Subprocess, OutputInputAndStatusArePassedThrough) {
  auto result = run_subprocess({.arguments = {"sh", "-c", "cat; echo oops >&2; exit 7"}, .input = std::string(300000, 'x')});
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->exit_status, 7);
  EXPECT_EQ(result->output.size(), 300000u);
  EXPECT_EQ(result->error_output, "oops\n");
}

TEST(Subprocess, ADeadlineEndsTheProgramAndItsChildren) {
  auto result = run_subprocess({.arguments = {"sh", "-c", "sleep 60 & sleep 60"}, .timeout_s = 0.2});
  ASSERT_TRUE(result.ok());
  EXPECT_TRUE(result->timed_out);
  EXPECT_EQ(result->signal, 9);
}

TEST(Subprocess, AProgramThatDoesNotReadItsInputIsNoError) {
  auto result = run_subprocess({.arguments = {"true"}, .input = std::string(1 << 20, 'x')});
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->exit_status, 0);
}

TEST(Subprocess, AMissingProgramIsAnError) {
  auto result = run_subprocess({.arguments = {"/no/such/program"}});
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().kind, ErrorKind::not_found);
}

}  // namespace
}  // namespace gpumem
