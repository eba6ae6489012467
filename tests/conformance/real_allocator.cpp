// SPDX-License-Identifier: Apache-2.0
// PyTorch's side of the comparison. See real_allocator.h.
#include "tests/conformance/real_allocator.h"

namespace conformance {

std::unordered_map<uint64_t, StreamClock> real_clocks, model_clocks;
std::vector<model::Event> real_events_seen;
std::unordered_map<uint64_t, uint64_t> pool_numbers;

namespace {

std::unordered_map<void*, std::pair<uint64_t, uint64_t>> real_events;

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

}  // namespace

#if TORCH_AT_LEAST(3)
void start_listening() {
  real::attachAllocatorTraceTracker([](const real::TraceEntry& entry) { see(entry); });
}
void collect() {}
#else
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

}  // namespace conformance

using conformance::real_clocks;
using conformance::real_events;

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
