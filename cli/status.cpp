// SPDX-License-Identifier: Apache-2.0
// gpumem status: the daemon, its pools, devices, running jobs and probes.
#include <cstdio>
#include <memory>

#include "base/clock.h"
#include "cli/ask.h"
#include "cli/commands.h"
#include "cli/tables.h"
#include "daemon/protocol/messages.h"

namespace gpumem::cli {

void add_status_command(CLI::App& app, Invocation& invocation) {
  auto* command = app.add_subcommand("status", "The daemon, its pools, this host's GPUs, running jobs and probes");
  auto as_json = std::make_shared<bool>(false);
  command->add_flag("--json", *as_json, "One JSON object on standard output");
  command->callback([as_json, &invocation] {
    const auto answer = ask_daemon(protocol::kStatus, {});
    if (!answer) {
      invocation.exit_status = complain(answer.error().message);
      return;
    }
    std::fputs((*as_json ? answer->dump(2) + "\n" : format_status(*answer, unix_time_s())).c_str(), stdout);
  });
}

}  // namespace gpumem::cli
