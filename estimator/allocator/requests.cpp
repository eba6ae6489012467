// SPDX-License-Identifier: Apache-2.0
// What a recorded process asked its allocator for. See requests.h.
#include "estimator/allocator/requests.h"

#include <algorithm>
#include <unordered_map>

namespace gpumem::allocator {
namespace {

using record::EventAction;
using record::EventRecord;

class Converter {
 public:
  void add(const EventRecord& event, const EventRecord* next) {
    const bool gives_back = event.action == EventAction::segment_free || event.action == EventAction::segment_unmap;
    if (gives_back) {
      give_back(event);
      return;
    }
    giving_back_ = false;
    switch (event.action) {
      case EventAction::allocate: allocate(event); break;
      case EventAction::free_requested: free(event, next); break;
      case EventAction::free_completed: complete(event); break;
      case EventAction::segment_allocate:
      case EventAction::segment_map:
        reserved_ += event.size;
        trace_.peak_reserved_bytes = std::max(trace_.peak_reserved_bytes, reserved_);
        if (event.pool != 0) pool_of_segment_[event.address] = event.pool;
        break;
      case EventAction::out_of_memory:
        ++trace_.refused;
        request(Request::Kind::refused, event, 0, event.size);
        break;
      case EventAction::memory_fraction: request(Request::Kind::memory_fraction, event, 0, event.size); break;
      case EventAction::step: request(Request::Kind::step, event, 0, event.size); break;
      case EventAction::batch: request(Request::Kind::batch, event, 0, event.size); break;
      default: break;
    }
  }

  Trace finish() { return std::move(trace_); }

 private:
  struct Live {
    std::uint32_t slot;
    std::uint64_t bytes;
    bool free_requested;
  };

  void request(Request::Kind kind, const EventRecord& event, std::uint32_t slot, std::uint64_t bytes) {
    const unsigned backward = event.flags & record::kEventOnAutogradThread ? 0x8000 : 0;
    const auto origin = static_cast<std::uint16_t>(kind == Request::Kind::allocate ? (event.op & 0x7fff) | backward : 0);
    trace_.requests.push_back({kind, event.pool, origin, slot, bytes, event.stream, event.time_ns});
  }

  void allocate(const EventRecord& event) {
    if (event.size == 0 || live_.count(event.address) > 0) {
      ++trace_.unknown;
      return;
    }
    std::uint32_t slot = trace_.slots;
    if (free_slots_.empty()) {
      ++trace_.slots;
    } else {
      slot = free_slots_.back();
      free_slots_.pop_back();
    }
    live_.emplace(event.address, Live{slot, event.size, false});
    requested_ += event.size;
    trace_.peak_requested_bytes = std::max(trace_.peak_requested_bytes, requested_);
    trace_.private_pools = trace_.private_pools || event.pool != 0;
    request(Request::Kind::allocate, event, slot, event.size);
  }

  void free(const EventRecord& event, const EventRecord* next) {
    const auto found = live_.find(event.address);
    if (found == live_.end() || found->second.free_requested) {
      ++trace_.unknown;
      return;
    }
    if (next != nullptr && next->action == EventAction::free_completed && next->address == event.address && !(next->flags & record::kEventWaited)) {
      request(Request::Kind::free, event, found->second.slot, 0);
      end(found);
      completed_ = event.address;
    } else {
      request(Request::Kind::free_later, event, found->second.slot, 0);
      found->second.free_requested = true;
    }
  }

  void complete(const EventRecord& event) {
    if (completed_ == event.address) {  // told with the request
      completed_ = 0;
      return;
    }
    const auto found = live_.find(event.address);
    if (found == live_.end() || !found->second.free_requested) {
      ++trace_.unknown;
      return;
    }
    request(Request::Kind::complete, event, found->second.slot, 0);
    end(found);
  }

  void end(std::unordered_map<std::uint64_t, Live>::iterator found) {
    requested_ -= found->second.bytes;
    free_slots_.push_back(found->second.slot);
    live_.erase(found);
  }

  void give_back(const EventRecord& event) {
    reserved_ -= std::min(reserved_, event.size);
    const auto pool = pool_of_segment_.find(event.address);
    if (pool != pool_of_segment_.end()) {
      EventRecord release = event;
      release.pool = pool->second;
      request(Request::Kind::release_pool, release, 0, 0);
      pool_of_segment_.erase(pool);
      giving_back_ = false;  // the pool's memory goes with the next one
    }
    if (!giving_back_) request(Request::Kind::empty_cache, event, 0, 0);
    giving_back_ = true;
  }

  Trace trace_;
  std::unordered_map<std::uint64_t, Live> live_;
  std::unordered_map<std::uint64_t, std::uint8_t> pool_of_segment_;
  std::vector<std::uint32_t> free_slots_;
  std::uint64_t reserved_ = 0, requested_ = 0;
  std::uint64_t completed_ = 0;
  bool giving_back_ = false;
};

}  // namespace

std::map<int, Trace> traces_of(const record::EventFile& file) {
  // The next event of the same device decides whether a free was complete at once.
  std::map<int, std::vector<const EventRecord*>> by_device;
  for (const auto& event : file.events) {
    if (event.action == EventAction::step || event.action == EventAction::batch) {
      for (auto& [device, events] : by_device) events.push_back(&event);
    } else {
      by_device[event.device].push_back(&event);
    }
  }
  std::map<int, Trace> traces;
  for (const auto& [device, events] : by_device) {
    Converter converter;
    for (std::size_t i = 0; i < events.size(); ++i) converter.add(*events[i], i + 1 < events.size() ? events[i + 1] : nullptr);
    Trace trace = converter.finish();
    trace.process = file.process;
    trace.start_ns = file.start_ns;
    traces.emplace(device, std::move(trace));
  }
  return traces;
}

Result<Config> config_of(const record::Process& process) {
  const auto version = parse_version(process.torch);
  if (!version || !is_known_version(*version)) {
    return Error{ErrorKind::unsupported, "the allocator of PyTorch " + process.torch + " is not known"};
  }
  auto config = config_from_environment(process.cuda_alloc_conf, process.alloc_conf, *version);
  if (config && (!process.knows_allocator || config->cuda_malloc_async)) {
    return Error{ErrorKind::unsupported, "PyTorch's own allocator was not in use"};
  }
  return config;
}

}  // namespace gpumem::allocator
