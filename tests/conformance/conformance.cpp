// SPDX-License-Identifier: Apache-2.0
// The allocator model against PyTorch's own: the same requests to both, every event and statistic compared. Compiled and
// run by tests/conformance/run for one PyTorch, on the virtual GPU; settings come in PYTORCH_CUDA_ALLOC_CONF as always.
// conformance SEED REQUESTS [--fraction F] [--pools | --keep-pools] [--streams] [--sizes small|mixed|large] [--record FILE]
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/util/Exception.h>
#include <torch/version.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <unordered_map>
#include <vector>

#include "estimator/allocator/allocator.h"
#include "estimator/allocator/requests.h"

// What libtorch_cuda does at its start, in versions where libc10_cuda asks it; no header has it.
namespace c10::cuda::_internal {
__attribute__((weak)) void setHasPrimaryContext(bool (*)(DeviceIndex));
}
namespace c10::cuda::detail {
__attribute__((weak)) void init_p2p_access_cache(int64_t);
}

namespace real = c10::cuda::CUDACachingAllocator;
namespace model = gpumem::allocator;

#define TORCH_AT_LEAST(minor) (TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= (minor))

namespace {

constexpr uint64_t kMiB = 1u << 20;

// Events happen when we say so, for both: n-th event of a stream, and how many of them have happened.
struct StreamClock {
  uint64_t recorded = 0, happened = 0;
};
std::unordered_map<uint64_t, StreamClock> real_clocks, model_clocks;
std::unordered_map<void*, std::pair<uint64_t, uint64_t>> real_events;

}  // namespace

// In front of the virtual GPU's: the allocator asks these.
extern "C" __attribute__((visibility("default"))) cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const auto key = reinterpret_cast<uint64_t>(stream);
  real_events[event] = {key, ++real_clocks[key].recorded};
  return cudaSuccess;
}
extern "C" __attribute__((visibility("default"))) cudaError_t cudaEventQuery(cudaEvent_t event) {
  const auto& [stream, number] = real_events[event];
  return number <= real_clocks[stream].happened ? cudaSuccess : cudaErrorNotReady;
}
extern "C" __attribute__((visibility("default"))) cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }

namespace {

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

std::vector<model::Event> real_events_seen;
std::unordered_map<uint64_t, uint64_t> pool_numbers;  // of MempoolId_t's second: ours

#if TORCH_AT_LEAST(8)
template <class Entry>
auto pool_of(const Entry& entry, int) -> decltype(entry.mempool_, model::PoolId()) {
  return pool_numbers[entry.mempool_.first + entry.mempool_.second];
}
#endif
template <class Entry>
model::PoolId pool_of(const Entry&, long) { return 0; }

template <class Entry>
void see(const Entry& entry) {
  const auto action = static_cast<int>(entry.action_);
  if (action > 8 || action == 7) return;  // snapshots and annotations
  real_events_seen.push_back({static_cast<model::Action>(action), reinterpret_cast<uint64_t>(entry.stream_), static_cast<uint64_t>(entry.addr_),
                              static_cast<uint64_t>(entry.size_), pool_of(entry, 0)});
}

// A pool in use was as good as a capture under way; since 2.12 only captures are.
constexpr bool kPoolsCountAsCaptures = !TORCH_AT_LEAST(12);

// PyTorch before 2.2 tells nobody as it happens; its history is read after some requests.
#if TORCH_AT_LEAST(3)
constexpr bool kTracker = true;
void start_listening() {
  real::attachAllocatorTraceTracker([](const real::TraceEntry& entry) { see(entry); });
}
void collect() {}
#else
constexpr bool kTracker = false;
void start_listening() {
  real::recordHistory(true, [] { return std::shared_ptr<c10::GatheredContext>(); }, 1u << 20, real::RecordContext::NEVER);
}
void collect() {
  const auto snapshot = real::get()->snapshot();
  for (const auto& entry : snapshot.device_traces.at(0)) see(entry);
  real::recordHistory(false, nullptr, 1u << 20, real::RecordContext::NEVER);
  start_listening();
}
#endif

const char* name(model::Action action) {
  static const char* const names[] = {"allocate", "free_requested", "free_completed", "segment_allocate", "segment_free",
                                      "segment_map", "segment_unmap", "?", "out_of_memory"};
  return names[static_cast<int>(action)];
}

void print(const char* whose, const std::vector<model::Event>& events, size_t around) {
  for (size_t i = around > 6 ? around - 6 : 0; i < events.size() && i < around + 6; ++i) {
    const auto& e = events[i];
    fprintf(stderr, "  %s %s[%zu] %-16s stream %" PRIx64 " address %" PRIx64 " size %" PRIu64 " pool %" PRIu64 "\n", i == around ? "->" : "  ", whose, i,
            name(e.action), e.stream, e.address, e.size, e.pool);
  }
}

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

void Comparison::start() {
  if (c10::cuda::_internal::setHasPrimaryContext != nullptr) {
    c10::cuda::_internal::setHasPrimaryContext([](c10::DeviceIndex) { return true; });
  }
  if (c10::cuda::detail::init_p2p_access_cache != nullptr) c10::cuda::detail::init_p2p_access_cache(1);
  real::init(1);
  streams_.push_back(c10::cuda::getDefaultCUDAStream(0));
  for (int i = 0; i < 3; ++i) streams_.push_back(c10::cuda::getStreamFromPool(false, 0));
  choose_stream(0);
  // Where the next segment will be: right below the one that was just made.
  uint64_t next = 0;
  {
    auto first = real::get()->allocate(2 * kMiB);
    next = reinterpret_cast<uint64_t>(first.get());
  }
  real::emptyCache();
  first_peak_ = static_cast<uint64_t>(real::get()->getDeviceStats(0).reserved_bytes[0].peak);
  // Small segments are whole granules, as all that comes.
  size_t free_bytes = 0, total_bytes = 0;
  cudaMemGetInfo(&free_bytes, &total_bytes);
  capacity_ = free_bytes;
  gpu_ = std::make_unique<MirrorGpu>(free_bytes, total_bytes);
  const auto variable = [](const char* key) { const char* value = getenv(key); return value ? std::optional<std::string>(value) : std::nullopt; };
  auto config = model::config_from_environment(variable("PYTORCH_CUDA_ALLOC_CONF"), variable("PYTORCH_ALLOC_CONF"), {TORCH_VERSION_MAJOR, TORCH_VERSION_MINOR});
  if (!config) {
    fprintf(stderr, "%s\n", config.error().message.c_str());
    exit(2);
  }
  if (config->expandable_segments) next &= ~(2 * kMiB - 1);
  gpu_->set_next_address(next);
  allocator_ = std::make_unique<model::Allocator>(*config, *gpu_);
  allocator_->log_to(&model_events_);
  start_listening();
  real_events_seen.clear();
  if (options_.fraction > 0) {
    real::setMemoryFraction(options_.fraction, 0);
    allocator_->set_memory_fraction(options_.fraction);
    capacity_ = std::min<uint64_t>(capacity_, static_cast<uint64_t>(options_.fraction * static_cast<double>(total_bytes)));
  }
  for (int i = 0; i < 24; ++i) favourites_.push_back(random_size());
}

bool Comparison::compare_stats() {
  const auto theirs = real::get()->getDeviceStats(0);
  const auto& ours = allocator_->stats();
  const auto same = [&](const char* what, int64_t a, uint64_t b) {
    if (static_cast<uint64_t>(a) == b) return true;
    fprintf(stderr, "difference after request %" PRIu64 ": %s is %" PRId64 ", the model says %" PRIu64 "\n", requests_, what, a, b);
    return false;
  };
  return same("allocated_bytes", theirs.allocated_bytes[0].current, ours.allocated_bytes.current) &
         same("active_bytes", theirs.active_bytes[0].current, ours.active_bytes.current) &
         same("requested_bytes", theirs.requested_bytes[0].current, ours.requested_bytes.current) &
         same("reserved_bytes", theirs.reserved_bytes[0].current, ours.reserved_bytes.current) &
         same("reserved_bytes' peak", theirs.reserved_bytes[0].peak, std::max(ours.reserved_bytes.peak, first_peak_)) &
         same("segments", theirs.segment[0].current, ours.segments.current) &
         same("inactive_split", theirs.inactive_split[0].current, ours.inactive_splits.current) &
         same("inactive_split_bytes", theirs.inactive_split_bytes[0].current, ours.inactive_split_bytes.current) &
         same("num_alloc_retries", theirs.num_alloc_retries, ours.retries) & same("num_ooms", theirs.num_ooms, ours.out_of_memory);
}

std::unordered_map<uint64_t, model::PoolId> pool_of_address;  // of segments, as the model knows it

// Frees that become complete together have no order among streams, private pools given back none among each other:
// PyTorch goes through hash tables.
void order(std::vector<model::Event>& events) {
  const auto given_back = [](const model::Event& e) { return e.action == model::Action::segment_free || e.action == model::Action::segment_unmap; };
  for (auto at = events.begin(); at != events.end();) {
    const auto begin = std::find_if(at, events.end(), given_back);
    at = std::find_if_not(begin, events.end(), given_back);
    std::stable_sort(begin, at, [](const auto& a, const auto& b) { return pool_of_address[a.address] < pool_of_address[b.address]; });
  }
  const auto completed = [](const model::Event& e) { return e.action == model::Action::free_completed; };
  for (auto at = events.begin(); at != events.end();) {
    const auto begin = std::find_if(at, events.end(), completed);
    at = std::find_if_not(begin, events.end(), completed);
    std::sort(begin, at, [](const auto& a, const auto& b) { return a.address < b.address; });
  }
}

// `drain`: also where the real one's history is read only now and then.
bool Comparison::compare(bool drain) {
  if (!compare_stats()) drain = true;
  else if (!kTracker && !drain) return true;
  const bool stats_differ = drain && !compare_stats();
  collect();
  for (const auto& event : model_events_) {
    if (event.action >= model::Action::segment_allocate) pool_of_address[event.address] = event.pool;
  }
  order(real_events_seen);
  order(model_events_);
#if !TORCH_AT_LEAST(8)
  for (auto& event : model_events_) event.pool = 0;  // this PyTorch does not say
#endif
  if (stats_differ || real_events_seen != model_events_) {
    const size_t n = std::min(real_events_seen.size(), model_events_.size());
    size_t i = 0;
    while (i < n && real_events_seen[i] == model_events_[i]) ++i;
    fprintf(stderr, "difference at request %" PRIu64 " (seed %" PRIu64 "): PyTorch has %zu events, the model %zu\n", requests_, options_.seed,
            real_events_seen.size(), model_events_.size());
    print("PyTorch", real_events_seen, i);
    print("model  ", model_events_, i);
    return false;
  }
  events_ += model_events_.size();
  real_events_seen.clear();
  model_events_.clear();
  return true;
}

bool Comparison::allocate(uint64_t bytes, size_t stream, model::PoolId pool, Live* live) {
  choose_stream(stream);
  bool served = true;
  try {
    live->real = real::get()->allocate(bytes);
  } catch (const c10::OutOfMemoryError&) {
    served = false;
  }
  live->block = allocator_->allocate(bytes, handle(stream), pool);
  if (served != (live->block != nullptr) || (served && reinterpret_cast<uint64_t>(live->real.get()) != model::Allocator::address_of(live->block))) {
    fprintf(stderr, "difference at request %" PRIu64 ": %" PRIu64 " bytes on stream %zu: PyTorch gives %p, the model %" PRIx64 "\n", requests_, bytes, stream,
            served ? live->real.get() : nullptr, live->block ? model::Allocator::address_of(live->block) : 0);
    compare(true);
    exit(1);
  }
  if (!served) ++refused_;
  return served;
}

uint64_t Comparison::random_size() {
  const uint64_t kind = below(100);
  const bool small = options_.sizes == "small", large = options_.sizes == "large";
  if (kind < (small ? 85 : large ? 20 : 50)) return 1 + below(uint64_t{1} << (1 + below(20)));
  if (kind < (small ? 97 : large ? 50 : 75)) return kMiB + 1 + below(9 * kMiB);
  if (kind < 90) return 10 * kMiB + below(40 * kMiB);
  return below(large ? 600 * kMiB : 200 * kMiB) + 1;
}

void Comparison::advance_clock() {
  const uint64_t stream = handle(1 + below(3));
  const uint64_t by = below(4);
  auto& clock = real_clocks[stream];
  clock.happened = std::min(clock.recorded, clock.happened + by);
  model_clocks[stream].happened = clock.happened;
}

void Comparison::toggle_pool() {
#if TORCH_AT_LEAST(3)
  if (pool_ != 0) {
    real::get()->endAllocateToPool(0, {0, pool_ + 1000});
    if (kPoolsCountAsCaptures) allocator_->end_capture();
    kept_pools_.push_back(std::exchange(pool_, 0));
  } else if (kept_pools_.empty() || options_.keep_pools || below(2) == 0) {
    pool_ = next_pool_++;
    pool_stream_ = below(4);
    pool_numbers[pool_ + 1000] = pool_;
    const auto stream = streams_[pool_stream_].stream();
    real::get()->beginAllocateToPool(0, {0, pool_ + 1000}, [stream](cudaStream_t s) { return s == stream; });
    allocator_->use_pool(pool_);
    if (kPoolsCountAsCaptures) allocator_->begin_capture();
  } else {
    const size_t at = below(kept_pools_.size());
    real::get()->releasePool(0, {0, kept_pools_[at] + 1000});
    allocator_->release_pool(kept_pools_[at]);
    kept_pools_.erase(kept_pools_.begin() + static_cast<std::ptrdiff_t>(at));
  }
#endif
}

void Comparison::random_request() {
  const uint64_t what = below(1000);
  // The more is held the likelier is a free; now and then all of it.
  const bool full = live_bytes_ > capacity_ - capacity_ / 8;
  if (what < 2 && pool_ == 0) {
    real::emptyCache();
    allocator_->empty_cache();
  } else if (what < 3) {
    for (auto& live : live_) let_go(live);
    live_.clear();
    live_bytes_ = 0;
  } else if (what < 6 && options_.pools) {
    toggle_pool();
  } else if (what < 60 && options_.streams) {
    advance_clock();
  } else if (!live_.empty() && what < (full ? 760 : live_bytes_ > capacity_ / 2 ? 540 : 470)) {
    const size_t at = below(3) == 0 ? live_.size() - 1 : below(live_.size());
    Live& live = live_[at];
    if (options_.streams && below(5) == 0) {
      for (uint64_t i = 0; i <= below(2); ++i) {
        const size_t other = 1 + below(3);
        real::get()->recordStream(live.real, streams_[other]);
        allocator_->record_stream(live.block, handle(other));
      }
    }
    live_bytes_ -= model::Allocator::requested_of(live.block);
    let_go(live);
    if (at + 1 != live_.size()) std::swap(live, live_.back());
    live_.pop_back();
  } else {
    const uint64_t bytes = below(4) != 0 ? favourites_[below(favourites_.size())] : random_size();
    const size_t stream = options_.streams && below(4) == 0 ? below(4) : 0;
    Live live{};
    if (allocate(bytes, stream, pool_ != 0 && stream == pool_stream_ ? pool_ : 0, &live)) {
      live_bytes_ += bytes;
      live_.push_back(std::move(live));
    } else if (below(2) == 0) {  // a program that catches it lets go of much
      for (size_t n = live_.size() / 2; n > 0; --n) {
        live_bytes_ -= model::Allocator::requested_of(live_.back().block);
        let_go(live_.back());
        live_.pop_back();
      }
    }
  }
}

// What a recorded program asked for, to both.
void Comparison::replay_record() {
  auto file = gpumem::record::read_events(options_.record);
  if (!file) {
    fprintf(stderr, "%s\n", file.error().message.c_str());
    exit(2);
  }
  for (const auto& [device, trace] : model::traces_of(*file)) {
    std::unordered_map<uint64_t, size_t> stream_numbers{{0, 0}};
    std::vector<Live> slots(trace.slots);
    for (const auto& request : trace.requests) {
      ++requests_;
      const size_t stream = std::min<size_t>(stream_numbers.emplace(request.stream, stream_numbers.size()).first->second, 2);
      switch (request.kind) {
        case Kind::allocate: {
          Live live{};
          if (allocate(request.bytes, stream, 0, &live)) slots[request.slot] = std::move(live);
          break;
        }
        case Kind::free_later:
          if (slots[request.slot].block) {
            real::get()->recordStream(slots[request.slot].real, streams_[3]);
            allocator_->record_stream(slots[request.slot].block, handle(3));
            let_go(slots[request.slot]);
          }
          break;
        case Kind::free:
          if (slots[request.slot].block) let_go(slots[request.slot]);
          break;
        case Kind::complete:
          real_clocks[handle(3)].happened = std::min(real_clocks[handle(3)].recorded, real_clocks[handle(3)].happened + 1);
          model_clocks[handle(3)].happened = real_clocks[handle(3)].happened;
          break;
        case Kind::empty_cache:
          real::emptyCache();
          allocator_->empty_cache();
          break;
        default: break;
      }
      if (!compare(false)) exit(1);
    }
    for (auto& slot : slots) {
      if (slot.block) let_go(slot);
    }
  }
}

int Comparison::run() {
  start();
  if (!options_.record.empty()) {
    replay_record();
  } else {
    for (requests_ = 1; requests_ <= options_.requests; ++requests_) {
      random_request();
      if (!compare(requests_ % 2000 == 0)) return 1;
    }
    if (pool_ != 0) toggle_pool();
    for (auto& live : live_) let_go(live);
  }
  if (!compare(true)) return 1;
  printf("events %" PRIu64 " requests %" PRIu64 " refused %" PRIu64 " retries %" PRIu64 " segments %" PRIu64 " differences 0\n", events_, requests_, refused_,
         allocator_->stats().retries, allocator_->stats().device_allocations);
  fflush(stdout);
  _Exit(0);  // PyTorch's exit handlers have nothing to do with it
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (argc < 3) {
    fprintf(stderr, "usage: conformance SEED REQUESTS [--fraction F] [--pools | --keep-pools] [--streams] [--sizes small|mixed|large] [--record FILE]\n");
    return 2;
  }
  options.seed = strtoull(argv[1], nullptr, 10);
  options.requests = strtoull(argv[2], nullptr, 10);
  for (int i = 3; i < argc; ++i) {
    const std::string option = argv[i];
    if (option == "--pools") options.pools = true;
    else if (option == "--keep-pools") options.pools = options.keep_pools = true;
    else if (option == "--streams") options.streams = true;
    else if (option == "--fraction" && i + 1 < argc) options.fraction = atof(argv[++i]);
    else if (option == "--sizes" && i + 1 < argc) options.sizes = argv[++i];
    else if (option == "--record" && i + 1 < argc) options.record = argv[++i];
    else return fprintf(stderr, "conformance: unknown option %s\n", argv[i]), 2;
  }
  try {
    return Comparison(options).run();
  } catch (const std::exception& error) {
    fprintf(stderr, "conformance: %s\n", error.what());
    return 1;
  }
}
