// SPDX-License-Identifier: Apache-2.0
// Answers `decide`: from a submission to a recorded decision. Used by gpumemd.
//
// The rules are policy's; this finds the evidence for them: margins and measured peaks in the database, cached probes whose files
// are unchanged, new probes. A decision is committed before it is sent. Every submission is answered within its deadline, and in
// mode observe at once, with the probe going on behind it. Belongs to the loop's one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "daemon/child.h"
#include "daemon/config.h"
#include "daemon/home/pools.h"
#include "daemon/home/slurm_watch.h"
#include "daemon/server.h"
#include "daemon/submit/probe_queue.h"
#include "db/history.h"

namespace gpumem::home {

class Submission;

class Decider {
 public:
  Decider(event_base* base, Children& children, db::History& history, SlurmWatch& slurm, const config::Config& config,
          std::vector<Pool> pools);
  ~Decider();

  void decide(const ExchangePtr& exchange);
  void reconfigure(const config::Config& config, std::vector<Pool> pools);
  // Withdraws all probes; submissions that wait are answered by whoever ends the server.
  void stop();

  const submit::ProbeQueue& queue() const { return queue_; }
  std::size_t waiting_submissions() const { return submissions_.size(); }

 private:
  friend class Submission;
  // What a probe was for, until it has ended: its result is recorded even if nobody waits any more.
  struct ProbeNote {
    Identity identity;
    std::string fingerprint, family, gpu;
  };
  void probe_ended(const std::string& key, const submit::ProbeResult& result, const std::function<void()>& recorded);
  void record_probe(const db::Probe& probe);
  submit::ProbeSettings probe_settings() const;
  void forget(Submission* submission) { submissions_.erase(submission); }

  event_base* base_;
  Children& children_;
  db::History& history_;
  SlurmWatch& slurm_;
  config::Config config_;
  // Shared with the submissions that began under it: a reload does not change a request half way.
  std::shared_ptr<const std::vector<Pool>> pools_;
  std::string host_;
  submit::ProbeQueue queue_;
  std::map<std::string, ProbeNote> notes_;
  std::map<Submission*, std::shared_ptr<Submission>> submissions_;
};

// 32 hex digits from the kernel's random numbers.
Result<std::string> make_token();

}  // namespace gpumem::home
