// SPDX-License-Identifier: Apache-2.0
// A database in a temporary directory, with decisions and jobs to put into it.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <random>
#include <set>

#include "base/file.h"
#include "db/database.h"
#include "db/history.h"
#include "db/migrations.h"

namespace gpumem::db {

class Db : public ::testing::Test {
 protected:
  void SetUp() override {
    auto directory = make_temporary_directory(::testing::TempDir(), "db");
    ASSERT_TRUE(directory.ok());
    directory_ = *directory;
    path_ = directory_ + "/gpumem.db";
  }
  void TearDown() override { (void)remove_tree(directory_); }

inline   History open() {
    auto history = History::open(path_);
    EXPECT_TRUE(history.ok()) << history.error().message;
    return std::move(*history);
  }

  std::string directory_, path_;
};

inline std::string token_of(int number) {
  char text[33];
  std::snprintf(text, sizeof text, "%032x", static_cast<unsigned>(number));
  return text;
}

inline Decision decision_of(int number, std::uint32_t user_id, double at_s = 1000) {
  Decision decision;
  decision.token = token_of(number);
  decision.submitted_s = at_s;
  decision.user_id = user_id;
  decision.user = "user" + std::to_string(user_id);
  decision.fingerprint = "print";
  decision.family = "family";
  decision.gpu = "NVIDIA GeForce RTX 3060";
  decision.rule = "probe";
  decision.need_bytes = 3'000'000'000;
  decision.limit_mib = 3072;
  decision.margin = {100, 5.5, 7};
  decision.action = "rewrite";
  decision.gres = "shard:3072";
  return decision;
}

inline Job job_of(std::uint32_t job_id, std::uint32_t user_id, const std::string& token, double at_s = 2000) {
  Job job;
  job.cluster = "c";
  job.job_id = job_id;
  job.node = "n1";
  job.token = token;
  job.user_id = user_id;
  job.started_s = at_s;
  job.limit_mib = 3072;
  job.gpu = "NVIDIA GeForce RTX 3060";
  return job;
}

}  // namespace gpumem::db
