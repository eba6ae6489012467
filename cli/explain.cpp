// SPDX-License-Identifier: Apache-2.0
// gpumem explain: where a job's memory peak is, and what would lower it. Reads a kept record; runs nothing.
#include <sys/stat.h>

#include <cstdio>
#include <memory>

#include "cli/ask.h"
#include "cli/commands.h"
#include "cli/explain_table.h"
#include "daemon/protocol/messages.h"
#include "estimator/explain/report.h"
#include "estimator/probe/kept_record.h"

extern char** environ;

namespace gpumem::cli {
namespace {

bool is_directory(const std::string& path) {
  struct stat found {};
  return ::stat(path.c_str(), &found) == 0 && S_ISDIR(found.st_mode);
}

// The record behind a job's decision: its path is in the estimate that decided.
Result<std::string> record_of_job(const std::string& job) {
  const auto answer = ask_daemon(protocol::kShow, {{protocol::field::kJob, job}});
  if (!answer) return answer.error();
  for (const auto& entry : answer->value("entries", Json::array())) {
    const auto decision = entry.find("decision");
    if (decision == entry.end() || !decision->is_object()) continue;
    const auto estimate = decision->find("estimate");
    if (estimate == decision->end() || !estimate->is_object() || !estimate->contains("record")) continue;
    return (*estimate)["record"].get<std::string>();
  }
  return Error{ErrorKind::not_found, "job " + job + " was not decided by a probe that kept its record: gpumem estimate of its script makes one"};
}

Result<std::string> find_record(const std::string& wanted) {
  if (wanted.empty()) {
    std::vector<std::string> environment;
    for (char** variable = environ; *variable != nullptr; ++variable) environment.push_back(*variable);
    const std::string directory = probe::records_directory(environment);
    if (directory.empty()) return Error{ErrorKind::not_found, "neither HOME nor XDG_CACHE_HOME says where records are: name one"};
    return probe::newest_record(directory);
  }
  if (wanted.find('/') != std::string::npos || is_directory(wanted)) return wanted;
  auto record = record_of_job(wanted);
  if (record && !is_directory(*record)) {
    return Error{ErrorKind::not_found, "the record of job " + wanted + " is not in " + *record +
                                           " any more (the newest few are kept, on the host of the submission): gpumem estimate makes one anew"};
  }
  return record;
}

int explain_command(const std::string& wanted, bool as_json, std::size_t most) {
  auto record = find_record(wanted);
  if (!record) return complain(record.error().message);
  auto explanation = explain::explain_record(*record);
  if (!explanation) return complain(explanation.error().message);
  if (as_json) std::printf("%s\n", explanation->dump(2, ' ', false, Json::error_handler_t::replace).c_str());
  else std::fputs(explain_table(*explanation, most).c_str(), stdout);
  return kDone;
}

}  // namespace

void add_explain_command(CLI::App& app, Invocation& invocation) {
  auto* command = app.add_subcommand("explain", "Where the memory peak of an estimate is, and what would lower it");
  auto wanted = std::make_shared<std::string>();
  auto as_json = std::make_shared<bool>(false);
  auto most = std::make_shared<std::size_t>(10);
  command->add_option("RECORD|JOB", *wanted, "A record's directory, or a job id or token; without it your newest estimate");
  command->add_option("--top", *most, "How many modules and operators are listed")->capture_default_str();
  command->add_flag("--json", *as_json, "One JSON object on standard output");
  command->callback([wanted, as_json, most, &invocation] { invocation.exit_status = explain_command(*wanted, *as_json, *most); });
}

}  // namespace gpumem::cli
