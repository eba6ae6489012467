// SPDX-License-Identifier: Apache-2.0
// gpumem calibrate: what it asks a driver, what it makes of the answers, and what it says when there are none.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>

#include "cli/calibration.h"
#include "estimator/gpus/profile.h"

namespace gpumem::cli {
namespace {

// A driver with one GPU: an imaginary one of compute capability 8.9.
int fail_initialize = 0, devices = 1;
bool in_nvml_as_mig = false;

DriverFunctions driver() {
  DriverFunctions functions;
  functions.initialize = [](unsigned) { return fail_initialize; };
  functions.driver_version = [](int* version) { return *version = 12040, 0; };
  functions.device_count = [](int* count) { return *count = devices, 0; };
  functions.device = [](int* device, int index) { return *device = index, 0; };
  functions.name = [](char* name, int size, int) { return std::snprintf(name, static_cast<std::size_t>(size), "NVIDIA Imaginary 1"), 0; };
  functions.uuid = [](unsigned char* uuid, int) { return std::memset(uuid, 0xab, 16), 0; };
  functions.total_memory = [](std::size_t* bytes, int) { return *bytes = 8ull << 30, 0; };
  functions.attribute = [](int* value, int attribute, int) {
    switch (attribute) {
      case 75: return *value = 8, 0;
      case 76: return *value = 9, 0;
      case 16: return *value = 24, 0;
      case 13: return *value = 2000000, 0;
      case 36: return *value = 9001000, 0;
      case 38: return *value = 33554432, 0;
      case 97: return *value = 0, 0;  // as a driver that does not know it
      case 111: return 1;             // as an older driver
      default: return *value = 7, 0;
    }
  };
  return functions;
}

NvmlFunctions nvml() {
  NvmlFunctions functions;
  functions.initialize = [] { return 0; };
  functions.driver_version = [](char* text, unsigned size) { return std::snprintf(text, size, "550.54.15"), 0; };
  functions.device_by_uuid = [](const char* uuid, void**) { return std::strncmp(uuid, in_nvml_as_mig ? "MIG-" : "GPU-", 4) == 0 ? 0 : 6; };
  functions.memory = [](void*, unsigned long long* memory) { return memory[0] = 9ull << 30, 0; };
  functions.power_limit = [](void*, unsigned*) { return 3; };  // not supported
  return functions;
}

nlohmann::json measurement() {
  return {{"torch", "2.6.0+cu124"}, {"cuda", "12.4"},   {"driver", "550.54.15"}, {"bare_bytes", 200u << 20},
          {"warm_bytes", 300u << 20}, {"usable_bytes", 7ull << 30}, {"h2d_bytes_per_s", 12000000000u}, {"d2h_bytes_per_s", 0u}, {"cudnn_device", nullptr}};
}

class Calibrate : public ::testing::Test {
 protected:
  void SetUp() override {
    fail_initialize = 0;
    devices = 1;
    in_nvml_as_mig = false;
  }
};

TEST_F(Calibrate, TheDriversAnswersBecomeAProfileThatIsAccepted) {
  auto facts = read_device(driver(), nvml(), 0);
  ASSERT_TRUE(facts.ok()) << facts.error().message;
  EXPECT_EQ(facts->uuid, "GPU-abababab-abab-abab-abab-abababababab");
  const auto object = make_profile(*facts, {measurement()}, "2026-11-21", false);
  auto profile = gpus::parse_profile(object, "");
  ASSERT_TRUE(profile.ok()) << profile.error().message;
  EXPECT_EQ(profile->name, "NVIDIA Imaginary 1");
  EXPECT_EQ(profile->compute_capability, "8.9");
  EXPECT_EQ(profile->total_bytes(), 8ull << 30);
  EXPECT_EQ(profile->usable_bytes(), 7ull << 30);
  EXPECT_EQ(profile->number("nvml_total_bytes"), 9ull << 30);
  EXPECT_EQ(profile->number("threads_per_sm"), 7u);
  EXPECT_EQ(profile->context_bytes(), 300u << 20);
  EXPECT_EQ(profile->number("h2d_bytes_per_s"), 12000000000u);
  EXPECT_TRUE(profile->assumed_fields().empty());
  EXPECT_EQ(profile->fields["sm_count"].source, "measured");
  EXPECT_EQ(profile->fields["sm_count"].where, "gpumem calibrate: driver 550.54.15, 2026-11-21");
  EXPECT_NE(profile->fields["usable_bytes"].where.find("torch 2.6.0+cu124"), std::string::npos);
}

TEST_F(Calibrate, WhatTheDriverDoesNotTellIsNotClaimed) {
  auto facts = read_device(driver(), nvml(), 0);
  ASSERT_TRUE(facts.ok());
  for (const char* absent : {"shared_reserved_per_block", "shared_per_block_optin", "power_limit_mw"}) EXPECT_EQ(facts->fields.count(absent), 0u) << absent;
  auto profile = gpus::parse_profile(make_profile(*facts, {}, "2026-11-21", false), "");
  ASSERT_TRUE(profile.ok()) << profile.error().message;
  EXPECT_EQ(profile->fields["shared_per_block_optin"].source, "published");  // of its compute capability
  EXPECT_EQ(profile->fields["context_bytes"].source, "assumed");
  EXPECT_EQ(profile->number("h2d_bytes_per_s"), 0u);
}

TEST_F(Calibrate, EachPyTorchHasItsOwnContextAndTheLargestCounts) {
  auto facts = read_device(driver(), nvml(), 0);
  ASSERT_TRUE(facts.ok());
  auto other = measurement();
  other["torch"] = "2.11.0+cu130";
  other["warm_bytes"] = 500u << 20;
  auto profile = gpus::parse_profile(make_profile(*facts, {measurement(), other}, "2026-11-21", false), "");
  ASSERT_TRUE(profile.ok()) << profile.error().message;
  ASSERT_EQ(profile->contexts.size(), 2u);
  EXPECT_EQ(profile->context_bytes(), 500u << 20);
}

TEST_F(Calibrate, NothingIsCalledMeasuredOnAVirtualGpuAndTheProfileIsRefused) {
  auto facts = read_device(driver(), nvml(), 0);
  ASSERT_TRUE(facts.ok());
  const auto object = make_profile(*facts, {measurement()}, "2026-11-21", true);
  EXPECT_EQ(object.dump().find("\"measured\""), std::string::npos);
  auto profile = gpus::parse_profile(object, "x.json");
  ASSERT_FALSE(profile.ok());
  EXPECT_NE(profile.error().message.find("virtual GPU"), std::string::npos) << profile.error().message;
}

TEST_F(Calibrate, AMigInstanceIsFoundUnderItsOwnUuid) {
  in_nvml_as_mig = true;
  auto facts = read_device(driver(), nvml(), 0);
  ASSERT_TRUE(facts.ok());
  EXPECT_EQ(facts->uuid.substr(0, 4), "MIG-");
  EXPECT_EQ(facts->fields["mig"], 1u);
}

TEST_F(Calibrate, ADriverThatFailsSaysWhichCallAndStatus) {
  fail_initialize = 999;
  auto facts = read_device(driver(), nvml(), 0);
  ASSERT_FALSE(facts.ok());
  EXPECT_NE(facts.error().message.find("cuInit failed with CUDA status 999"), std::string::npos) << facts.error().message;
}

TEST_F(Calibrate, AGpuThatIsNotThereIsNamedWithHowManyThereAre) {
  auto facts = read_device(driver(), nvml(), 3);
  ASSERT_FALSE(facts.ok());
  EXPECT_EQ(facts.error().kind, ErrorKind::not_found);
  EXPECT_NE(facts.error().message.find("CUDA sees 1"), std::string::npos) << facts.error().message;
  devices = 0;
  EXPECT_FALSE(read_device(driver(), nvml(), 0).ok());
}

TEST_F(Calibrate, WithoutNvmlTheDriverAloneIsEnough) {
  auto facts = read_device(driver(), NvmlFunctions{}, 0);
  ASSERT_TRUE(facts.ok());
  auto profile = gpus::parse_profile(make_profile(*facts, {}, "2026-11-21", false), "");
  ASSERT_TRUE(profile.ok()) << profile.error().message;
  EXPECT_NE(profile->fields["sm_count"].where.find("CUDA 12.4"), std::string::npos);
}

TEST_F(Calibrate, AMachineWithoutADriverIsToldSo) {
  auto loaded = load_driver();
  EXPECT_TRUE(loaded.ok() || loaded.error().message.find("machine with the GPU") != std::string::npos) << loaded.error().message;
}

}  // namespace
}  // namespace gpumem::cli
