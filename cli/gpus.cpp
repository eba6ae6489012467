// SPDX-License-Identifier: Apache-2.0
// gpumem gpus: the GPU models that gpumem knows.
#include <nlohmann/json.hpp>

#include <cstdio>

#include "base/paths.h"
#include "base/size.h"
#include "cli/commands.h"
#include "estimator/gpus/profile.h"

namespace gpumem::cli {
namespace {

int list_gpus(bool as_json) {
  auto profiles = gpus::load_profiles(paths::data_file("gpus"));
  if (!profiles) return complain(profiles.error().message);
  if (as_json) {
    nlohmann::json list = nlohmann::json::array();
    for (const auto& profile : *profiles) {
      list.push_back({{"name", profile.name},
                      {"aliases", profile.aliases},
                      {"compute_capability", profile.compute_capability},
                      {"usable_bytes", profile.usable_bytes()},
                      {"total_bytes", profile.total_bytes()},
                      {"context_bytes", profile.context_bytes()},
                      {"assumed", profile.assumed_fields()},
                      {"path", profile.path}});
    }
    std::printf("%s\n", list.dump(2).c_str());
    return kDone;
  }
  std::printf("%-28s %10s  %-7s %s\n", "GPU", "MEMORY", "COMPUTE", "ASSUMED");
  for (const auto& profile : *profiles) {
    std::string assumed;
    for (const auto& field : profile.assumed_fields()) assumed += (assumed.empty() ? "" : ", ") + field;
    std::printf("%-28s %10s  %-7s %s\n", profile.name.c_str(), format_size(profile.usable_bytes()).c_str(),
                profile.compute_capability.c_str(), assumed.empty() ? "-" : assumed.c_str());
  }
  return kDone;
}

}  // namespace

void add_gpus_command(CLI::App& app, Invocation& invocation) {
  auto* command = app.add_subcommand("gpus", "List the GPU models that estimates can be made for");
  auto as_json = std::make_shared<bool>(false);
  command->add_flag("--json", *as_json, "One JSON array on standard output");
  command->callback([as_json, &invocation] { invocation.exit_status = list_gpus(*as_json); });
}

}  // namespace gpumem::cli
