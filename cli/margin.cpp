// SPDX-License-Identifier: Apache-2.0
// gpumem margin: what is added to a need before it becomes a limit. Operators change it; every change is kept.
#include <cstdio>
#include <memory>

#include "base/size.h"
#include "cli/ask.h"
#include "cli/commands.h"
#include "cli/since.h"
#include "cli/tables.h"
#include "daemon/protocol/messages.h"

namespace gpumem::cli {
namespace {

using Fields = std::vector<std::pair<const char*, std::string>>;

struct Options {
  bool json = false;
  std::string pool, gpu, user, account, rule, percent, floor;
};

Fields scope_fields(const Options& options) {
  Fields fields;
  const std::pair<const char*, const std::string*> all[] = {{protocol::field::kPool, &options.pool},
                                                            {protocol::field::kGpu, &options.gpu},
                                                            {protocol::field::kUser, &options.user},
                                                            {protocol::field::kAccount, &options.account},
                                                            {protocol::field::kRule, &options.rule}};
  for (const auto& [name, value] : all) {
    if (!value->empty()) fields.emplace_back(name, *value);
  }
  return fields;
}

int ask_and_print(const char* request, const Fields& fields, bool as_json, std::string (*format)(const Json&)) {
  const auto answer = ask_daemon(request, fields);
  if (!answer) return complain(answer.error().message, answer.error().kind == ErrorKind::invalid_argument ? kUsage : kFailed);
  std::fputs((as_json ? answer->dump(2) + "\n" : format(*answer)).c_str(), stdout);
  return kDone;
}

std::string format_set(const Json& answer) {
  const Json margin = answer.value("margin", Json::object());
  char percent[40];
  std::snprintf(percent, sizeof percent, "%.4g%%", margin.value("percent", 0.0));
  return "Margin for " + format_scope(margin) + ": " + percent + " of the need, at least " +
         format_size(margin.value("floor_bytes", std::uint64_t{0})) + ".\n";
}

std::string format_unset(const Json& answer) { return "No margin is set for " + format_scope(answer.value("unset", Json::object())) + " any more.\n"; }

int set_margin(const Options& options) {
  const auto percent = parse_percent(options.percent);
  if (!percent) return complain(percent.error().message, kUsage);
  Fields fields = scope_fields(options);
  char text[40];
  std::snprintf(text, sizeof text, "%.9g", *percent);
  fields.emplace_back(protocol::field::kPercent, text);
  if (!options.floor.empty() && options.floor != "0") {
    const auto floor_bytes = parse_size(options.floor);
    if (!floor_bytes) return complain("--floor: " + floor_bytes.error().message, kUsage);
    fields.emplace_back(protocol::field::kFloorBytes, std::to_string(*floor_bytes));
  }
  return ask_and_print(protocol::kMarginSet, fields, options.json, format_set);
}

void add_scope_options(CLI::App* command, const std::shared_ptr<Options>& options) {
  command->add_option("--pool", options->pool, "Only jobs of this pool");
  command->add_option("--gpu", options->gpu, "Only on this GPU model (a unique part of its name is enough)");
  command->add_option("--user", options->user, "Only jobs of this user");
  command->add_option("--account", options->account, "Only jobs of this account");
  command->add_option("--rule", options->rule, "Only needs that this rule found: measured, probe or family");
  command->add_flag("--json", options->json, "One JSON object on standard output");
}

}  // namespace

void add_margin_command(CLI::App& app, Invocation& invocation) {
  auto* margin = app.add_subcommand("margin", "Margins: what is added to a need before it becomes a limit");
  margin->require_subcommand(1);
  auto options = std::make_shared<Options>();

  auto* list = margin->add_subcommand("list", "Margins in force, and who changed them when");
  list->add_flag("--json", options->json, "One JSON object on standard output");
  list->callback([options, &invocation] {
    invocation.exit_status = ask_and_print(protocol::kMarginList, {}, options->json, format_margins);
  });

  auto* set = margin->add_subcommand("set", "Set the margin for what the options name (operators)");
  set->add_option("PERCENT", options->percent, "Of the need, as 8%")->required();
  set->add_option("--floor", options->floor, "The margin is at least this, as 256M");
  add_scope_options(set, options);
  set->callback([options, &invocation] { invocation.exit_status = set_margin(*options); });

  auto* unset = margin->add_subcommand("unset", "Remove the margin for exactly what the options name (operators)");
  add_scope_options(unset, options);
  unset->callback([options, &invocation] {
    invocation.exit_status = ask_and_print(protocol::kMarginUnset, scope_fields(*options), options->json, format_unset);
  });
}

}  // namespace gpumem::cli
