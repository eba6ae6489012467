// SPDX-License-Identifier: Apache-2.0
// Runs gpumem-slurm-facts from time to time.
#include "daemon/home/slurm_watch.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdlib>

#include "base/clock.h"

namespace gpumem::home {
namespace {

// slurmctld may start after gpumemd does.
constexpr double kRetry_s = 5;

}  // namespace

SlurmWatch::SlurmWatch(event_base* base, Children& children, config::SlurmSection section)
    : children_(children), section_(std::move(section)), timer_(base, [this] { read(); }) {}

void SlurmWatch::start(config::SlurmSection section) {
  section_ = std::move(section);
  read();
}

void SlurmWatch::read() {
  if (reading_) return;
  ChildOptions options;
  options.arguments = {section_.facts_program};
  options.environment = {"PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8"};
  const char* inherited = std::getenv("SLURM_CONF");
  const std::string conf = !section_.conf.empty() ? section_.conf : inherited != nullptr ? inherited : "";
  if (!conf.empty()) options.environment.push_back("SLURM_CONF=" + conf);
  options.answer_fd = 1;
  options.timeout_s = section_.timeout_s;
  options.largest_answer_bytes = 4u << 20;
  options.on_line = [this](std::string_view line) { output_.append(line).push_back('\n'); };
  options.on_end = [this](const ChildEnd& end) { finished(end); };
  output_.clear();
  const auto started = children_.start(std::move(options));
  if (started) {
    reading_ = true;
    return;
  }
  facts_.problem = started.error().message;
  timer_.start(kRetry_s);
}

void SlurmWatch::finished(const ChildEnd& end) {
  reading_ = false;
  Result<policy::SlurmFacts> read = Error{ErrorKind::unavailable, ""};
  if (end.timed_out) {
    read = Error{ErrorKind::timeout, "Slurm's configuration could not be read within " + format_duration(section_.timeout_s)};
  } else if (output_.empty()) {
    std::string said = end.error_tail.substr(0, end.error_tail.find('\n'));
    read = Error{ErrorKind::unavailable, "Slurm's configuration could not be read" + (said.empty() ? "" : ": " + said)};
  } else {
    read = policy::parse_slurm_facts(output_);
  }
  if (read) {
    const bool first = !facts_.known;
    facts_ = std::move(*read);
    read_s_ = unix_time_s();
    if (first) spdlog::info("Slurm {}, cluster {}: {} partitions", facts_.version, facts_.cluster, facts_.partitions.size());
    if (changed_) changed_();
    timer_.start(section_.refresh_s);
    return;
  }
  if (facts_.problem != read.error().message) spdlog::warn("{}", read.error().message);
  facts_.problem = read.error().message;
  timer_.start(std::min(kRetry_s, section_.refresh_s));
}

}  // namespace gpumem::home
