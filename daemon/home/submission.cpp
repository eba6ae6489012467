// SPDX-License-Identifier: Apache-2.0
// One submission: what is known already and what must be found out. The answer: submission_answer.cpp.
#include "daemon/home/submission.h"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/size.h"
#include "daemon/policy/job_environment.h"
#include "daemon/policy/pool.h"
#include "daemon/submit/file_check.h"

namespace gpumem::home {
namespace {

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

}  // namespace gpumem::home
