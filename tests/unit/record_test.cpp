// SPDX-License-Identifier: Apache-2.0
// estimator/record: what a probe's processes wrote down, whatever state it is in.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "base/file.h"
#include "estimator/record/record.h"

namespace gpumem::record {
namespace {

class RecordTest : public testing::Test {
 protected:
  void SetUp() override { directory_ = make_temporary_directory("/tmp", "record-test").value_or(""); }
  void TearDown() override { ASSERT_TRUE(remove_tree(directory_).ok()); }
  void write(const std::string& name, const std::string& text) { ASSERT_TRUE(write_file_atomically(directory_ + "/" + name, text).ok()); }
  Record read() {
    auto record = read_record(directory_);
    EXPECT_TRUE(record.ok());
    return record.value_or(Record{});
  }
  std::string directory_;
};

TEST_F(RecordTest, AProcessIsReadFromItsEvents) {
  write("process-42.jsonl",
        R"({"event":"torch","version":"2.11.0+cu130","cuda":"13.0","cudnn":91900,"python":"3.11.2","argv":["python","t.py"],"tracer":"active"})" "\n"
        R"({"event":"step","n":1,"devices":{"0":{"peak_allocated":100,"peak_reserved":200}}})" "\n"
        R"({"event":"step","n":2,"devices":{"0":{"peak_allocated":90,"peak_reserved":300}}})" "\n"
        R"({"event":"note","kind":"epoch","text":"shortened"})" "\n"
        R"({"event":"stop","reason":"stable","n":9,"devices":{}})" "\n");
  const auto record = read();
  ASSERT_EQ(record.processes.size(), 1u);
  const auto& process = record.processes[0];
  EXPECT_EQ(process.pid, 42);
  EXPECT_TRUE(process.imported_torch);
  EXPECT_EQ(process.cuda, "13.0");
  EXPECT_EQ(process.steps, 9u);
  EXPECT_EQ(process.stop_reason, "stable");
  EXPECT_EQ(process.devices.at(0).allocated_bytes, 100u);
  EXPECT_EQ(process.devices.at(0).reserved_bytes, 300u);
  EXPECT_EQ(process.notes.at(0).kind, "epoch");
  EXPECT_EQ(process.bad_lines, 0u);
}

TEST_F(RecordTest, APeakAfterTheLastStepLeavesAllocatedUnknown) {
  const std::string step = R"({"event":"step","n":1,"devices":{"0":{"peak_allocated":100,"peak_reserved":200}}})" "\n";
  const std::string peak = R"({"event":"peak","device":0,"reserved":300})" "\n";
  write("process-1.jsonl", step + peak);
  write("process-2.jsonl", peak + R"({"event":"stop","reason":"exit","n":1,"devices":{"0":{"peak_allocated":250,"peak_reserved":300}}})" "\n");
  write("process-3.jsonl", step + R"({"event":"peak","device":0,"reserved":150})" "\n");
  const auto record = read();
  EXPECT_TRUE(record.processes.at(0).devices.at(0).allocated_is_older);
  EXPECT_FALSE(record.processes.at(1).devices.at(0).allocated_is_older);
  EXPECT_FALSE(record.processes.at(2).devices.at(0).allocated_is_older);
}

TEST_F(RecordTest, ATornLineAndNonsenseAreCountedAndTheRestIsKept) {
  write("process-7.jsonl",
        "\n{\"event\":\"step\",\"n\":3}\nnot json\n[1,2]\n{\"event\":\"unheard-of\"}\n{\"event\":7}\n"
        R"({"event":"step","n":-4,"devices":{"x":{},"-1":{},"0":[],"1":{"peak_reserved":"big"}}})" "\n"
        R"({"event":"stop","reason":"exc)");
  const auto record = read();
  ASSERT_EQ(record.processes.size(), 1u);
  EXPECT_EQ(record.processes[0].steps, 3u);
  EXPECT_EQ(record.processes[0].bad_lines, 3u);
  EXPECT_EQ(record.processes[0].stop_reason, "");
}

TEST_F(RecordTest, ACpuOnlyBuildHasNoCuda) {
  write("process-7.jsonl", R"({"event":"torch","version":"2.11.0+cpu","cuda":null,"cudnn":null,"argv":"?"})" "\n");
  const auto record = read();
  EXPECT_TRUE(record.processes.at(0).imported_torch);
  EXPECT_EQ(record.processes.at(0).cuda, "");
}

TEST_F(RecordTest, OnlyRegularFilesAreReadSoThatNothingCanHoldTheReader) {
  ASSERT_EQ(::mkfifo((directory_ + "/process-1.jsonl").c_str(), 0600), 0);
  ASSERT_EQ(::symlink("/dev/zero", (directory_ + "/process-2.jsonl").c_str()), 0);
  ASSERT_EQ(::mkdir((directory_ + "/process-3.jsonl").c_str(), 0700), 0);
  write("process-4.jsonl", "{\"event\":\"step\",\"n\":5}\n");
  write("events-4.bin", "binary");
  const auto record = read();
  ASSERT_EQ(record.processes.size(), 4u);
  EXPECT_EQ(record.processes[3].steps, 5u);
}

TEST_F(RecordTest, RanksAreThoseOfTheDefaultGroup) {
  write("process-7.jsonl", "{\"event\":\"ranks\",\"rank\":3,\"world_size\":64,\"missing\":true}\n");
  write("process-8.jsonl", "{\"event\":\"step\",\"n\":5}\n");
  const auto record = read();
  EXPECT_EQ(record.processes.at(0).rank, 3);
  EXPECT_EQ(record.processes.at(0).world_size, 64);
  EXPECT_EQ(record.processes.at(1).world_size, 0);
}

TEST_F(RecordTest, DeviceMemoryIsReadInTheOrderOfItsLinesAndIsNoProcess) {
  write("process-7.jsonl", "{\"event\":\"step\",\"n\":5}\n");
  write("memory-7.jsonl",
        R"({"event": "memory", "unix_ns": 1700000000000000001, "device": 1, "taken_bytes": 2097152, "address": 4096})" "\n"
        R"({"event": "memory", "unix_ns": 1700000000000000002, "handle": 4096, "address": 8192})" "\n"
        R"({"event": "memory", "unix_ns": 1700000000000000003, "device": 1, "returned_bytes": 2097152, "address": 4096})" "\n"
        R"({"event": "memory_of_a_newer_version"})" "\n");
  const auto record = read();
  EXPECT_EQ(record.processes.size(), 1u);
  ASSERT_EQ(record.memory.count(7), 1u);
  const auto& log = record.memory.at(7);
  EXPECT_FALSE(log.cut);
  ASSERT_EQ(log.changes.size(), 3u);
  EXPECT_EQ(log.changes[0].kind, MemoryChange::Kind::taken);
  EXPECT_EQ(log.changes[0].device, 1);
  EXPECT_EQ(log.changes[0].unix_ns, 1700000000000000001u);
  EXPECT_EQ(log.changes[1].kind, MemoryChange::Kind::mapped);
  EXPECT_EQ(log.changes[1].handle, 4096u);
  EXPECT_EQ(log.changes[2].kind, MemoryChange::Kind::returned);
  EXPECT_EQ(log.changes[2].bytes, 2097152u);
}

TEST_F(RecordTest, DeviceMemoryThatIsNotAllThereIsSaidToBeCut) {
  const std::string line = R"({"event": "memory", "unix_ns": 5, "device": 0, "taken_bytes": 2097152, "address": 4096})";
  write("memory-1.jsonl", line + "\n" + line.substr(0, 40));
  write("memory-2.jsonl", line + "\n{\"event\": \"memory_cut\"}\n");
  write("memory-3.jsonl", R"({"event": "memory", "unix_ns": 5, "taken_bytes": 18446744073709551615})");
  const auto record = read();
  for (const pid_t pid : {1, 2, 3}) EXPECT_TRUE(record.memory.at(pid).cut) << pid;
  EXPECT_EQ(record.memory.at(1).changes.size(), 1u);
  EXPECT_TRUE(record.memory.at(3).changes.empty());
}

TEST_F(RecordTest, NoDirectoryIsAnEmptyRecord) {
  auto record = read_record(directory_ + "/missing");
  ASSERT_TRUE(record.ok());
  EXPECT_TRUE(record->processes.empty());
}

TEST(CudnnVersion, ReadsBothWaysOfCounting) {
  EXPECT_EQ(cudnn_version_text(91900), "9.19.0");
  EXPECT_EQ(cudnn_version_text(90100), "9.1.0");
  EXPECT_EQ(cudnn_version_text(8902), "8.9.2");
  EXPECT_EQ(cudnn_version_text(0), "");
}

}  // namespace
}  // namespace gpumem::record
