// SPDX-License-Identifier: Apache-2.0
// gpumem gpus: the GPU models that gpumem knows, and the instances that MIG cuts some of them into.
#include <nlohmann/json.hpp>

#include <cstdio>

#include "base/paths.h"
#include "base/size.h"
#include "cli/commands.h"
#include "estimator/gpus/profile.h"

namespace gpumem::cli {
namespace {

struct GpusOptions {
  bool as_json = false, mig = false;
};

nlohmann::json describe(const gpus::Profile& profile) {
  nlohmann::json instances = nlohmann::json::array();
  for (const auto& size : profile.mig_profiles) {
    instances.push_back({{"name", profile.name + " MIG " + size.name},
                         {"total_bytes", size.total_bytes},
                         {"sm_count", size.sm_count},
                         {"instances", size.instances},
                         {"source", size.source}});
  }
  return {{"name", profile.name},
          {"aliases", profile.aliases},
          {"compute_capability", profile.compute_capability},
          {"usable_bytes", profile.usable_bytes()},
          {"total_bytes", profile.total_bytes()},
          {"context_bytes", profile.context_bytes()},
          {"assumed", profile.assumed_fields()},
          {"mig", std::move(instances)},
          {"path", profile.path}};
}

int list_gpus(const GpusOptions& options) {
  auto profiles = gpus::load_profiles(paths::data_file("gpus"));
  if (!profiles) return complain(profiles.error().message);
  if (options.as_json) {
    nlohmann::json list = nlohmann::json::array();
    for (const auto& profile : *profiles) list.push_back(describe(profile));
    std::printf("%s\n", list.dump(2).c_str());
    return kDone;
  }
  if (options.mig) {
    std::printf("%-42s %10s  %-4s %-9s %s\n", "GPU INSTANCE", "MEMORY", "SMS", "INSTANCES", "SOURCE");
    for (const auto& profile : *profiles) {
      for (const auto& size : profile.mig_profiles) {
        std::printf("%-42s %10s  %-4u %-9u %s\n", (profile.name + " MIG " + size.name).c_str(), format_size(size.total_bytes).c_str(),
                    size.sm_count, size.instances, size.source.c_str());
      }
    }
    return kDone;
  }
  std::printf("%-44s %10s  %-7s %-4s %s\n", "GPU", "MEMORY", "COMPUTE", "MIG", "ASSUMED");
  for (const auto& profile : *profiles) {
    std::string assumed;
    for (const auto& field : profile.assumed_fields()) assumed += (assumed.empty() ? "" : ", ") + field;
    // Models that share a name with others are called by their alias.
    std::string name = profile.name;
    for (const auto& other : *profiles) {
      if (&other != &profile && other.name == profile.name && !profile.aliases.empty()) name = profile.aliases.front();
    }
    std::printf("%-44s %10s  %-7s %-4s %s\n", name.c_str(), format_size(profile.usable_bytes()).c_str(), profile.compute_capability.c_str(),
                profile.mig_profiles.empty() ? "-" : "yes", assumed.empty() ? "-" : assumed.c_str());
  }
  return kDone;
}

}  // namespace

void add_gpus_command(CLI::App& app, Invocation& invocation) {
  auto* command = app.add_subcommand("gpus", "List the GPU models that estimates can be made for");
  auto options = std::make_shared<GpusOptions>();
  command->footer("A model that is missing can be measured where there is one: gpumem calibrate");
  command->add_flag("--mig", options->mig, "The instances that MIG can cut GPUs into: gpumem estimate --gpu \"A100-SXM4-40GB MIG 1g.5gb\"");
  command->add_flag("--json", options->as_json, "One JSON array on standard output");
  command->callback([options, &invocation] { invocation.exit_status = list_gpus(*options); });
}

}  // namespace gpumem::cli
