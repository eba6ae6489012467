// SPDX-License-Identifier: Apache-2.0
// gpumem.conf: what is accepted, and errors that name file and line.
#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "base/file.h"
#include "daemon/config.h"

namespace gpumem::config {
namespace {

std::string error_of(const std::string& text) {
  const auto config = parse(text, "g.conf");
  return config.ok() ? "" : config.error().message;
}

TEST(Config, AnEmptyFileIsAllDefaults) {
  const auto config = parse("", "g.conf");
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config->submit.probe_timeout_s, 60);
  EXPECT_EQ(config->submit.deadline_s, 90);
  EXPECT_TRUE(config->pools.empty());
  EXPECT_TRUE(config->daemon.has_role("home"));
  EXPECT_EQ(config->daemon.socket.substr(config->daemon.socket.rfind('/')), "/gpumemd.sock");
}

TEST(Config, ReadsEveryKindOfValue) {
  const auto config = parse(R"(
[daemon]
roles = ["node"]
[submit]
probe_timeout_s = 12.5
probe_memory = "3GiB"
cache = false
probes_at_once = 7
[margin]
percent = 10
floor = "none"
[[pool]]
name = "main"
gpus = ["RTX 3060"]
mode = "apply"
longest_time = "1-12"
[[pool]]
name = "other"
gpus = ["H200"]
partitions = ["a", "b"]
)", "g.conf");
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_FALSE(config->daemon.has_role("home"));
  EXPECT_EQ(config->submit.probe_timeout_s, 12.5);
  EXPECT_EQ(config->submit.probe_memory.bytes, 3ull << 30);
  EXPECT_FALSE(config->submit.cache);
  EXPECT_EQ(config->submit.probes_at_once, 7);
  EXPECT_EQ(config->margin.percent, 10);
  EXPECT_EQ(config->margin.floor.bytes, 0u);
  ASSERT_EQ(config->pools.size(), 2u);
  EXPECT_EQ(config->pools[0].mode, "apply");
  EXPECT_EQ(config->pools[0].longest_time.seconds, 36u * 3600);
  EXPECT_EQ(config->pools[1].mode, "observe");
  EXPECT_EQ(config->pools[1].partitions, (std::vector<std::string>{"a", "b"}));
}

TEST(Config, UnknownKeysAndSectionsNameFileAndLine) {
  EXPECT_EQ(error_of("[daemon]\n\nsoket = \"/x\"\n").substr(0, 40), "g.conf:3: unknown key 'daemon.soket': th");
  EXPECT_EQ(error_of("\n[demon]\n").substr(0, 34), "g.conf:2: unknown section '[demon]");
  EXPECT_EQ(error_of("socket = \"/x\"\n").substr(0, 30), "g.conf:1: unknown key 'socket'");
  EXPECT_EQ(error_of("[[pool]]\nname = \"a\"\ngpus = [\"x\"]\ngpu = 1\n").substr(0, 33), "g.conf:4: unknown key 'pool[0].gp");
}

TEST(Config, WrongTypesAndRangesNameFileAndLine) {
  EXPECT_EQ(error_of("[submit]\nprobe_timeout_s = \"60\"\n"), "g.conf:2: 'submit.probe_timeout_s' must be a number");
  EXPECT_EQ(error_of("[submit]\ncache = 1\n"), "g.conf:2: 'submit.cache' must be true or false");
  EXPECT_EQ(error_of("[submit]\nprobes_at_once = 1.5\n"), "g.conf:2: 'submit.probes_at_once' must be a whole number");
  EXPECT_EQ(error_of("[submit]\n\n\nprobes_at_once = -1\n"), "g.conf:4: 'submit.probes_at_once' is -1: it must be between 0 and 4096");
  EXPECT_EQ(error_of("[daemon]\nroles = \"home\"\n").substr(0, 40), "g.conf:2: 'daemon.roles' must be a list ");
  EXPECT_EQ(error_of("[daemon]\nroles = [\"hme\"]\n"), "g.conf:2: 'daemon.roles' has \"hme\": each must be one of home, submit, node");
  EXPECT_EQ(error_of("[margin]\npercent = nan\n").substr(0, 30), "g.conf:2: 'margin.percent' is ");
  EXPECT_NE(error_of("[submit]\nprobe_memory = 5\n").find("g.conf:2: 'submit.probe_memory' must be a size in quotes"), std::string::npos);
  EXPECT_NE(error_of("[submit]\nprobe_memory = \"5X\"\n").find("'5X' is not a size"), std::string::npos);
  EXPECT_NE(error_of("[daemon]\nsocket = \"relative\"\n").find("g.conf:2: 'daemon.socket' must be an absolute path"), std::string::npos);
  EXPECT_NE(error_of("[daemon]\nsocket_mode = \"rw\"\n").find("must be an octal mode"), std::string::npos);
}

TEST(Config, TomlErrorsNameFileAndLine) { EXPECT_EQ(error_of("[daemon]\nsocket = \n").substr(0, 9), "g.conf:2:"); }

TEST(Config, APoolNeedsANameAndGpusAndAMethodThatIsThere) {
  const std::string missing = error_of("[[pool]]\nmode = \"apply\"\n");
  EXPECT_NE(missing.find("g.conf:1: 'pool[0].name' is missing"), std::string::npos) << missing;
  EXPECT_NE(missing.find("'pool[0].gpus' is missing"), std::string::npos);
  EXPECT_NE(error_of("[[pool]]\nname=\"a\"\ngpus=[\"x\"]\nmethod=\"mig\"\n").find("g.conf:4: 'pool[0].method' is \"mig\""), std::string::npos);
  EXPECT_NE(error_of("[[pool]]\nname=\"a\"\ngpus=[\"x\"]\n[[pool]]\nname=\"a\"\ngpus=[\"x\"]\n").find("a second pool is named"), std::string::npos);
  EXPECT_NE(error_of("[pool]\nname=\"a\"\n").find("must be written [[pool]]"), std::string::npos);
}

TEST(Config, EveryErrorOfAFileIsTold) {
  const std::string errors = error_of("[daemon]\na = 1\nb = 2\n[submit]\ncache = 3\n");
  EXPECT_NE(errors.find("g.conf:2:"), std::string::npos);
  EXPECT_NE(errors.find("g.conf:3:"), std::string::npos);
  EXPECT_NE(errors.find("g.conf:5:"), std::string::npos);
}

TEST(Config, PrintShowsOriginsAndReadsBackTheSame) {
  const auto config = parse("[margin]\npercent = 7.25\nfloor = \"1536KiB\"\n[[pool]]\nname = \"a \\\"b\\\"\"\ngpus = [\"x\"]\nlongest_time = \"90\"\n", "g.conf");
  ASSERT_TRUE(config.ok());
  const std::string text = print(*config);
  EXPECT_NE(text.find("percent = 7.25  # %; g.conf:2"), std::string::npos) << text;
  EXPECT_NE(text.find("probe_timeout_s = 60  # s; default"), std::string::npos) << text;
  const auto again = parse(text, "again");
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(again->margin.floor.bytes, 1536u * 1024);
  EXPECT_EQ(again->pools.at(0).name, "a \"b\"");
  EXPECT_EQ(again->pools.at(0).longest_time.seconds, 5400u);
}

TEST(Config, DescribesEveryKeyWithHelp) {
  const std::string text = describe_keys();
  EXPECT_NE(text.find("submit.probe_timeout_s\t60\ts\t"), std::string::npos);
  EXPECT_NE(text.find("pool.mode\t\"observe\"\t"), std::string::npos);
  EXPECT_EQ(text.find("\t\n"), std::string::npos);
}

TEST(Config, EveryKeyIsInTheManualPage) {
  const auto manual = read_file(MANUAL);
  ASSERT_TRUE(manual.ok()) << manual.error().message;
  std::istringstream lines(describe_keys());
  for (std::string line; std::getline(lines, line);) {
    const std::string key = line.substr(0, line.find('\t'));
    const std::string name = key.substr(key.find('.') + 1);
    EXPECT_NE(manual->find("\n.BR " + name + " "), std::string::npos) << key;
  }
}

TEST(SlurmTimes, AllFormsOfTheManual) {
  const std::vector<std::pair<const char*, std::uint64_t>> good = {
      {"30", 1800}, {"30:10", 1810}, {"2:00:00", 7200}, {"1-0", 86400}, {"1-12", 129600}, {"1-12:30", 131400}, {"1-12:30:05", 131405}, {"UNLIMITED", 0}};
  for (const auto& [text, seconds] : good) {
    const auto parsed = parse_slurm_time(text);
    ASSERT_TRUE(parsed.ok()) << text;
    EXPECT_EQ(*parsed, seconds) << text;
  }
  for (const char* text : {"", "x", "1:", ":1", "1-", "1:2:3:4", "-5", "1 2"}) EXPECT_FALSE(parse_slurm_time(text).ok()) << text;
}

}  // namespace
}  // namespace gpumem::config
