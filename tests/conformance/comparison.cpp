// SPDX-License-Identifier: Apache-2.0
// What is compared, and how it is said. See comparison.h.
#include "tests/conformance/comparison.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <optional>

namespace conformance {
namespace {

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

}  // namespace

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

}  // namespace conformance
