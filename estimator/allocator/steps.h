// SPDX-License-Identifier: Apache-2.0
// A recorded training run cut into what was done with each batch, so that the batches can be exchanged. Used by orders.h and tests.
//
// Note [Parts of a run]
// The shim marks among the requests when a DataLoader hands out a batch. What comes before the first mark is the setup; from each mark to
// the next goes one part. Parts of a training loop make the same requests one after another, in other sizes; they differ a little: the first
// makes gradients and the optimizer's state, some operators pad or need a buffer for some lengths only. So the parts' requests are
// aligned, by operator, pool and stream (a longest common subsequence), into one list that has all of them in order, the columns; a part is
// a subset of it. A free is known by what it frees: the column, and how many parts ago that was asked for.
//
// Note [Another batch]
// Part k with a batch of shape S: what the typical part with S made (the nearest length's where S was not trained), plus what part k itself
// made beyond the typical part of its own shape, less what it left out. Sizes are those recorded with S; where S was not
// trained, a column's size is found from its others: constant, in proportion to the length, to the length rounded up (8, 16, … 256), to
// products of two such, or a polynomial of degree 2 at most through all of them. A column that no such form explains exactly is interpolated, and counts as not
// explained; a shape is only predicted where nearly all bytes are explained.
// Lengths are the sizes in a shape that vary, and the elements of a tensor.
//
// Fails, with a clause, where the parts are not of one structure, or equal batches have unequal sizes: then nothing is said of other orders.
// Pure; single-threaded; sizes in bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/result.h"
#include "estimator/allocator/requests.h"
#include "estimator/record/record.h"

namespace gpumem::allocator {

// What is bounded here: requests of all parts, columns that an alignment inserts or leaves out.
inline constexpr std::size_t kMostStepRequests = 2u << 20;
inline constexpr int kMostDifferences = 4000;

// A part of the recorded run, and the shape (a number) that its batch has.
struct Turn {
  std::size_t part = 0;
  int shape = -1;
};

class Steps {
 public:
  // `trace` is copied from, not kept. Marks that the trace does not have (CUDA had not begun) are left out.
  static Result<Steps> make(const Trace& trace, const std::vector<record::BatchMark>& marks);

  std::size_t parts() const { return parts_.size(); }
  // The shape of part k's batch as recorded, as a number; -1 where it had none (an epoch was over): such a part is never changed.
  int shape_of(std::size_t part) const { return parts_[part].shape; }
  std::uint64_t loader_of(std::size_t part) const { return parts_[part].loader; }

  // A number for a batch's shape, also for one that was not trained; nullopt where its requests cannot be said.
  std::optional<int> shape(const record::BatchShape& shape);
  // Of the bytes asked for with lengths that vary, the share whose size in another length is explained.
  double explained() const { return explained_; }

  // The requests of such turns one after another, the first of them part 0.
  Trace with(const std::vector<Turn>& turns);
  // The run as it was recorded; and as long as `count` turns, where what repeats in it is found: whole epochs, or the last few parts. The
  // last part is not repeated: it may have been cut short.
  std::vector<Turn> as_run() const;
  std::vector<Turn> longer(std::size_t count) const;

 private:
  struct Event {
    Request::Kind kind;
    std::uint8_t pool;
    std::uint16_t origin;
    std::uint64_t stream, bytes;
    int part;    // of a free: where its block was asked for; in `places_` how many parts ago; -1: in the setup
    int index;   // of an allocation: its number in the part; of a free: that of its block
    int column;  // once aligned
    int place;   // in `places_`, once aligned
  };
  struct Part {
    int shape = -1;
    std::uint64_t loader = 0;
    int steps = 0;                 // of the optimizer
    std::vector<Event> events;
    std::vector<int> allocations;  // indices of events
    std::vector<int> dies;         // of each allocation: the part that frees it; -1: none
    std::vector<int> places;       // sorted
    std::vector<int> of_column;    // the index of its allocation; -1: none
  };
  struct Point {
    std::size_t part;
    int shape;
    std::uint64_t bytes;
  };
  struct Prediction {
    std::uint64_t bytes = 0;
    bool exact = false;
  };

  int number_of(const record::BatchShape& shape);
  void find_lengths();
  void cut(const Trace& trace, const std::vector<record::BatchMark>& marks);
  Result<void> align_allocations();
  void align_events();
  // step_sizes.cpp
  void collect_points();
  Result<void> check();
  double explained_share() const;
  double distance(int a, int b) const;
  std::size_t typical(const Part& part, int shape) const;
  Prediction predict(int column, int shape) const;
  std::uint64_t bytes_of(std::size_t part, int column, int shape);
  bool is_trained(int shape) const;

  std::vector<Event> setup_;
  std::vector<int> setup_dies_;
  std::vector<Part> parts_;
  std::vector<record::BatchShape> shapes_;
  std::vector<std::vector<double>> lengths_;  // of each shape: what may explain a size
  std::vector<std::vector<Point>> points_;    // by column
  std::vector<Event> places_;                 // what all parts together do, in order
  std::vector<std::vector<std::uint64_t>> predicted_;  // by shape and column; 0: not yet
  double explained_ = 0;
};

}  // namespace gpumem::allocator
