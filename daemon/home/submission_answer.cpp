// SPDX-License-Identifier: Apache-2.0
// One submission's end: the answer from what was found, its row in the history, and what the plugin is told.
#include <spdlog/spdlog.h>

#include <algorithm>

#include "base/clock.h"
#include "base/size.h"
#include "daemon/home/submission.h"
#include "daemon/policy/job_environment.h"
#include "daemon/protocol/messages.h"

namespace gpumem::home {

namespace field = protocol::field;

policy::Place Submission::place(const PoolGpu& gpu) const {
  policy::Place place;
  place.pool = &pool_->section;
  place.partitions = partitions_;
  place.gpu = gpu.profile.name;
  place.shards_per_gpu = gpu.shards_per_gpu;
  return place;
}

policy::MarginRule Submission::margin_for(const std::string& rule, const std::string& gpu) const {
  policy::MarginRule margin{decider_.config_.margin.percent, decider_.config_.margin.floor.bytes, 0};
  const db::MarginScope scope{pool_->section.name, gpu, identity_.user, request_.option("account"), rule};
  auto found = decider_.history_.margin_for(scope);
  if (!found) spdlog::error("cannot look a margin up, using the configuration's: {}", found.error().message);
  if (found && *found) margin = {(*found)->percent, (*found)->floor_bytes, (*found)->id};
  return margin;
}

policy::Answer Submission::answer_for(const Search& search) const {
  if (!search.failure.empty()) {
    if (search.reading && search.reading->status == "out_of_memory") {
      const std::string reached = search.reading->need_bytes > 0 ? " beyond " + format_size(search.reading->need_bytes) : "";
      return policy::too_large(place(*search.gpu), "out of memory" + reached + " in the estimate");
    }
    const bool late = search.reading && search.reading->status == "timeout";
    return policy::keep(&pool_->section, late ? "deadline" : "unsupported", search.failure, true);
  }
  return policy::decide(request_, gpu_, place(*search.gpu), decider_.slurm_.facts(), *search.evidence,
                        margin_for(search.evidence->rule, search.gpu->profile.name));
}

void Submission::conclude() {
  // With several models the largest need is charged; one that could not be estimated leaves the job alone.
  const Search* chosen = &searches_.front();
  for (const Search& search : searches_) {
    if (!search.failure.empty()) {
      chosen = &search;
      break;
    }
    if (search.evidence->need_bytes > chosen->evidence->need_bytes) chosen = &search;
  }
  finish(answer_for(*chosen), chosen);
}

db::Decision Submission::record(const policy::Answer& answer) const {
  db::Decision decision;
  decision.token = token_;
  decision.submitted_s = unix_time_s() - (monotonic_s() - begun_s_);
  decision.user_id = identity_.user_id;
  decision.user = identity_.user;
  decision.account = request_.option("account");
  decision.partition = request_.option("partition");
  if (decision.partition.empty() && !partitions_.empty()) decision.partition = partitions_.front();
  decision.pool = pool_->section.name;
  decision.mode = pool_->section.mode;
  decision.command = request_.command;
  decision.script_name = request_.script_name();
  decision.command_line = request_.command + (request_.is_wrap ? " --wrap" : request_.script_path.empty() ? "" : " " + request_.script_path);
  for (const std::string& argument : request_.arguments) decision.command_line += " " + argument;
  decision.command_line.resize(std::min<std::size_t>(decision.command_line.size(), 2000));
  decision.working_directory = request_.working_directory;
  decision.requested = gpu_.text;
  decision.gpu = pool_->gpus.front().profile.name;
  if (!searches_.empty()) decision.fingerprint = searches_.front().fingerprint;
  if (request_.script) decision.family = policy::family(request_, decision.gpu);
  decision.rule = answer.rule;
  decision.action = answer.action;
  if (answer.limit_mib > 0) decision.limit_mib = answer.limit_mib;
  if (answer.action == "rewrite") decision.gres = answer.rewrite.gres;
  decision.line = answer.line;
  decision.reason = answer.reason;
  return decision;
}

void Submission::finish(const policy::Answer& answer, const Search* search) {
  const auto self = shared_from_this();
  over_ = true;
  deadline_.stop();
  policy::Answer sent = answer;
  std::string token = token_;
  if (!token_.empty()) {
    db::Decision decision = record(answer);
    if (search != nullptr) {
      decision.gpu = search->gpu->profile.name;
      decision.fingerprint = search->fingerprint;
      decision.family = policy::family(request_, decision.gpu);
      if (search->reading) decision.estimate_json = search->reading->stored_json;
      if (search->evidence) {
        const policy::MarginRule margin = margin_for(search->evidence->rule, decision.gpu);
        decision.need_bytes = search->evidence->need_bytes;
        decision.margin = {answer.margin_bytes, margin.percent, margin.margin_id};
      } else if (search->reading && search->reading->need_bytes > 0) {
        decision.need_bytes = search->reading->need_bytes;
      }
    }
    const Status committed = observed_ ? decider_.history_.amend_decision(decision) : decider_.history_.record_decision(decision);
    if (!committed) {
      spdlog::error("cannot record a decision: {}", committed.error().message);
      // Nothing is promised that is not written down.
      sent = policy::keep(&pool_->section, "unsupported", "gpumemd cannot write its history (" + committed.error().message + ")", true);
      token.clear();
    }
    spdlog::info("{} of {}: {} by {}{}", request_.command, identity_.user, decision.action, decision.rule,
                 decision.limit_mib ? ", limit " + std::to_string(*decision.limit_mib) + " MiB" : "");
  }
  if (!observed_) reply(sent, token);
  decider_.forget(this);
}

void Submission::reply(const policy::Answer& answer, const std::string& token) {
  protocol::Message message(protocol::kDecision);
  message.add(field::kToken, token).add(field::kAction, answer.action).add(field::kRule, answer.rule).add(field::kLine, answer.line);
  if (answer.action == protocol::kActionRewrite) {
    for (const std::string& option : answer.rewrite.reset) message.add(field::kReset, option);
    for (const std::string& option : answer.rewrite.set) message.add(field::kSet, option);
    message.add_number(field::kLimitMib, answer.limit_mib);
  }
  exchange_->reply(message);
}

}  // namespace gpumem::home
