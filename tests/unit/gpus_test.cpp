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
  EXPECT_GE(profiles->size(), 70u);
  for (const auto& profile : *profiles) {
    for (const auto& [name, field] : profile.fields) EXPECT_FALSE(field.where.empty()) << profile.name << " " << name;
    const auto device = describe_device(profile, 0, 0);
    EXPECT_EQ(device.usable_bytes, profile.usable_bytes()) << profile.name;
    EXPECT_GE(device.nvml_total_bytes, device.total_bytes) << profile.name;
    EXPECT_GE(device.compute_major, 7u) << profile.name;
    EXPECT_GT(device.threads_per_sm, 0u) << profile.name;
    EXPECT_GT(device.context_bytes, 0u) << profile.name;
    EXPECT_LT(device.context_bytes, kGiB) << profile.name;
    EXPECT_GT(device.memory_clock_khz, 0u) << profile.name;
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

TEST(Profiles, NoTwoShippedProfilesHaveAnAliasInCommon) {
  auto profiles = load_profiles(PROFILES);
  ASSERT_TRUE(profiles.ok());
  for (const auto& profile : *profiles) {
    for (const auto& alias : profile.aliases) EXPECT_EQ(must_find(alias).path, profile.path) << alias;
  }
}

TEST(Profiles, WhatTheComputeCapabilityFixesIsFilledInAndCanBeOverruled) {
  nlohmann::json object = {{"version", 1}, {"name", "NVIDIA Test"}, {"compute_capability", "9.0"}};
  for (const char* own : {"total_bytes", "sm_count", "sm_clock_khz", "memory_clock_khz", "l2_bytes"}) {
    object["fields"][own] = {{"value", 100u}, {"source", "measured"}, {"where", "here"}};
  }
  auto profile = parse_profile(object, "");
  ASSERT_TRUE(profile.ok()) << profile.error().message;
  EXPECT_EQ(profile->number("threads_per_sm"), 2048u);
  EXPECT_EQ(profile->number("shared_per_block_optin"), 227u << 10);
  EXPECT_EQ(profile->fields["threads_per_sm"].source, "published");
  // 100 multiprocessors of 2048 threads at 3.2 MiB each 1536 threads, and 128 MiB.
  EXPECT_EQ(profile->context_bytes(), (427 + 128) * kMiB);
  EXPECT_EQ(profile->assumed_fields(), std::vector<std::string>{"context_bytes"});

  object["fields"]["threads_per_sm"] = {{"value", 1024u}, {"source", "measured"}, {"where", "here"}};
  EXPECT_EQ(parse_profile(object, "")->number("threads_per_sm"), 1024u);

  object["compute_capability"] = "99.0";
  profile = parse_profile(object, "");
  ASSERT_FALSE(profile.ok());
  EXPECT_NE(profile.error().message.find("compute capability 99.0"), std::string::npos) << profile.error().message;
}

TEST(Profiles, TheLargestMeasuredContextTakesThePlaceOfTheAssumedOne) {
  auto object = to_json(must_find("T4"));
  object["fields"].erase("context_bytes");
  const auto context = [](const char* torch, std::uint64_t bare, std::uint64_t warm) {
    return nlohmann::json{{"torch", torch}, {"bare_bytes", bare}, {"warm_bytes", warm}, {"source", "measured"}, {"where", "driver 550"}};
  };
  object["contexts"] = {context("2.6.0+cu124", 100 * kMiB, 180 * kMiB), context("2.11.0+cu130", 110 * kMiB, 240 * kMiB)};
  auto profile = parse_profile(object, "");
  ASSERT_TRUE(profile.ok()) << profile.error().message;
  EXPECT_EQ(profile->context_bytes(), 240 * kMiB);
  EXPECT_EQ(profile->fields["context_bytes"].source, "measured");
  EXPECT_NE(profile->fields["context_bytes"].where.find("2.11.0"), std::string::npos);
  EXPECT_EQ(to_json(*parse_profile(to_json(*profile), "")), to_json(*profile));

  object["contexts"][0]["bare_bytes"] = 181 * kMiB;
  EXPECT_FALSE(parse_profile(object, "").ok());
}

TEST(Profiles, TheContextOfTheClosestBuildIsFound) {
  Profile profile;
  const auto add = [&](const char* torch, const char* cuda, std::uint64_t mib) {
    Context context;
    context.torch = torch;
    context.cuda = cuda;
    context.warm_bytes = mib * kMiB;
    profile.contexts.push_back(context);
  };
  EXPECT_EQ(profile.closest_context("2.6.0+cu124", "12.4"), nullptr);
  add("2.3.1+cu121", "12.1", 160);
  add("2.6.0+cu124", "12.4", 180);
  add("2.11.0+cu130", "13.0", 240);
  const auto closest = [&](const char* torch, const char* cuda) {
    const Context* found = profile.closest_context(torch, cuda);
    return found != nullptr ? found->torch : "none";
  };
  EXPECT_EQ(closest("2.6.0+cu124", "12.4"), "2.6.0+cu124");
  EXPECT_EQ(closest("2.8.0+cu128", "12.8"), "2.6.0+cu124") << "of its CUDA generation, though 2.11 is no farther";
  EXPECT_EQ(closest("2.9.1+cu130", "13.0"), "2.11.0+cu130") << "of its CUDA generation, though 2.6 is no farther";
  EXPECT_EQ(closest("2.1.2+cu118", "11.8"), "2.3.1+cu121") << "none of its generation: the closest at all";
  EXPECT_EQ(closest("", ""), "none");
  add("2.6.0+cu126", "12.4", 200);
  EXPECT_EQ(profile.closest_context("2.6.1+cu124", "12.4")->warm_bytes, 200 * kMiB) << "equally close: the larger";
}

TEST(Profiles, ModelsThatShareANameAreToldApartByTheirAliases) {
  EXPECT_EQ(must_find("RTX 4060 Ti 8GB").name, must_find("RTX 4060 Ti 16GB").name);
  EXPECT_LT(must_find("RTX 4060 Ti 8GB").total_bytes(), must_find("RTX 4060 Ti 16GB").total_bytes());
  auto found = find_profile(PROFILES, "NVIDIA GeForce RTX 4060 Ti");
  ASSERT_FALSE(found.ok());
  EXPECT_NE(found.error().message.find("RTX 4060 Ti 8GB, RTX 4060 Ti 16GB"), std::string::npos) << found.error().message;
  // A driver says no more than the name: the smaller one promises nothing that is not there.
  auto device = find_profile_of_device(PROFILES, "NVIDIA GeForce RTX 4060 Ti");
  ASSERT_TRUE(device.ok()) << device.error().message;
  EXPECT_EQ(device->total_bytes(), must_find("RTX 4060 Ti 8GB").total_bytes());
}

TEST(Mig, AnInstanceIsADeviceOfItsOwnWithThePartsShareOfEverything) {
  const Profile instance = must_find("A100-SXM4-40GB mig 1G.5GB");
  EXPECT_EQ(instance.name, "NVIDIA A100-SXM4-40GB MIG 1g.5gb");
  EXPECT_EQ(instance.total_bytes(), 4864 * kMiB);
  EXPECT_LT(instance.context_bytes(), must_find("A100-SXM4-40GB").context_bytes());
  const auto device = describe_device(instance, 0, 0);
  EXPECT_EQ(device.mig, 1u);
  EXPECT_EQ(device.sm_count, 14u);
  EXPECT_EQ(device.l2_bytes, (40u << 20) / 8);
  EXPECT_EQ(device.copy_engines, 1u);
  EXPECT_EQ(std::string(device.uuid).substr(0, 4), "MIG-");
  EXPECT_EQ(device.nvml_total_bytes, device.total_bytes);
  EXPECT_EQ(nlohmann::json::parse(cudnn_device_json(instance))["multiProcessorCount"], 14);
  EXPECT_EQ(to_json(*parse_profile(to_json(instance), "")), to_json(instance));
}

TEST(Mig, EveryListedInstanceIsSmallerThanItsGpu) {
  auto profiles = load_profiles(PROFILES);
  ASSERT_TRUE(profiles.ok());
  int listed = 0;
  for (const auto& profile : *profiles) {
    for (const auto& size : profile.mig_profiles) {
      ++listed;
      const Profile instance = mig_instance(profile, size);
      EXPECT_LT(instance.name.size(), book::kNameSize) << instance.name;
      EXPECT_LT(size.total_bytes, profile.total_bytes()) << instance.name;
      EXPECT_LE(size.sm_count, profile.number("sm_count")) << instance.name;
      EXPECT_LE(size.l2_bytes, profile.number("l2_bytes")) << instance.name;
      EXPECT_LE(size.total_bytes * size.instances, profile.total_bytes()) << instance.name;
      EXPECT_FALSE(size.where.empty()) << instance.name;
    }
  }
  EXPECT_GE(listed, 60);
}

TEST(Mig, AnUnknownSizeNamesTheKnownOnes) {
  auto found = find_profile(PROFILES, "A30 MIG 3g.20gb");
  ASSERT_FALSE(found.ok());
  EXPECT_NE(found.error().message.find("1g.6gb"), std::string::npos) << found.error().message;
  EXPECT_FALSE(find_profile(PROFILES, "RTX 3060 MIG 1g.5gb").ok());
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
  EXPECT_NE(found.error().message.find("gpumem calibrate"), std::string::npos);
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
