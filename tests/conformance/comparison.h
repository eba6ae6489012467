// SPDX-License-Identifier: Apache-2.0
// The same requests to PyTorch's allocator and to the model of it, every event and statistic compared (conformance.cpp).
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "estimator/allocator/requests.h"
#include "tests/conformance/real_allocator.h"

namespace conformance {

class MirrorGpu : public model::VirtualGpu {
 public:
  using VirtualGpu::VirtualGpu;
  uint64_t record_event(uint64_t stream) override {
    events_.push_back({stream, ++model_clocks[stream].recorded});
    return events_.size() - 1;
  }
  bool event_happened(uint64_t event) override { return events_[event].second <= model_clocks[events_[event].first].happened; }

 private:
  std::vector<std::pair<uint64_t, uint64_t>> events_;
};

struct Live {
  c10::DataPtr real;
  model::Block* block;
};

struct Options {
  uint64_t seed = 1, requests = 100000;
  double fraction = 0;
  bool pools = false, keep_pools = false, streams = false;
  std::string sizes = "mixed", record;
};

class Comparison {
 public:
  explicit Comparison(const Options& options) : options_(options), random_(options.seed) {}
  int run();

 private:
  using Kind = model::Request::Kind;
  void start();
  bool compare(bool drain);
  bool compare_stats();
  bool allocate(uint64_t bytes, size_t stream, model::PoolId pool, Live* live);
  void let_go(Live& live) {
    allocator_->free(std::exchange(live.block, nullptr));
    live.real.clear();
  }
  uint64_t random_size();
  uint64_t below(uint64_t n) { return random_() % n; }
  void random_request();
  void toggle_pool();
  void advance_clock();
  void replay_record();
  void choose_stream(size_t stream) { c10::cuda::setCurrentCUDAStream(streams_[stream]); }
  uint64_t handle(size_t stream) const { return reinterpret_cast<uint64_t>(streams_[stream].stream()); }

  Options options_;
  std::mt19937_64 random_;
  std::unique_ptr<MirrorGpu> gpu_;
  std::unique_ptr<model::Allocator> allocator_;
  std::vector<c10::cuda::CUDAStream> streams_;
  std::vector<Live> live_;
  std::vector<model::Event> model_events_;
  std::vector<uint64_t> favourites_;
  uint64_t first_peak_ = 0;  // of what start() asked for
  uint64_t live_bytes_ = 0, capacity_ = 0, events_ = 0, requests_ = 0, refused_ = 0;
  uint64_t pool_ = 0, next_pool_ = 1;  // the pool that allocations of stream pool_stream_ go to now
  size_t pool_stream_ = 0;
  std::vector<uint64_t> kept_pools_;
};

}  // namespace conformance
