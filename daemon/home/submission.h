// SPDX-License-Identifier: Apache-2.0
// One submission on its way to its decision. Private to daemon/home, used by gpumemd.
//
// begin() answers what needs no probe; otherwise one Search runs for each GPU model that the job may get, and conclude() comes when
// all have ended, the deadline has passed, or the client has gone. The Decider owns it; finish() ends it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/home/decider.h"
#include "daemon/home/estimate_reading.h"
#include "daemon/policy/decision.h"

namespace gpumem::home {

class Submission : public std::enable_shared_from_this<Submission> {
 public:
  Submission(Decider& decider, ExchangePtr exchange);
  ~Submission();

  void begin();
  bool is_over() const { return over_; }

 private:
  // What is being found out about one GPU model.
  struct Search {
    const PoolGpu* gpu = nullptr;
    std::string fingerprint;
    std::optional<db::Probe> cached;
    submit::WaiterId waiter = 0;           // 0: no probe
    std::optional<EstimateReading> reading;
    std::optional<policy::Evidence> evidence;
    std::string failure;                   // a sentence: no estimate, and why
    bool files_changed = false;            // since the last probe of this fingerprint: its runs say nothing about this one
    bool done = false;
  };

  bool answer_without_search();
  void search_all();
  void search(std::size_t index);
  void use_cached(std::size_t index, bool files_same);
  void start_probe(std::size_t index);
  void probe_done(std::size_t index, const submit::ProbeResult& result);
  void search_done(std::size_t index);
  bool add_measurements(Search& search, bool peaks_count);
  void conclude();
  void deadline_passed();
  void client_gone();
  void withdraw(bool keep);

  policy::Place place(const PoolGpu& gpu) const;
  policy::MarginRule margin_for(const std::string& rule, const std::string& gpu) const;
  policy::Answer answer_for(const Search& search) const;
  std::string probe_request(const Search& search) const;
  db::Decision record(const policy::Answer& answer) const;
  // Records and replies; the submission is over.
  void finish(const policy::Answer& answer, const Search* search = nullptr);
  void reply(const policy::Answer& answer, const std::string& token);

  Decider& decider_;
  ExchangePtr exchange_;
  std::shared_ptr<const std::vector<Pool>> pools_;
  policy::Request request_;
  policy::GpuRequest gpu_;
  const Pool* pool_ = nullptr;
  std::vector<std::string> partitions_;
  Identity identity_;
  double begun_s_ = 0;
  std::string token_;
  bool observed_ = false;  // answered already: the decision is amended
  bool over_ = false;
  std::vector<Search> searches_;
  Timer deadline_;
};

}  // namespace gpumem::home
