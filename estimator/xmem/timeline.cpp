// SPDX-License-Identifier: Apache-2.0
// From events to a timeline.
#include "estimator/xmem/timeline.h"

#include <algorithm>
#include <unordered_map>

namespace gpumem::xmem {
namespace {

struct OpenModule {
  std::uint64_t begin, number;
  bool is_loss, calls_others;
};

class Builder {
 public:
  Timeline build(const std::vector<SequenceEvent>& events) {
    for (const auto& event : events) {
      ++time_;
      add(event);
    }
    finish();
    return std::move(timeline_);
  }

 private:
  void add(const SequenceEvent& event) {
    switch (event.kind) {
      case SequenceKind::op_begin:
        // As PyTorch's profiler does: the engine's frame gets the number of the backward function that follows it.
        if (event.second == kBackwardNode && frame_ != kNever) timeline_.operators[frame_].sequence = event.first;
        frame_ = event.second == kBackwardNodeAround ? timeline_.operators.size() : kNever;
        open_operators_[time_ - 1] = timeline_.operators.size();
        timeline_.operators.push_back({time_, kNever, event.first});
        break;
      case SequenceKind::op_end:
        if (auto found = open_operators_.find(event.first); found != open_operators_.end()) {
          timeline_.operators[found->second].end = time_;
          open_operators_.erase(found);
        }
        break;
      case SequenceKind::allocate:
        // An address that is handed out again was released where nobody looked (a thread that is not followed).
        release(event.first);
        live_[event.first] = timeline_.blocks.size();
        timeline_.blocks.push_back({event.second, time_, kNever});
        break;
      case SequenceKind::release:
        release(event.first);
        break;
      case SequenceKind::module_begin:
        if (!modules_.empty()) modules_.back().calls_others = true;
        modules_.push_back({time_, event.first, event.second != 0, false});
        break;
      case SequenceKind::module_end:
        end_module(event.first);
        break;
      case SequenceKind::iteration:
        if (!iterations_.empty()) iterations_.back().end = time_ - 1;
        iterations_.push_back({time_, kNever, 0, 0, 0});
        break;
      case SequenceKind::zero_grad_begin:
        if (!iterations_.empty() && iterations_.back().zero_grad_begin == 0) iterations_.back().zero_grad_begin = time_;
        break;
      case SequenceKind::zero_grad_end:
        break;
      case SequenceKind::step_begin:
        timeline_.steps.push_back({time_, time_});
        if (!iterations_.empty()) iterations_.back().step_begin = time_;
        break;
      case SequenceKind::step_end:
        if (!timeline_.steps.empty()) timeline_.steps.back().end = time_;
        if (!iterations_.empty()) iterations_.back().step_end = time_;
        break;
      case SequenceKind::parameter:
        timeline_.parameters.push_back({event.first, event.second != 0});
        break;
      case SequenceKind::data:
        timeline_.data.emplace_back(time_, event.first);
        break;
      case SequenceKind::transformer:
        timeline_.is_transformer = true;
        break;
    }
  }

  void release(std::uint64_t address) {
    auto found = live_.find(address);
    if (found == live_.end()) return;  // allocated before the recording began
    timeline_.blocks[found->second].end = time_;
    live_.erase(found);
  }

  // Calls that ended without a word (another thread's) end with the one around them.
  void end_module(std::uint64_t number) {
    const bool open = std::any_of(modules_.begin(), modules_.end(), [&](const OpenModule& module) { return module.number == number; });
    while (open && !modules_.empty()) {
      const OpenModule module = modules_.back();
      modules_.pop_back();
      timeline_.layers.push_back({module.begin, time_, module.is_loss, module.calls_others});
      if (module.number == number) break;
    }
  }

  void finish() {
    if (!iterations_.empty()) iterations_.back().end = time_;
    for (auto& op : timeline_.operators) op.end = std::min(op.end, time_);
    const bool any = std::any_of(iterations_.begin(), iterations_.end(), [](const Iteration& iteration) { return iteration.step_end != 0; });
    for (const auto& iteration : iterations_) {
      if (!any || iteration.step_end != 0) timeline_.iterations.push_back(iteration);
    }
  }

  Timeline timeline_;
  std::uint64_t time_ = 0;
  std::uint64_t frame_ = kNever;  // operator that is the engine's frame, when it was the last to begin
  std::unordered_map<std::uint64_t, std::size_t> live_;            // address → block
  std::unordered_map<std::uint64_t, std::size_t> open_operators_;  // event number → operator
  std::vector<OpenModule> modules_;
  std::vector<Iteration> iterations_;
};

}  // namespace

Timeline make_timeline(const std::vector<SequenceEvent>& events) { return Builder().build(events); }

}  // namespace gpumem::xmem
