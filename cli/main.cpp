// SPDX-License-Identifier: Apache-2.0
// gpumem: the user's and the admin's tool. One file a command; see commands.h.
#include <cstdio>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "config.h"

namespace gpumem::cli {

int complain(const std::string& message, int status) {
  std::fprintf(stderr, "gpumem: %s\n", message.c_str());
  return status;
}

namespace {

int run(int argc, char** argv) {
  // What follows the first "--" belongs to the user's program: CLI11 must not look at it.
  Invocation invocation;
  std::vector<std::string> own;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (invocation.has_program) {
      invocation.program.push_back(argument);
    } else if (argument == "--") {
      invocation.has_program = true;
    } else {
      own.push_back(argument);
    }
  }

  CLI::App app("How much GPU memory will my PyTorch job need? Asked on the CPU alone, before the job runs.", "gpumem");
  app.set_version_flag("--version", "gpumem " PACKAGE_VERSION);
  app.require_subcommand(1);
  app.failure_message([](const CLI::App* failed, const CLI::Error& error) {
    return "gpumem: " + std::string(error.what()) + "\nTry '" + failed->get_name() + " --help'.\n";
  });
  add_estimate_command(app, invocation);
  add_explain_command(app, invocation);
  add_gpus_command(app, invocation);
  add_calibrate_command(app, invocation);
  add_history_command(app, invocation);
  add_show_command(app, invocation);
  add_status_command(app, invocation);
  add_margin_command(app, invocation);

  // CLI11 would only say that a command is required.
  const auto named = app.get_subcommands([&](CLI::App* command) { return !own.empty() && command->check_name(own[0]); });
  if (!own.empty() && own[0][0] != '-' && named.empty()) {
    return complain("there is no command '" + own[0] + "': 'gpumem --help' lists them", kUsage);
  }
  std::vector<std::string> reversed(own.rbegin(), own.rend());  // as CLI11's vector form wants it
  try {
    app.parse(reversed);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kDone : kUsage;
  }
  return invocation.exit_status;
}

}  // namespace
}  // namespace gpumem::cli

int main(int argc, char** argv) { return gpumem::cli::run(argc, argv); }
