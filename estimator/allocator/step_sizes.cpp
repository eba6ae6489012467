// SPDX-License-Identifier: Apache-2.0
// The sizes that the parts of a training run have with other batches, and the run with them. See steps.h.
#include <algorithm>
#include <cmath>
#include <set>

#include "estimator/allocator/steps.h"

namespace gpumem::allocator {
namespace {

// Equal batches whose parts differ by more than this share of their bytes: something else than the batch decides.
constexpr double kMostUnequal = 0.02;
// A shape that was not trained is predicted where this share of the bytes that vary is explained.
constexpr double kLeastExplained = 0.9;
// Less than this share: the sizes are not those of these batches.
constexpr double kUnrelated = 0.5;
constexpr std::size_t kMostLengths = 6;
constexpr int kAnother = -2;  // a shape that nobody has seen: is there a form for it?

struct Sample {
  double length, bytes;
};

template <int kMultiple>
double rounded_up(double length) { return std::ceil(length / kMultiple) * kMultiple; }

// Operators pad for alignment; reductions and attention kernels have buffers for whole blocks of threads or rows.
constexpr double (*kForms[])(double) = {
    [](double length) { return length; },
    [](double length) { return length * length; },
    [](double length) { return rounded_up<8>(length); },
    [](double length) { return length * rounded_up<8>(length); },
    [](double length) { return rounded_up<8>(length) * rounded_up<8>(length); },
    rounded_up<16>,
    rounded_up<32>,
    rounded_up<64>,
    rounded_up<128>,
    rounded_up<256>,
};

bool same(double a, double b) { return std::abs(a - b) <= 1e-9 * std::max(std::abs(a), std::abs(b)); }

// Newton's polynomial through the first `count` samples, at `length`.
double polynomial(const std::vector<Sample>& samples, std::size_t count, double length) {
  std::vector<double> divided;
  for (std::size_t i = 0; i < count; ++i) divided.push_back(samples[i].bytes);
  for (std::size_t order = 1; order < count; ++order) {
    for (std::size_t i = count - 1; i >= order; --i) divided[i] = (divided[i] - divided[i - 1]) / (samples[i].length - samples[i - order].length);
  }
  double value = divided[count - 1];
  for (std::size_t i = count - 1; i-- > 0;) value = value * (length - samples[i].length) + divided[i];
  return value;
}

// nullopt: nothing explains all samples, which have at least two different lengths in rising order.
std::optional<double> explain(const std::vector<Sample>& samples, double length) {
  for (const auto form : kForms) {
    const bool all = std::all_of(samples.begin(), samples.end(), [&](const Sample& s) { return same(s.bytes * form(samples[0].length), samples[0].bytes * form(s.length)); });
    if (all) return samples[0].bytes * form(length) / form(samples[0].length);
  }
  for (std::size_t count = 2; count <= 3 && count < samples.size(); ++count) {
    const bool all = std::all_of(samples.begin(), samples.end(), [&](const Sample& s) { return same(polynomial(samples, count, s.length), s.bytes); });
    if (all) return polynomial(samples, count, length);
  }
  return std::nullopt;
}

double interpolate(const std::vector<Sample>& samples, double length) {
  std::size_t next = 1;
  while (next + 1 < samples.size() && samples[next].length < length) ++next;
  const Sample &a = samples[next - 1], &b = samples[next];
  return a.bytes + (b.bytes - a.bytes) * (length - a.length) / (b.length - a.length);
}

}  // namespace

// The sizes in a shape that vary, and the elements of the tensors that do. Shapes of another build have none in common.
void Steps::find_lengths() {
  lengths_.assign(shapes_.size(), {});
  const std::size_t size = shapes_.empty() ? 0 : shapes_[0].size();
  for (const auto& shape : shapes_) {
    if (shape.size() != size) return;
  }
  std::set<std::vector<double>> known;
  const auto add = [&](const std::vector<double>& values) {
    const bool varies = std::any_of(values.begin(), values.end(), [&](double value) { return value != values[0]; });
    if (!varies || lengths_[0].size() >= kMostLengths || !known.insert(values).second) return;
    if (std::any_of(values.begin(), values.end(), [](double value) { return value <= 0; })) return;
    for (std::size_t i = 0; i < values.size(); ++i) lengths_[i].push_back(values[i]);
  };
  for (std::size_t at = 0; at < size;) {  // a number of dimensions, and those
    const std::size_t dimensions = shapes_[0][at];
    if (std::any_of(shapes_.begin(), shapes_.end(), [&](const auto& shape) { return shape[at] != dimensions; }) || at + dimensions >= size) {
      for (auto& lengths : lengths_) lengths.clear();
      return;
    }
    std::vector<double> elements(shapes_.size(), 1);
    bool varying = false;
    for (std::size_t k = at + 1; k <= at + dimensions; ++k) {
      std::vector<double> values;
      for (const auto& shape : shapes_) values.push_back(shape[k]);
      for (std::size_t i = 0; i < values.size(); ++i) elements[i] *= values[i];
      varying = varying || std::any_of(values.begin(), values.end(), [&](double value) { return value != values[0]; });
      add(values);
    }
    if (varying) add(elements);
    at += dimensions + 1;
  }
}

void Steps::collect_points() {
  for (std::size_t number = 0; number < parts_.size(); ++number) {
    Part& part = parts_[number];
    part.of_column.assign(points_.size(), -1);
    for (std::size_t i = 0; i < part.allocations.size(); ++i) {
      const Event& event = part.events[static_cast<std::size_t>(part.allocations[i])];
      part.of_column[static_cast<std::size_t>(event.column)] = static_cast<int>(i);
      points_[static_cast<std::size_t>(event.column)].push_back({number, part.shape, event.bytes});
    }
  }
}

bool Steps::is_trained(int shape) const {
  return std::any_of(parts_.begin(), parts_.end(), [&](const Part& part) { return part.shape == shape; });
}

// Equal batches must ask for equal sizes, but in the first part; where none are equal, the lengths must explain the sizes.
Result<void> Steps::check() {
  double unequal = 0, all = 0;
  bool compared = false;
  for (const auto& points : points_) {
    for (std::size_t i = 0; i < points.size(); ++i) {
      if (points[i].part == 0) continue;
      all += static_cast<double>(points[i].bytes);
      for (std::size_t j = i + 1; j < points.size(); ++j) {
        if (points[j].shape != points[i].shape) continue;
        compared = true;
        unequal += std::abs(static_cast<double>(points[i].bytes) - static_cast<double>(points[j].bytes));
        break;
      }
    }
  }
  if (unequal > kMostUnequal * all) return Error{ErrorKind::unsupported, "equal batches ask for different sizes"};
  explained_ = explained_share();
  if (explained_ < kUnrelated && !compared) return Error{ErrorKind::unsupported, "the sizes of requests do not follow from those of the batches"};
  return {};
}

double Steps::distance(int a, int b) const {
  if (a == b) return 0;
  if (a < 0 || b < 0 || lengths_[static_cast<std::size_t>(a)].empty()) return 1e9;
  const double here = lengths_[static_cast<std::size_t>(a)][0], there = lengths_[static_cast<std::size_t>(b)][0];
  const bool padded = (std::fmod(here, 8) == 0) == (std::fmod(there, 8) == 0);  // some operators pad, and then ask once more
  return std::abs(std::log(here / there)) + (padded ? 1e-6 : 1e3);
}

// The part that shows what one like `part` does with that shape: the first is like no other, the last may end otherwise.
std::size_t Steps::typical(const Part& part, int shape) const {
  std::size_t best = 0;
  double best_cost = 1e300;
  for (std::size_t number = 1; number < parts_.size(); ++number) {
    const Part& other = parts_[number];
    if (other.shape < 0) continue;
    double cost = distance(other.shape, shape) * 10;
    if (other.loader != part.loader || other.steps != part.steps) cost += 1e7;
    if (number == 1) cost += 2;
    if (number + 1 == parts_.size()) cost += 1;
    // Of equal ones the one that does the least: what others do beyond it stays with them.
    if (cost < best_cost || (cost == best_cost && other.places.size() <= parts_[best].places.size())) {
      best = number;
      best_cost = cost;
    }
  }
  return best;
}

Steps::Prediction Steps::predict(int column, int shape) const {
  const auto& points = points_[static_cast<std::size_t>(column)];
  Prediction prediction{points.back().bytes, false};
  const Point* first = nullptr;
  for (const auto& point : points) {
    if (point.shape == shape && (point.part > 0 || points.size() == 1)) return {point.bytes, true};
    if (point.part == 0) first = &point;
  }
  const bool constant = std::all_of(points.begin(), points.end(), [&](const Point& point) { return point.bytes == points[0].bytes; });
  const bool one_shape = std::all_of(points.begin(), points.end(), [&](const Point& point) { return point.shape == points[0].shape; });
  if (constant) return {points[0].bytes, !one_shape};
  const auto& lengths = lengths_[shape < 0 ? 0 : static_cast<std::size_t>(shape)];
  for (std::size_t k = 0; k < lengths.size(); ++k) {
    const double length = shape == kAnother ? 8 * lengths[k] : lengths[k];
    for (const bool with_first : {true, false}) {
      if (!with_first && first == nullptr) break;
      std::vector<Sample> samples;
      for (const auto& point : points) {
        if (point.shape < 0 || (point.part == 0 && !with_first)) continue;
        const double other = lengths_[static_cast<std::size_t>(point.shape)][k];
        const auto at = std::lower_bound(samples.begin(), samples.end(), other, [](const Sample& sample, double value) { return sample.length < value; });
        if (at != samples.end() && at->length == other) at->bytes = static_cast<double>(point.bytes);  // the later one
        else samples.insert(at, {other, static_cast<double>(point.bytes)});
      }
      if (samples.size() < 2) continue;
      const auto bytes = explain(samples, length);
      if (bytes && *bytes >= 1) return {static_cast<std::uint64_t>(std::llround(*bytes)), true};
      if (k == 0) prediction.bytes = static_cast<std::uint64_t>(std::max(1.0, std::round(interpolate(samples, length))));
    }
  }
  return prediction;
}

double Steps::explained_share() const {
  double explained = 0, all = 0;
  for (std::size_t column = 0; column < points_.size(); ++column) {
    const auto& points = points_[column];
    const bool varies = std::any_of(points.begin(), points.end(), [&](const Point& point) { return point.shape != points[0].shape && point.bytes != points[0].bytes; });
    if (!varies) continue;
    const double bytes = static_cast<double>(points.back().bytes);
    all += bytes;
    if (predict(static_cast<int>(column), kAnother).exact) explained += bytes;
  }
  return all > 0 ? explained / all : 0;
}

std::optional<int> Steps::shape(const record::BatchShape& shape) {
  const auto before = shapes_.size();
  const int number = number_of(shape);
  if (shapes_.size() == before) return number;
  find_lengths();
  if (lengths_[0].empty()) return std::nullopt;
  if (explained_ < kLeastExplained) return std::nullopt;
  return number;
}

std::uint64_t Steps::bytes_of(std::size_t number, int column, int shape) {
  const Part& part = parts_[number];
  const int own = part.of_column[static_cast<std::size_t>(column)];
  if (own >= 0 && part.shape == shape) return part.events[static_cast<std::size_t>(part.allocations[static_cast<std::size_t>(own)])].bytes;
  if (shape < 0) return predict(column, shape).bytes;
  if (static_cast<std::size_t>(shape) >= predicted_.size()) predicted_.resize(static_cast<std::size_t>(shape) + 1);
  auto& known = predicted_[static_cast<std::size_t>(shape)];
  known.resize(points_.size());
  std::uint64_t& bytes = known[static_cast<std::size_t>(column)];
  if (bytes == 0) bytes = predict(column, shape).bytes;
  return bytes;
}

std::vector<Turn> Steps::as_run() const {
  std::vector<Turn> turns;
  for (std::size_t part = 0; part < parts_.size(); ++part) turns.push_back({part, parts_[part].shape});
  return turns;
}

std::vector<Turn> Steps::longer(std::size_t count) const {
  auto turns = as_run();
  if (parts_.size() < 4 || count <= turns.size()) return turns;
  const std::size_t end = parts_.size() - 1;
  const auto alike = [&](std::size_t a, std::size_t b) {
    return parts_[a].loader == parts_[b].loader && parts_[a].steps == parts_[b].steps && (parts_[a].shape < 0) == (parts_[b].shape < 0);
  };
  for (std::size_t period = 1; 2 * period < end; ++period) {  // the first part is like no other
    bool repeats = true;
    for (std::size_t i = 0; i < period && repeats; ++i) repeats = alike(end - 1 - i, end - 1 - i - period);
    if (!repeats) continue;
    turns.pop_back();
    while (turns.size() < count) {
      for (std::size_t i = end - period; i < end; ++i) turns.push_back({i, parts_[i].shape});
    }
    break;
  }
  return turns;
}

Trace Steps::with(const std::vector<Turn>& turns) {
  Trace trace;
  std::uint32_t slots = 0;
  constexpr std::uint32_t kNone = UINT32_MAX;
  std::vector<std::uint32_t> setup_slots;
  std::vector<std::vector<std::uint32_t>> slots_of(turns.size());  // by column
  std::vector<std::vector<std::uint32_t>> dying(turns.size());
  std::vector<std::uint8_t> state;  // of each slot: 1 live, 2 let go of, 0 freed
  const auto emit = [&](const Event& event, std::uint32_t slot, std::uint64_t bytes) {
    trace.requests.push_back({event.kind, event.pool, event.origin, slot, bytes, event.stream, trace.requests.size()});
  };
  const auto allocate = [&](const Event& event, std::uint64_t bytes) {
    emit(event, slots, bytes);
    state.push_back(1);
    return slots++;
  };
  const auto let_go = [&](const Event& event, std::uint32_t slot) {
    if (slot == kNone || state[slot] == 0) return;
    if (event.kind == Request::Kind::complete ? state[slot] != 2 : state[slot] != 1) return;
    state[slot] = event.kind == Request::Kind::free_later ? 2 : 0;
    emit(event, slot, 0);
  };
  for (const auto& event : setup_) {
    if (event.kind == Request::Kind::allocate) setup_slots.push_back(allocate(event, event.bytes));
    else if (event.kind == Request::Kind::free || event.kind == Request::Kind::free_later || event.kind == Request::Kind::complete) let_go(event, setup_slots[static_cast<std::size_t>(event.index)]);
    else emit(event, 0, event.bytes);
  }
  for (std::size_t number = 0; number < turns.size(); ++number) {
    const Part& part = parts_[turns[number].part];
    const int shape = part.shape < 0 ? part.shape : turns[number].shape;
    const Part* shown = &part;
    std::vector<int> places = part.places;
    if (shape != part.shape) {
      shown = &parts_[typical(part, shape)];
      const Part& own = parts_[typical(part, part.shape)];
      if (shown != &own) {
        std::vector<int> removed, added, kept;
        std::set_difference(own.places.begin(), own.places.end(), part.places.begin(), part.places.end(), std::back_inserter(removed));
        std::set_difference(part.places.begin(), part.places.end(), own.places.begin(), own.places.end(), std::back_inserter(added));
        std::set_difference(shown->places.begin(), shown->places.end(), removed.begin(), removed.end(), std::back_inserter(kept));
        places.clear();
        std::set_union(kept.begin(), kept.end(), added.begin(), added.end(), std::back_inserter(places));
      }
    }
    auto& mine = slots_of[number];
    mine.assign(points_.size(), kNone);
    for (const int place : places) {
      const Event& event = places_[static_cast<std::size_t>(place)];
      switch (event.kind) {
        case Request::Kind::allocate: {
          // What this part alone does is not its batch's: it keeps its size.
          const auto column = static_cast<std::size_t>(event.column);
          const bool own = part.of_column[column] >= 0, beyond = own && shown->of_column[column] < 0;
          const std::uint32_t slot = mine[column] = allocate(event, bytes_of(turns[number].part, event.column, beyond ? part.shape : shape));
          // Where this order does not free it as its part does, it goes when that part is over.
          const Part& born = own ? part : *shown;
          const int found = born.of_column[column];
          const int dies = found < 0 ? -1 : born.dies[static_cast<std::size_t>(found)];
          const std::size_t end = dies < 0 ? turns.size() : static_cast<std::size_t>(dies) + number - static_cast<std::size_t>(&born - parts_.data());
          if (end < turns.size()) dying[end].push_back(slot);
          break;
        }
        case Request::Kind::free:
        case Request::Kind::free_later:
        case Request::Kind::complete: {
          std::uint32_t slot = kNone;
          if (event.part < 0) {
            slot = setup_slots[static_cast<std::size_t>(event.index)];
          } else if (static_cast<std::size_t>(event.part) <= number) {
            slot = slots_of[number - static_cast<std::size_t>(event.part)][static_cast<std::size_t>(event.column)];
          }
          let_go(event, slot);
          break;
        }
        default: emit(event, 0, event.bytes);
      }
    }
    Event end{Request::Kind::free, 0, 0, 0, 0, 0, 0, 0, 0};
    for (const std::uint32_t slot : dying[number]) {
      end.kind = state[slot] == 2 ? Request::Kind::complete : Request::Kind::free;
      let_go(end, slot);
    }
  }
  trace.slots = slots;
  return trace;
}

}  // namespace gpumem::allocator
