// SPDX-License-Identifier: Apache-2.0
// Probes that run and probes that wait. Used by gpumemd, role submit.
//
// A bounded number runs at once; of those that wait, the next is the oldest of the user who has fewest running, so that nobody's
// hundred submissions delay another's one. Requests with the same key (user and fingerprint) are one probe with several waiters.
// A probe whose waiters have all gone is ended, unless somebody said that it is wanted anyway (mode observe, a passed deadline).
// Everything belongs to the loop's one thread; callbacks come from the loop, never from within add().
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "daemon/child.h"

namespace gpumem::submit {

struct ProbeSettings {
  std::string program;
  std::size_t at_once = 1;
  std::size_t waiting_at_most = 200;
};

struct ProbeRequest {
  std::string key;            // user and fingerprint
  Identity identity;
  std::string json;           // contracts: Probe request
  double timeout_s = 60;      // the probe's own; a while later it is ended from outside
};

// What came of it. `estimate_json` is the estimate as gpumem-probe wrote it; empty when there was none, and `error` says why.
struct ProbeResult {
  std::string estimate_json;
  std::string error;
  bool withdrawn = false;     // ended because nobody wanted it
  double wall_s = 0;
};

using WaiterId = std::uint64_t;

class ProbeQueue {
 public:
  using Progress = std::function<void(const std::string& text)>;
  using Done = std::function<void(const ProbeResult&)>;
  // Called once a probe, before its waiters are: the place to record it. They are told when it calls `recorded`.
  using Ended = std::function<void(const std::string& key, const ProbeResult&, std::function<void()> recorded)>;

  ProbeQueue(event_base* base, Children& children, ProbeSettings settings, Ended ended);
  ~ProbeQueue();

  // Adds a waiter, and a probe if none of that key is there. Fails with unavailable when too many wait.
  Result<WaiterId> add(const ProbeRequest& request, Progress progress, Done done);
  // The waiter has gone: its callbacks are not called any more. `keep`: finish the probe all the same if it runs or, with
  // `keep_waiting`, even if it still waits.
  void withdraw(WaiterId waiter, bool keep, bool keep_waiting = false);
  // Ends all; waiters are not called.
  void stop();
  void set_settings(ProbeSettings settings);

  std::size_t running() const { return running_.size(); }
  std::size_t waiting() const { return waiting_.size(); }
  std::size_t at_once() const { return settings_.at_once; }

 private:
  struct Waiter {
    WaiterId id;
    Progress progress;
    Done done;
  };
  struct Probe {
    ProbeRequest request;
    std::vector<Waiter> waiters;
    bool keep = false;
    bool ending = false;  // killed: joined by nobody any more
    double added_s = 0;
    double started_s = 0;
    std::uint64_t child = 0;
    std::string estimate_json;
    std::string phase;
  };
  using ProbePtr = std::shared_ptr<Probe>;

  void schedule();
  void start(const ProbePtr& probe);
  void on_line(const ProbePtr& probe, std::string_view line);
  void on_end(const ProbePtr& probe, const ChildEnd& end);
  void finish(const ProbePtr& probe, const ProbeResult& result);
  void tell_positions();

  Children& children_;
  ProbeSettings settings_;
  Ended ended_;
  std::list<ProbePtr> waiting_;
  std::list<ProbePtr> running_;
  std::list<ProbePtr> finishing_;  // ended, being recorded
  WaiterId next_waiter_ = 1;
  Timer schedule_timer_;
  bool stopped_ = false;
};

}  // namespace gpumem::submit
