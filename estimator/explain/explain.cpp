// SPDX-License-Identifier: Apache-2.0
// Where the peak is and what it consists of.
#include "estimator/explain/explain.h"

#include <algorithm>
#include <set>
#include <unordered_map>

#include "estimator/explain/candidates.h"

namespace gpumem::explain {
namespace {

using record::EventAction;
using record::EventRecord;

constexpr std::uint64_t kBlockGranularity = 512;  // PyTorch's kMinBlockSize
constexpr std::size_t kTimelineMoments = 120;

std::uint64_t rounded(std::uint64_t bytes) { return (bytes + kBlockGranularity - 1) / kBlockGranularity * kBlockGranularity; }

// What the events of one device come to.
struct Replay {
  std::vector<Block> blocks;
  std::unordered_map<std::uint64_t, std::size_t> living;            // address -> block, while it lives
  std::map<std::uint64_t, std::vector<std::size_t>> at_step;         // step -> blocks that lived at its mark
  std::map<std::uint64_t, std::size_t> marks;                        // step -> index of its last mark
  std::size_t peak = 0;                                              // index of the event that made it
  Moment at_peak;
  std::uint64_t reserved_peak_bytes = 0, device_peak_bytes = 0;
};

class Replayer {
 public:
  Replayer(const std::vector<EventRecord>& events, const record::Process& process, int device, const std::vector<allocator::Outside>& outside)
      : events_(events), outside_(outside), device_(device), part_(std::max<std::size_t>(1, events.size() / kTimelineMoments)) {
    for (const auto& list : process.tensors) {
      if (list.device == device) listed_.insert(list.step);
    }
  }

  Replay run(std::vector<Moment>& timeline) {
    for (std::size_t i = 0; i < events_.size(); ++i) {
      take_outside(events_[i].time_ns);
      take(i);
      out_.device_peak_bytes = std::max(out_.device_peak_bytes, now_.reserved_bytes + now_.outside_bytes);
      if (now_.allocated_bytes >= part_peak_.allocated_bytes) part_peak_ = now_;
      if ((i + 1) % part_ != 0 && i + 1 != events_.size()) continue;
      timeline.push_back(part_peak_);
      part_peak_ = now_;
    }
    take_outside(UINT64_MAX);
    if (!timeline.empty()) timeline.back().outside_bytes = std::max(timeline.back().outside_bytes, now_.outside_bytes);
    return std::move(out_);
  }

 private:
  void take_outside(std::uint64_t until_ns) {
    for (; next_outside_ < outside_.size() && outside_[next_outside_].time_ns <= until_ns; ++next_outside_) {
      now_.outside_bytes = allocator::held_after(now_.outside_bytes, outside_[next_outside_]);
      out_.device_peak_bytes = std::max(out_.device_peak_bytes, now_.reserved_bytes + now_.outside_bytes);
    }
  }

  void take(std::size_t index) {
    const EventRecord& event = events_[index];
    if (event.action == EventAction::step) {
      now_.step = event.size;
      out_.marks[event.size] = index;
      if (listed_.count(event.size)) remember_living(event.size);
      return;
    }
    if (event.device != device_) return;
    now_.time_s = static_cast<double>(event.time_ns) * 1e-9;
    switch (event.action) {
      case EventAction::allocate: return allocate(event, index);
      case EventAction::free_completed: return release(event, index);
      case EventAction::segment_allocate:
      case EventAction::segment_map:
        now_.reserved_bytes += event.size;
        out_.reserved_peak_bytes = std::max(out_.reserved_peak_bytes, now_.reserved_bytes);
        return;
      case EventAction::segment_free:
      case EventAction::segment_unmap: now_.reserved_bytes -= std::min(now_.reserved_bytes, event.size); return;
      default: return;
    }
  }

  void allocate(const EventRecord& event, std::size_t index) {
    Block block;
    block.address = event.address;
    block.bytes = rounded(event.size);
    block.from = index;
    block.until = events_.size();
    block.op = event.op;
    block.module = event.module;
    block.autograd = (event.flags & record::kEventOnAutogradThread) != 0;
    out_.living[event.address] = out_.blocks.size();
    out_.blocks.push_back(block);
    now_.allocated_bytes += block.bytes;
    if (now_.allocated_bytes <= out_.at_peak.allocated_bytes) return;
    out_.at_peak = now_;
    out_.peak = index;
  }

  void release(const EventRecord& event, std::size_t index) {
    const auto found = out_.living.find(event.address);
    if (found == out_.living.end()) return;
    Block& block = out_.blocks[found->second];
    block.until = index;
    now_.allocated_bytes -= block.bytes;
    out_.living.erase(found);
  }

  void remember_living(std::uint64_t step) {
    auto& blocks = out_.at_step[step];
    blocks.clear();
    for (const auto& [address, block] : out_.living) blocks.push_back(block);
  }

  const std::vector<EventRecord>& events_;
  const std::vector<allocator::Outside>& outside_;
  std::size_t next_outside_ = 0;
  const int device_;
  const std::size_t part_;
  std::set<std::uint64_t> listed_;
  Moment now_, part_peak_;
  Replay out_;
};

// Kinds of the blocks that lists name; the first list that knows a block decides.
std::unordered_map<std::size_t, Kind> listed_kinds(const Replay& replay, const record::Process& process, int device) {
  std::unordered_map<std::size_t, Kind> kinds;
  for (const auto& list : process.tensors) {
    const auto living = replay.at_step.find(list.step);
    if (list.device != device || living == replay.at_step.end()) continue;
    std::unordered_map<std::uint64_t, Kind> by_address;
    for (const auto& [addresses, kind] : {std::pair{&list.parameters, Kind::parameter}, {&list.gradients, Kind::gradient},
                                          {&list.states, Kind::state}, {&list.buffers, Kind::buffer}}) {
      for (const std::uint64_t address : *addresses) by_address.emplace(address, kind);
    }
    for (const std::size_t index : living->second) {
      const auto named = by_address.find(replay.blocks[index].address);
      if (named != by_address.end()) kinds.emplace(index, named->second);
    }
  }
  return kinds;
}

// The index from which blocks belong to the last operator before the peak: a run of requests by one operator on one thread.
std::size_t operator_begin(const std::vector<EventRecord>& events, std::size_t peak, int device) {
  const EventRecord& last = events[peak];
  std::size_t begin = peak;
  if (last.op == 0) return begin;
  for (std::size_t i = peak; i-- > 0;) {
    const EventRecord& event = events[i];
    if (event.device != device) continue;
    if (event.action == EventAction::step) break;
    if (event.action != EventAction::allocate) continue;
    if (event.op != last.op || event.module != last.module || event.flags != last.flags) break;
    begin = i;
  }
  return begin;
}

// Operators whose libraries ask PyTorch for memory that they keep.
bool calls_library(const std::string& op) {
  static constexpr const char* kNames[] = {"mm", "addmv", "::mv", "::dot", "linear", "matmul", "convolution"};
  return std::any_of(std::begin(kNames), std::end(kNames), [&](const char* name) { return op.find(name) != std::string::npos; });
}

Kind kind_of(const Block& block, bool in_library, std::size_t iteration_begin, std::size_t operator_from, std::size_t peak, std::size_t event_count) {
  // What an operator leaves behind is no workspace: only what goes within a few events is the operator's own.
  constexpr std::size_t kSoon = 64;
  if (block.from >= operator_from && block.until != event_count && block.until - peak <= kSoon) return Kind::at_peak;
  if (block.until == event_count && in_library && (block.from < iteration_begin || block.module == 0)) return Kind::workspace;
  if (block.from < iteration_begin) return Kind::kept;
  return block.autograd && block.module == 0 ? Kind::backward : Kind::activation;
}

std::string module_name(const record::Process& process, std::uint16_t number) {
  const auto found = process.modules.find(number);
  return found == process.modules.end() ? "" : found->second.path + " (" + found->second.type + ")";
}

std::string operator_name(const record::Process& process, std::uint16_t number) {
  const auto found = process.operators.find(number);
  return found == process.operators.end() ? "" : found->second;
}

std::vector<Share> sorted(const std::map<std::string, Share>& shares) {
  std::vector<Share> list;
  for (const auto& [name, share] : shares) list.push_back(share);
  std::stable_sort(list.begin(), list.end(), [](const Share& a, const Share& b) { return a.bytes > b.bytes; });
  return list;
}

void count(std::map<std::string, Share>& shares, const std::string& name, const Block& block) {
  Share& share = shares[name];
  share.name = name;
  share.bytes += block.bytes;
  ++share.blocks;
}

}  // namespace

const char* kind_text(Kind kind) {
  switch (kind) {
    case Kind::parameter: return "parameters";
    case Kind::buffer: return "buffers";
    case Kind::gradient: return "gradients";
    case Kind::state: return "optimizer state";
    case Kind::activation: return "activations";
    case Kind::backward: return "backward pass";
    case Kind::at_peak: return "operator at the peak";
    case Kind::workspace: return "library workspaces";
    case Kind::kept: return "kept from before";
  }
  return "";
}

std::uint64_t Explanation::cache_bytes() const {
  return peak.reserved_bytes > peak.allocated_bytes ? peak.reserved_bytes - peak.allocated_bytes : 0;
}

std::vector<int> devices_of(const std::vector<EventRecord>& events) {
  std::set<int> devices;
  for (const auto& event : events) {
    if (event.action == EventAction::allocate) devices.insert(event.device);
  }
  return {devices.begin(), devices.end()};
}

Explanation explain(const std::vector<EventRecord>& events, const record::Process& process, int device, const std::vector<allocator::Outside>& outside) {
  Explanation out;
  Replay replay = Replayer(events, process, device, outside).run(out.timeline);
  out.peak = replay.at_peak;
  out.reserved_peak_bytes = replay.reserved_peak_bytes;
  out.device_peak_bytes = replay.device_peak_bytes;
  if (replay.blocks.empty()) return out;

  const auto listed = listed_kinds(replay, process, device);
  out.attributed = !listed.empty();
  const auto mark = replay.marks.find(replay.at_peak.step);
  const std::size_t iteration_begin = mark == replay.marks.end() ? 0 : mark->second;
  const std::size_t operator_from = operator_begin(events, replay.peak, device);
  std::vector<Block> at_peak;
  std::map<std::string, Share> activations, operators;
  for (std::size_t i = 0; i < replay.blocks.size(); ++i) {
    Block& block = replay.blocks[i];
    if (block.from > replay.peak || block.until <= replay.peak) continue;
    std::string asked = operator_name(process, block.op);
    if (asked.empty()) asked = "outside of operators";
    const auto named = listed.find(i);
    block.kind = named != listed.end() ? named->second : kind_of(block, calls_library(asked), iteration_begin, operator_from, replay.peak, events.size());
    out.bytes[block.kind] += block.bytes;
    at_peak.push_back(block);
    if (block.kind == Kind::activation) {
      const std::string module = module_name(process, block.module);
      count(activations, module.empty() ? asked : module, block);
    } else if (named == listed.end()) {
      count(operators, asked, block);
    }
  }
  out.activations = sorted(activations);
  out.operators = sorted(operators);
  const Block& last = *std::max_element(at_peak.begin(), at_peak.end(), [](const Block& a, const Block& b) { return a.from < b.from; });
  out.peak_operator = operator_name(process, last.op);
  out.peak_module = module_name(process, last.module);
  out.candidates = find_candidates({at_peak, process, out, gradients_that_stay(replay.blocks, listed, replay.marks)});
  return out;
}

}  // namespace gpumem::explain
