// SPDX-License-Identifier: Apache-2.0
// Keeps what gpumemd knows of Slurm's configuration fresh. Used by gpumemd, roles home and submit.
//
// libslurm may block, print and exit: it is called in a program of its own, gpumem-slurm-facts, in bounded time. While that fails the
// last facts stay; without any, SlurmFacts::known is false and says why. Belongs to the loop's one thread.
#pragma once

#include <functional>
#include <string>

#include "daemon/child.h"
#include "daemon/config.h"
#include "daemon/policy/slurm_facts.h"

namespace gpumem::home {

class SlurmWatch {
 public:
  SlurmWatch(event_base* base, Children& children, config::SlurmSection section);

  const policy::SlurmFacts& facts() const { return facts_; }
  double read_s() const { return read_s_; }  // Unix time of the last success; 0: never
  // Reads now, and again every refresh_s (sooner after a failure).
  void start(config::SlurmSection section);
  void on_change(std::function<void()> callback) { changed_ = std::move(callback); }

 private:
  void read();
  void finished(const ChildEnd& end);

  Children& children_;
  config::SlurmSection section_;
  policy::SlurmFacts facts_;
  double read_s_ = 0;
  bool reading_ = false;
  std::string output_;
  Timer timer_;
  std::function<void()> changed_;
};

}  // namespace gpumem::home
