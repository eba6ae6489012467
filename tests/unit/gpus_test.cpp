// SPDX-License-Identifier: Apache-2.0
// estimator/gpus: profiles, finding them, and what virtual devices are made of.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/size.h"
#include "estimator/gpus/profile.h"

namespace gpumem::gpus {
namespace {

Profile must_find(const std::string& wanted) {
  auto found = find_profile(PROFILES, wanted);
  EXPECT_TRUE(found.ok()) << (found ? "" : found.error().message);
  return found.value_or(Profile{});
}

TEST(Profiles, EveryShippedProfileHasASourceForEachValueAndDescribesADevice) {
  auto profiles = load_profiles(PROFILES);
  ASSERT_TRUE(profiles.ok()) << profiles.error().message;
  EXPECT_GE(profiles->size(), 14u);
  for (const auto& profile : *profiles) {
    for (const auto& [name, field] : profile.fields) EXPECT_FALSE(field.where.empty()) << profile.name << " " << name;
    const auto device = describe_device(profile, 0, 0);
    EXPECT_EQ(device.usable_bytes, profile.usable_bytes()) << profile.name;
    EXPECT_GE(device.nvml_total_bytes, device.total_bytes) << profile.name;
    EXPECT_GE(device.compute_major, 7u) << profile.name;
    EXPECT_GT(device.threads_per_sm, 0u) << profile.name;
    EXPECT_LT(device.context_bytes, kGiB) << profile.name;
    EXPECT_LT(cudnn_device_json(profile).size(), book::kCudnnTextSize) << profile.name;
  }
}

TEST(Profiles, ANameAnAliasOrAUniquePartFindsTheModelWhateverTheCase) {
  EXPECT_EQ(must_find("NVIDIA GeForce RTX 3060").compute_capability, "8.6");
  EXPECT_EQ(must_find("nvidia h200").name, "NVIDIA H200");
  EXPECT_EQ(must_find("l4").name, "NVIDIA L4");
  EXPECT_EQ(must_find("v100-32gb").name, "Tesla V100-SXM2-32GB");
  EXPECT_EQ(must_find("SXM4-80").name, "NVIDIA A100-SXM4-80GB");
}

TEST(Profiles, AnAmbiguousPartNamesItsCandidates) {
  auto found = find_profile(PROFILES, "a100");
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().kind, ErrorKind::invalid_argument);
  EXPECT_NE(found.error().message.find("NVIDIA A100-SXM4-40GB"), std::string::npos);
  EXPECT_NE(found.error().message.find("NVIDIA A100-SXM4-80GB"), std::string::npos);
}

TEST(Profiles, AnUnknownNameSaysWhereToLook) {
  auto found = find_profile(PROFILES, "Voodoo 2");
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().kind, ErrorKind::not_found);
  EXPECT_NE(found.error().message.find("gpumem gpus"), std::string::npos);
}

TEST(Profiles, AFileCanBeGivenByItsPathAndAJourneyThroughJsonChangesNothing) {
  auto by_path = find_profile("/nowhere", std::string(PROFILES) + "/t4.json");
  ASSERT_TRUE(by_path.ok()) << by_path.error().message;
  auto again = parse_profile(to_json(*by_path), "");
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(to_json(*again), to_json(*by_path));
}

TEST(Profiles, ABrokenProfileIsRefusedWithWhatIsWrong) {
  const auto good = to_json(must_find("T4"));
  const auto refused = [&](const nlohmann::json& object, const char* word) {
    auto parsed = parse_profile(object, "x.json");
    ASSERT_FALSE(parsed.ok()) << word;
    EXPECT_NE(parsed.error().message.find(word), std::string::npos) << parsed.error().message;
  };
  auto broken = good;
  broken["fields"].erase("total_bytes");
  refused(broken, "total_bytes");
  broken = good;
  broken["fields"]["sm_count"]["source"] = "guessed";
  refused(broken, "sm_count");
  broken = good;
  broken["fields"]["sm_count"]["value"] = "many";
  refused(broken, "sm_count");
  broken = good;
  broken["version"] = 2;
  refused(broken, "version");
  broken = good;
  broken["name"] = std::string(500, 'x');
  refused(broken, "name");
  refused(nlohmann::json::array(), "object");
}

TEST(Profiles, ASmallerCapacityIsWhatTheDeviceHas) {
  const auto device = describe_device(must_find("RTX 3060"), 1, 2 * kGiB);
  EXPECT_EQ(device.usable_bytes, 2 * kGiB);
  EXPECT_EQ(device.total_bytes, 2 * kGiB);
  EXPECT_STREQ(device.pci_bus_id, "00000000:02:00.0");
  EXPECT_STRNE(device.uuid, describe_device(must_find("RTX 3060"), 0, 0).uuid);
}

TEST(Profiles, CudnnIsToldTheSameDevice) {
  const auto object = nlohmann::json::parse(cudnn_device_json(must_find("RTX 3060")));
  EXPECT_EQ(object["smVersion"], 860);
  EXPECT_EQ(object["multiProcessorCount"], 28);
  EXPECT_EQ(object["maxSharedMemoryPerBlockOptin"], 101376);
  EXPECT_EQ(object["deviceName"], "NVIDIA GeForce RTX 3060");
}

}  // namespace
}  // namespace gpumem::gpus
