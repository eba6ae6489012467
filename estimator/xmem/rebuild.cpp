// SPDX-License-Identifier: Apache-2.0
// The rules of rebuild.h, numbered as there.
#include "estimator/xmem/rebuild.h"

#include <algorithm>
#include <limits>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "estimator/xmem/timeline.h"

namespace gpumem::xmem {
namespace {

using Time = std::int64_t;
constexpr Time kForever = std::numeric_limits<Time>::max();

struct Lifetime {
  std::uint64_t bytes;
  Time begin, end;
};

class Rules {
 public:
  Rules(const Timeline& timeline, Rebuilt& result) : timeline_(timeline), result_(result) {}

  void run() {
    const auto& iterations = timeline_.iterations;
    const std::size_t n = iterations.size();
    last_ = iterations[n > 2 ? 2 : n - 1];
    first_ = n > 2 ? iterations[1] : n > 1 ? iterations[0] : last_;
    two_ = n > 1;
    put_parameters();
    if (two_) rebuild_iteration(first_, false);
    rebuild_iteration(last_, true);
    make_requests();
  }

 private:
  // Rule 2: a block's end as it can be seen at the end of B.
  Time end_of(const Block& block) const { return block.end <= last_.end ? static_cast<Time>(block.end) : kForever; }
  bool counts(const Block& block) const { return block.begin >= first_.begin && block.begin <= last_.end; }

  void put_parameters() {
    Time at = -static_cast<Time>(timeline_.parameters.size());
    for (const auto& [bytes, is_buffer] : timeline_.parameters) {
      lifetimes_.push_back({bytes, at++, kForever});
      if (!is_buffer) parameter_sizes_.insert(bytes);
      result_.parameter_bytes += bytes;
    }
  }

  void rebuild_iteration(const Iteration& iteration, bool is_last) {
    const bool grads_end = !is_last && !(iteration.zero_grad_begin > iteration.step_end && iteration.step_end != 0);
    index_operators(iteration);
    for (const auto& layer : timeline_.layers) {
      if (layer.begin < iteration.begin || layer.begin > iteration.end) continue;
      if (layer.calls_others && !timeline_.is_transformer) continue;
      if (iteration.step_begin != 0 && layer.begin >= iteration.step_begin) continue;
      put_layer(layer, grads_end, is_last);
    }
    for (const auto& [at, bytes] : timeline_.data) {  // rule 7
      if (at < iteration.begin || at > iteration.end) continue;
      lifetimes_.push_back({bytes, static_cast<Time>(at), is_last ? kForever : static_cast<Time>(iteration.end)});
      if (is_last) result_.data_bytes += bytes;
    }
    put_optimizer(iteration, !is_last || !two_);
  }

  // Rule 6.
  void put_optimizer(const Iteration& iteration, bool keeps) {
    std::vector<Block> found;
    for (const auto& step : timeline_.steps) {
      if (step.begin < iteration.begin || step.begin > iteration.end) continue;
      for_blocks(step.begin, step.end, [&](const Block& block) {
        if (parameter_sizes_.count(block.bytes)) found.push_back(block);
      });
    }
    if (keeps) optimizer_ = found;
    if (keeps || !timeline_.is_transformer) {
      for (const Block& block : found) {
        lifetimes_.push_back({block.bytes, static_cast<Time>(block.begin), keeps ? kForever : end_of(block)});
        if (keeps) result_.optimizer_bytes += block.bytes;
      }
    }
    if (!timeline_.is_transformer || optimizer_.empty()) return;
    // Every fourth once more, all alive at once: after the last of those that are kept, or from the step's beginning.
    const auto start = static_cast<Time>(keeps ? optimizer_.back().begin : iteration.step_begin);
    for (std::size_t i = 0; i < optimizer_.size(); i += 4) lifetimes_.push_back({optimizer_[i].bytes, start, static_cast<Time>(iteration.step_end)});
  }

  void index_operators(const Iteration& iteration) {
    operators_.clear();
    by_sequence_.clear();
    for (const auto& op : timeline_.operators) {
      if (op.begin < iteration.begin || op.begin > iteration.end) continue;
      if (op.sequence != kNoSequence) by_sequence_[op.sequence].push_back(operators_.size());
      operators_.push_back(op);
    }
  }

  // Rule 3: the whole operators of a layer, by beginning.
  std::vector<Operator> operators_of(const Layer& layer) const {
    std::set<std::size_t> chosen;
    auto at = std::lower_bound(operators_.begin(), operators_.end(), layer.begin, [](const Operator& op, std::uint64_t time) { return op.begin < time; });
    for (; at != operators_.end() && at->begin <= layer.end; ++at) {
      chosen.insert(static_cast<std::size_t>(at - operators_.begin()));
      if (at->sequence == kNoSequence) continue;
      for (const std::size_t other : by_sequence_.at(at->sequence)) chosen.insert(other);
    }
    std::vector<Operator> roots;
    std::uint64_t covered = 0;
    for (const std::size_t i : chosen) {
      const Operator& op = operators_[i];
      if (!roots.empty() && op.end <= covered) continue;
      roots.push_back(op);
      covered = std::max(covered, op.end);
    }
    return roots;
  }

  // Rules 4 and 5.
  void put_layer(const Layer& layer, bool grads_end, bool is_last) {
    const auto roots = operators_of(layer);
    std::uint64_t last_end = 0;
    for (const auto& root : roots) last_end = std::max(last_end, root.end);
    if (roots.empty() && !layer.is_loss) return;
    std::unordered_set<const Block*> forward;
    for_blocks(layer.begin, layer.end, [&](const Block& block) {
      forward.insert(&block);
      const Time end = end_of(block);
      if (!layer.is_loss && end <= static_cast<Time>(layer.end)) return;
      if (owned_.insert({&block, is_last}).second) lifetimes_.push_back({block.bytes, static_cast<Time>(block.begin), end});
    });
    for (const auto& root : roots) {
      for_blocks(root.begin, root.end, [&](const Block& block) {
        if (forward.count(&block)) return;
        Time end = end_of(block);
        if (!layer.is_loss && end <= static_cast<Time>(last_end)) return;
        if (!owned_.insert({&block, is_last}).second) return;
        if (end == kForever && is_last) result_.gradient_bytes += block.bytes;
        if (end == kForever && grads_end && last_.zero_grad_begin != 0) end = static_cast<Time>(last_.zero_grad_begin);
        lifetimes_.push_back({block.bytes, static_cast<Time>(block.begin), end});
      });
    }
  }

  template <typename Each>
  void for_blocks(std::uint64_t begin, std::uint64_t end, Each each) const {
    const auto& blocks = timeline_.blocks;
    auto at = std::lower_bound(blocks.begin(), blocks.end(), begin, [](const Block& block, std::uint64_t time) { return block.begin < time; });
    for (; at != blocks.end() && at->begin <= end; ++at) {
      if (counts(*at)) each(*at);
    }
  }

  void make_requests() {
    struct Point {
      Time time;
      bool release;
      std::uint32_t block;
    };
    std::vector<Point> points;
    for (std::uint32_t i = 0; i < lifetimes_.size(); ++i) {
      points.push_back({lifetimes_[i].begin, false, i});
      if (lifetimes_[i].end != kForever) points.push_back({lifetimes_[i].end, true, i});
    }
    std::stable_sort(points.begin(), points.end(), [](const Point& a, const Point& b) {
      return a.time != b.time ? a.time < b.time : a.release < b.release;
    });
    for (const auto& point : points) result_.requests.push_back({!point.release, point.block, lifetimes_[point.block].bytes});
    result_.blocks = static_cast<std::uint32_t>(lifetimes_.size());
  }

  const Timeline& timeline_;
  Rebuilt& result_;
  Iteration first_{}, last_{};
  bool two_ = false;
  std::set<std::uint64_t> parameter_sizes_;
  std::vector<Operator> operators_;  // of one iteration, by beginning
  std::unordered_map<std::uint64_t, std::vector<std::size_t>> by_sequence_;
  std::set<std::pair<const Block*, bool>> owned_;  // blocks that some layer of this iteration has
  std::vector<Block> optimizer_;     // A's blocks of rule 6
  std::vector<Lifetime> lifetimes_;
};

}  // namespace

Result<Rebuilt> rebuild(const std::vector<SequenceEvent>& events) {
  const Timeline timeline = make_timeline(events);
  if (timeline.iterations.empty()) return Error{ErrorKind::not_found, "the program trained no iteration: no batch and no module was seen"};
  Rebuilt result;
  result.iterations = static_cast<int>(timeline.iterations.size());
  Rules(timeline, result).run();
  return result;
}

}  // namespace gpumem::xmem
