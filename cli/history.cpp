// SPDX-License-Identifier: Apache-2.0
// gpumem history: what was decided for each job and how it went.
#include <cstdio>
#include <memory>

#include "base/clock.h"
#include "cli/ask.h"
#include "cli/commands.h"
#include "cli/since.h"
#include "cli/tables.h"
#include "daemon/protocol/messages.h"

namespace gpumem::cli {
namespace {

struct Options {
  bool json = false, all = false;
  std::string user, since;
  unsigned limit = 50;
};

int print_history(const Options& options) {
  std::vector<std::pair<const char*, std::string>> fields;
  if (options.all) {
    fields.emplace_back(protocol::field::kUser, "*");
  } else if (!options.user.empty()) {
    fields.emplace_back(protocol::field::kUser, options.user);
  }
  if (!options.since.empty()) {
    const auto since_s = parse_since(options.since, unix_time_s());
    if (!since_s) return complain("--since: " + since_s.error().message, kUsage);
    fields.emplace_back(protocol::field::kSince, std::to_string(*since_s));
  }
  fields.emplace_back(protocol::field::kLimit, std::to_string(options.limit));
  const auto answer = ask_daemon(protocol::kHistory, fields);
  if (!answer) return complain(answer.error().message);
  std::fputs((options.json ? answer->dump(2) + "\n" : format_history(*answer)).c_str(), stdout);
  return kDone;
}

}  // namespace

void add_history_command(CLI::App& app, Invocation& invocation) {
  auto* command = app.add_subcommand("history", "Estimates and outcomes of your jobs, newest first");
  auto options = std::make_shared<Options>();
  command->add_flag("--json", options->json, "One JSON object on standard output");
  auto* user = command->add_option("--user", options->user, "Jobs of this user (operators)");
  command->add_flag("--all", options->all, "Jobs of all users (operators)")->excludes(user);
  command->add_option("--since", options->since, "Only jobs since then: 30m, 12h, 7d, 2w, or a local time as 2026-11-20");
  command->add_option("--limit", options->limit, "At most so many rows; 0: as many as one answer holds")->capture_default_str();
  command->callback([options, &invocation] { invocation.exit_status = print_history(*options); });
}

}  // namespace gpumem::cli
