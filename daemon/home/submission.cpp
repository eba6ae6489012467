// SPDX-License-Identifier: Apache-2.0
// One submission: what is known already, what must be found out, and the answer.
#include "daemon/home/submission.h"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/size.h"
#include "daemon/policy/job_environment.h"
#include "daemon/policy/pool.h"
#include "daemon/protocol/messages.h"
#include "daemon/submit/file_check.h"

namespace gpumem::home {
namespace {

namespace field = protocol::field;

// A probe that did not end in its time is not tried again for so long: every submission would wait for nothing.
constexpr double kTimeoutKept_s = 3600;
// The answer must be on its way before the plugin gives up.
constexpr double kAnswerAhead_s = 0.5;

std::string with_reason(const std::string& what, const std::string& why) { return why.empty() ? what : what + ": " + why; }

// The answer of an estimate that is not complete.
std::string failure_of(const EstimateReading& reading) {
  if (reading.status == "timeout") return with_reason("no estimate in time", reading.error);
  return with_reason("no estimate", reading.error.empty() ? reading.status : reading.error);
}

}  // namespace

Submission::Submission(Decider& decider, ExchangePtr exchange)
    : decider_(decider), exchange_(std::move(exchange)), pools_(decider.pools_), begun_s_(monotonic_s()),
      deadline_(decider.base_, [this] { deadline_passed(); }) {}

Submission::~Submission() {
  if (!over_) withdraw(false);
}

void Submission::begin() {
  auto request = policy::parse_request(exchange_->request);
  if (!request) {
    over_ = true;
    exchange_->reply_error(request.error());
    return;
  }
  request_ = std::move(*request);
  if (answer_without_search()) return;
  const std::weak_ptr<Submission> self = weak_from_this();
  exchange_->on_gone([self] {
    if (const auto submission = self.lock()) submission->client_gone();
  });
  if (pool_->section.mode == "observe") {
    policy::Answer pending;
    pending.rule = "pending";
    pending.reason = "answered before the estimate: pool " + pool_->section.name + " is in mode observe";
    auto committed = decider_.history_.record_decision(record(pending));
    if (!committed) spdlog::error("cannot record a decision: {}", committed.error().message);
    reply(pending, committed ? token_ : "");
    observed_ = true;
    if (!committed) {
      over_ = true;
      return;
    }
  } else {
    double deadline_s = decider_.config_.submit.deadline_s;
    if (request_.deadline_s > 0) deadline_s = std::min(deadline_s, request_.deadline_s);
    deadline_.start(std::max(0.0, deadline_s - kAnswerAhead_s));
  }
  search_all();
}

// Everything that is decided by the request, the pool and the user's word alone.
bool Submission::answer_without_search() {
  gpu_ = policy::classify(request_);
  const bool has_size = request_.wish == policy::Wish::size;
  const auto say = [&](const std::string& rule, const std::string& reason, bool say_it) {
    finish(policy::keep(pool_ != nullptr ? &pool_->section : nullptr, rule, reason, say_it || has_size));
    return true;
  };
  if (gpu_.asked == policy::Asked::nothing) return say("not_asked", "it asks for no GPU", false);
  std::vector<config::PoolSection> sections;
  for (const Pool& pool : *pools_) sections.push_back(pool.section);
  const policy::SlurmFacts& facts = decider_.slurm_.facts();
  const policy::PoolChoice choice = policy::choose_pool(request_, sections, facts);
  if (choice.pool == nullptr) {
    // The user asked for something and must hear that nothing came of it.
    policy::Answer answer = policy::keep(nullptr, "left_alone", choice.reason, false);
    if (has_size) answer.line = choice.reason + ": submitted as it was";
    finish(answer);
    return true;
  }
  pool_ = &(*pools_)[static_cast<std::size_t>(choice.pool - sections.data())];
  partitions_ = choice.partitions;
  if (pool_->section.mode == "off") {
    pool_ = nullptr;
    return say("off", "the pool's mode is off", false);
  }
  auto token = make_token();
  auto identity = find_identity(exchange_->peer.user_id);
  if (!token || !identity) return say("unsupported", !token ? token.error().message : identity.error().message, true);
  token_ = *token;
  identity_ = *identity;
  if (request_.wish == policy::Wish::off) return say("off", "the user said off", false);
  if (gpu_.asked == policy::Asked::something) return say("left_alone", gpu_.reason, false);
  const std::string obstacle = policy::pool_obstacle(request_, pool_->section, partitions_, facts);
  if (!obstacle.empty()) return say("left_alone", obstacle, true);

  const std::vector<const PoolGpu*> candidates = pool_->candidates(gpu_.type);
  if (has_size) {
    const PoolGpu* largest = *std::max_element(candidates.begin(), candidates.end(), [](const PoolGpu* a, const PoolGpu* b) {
      return a->shards_per_gpu < b->shards_per_gpu;
    });
    policy::Evidence evidence;
    evidence.rule = "user";
    evidence.need_bytes = request_.size_bytes;
    finish(policy::decide(request_, gpu_, place(*largest), facts, evidence, {}));
    return true;
  }
  if (request_.command != "sbatch") return say("left_alone", "only sbatch has a script to estimate: give --gpumem=SIZE", false);
  if (!request_.script) return say("left_alone", "the script came through a pipe: give sbatch a file, or --gpumem=SIZE", true);
  if (policy::task_count(request_) > 1) {
    return say("left_alone", "its " + std::to_string(policy::task_count(request_)) + " tasks share the GPU: give --gpumem=SIZE for all of them", true);
  }
  if (exchange_->peer.user_id == 0) return say("unsupported", "nothing is run for root: give --gpumem=SIZE", true);
  if (::geteuid() != 0 && ::geteuid() != exchange_->peer.user_id) {
    return say("unsupported", "this gpumemd does not run as root and estimates for its own user only", true);
  }
  if (!decider_.config_.daemon.has_role("submit")) return say("unsupported", "this host does not run probes: give --gpumem=SIZE", true);
  for (const PoolGpu* gpu : candidates) {
    Search search;
    search.gpu = gpu;
    search.fingerprint = policy::fingerprint(request_, gpu->profile.name, gpu->capacity_bytes);
    searches_.push_back(std::move(search));
  }
  return false;
}

void Submission::search_all() {
  const auto self = shared_from_this();
  for (std::size_t i = 0; i < searches_.size() && !over_; ++i) search(i);
}

void Submission::search(std::size_t index) {
  Search& search = searches_[index];
  if (!decider_.config_.submit.cache) return start_probe(index);
  auto known = decider_.history_.find_probe(identity_.user_id, search.fingerprint, search.gpu->profile.name);
  if (!known) spdlog::error("cannot look a probe up: {}", known.error().message);
  if (!known || !*known) return start_probe(index);
  search.cached = std::move(**known);
  const double age_s = unix_time_s() - search.cached->finished_s;
  const double kept_s = search.cached->status == "timeout" ? kTimeoutKept_s : static_cast<double>(decider_.config_.submit.cache_days) * 86400;
  const bool usable = search.cached->status == "complete" || search.cached->status == "out_of_memory" || search.cached->status == "timeout";
  if (!usable || age_s > kept_s || search.cached->files.empty()) return start_probe(index);
  const std::weak_ptr<Submission> self = weak_from_this();
  submit::check_files(decider_.children_, identity_, search.cached->files, [self, index](bool same) {
    if (const auto submission = self.lock(); submission && !submission->over_) submission->use_cached(index, same);
  });
}

void Submission::use_cached(std::size_t index, bool files_same) {
  Search& search = searches_[index];
  auto reading = files_same ? read_estimate(search.cached->estimate_json) : Result<EstimateReading>(Error{});
  if (!reading) {
    search.files_changed = !files_same;
    search.cached.reset();
    return start_probe(index);
  }
  search.reading = std::move(*reading);
  if (!add_measurements(search, true)) {
    if (search.reading->status == "complete") {
      search.evidence->rule = "probe";
      search.evidence->need_bytes = search.reading->need_bytes;
      search.evidence->how = "probe of " + format_local_time(search.cached->finished_s);
    } else {
      search.evidence.reset();
      search.failure = failure_of(*search.reading);
    }
  }
  search_done(index);
}

// Fills in what earlier runs of this very job say: at which limit it was out of memory, and, where `peaks_count`, what it took.
// True: they alone decide.
bool Submission::add_measurements(Search& search, bool peaks_count) {
  search.evidence = policy::Evidence();
  auto runs = decider_.history_.measured_by_fingerprint(identity_.user_id, search.fingerprint, search.gpu->profile.name, true);
  if (!runs) {
    spdlog::error("cannot look measured peaks up: {}", runs.error().message);
    return false;
  }
  std::uint64_t peak_bytes = 0;
  std::size_t count = 0;
  for (const db::Measurement& run : *runs) {
    // Before the probe the job's files were others.
    if (search.cached && run.ended_s < search.cached->finished_s) continue;
    if (run.cause == db::Cause::oom_on_limit && run.limit_mib) {
      search.evidence->larger_than_mib = std::max(search.evidence->larger_than_mib, *run.limit_mib);
    }
    // What a virtual GPU measured comes from the library that made the estimate: it proves nothing.
    if (!peaks_count || run.is_virtual || run.cause != db::Cause::completed) continue;
    peak_bytes = std::max(peak_bytes, run.peak_bytes);
    ++count;
  }
  if (count == 0) return false;
  search.evidence->rule = "measured";
  search.evidence->need_bytes = peak_bytes;
  search.evidence->how = "measured in " + std::to_string(count) + (count == 1 ? " run" : " runs");
  return true;
}

void Submission::start_probe(std::size_t index) {
  Search& search = searches_[index];
  submit::ProbeRequest probe;
  probe.key = std::to_string(identity_.user_id) + ":" + search.fingerprint;
  probe.identity = identity_;
  probe.json = probe_request(search);
  probe.timeout_s = decider_.config_.submit.probe_timeout_s;
  const std::weak_ptr<Submission> self = weak_from_this();
  auto waiter = decider_.queue_.add(
      probe,
      [self](const std::string& text) {
        if (const auto submission = self.lock(); submission && !submission->observed_) submission->exchange_->progress(text);
      },
      [self, index](const submit::ProbeResult& result) {
        if (const auto submission = self.lock(); submission && !submission->over_) submission->probe_done(index, result);
      });
  if (!waiter) {
    search.failure = "no estimate: " + waiter.error().message;
    return search_done(index);
  }
  search.waiter = *waiter;
  decider_.notes_[probe.key] = {identity_, search.fingerprint, policy::family(request_, search.gpu->profile.name),
                                search.gpu->profile.name};
}

std::string Submission::probe_request(const Search& search) const {
  const config::SubmitSection& submit = decider_.config_.submit;
  nlohmann::json request;
  request["version"] = 1;
  request["script"] = {{"content", *request_.script}, {"arguments", request_.arguments}};
  request["working_directory"] = request_.working_directory.empty() ? "/" : request_.working_directory;
  request["environment"] = policy::job_environment(request_, identity_.user, decider_.host_);
  request["gpu"] = gpus::to_json(search.gpu->profile);
  request["gpu_count"] = 1;
  request["capacity_bytes"] = search.gpu->capacity_bytes;
  request["timeout_s"] = submit.probe_timeout_s;
  request["memory_limit_bytes"] = submit.probe_memory.bytes;
  request["cpu_limit"] = submit.probe_cpus;
  request["sandbox"] = "required";
  request["stop_when_stable"] = true;
  request["epoch_batches"] = submit.epoch_batches;
  request["stable_steps"] = submit.stable_steps;
  request["prove"] = submit.prove;
  request["output"] = "tail";
  // Scripts and variables may hold bytes that are not UTF-8; JSON cannot, and a probe of such a script still says something.
  return request.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void Submission::probe_done(std::size_t index, const submit::ProbeResult& result) {
  Search& search = searches_[index];
  search.waiter = 0;
  search.cached.reset();
  auto reading = result.estimate_json.empty() ? Result<EstimateReading>(Error{ErrorKind::unavailable, result.error})
                                              : read_estimate(result.estimate_json);
  if (!reading) {
    search.failure = "no estimate: " + reading.error().message;
    return search_done(index);
  }
  search.reading = std::move(*reading);
  if (search.reading->status != "complete") {
    search.failure = failure_of(*search.reading);
    return search_done(index);
  }
  search.evidence = policy::Evidence();
  if (!search.files_changed) add_measurements(search, false);
  search.evidence->rule = "probe";
  search.evidence->need_bytes = search.reading->need_bytes;
  search.evidence->how = "probe, " + format_duration(result.wall_s);
  search_done(index);
}

void Submission::search_done(std::size_t index) {
  searches_[index].done = true;
  if (std::all_of(searches_.begin(), searches_.end(), [](const Search& search) { return search.done; })) conclude();
}

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

void Submission::deadline_passed() {
  if (over_) return;
  const auto self = shared_from_this();
  // What has begun is finished for the next submission of this job.
  withdraw(true);
  finish(policy::keep(&pool_->section, "deadline",
                      "no estimate within " + format_duration(monotonic_s() - begun_s_) + " (it goes on if it has begun: submit again for its answer)",
                      true));
}

void Submission::client_gone() {
  if (over_ || observed_) return;
  const auto self = shared_from_this();
  over_ = true;
  withdraw(false);
  decider_.forget(this);
}

void Submission::withdraw(bool keep) {
  for (Search& search : searches_) {
    if (search.waiter != 0) decider_.queue_.withdraw(search.waiter, keep);
    search.waiter = 0;
  }
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
