// SPDX-License-Identifier: Apache-2.0
// gpumem show: one job with everything behind its decision.
#include <cstdio>
#include <memory>

#include "cli/ask.h"
#include "cli/commands.h"
#include "cli/tables.h"
#include "daemon/protocol/messages.h"

namespace gpumem::cli {

void add_show_command(CLI::App& app, Invocation& invocation) {
  auto* command = app.add_subcommand("show", "One job: the decision, what is behind it, and the outcome");
  auto job = std::make_shared<std::string>();
  auto as_json = std::make_shared<bool>(false);
  command->add_option("JOB", *job, "Slurm job id (17, 20_3 for an array task) or token")->required();
  command->add_flag("--json", *as_json, "One JSON object on standard output");
  command->callback([job, as_json, &invocation] {
    const auto answer = ask_daemon(protocol::kShow, {{protocol::field::kJob, *job}});
    if (!answer) {
      invocation.exit_status = complain(answer.error().message, answer.error().kind == ErrorKind::invalid_argument ? kUsage : kFailed);
      return;
    }
    std::fputs((*as_json ? answer->dump(2) + "\n" : format_show(*answer)).c_str(), stdout);
  });
}

}  // namespace gpumem::cli
