// SPDX-License-Identifier: Apache-2.0
// The submissions under way and the probes behind them.
#include "daemon/home/decider.h"

#include <spdlog/spdlog.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <thread>

#include "base/clock.h"
#include "base/file.h"
#include "daemon/home/estimate_reading.h"
#include "daemon/home/submission.h"
#include "daemon/submit/file_check.h"

namespace gpumem::home {
namespace {

std::string host_name() {
  char name[256] = "";
  if (::gethostname(name, sizeof name - 1) != 0) return "localhost";
  return name;
}

}  // namespace

Result<std::string> make_token() {
  unsigned char bytes[16];
  if (::getrandom(bytes, sizeof bytes, 0) != static_cast<ssize_t>(sizeof bytes)) return errno_error("cannot get random numbers");
  std::string token;
  char digits[3];
  for (const unsigned char byte : bytes) {
    std::snprintf(digits, sizeof digits, "%02x", byte);
    token += digits;
  }
  return token;
}

Decider::Decider(event_base* base, Children& children, db::History& history, SlurmWatch& slurm, const config::Config& config,
                 std::vector<Pool> pools)
    : base_(base), children_(children), history_(history), slurm_(slurm), config_(config),
      pools_(std::make_shared<const std::vector<Pool>>(std::move(pools))), host_(host_name()),
      queue_(base, children, probe_settings(),
             [this](const std::string& key, const submit::ProbeResult& result, std::function<void()> recorded) {
               probe_ended(key, result, recorded);
             }) {}

Decider::~Decider() { stop(); }

submit::ProbeSettings Decider::probe_settings() const {
  submit::ProbeSettings settings;
  settings.program = config_.submit.probe_program;
  settings.at_once = config_.submit.probes_at_once > 0 ? static_cast<std::size_t>(config_.submit.probes_at_once)
                                                       : std::max<std::size_t>(1, std::thread::hardware_concurrency() / 2);
  settings.waiting_at_most = static_cast<std::size_t>(config_.submit.probes_waiting);
  return settings;
}

void Decider::reconfigure(const config::Config& config, std::vector<Pool> pools) {
  config_ = config;
  pools_ = std::make_shared<const std::vector<Pool>>(std::move(pools));
  queue_.set_settings(probe_settings());
}

void Decider::stop() {
  queue_.stop();
  submissions_.clear();
}

void Decider::decide(const ExchangePtr& exchange) {
  const auto submission = std::make_shared<Submission>(*this, exchange);
  submissions_.emplace(submission.get(), submission);
  submission->begin();
  if (!exchange->open() && submission->is_over()) forget(submission.get());
}

void Decider::probe_ended(const std::string& key, const submit::ProbeResult& result, const std::function<void()>& recorded) {
  const auto found = notes_.find(key);
  if (found == notes_.end() || result.estimate_json.empty()) {
    notes_.erase(key);
    return recorded();
  }
  const ProbeNote note = found->second;
  notes_.erase(found);
  const auto reading = read_estimate(result.estimate_json);
  if (!reading) {
    spdlog::warn("probe {}: {}", key, reading.error().message);
    return recorded();
  }
  db::Probe probe;
  probe.user_id = note.identity.user_id;
  probe.fingerprint = note.fingerprint;
  probe.family = note.family;
  probe.gpu = note.gpu;
  probe.finished_s = unix_time_s();
  probe.wall_s = result.wall_s;
  probe.status = reading->status;
  probe.estimate_json = reading->stored_json;
  if (reading->need_bytes > 0) probe.need_bytes = reading->need_bytes;
  if (reading->paths.empty()) {
    record_probe(probe);
    return recorded();
  }
  const double started_s = probe.finished_s - result.wall_s;
  submit::look_at_files(children_, note.identity, reading->paths, [this, probe, started_s, recorded](std::vector<db::ProbedFile> files) {
    // One that was written since the probe began may have been another when it was read: no answer for later then.
    const bool settled = std::all_of(files.begin(), files.end(), [&](const db::ProbedFile& file) {
      return static_cast<double>(file.mtime_ns) * 1e-9 < started_s;
    });
    db::Probe complete = probe;
    if (settled) complete.files = std::move(files);
    record_probe(complete);
    recorded();
  });
}

void Decider::record_probe(const db::Probe& probe) {
  const auto recorded = history_.record_probe(probe);
  if (!recorded) spdlog::error("cannot record a probe: {}", recorded.error().message);
}

}  // namespace gpumem::home
