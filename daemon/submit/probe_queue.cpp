// SPDX-License-Identifier: Apache-2.0
// Which probe runs next, who waits for it, and how it ends.
#include "daemon/submit/probe_queue.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/text.h"

namespace gpumem::submit {
namespace {

// For starting up, unmounting and writing the estimate after the probe's own timeout.
constexpr double kGrace_s = 20;
// Of what a probe said last, in a message.
constexpr std::size_t kLongestQuote = 300;

std::string why_no_estimate(const ChildEnd& end, const std::string& program) {
  if (end.timed_out) return "the probe did not end in its time and was killed";
  if (end.too_long) return "the probe answered more than gpumemd accepts";
  const std::string said = last_line(end.error_tail, kLongestQuote);
  std::string how = end.signal != 0 ? "was ended by signal " + std::to_string(end.signal)
                                    : "ended with status " + std::to_string(end.exit_status);
  return program + " " + how + " without an estimate" + (said.empty() ? "" : ": " + said);
}

}  // namespace

ProbeQueue::ProbeQueue(event_base* base, Children& children, ProbeSettings settings, Ended ended)
    : children_(children), settings_(std::move(settings)), ended_(std::move(ended)), schedule_timer_(base, [this] { schedule(); }) {}

ProbeQueue::~ProbeQueue() { stop(); }

void ProbeQueue::set_settings(ProbeSettings settings) {
  settings_ = std::move(settings);
  schedule_timer_.start(0);
}

Result<WaiterId> ProbeQueue::add(const ProbeRequest& request, Progress progress, Done done) {
  if (stopped_) return Error{ErrorKind::unavailable, "gpumemd is ending"};
  ProbePtr probe;
  for (const auto* list : {&running_, &waiting_}) {
    for (const ProbePtr& known : *list) {
      if (known->request.key == request.key && !known->ending) probe = known;
    }
  }
  if (!probe) {
    if (waiting_.size() >= settings_.waiting_at_most) {
      return Error{ErrorKind::unavailable, std::to_string(waiting_.size()) + " probes are waiting already"};
    }
    probe = std::make_shared<Probe>();
    probe->request = request;
    probe->added_s = monotonic_s();
    waiting_.push_back(probe);
    // From the loop, so that the caller has its id before the first callback.
    schedule_timer_.start(0);
  }
  const WaiterId id = next_waiter_++;
  probe->waiters.push_back({id, std::move(progress), std::move(done)});
  return id;
}

void ProbeQueue::withdraw(WaiterId waiter, bool keep, bool keep_waiting) {
  for (auto* list : {&running_, &waiting_, &finishing_}) {
    for (const ProbePtr& probe : *list) {
      const auto found = std::find_if(probe->waiters.begin(), probe->waiters.end(), [&](const Waiter& w) { return w.id == waiter; });
      if (found == probe->waiters.end()) continue;
      const bool is_running = list == &running_;
      if (is_running ? keep : keep_waiting) probe->keep = true;
      probe->waiters.erase(found);
      if (!probe->waiters.empty() || probe->keep || list == &finishing_) return;
      if (is_running) {
        probe->ending = true;
        children_.kill(probe->child);
      } else {
        const ProbePtr last = probe;
        list->remove(last);
      }
      return;
    }
  }
}

void ProbeQueue::stop() {
  stopped_ = true;
  waiting_.clear();
  finishing_.clear();
  for (const ProbePtr& probe : running_) {
    probe->waiters.clear();
    children_.kill(probe->child);
  }
}

void ProbeQueue::schedule() {
  while (!stopped_ && running_.size() < settings_.at_once && !waiting_.empty()) {
    std::map<uid_t, std::size_t> running_of;
    for (const ProbePtr& probe : running_) ++running_of[probe->request.identity.user_id];
    // The list is in order of arrival, and min_element takes the first of equals.
    const auto next = std::min_element(waiting_.begin(), waiting_.end(), [&](const ProbePtr& a, const ProbePtr& b) {
      return running_of[a->request.identity.user_id] < running_of[b->request.identity.user_id];
    });
    const ProbePtr probe = *next;
    waiting_.erase(next);
    start(probe);
  }
  tell_positions();
}

void ProbeQueue::tell_positions() {
  std::size_t position = 0;
  for (const ProbePtr& probe : waiting_) {
    const std::string text = "waiting for a probe: " + std::to_string(position) + " before this one";
    ++position;
    if (probe->phase == text) continue;
    probe->phase = text;
    for (const Waiter& waiter : probe->waiters) {
      if (waiter.progress) waiter.progress(text);
    }
  }
}

void ProbeQueue::start(const ProbePtr& probe) {
  ChildOptions options;
  const Identity& identity = probe->request.identity;
  options.arguments = {settings_.program};
  // The submitter's own environment is in the request: gpumem-probe itself runs with this one.
  options.environment = {"PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8", "HOME=" + identity.home, "USER=" + identity.user,
                         "LOGNAME=" + identity.user};
  options.input = probe->request.json;
  options.answer_fd = 3;
  options.identity = &identity;
  options.background = true;
  options.timeout_s = probe->request.timeout_s + kGrace_s;
  options.on_line = [this, probe](std::string_view line) { on_line(probe, line); };
  options.on_end = [this, probe](const ChildEnd& end) { on_end(probe, end); };
  probe->started_s = monotonic_s();
  running_.push_back(probe);
  const auto child = children_.start(std::move(options));
  if (!child) {
    running_.remove(probe);
    ProbeResult result;
    result.error = child.error().message;
    finish(probe, result);
    return;
  }
  probe->child = *child;
  spdlog::info("probe {} of {} started", probe->request.key, identity.user);
}

void ProbeQueue::on_line(const ProbePtr& probe, std::string_view line) {
  const nlohmann::json object = nlohmann::json::parse(line, nullptr, false);
  if (!object.is_object()) {
    spdlog::warn("probe {}: a line that is not a JSON object", probe->request.key);
    return;
  }
  if (const auto progress = object.find("progress"); progress != object.end() && progress->is_object()) {
    const auto text = progress->find("text");
    if (text == progress->end() || !text->is_string()) return;
    probe->phase = text->get<std::string>().substr(0, 500);
    // By copy: a waiter may withdraw while it is told.
    const std::vector<Waiter> waiters = probe->waiters;
    for (const Waiter& waiter : waiters) {
      if (waiter.progress) waiter.progress(probe->phase);
    }
  } else if (const auto estimate = object.find("estimate"); estimate != object.end() && estimate->is_object()) {
    probe->estimate_json = estimate->dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  }
}

void ProbeQueue::on_end(const ProbePtr& probe, const ChildEnd& end) {
  running_.remove(probe);
  ProbeResult result;
  result.wall_s = monotonic_s() - probe->started_s;
  result.withdrawn = end.killed;
  result.estimate_json = probe->estimate_json;
  if (result.estimate_json.empty()) result.error = end.killed ? "nobody waited for it" : why_no_estimate(end, settings_.program);
  spdlog::info("probe {} ended after {}{}", probe->request.key, format_duration(result.wall_s),
               result.error.empty() ? "" : ": " + result.error);
  schedule_timer_.start(0);
  if (!stopped_) finish(probe, result);
}

void ProbeQueue::finish(const ProbePtr& probe, const ProbeResult& result) {
  finishing_.push_back(probe);
  ended_(probe->request.key, result, [this, probe, result] {
    finishing_.remove(probe);
    std::vector<Waiter> waiters;
    waiters.swap(probe->waiters);
    for (const Waiter& waiter : waiters) {
      if (waiter.done) waiter.done(result);
    }
  });
}

}  // namespace gpumem::submit
