// SPDX-License-Identifier: Apache-2.0
// What the node role is told: this installation's part.
#include "daemon/node/settings.h"

#include <unistd.h>

#include <filesystem>

#include "base/paths.h"

namespace gpumem::node {

Settings installed_settings(const std::string& state_directory) {
  Settings settings;
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  settings.node = std::string(host).substr(0, std::string(host).find('.'));
  settings.state_directory = state_directory;
  settings.profiles_directory = paths::data_file("gpus");
  settings.library_directory = std::filesystem::path(paths::preload_library("x")).parent_path().string();
  settings.stand_in_directory = paths::stand_in_directory();
  settings.cudnn_library = paths::shared_cache_directory() + "/cudnn/libcudnn.so.9";
  return settings;
}

}  // namespace gpumem::node
