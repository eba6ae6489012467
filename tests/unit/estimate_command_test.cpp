// SPDX-License-Identifier: Apache-2.0
// gpumem estimate and gpumem gpus as a user calls them: arguments, messages and exit statuses. No torch, no sandbox.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/subprocess.h"
#include "cli/estimate_table.h"

namespace gpumem {
namespace {

SubprocessResult gpumem(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), GPUMEM);
  SubprocessOptions options;
  options.arguments = std::move(arguments);
  options.timeout_s = 60;
  auto result = run_subprocess(options);
  EXPECT_TRUE(result.ok());
  return result.value_or(SubprocessResult{});
}

const std::string kGpu = std::string("--gpu=") + PROFILES + "/t4.json";

TEST(EstimateCommand, WrongUsageIsStatusTwoAndSaysWhatToWrite) {
  for (const auto& [arguments, word] : std::vector<std::pair<std::vector<std::string>, const char*>>{
           {{"estimate", kGpu}, "-- python"},
           {{"estimate", kGpu, "--"}, "-- python"},
           {{"estimate", kGpu, "--capacity", "lots", "--", "true"}, "24G"},
           {{"estimate", kGpu, "--gpus", "0", "--", "true"}, "--gpus"},
           {{"estimate", kGpu, "--timeout", "-3", "--", "true"}, "--timeout"},
           {{"estimate", kGpu, "--frobnicate", "--", "true"}, "--frobnicate"},
           {{"estimate", kGpu, "python", "train.py"}, "python"},
           {{"estimate", "--gpu=./missing.json", "--", "true"}, "missing.json"},
           {{"frobnicate"}, "frobnicate"},
           {{}, "subcommand"}}) {
    const auto result = gpumem(arguments);
    EXPECT_EQ(result.exit_status, 2) << word;
    EXPECT_EQ(result.output, "") << word;
    EXPECT_NE(result.error_output.find(word), std::string::npos) << result.error_output;
  }
}

TEST(EstimateCommand, HelpNamesTheExitStatuses) {
  const auto result = gpumem({"estimate", "--help"});
  EXPECT_EQ(result.exit_status, 0);
  EXPECT_NE(result.output.find("124"), std::string::npos) << result.output;
  EXPECT_EQ(gpumem({"--version"}).exit_status, 0);
}

TEST(EstimateTable, ShowsTheNeedAndEveryNote) {
  const nlohmann::json estimate = {{"status", "complete"},      {"confidence", "medium"},         {"gpu", "NVIDIA H200"},
                                   {"need_bytes", 5583457485},  {"capacity_bytes", 150754820096}, {"peak_reserved_bytes", 5000000000},
                                   {"context_bytes", 583457485}, {"wall_s", 6.2},                 {"notes", {"one", "two"}}};
  const std::string table = cli::estimate_table(estimate);
  EXPECT_NE(table.find("needs 5.2 GiB of 140 GiB on NVIDIA H200"), std::string::npos) << table;
  EXPECT_NE(table.find("note: one\n  note: two\n"), std::string::npos) << table;
}

TEST(EstimateTable, AFailureShowsItsSentenceAndNoFigures) {
  const std::string table = cli::estimate_table({{"status", "unsupported"}, {"error", "it ran on the CPU"}, {"need_bytes", 0}});
  EXPECT_NE(table.find("cannot be estimated: it ran on the CPU"), std::string::npos) << table;
  EXPECT_EQ(table.find("peak"), std::string::npos) << table;
}

}  // namespace
}  // namespace gpumem
