// SPDX-License-Identifier: Apache-2.0
// gpumemd: gpumem's daemon. Reads its command line and configuration, then runs until it is told to end.
#include <CLI/CLI.hpp>

#include <unistd.h>

#include <cstdio>
#include <string>

#include "base/paths.h"
#include "daemon/config.h"
#include "daemon/home/daemon.h"
#include "daemon/log.h"
#include "daemon/policy/version.h"

namespace {

constexpr int kEnded = 0;
constexpr int kFailed = 1;
constexpr int kUsage = 2;

int complain(const std::string& message, int status) {
  std::fprintf(stderr, "gpumemd: %s\n", message.c_str());
  return status;
}

int run(const gpumem::config::Config& config) {
  if (auto started = gpumem::start_log(config.daemon.log_file, config.daemon.log_level); !started) {
    return complain(started.error().message, kFailed);
  }
  auto daemon = gpumem::home::Daemon::start(config, config.file);
  if (!daemon) return complain(daemon.error().message, kFailed);
  const auto ended = (*daemon)->run();
  return ended ? kEnded : complain(ended.error().message, kFailed);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("gpumem's daemon: decides at submission, keeps the history, watches jobs on nodes.", "gpumemd");
  std::string file = gpumem::paths::config_file();
  bool print_config = false, describe_keys = false;
  auto* file_option = app.add_option("-c,--config", file, "Configuration file")->capture_default_str();
  app.add_flag("--print-config", print_config, "Print what is in force and where it comes from, then end");
  app.add_flag("--describe-keys", describe_keys, "Print every configuration key with default, unit and meaning, then end");
  app.set_version_flag("-V,--version", "gpumemd " + gpumem::program_version());
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kEnded : kUsage;
  }
  if (describe_keys) {
    std::fputs(gpumem::config::describe_keys().c_str(), stdout);
    return kEnded;
  }
  // The default file need not exist; one that was named must.
  gpumem::config::Config config = gpumem::config::defaults();
  if (file_option->count() > 0 || ::access(file.c_str(), F_OK) == 0) {
    auto loaded = gpumem::config::load(file);
    if (!loaded) return complain(loaded.error().message, kUsage);
    config = std::move(*loaded);
  }
  if (print_config) {
    std::fputs(gpumem::config::print(config).c_str(), stdout);
    return kEnded;
  }
  return run(config);
}
