// SPDX-License-Identifier: Apache-2.0
// Where a job's memory peak is and what it consists of, from a record alone. Used by gpumem explain.
//
// Pure: no files, no processes. Sizes are those of requests rounded to PyTorch's 512 bytes; what a block is larger than
// its request counts as cache. Nothing throws but bad_alloc.
//
// Note [Whose memory]
// A block lives from "allocate" to "free completed". What it is, in this order of evidence:
//   parameter, gradient, optimizer state, buffer   its address was listed after a step that it lived through (TensorList);
//                                  a gradient so listed is one from its allocation on
//   operator at the peak           the last blocks before the peak, all asked for by the same operator, and gone soon after:
//                                  its outputs, temporaries and library workspace
//   backward                       asked for on an autograd thread: gradients of activations
//   activation                     asked for in the forward pass of the peak's own iteration; by module
//   library workspace              asked for inside a matrix product or convolution before this iteration, and never given
//                                  back: cuBLAS's, one for each thread and stream
//   kept                           anything older: inputs, outputs and losses that are held
// Device memory that PyTorch holds beyond that is its cache; contexts are added by the estimate.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "estimator/allocator/requests.h"
#include "estimator/record/record.h"
#include "estimator/tracer/event_format.h"

namespace gpumem::explain {

enum class Kind { parameter, buffer, gradient, state, activation, backward, at_peak, workspace, kept };
inline constexpr Kind kKinds[] = {Kind::parameter, Kind::gradient, Kind::state, Kind::buffer,
                                  Kind::activation, Kind::backward, Kind::at_peak, Kind::workspace, Kind::kept};
// "parameters", "operator at the peak", …
const char* kind_text(Kind kind);

struct Block {
  std::uint64_t address = 0, bytes = 0;
  std::size_t from = 0, until = 0;  // indices of events; until == the number of events: never freed
  std::uint16_t op = 0, module = 0;
  bool autograd = false;
  Kind kind = Kind::kept;           // of blocks that live at the peak
};

struct Share {
  std::string name;                 // a module's path and type, or an operator
  std::uint64_t bytes = 0;
  std::uint64_t blocks = 0;
};

struct Moment {
  double time_s = 0;                // since the record began
  std::uint64_t allocated_bytes = 0, reserved_bytes = 0;
  std::uint64_t outside_bytes = 0;  // of the device, past PyTorch's allocator
  std::uint64_t step = 0;           // optimizer steps before it
};

// A saving that the record suggests. Bytes are of the peak, at most.
struct Candidate {
  std::string word;                 // for programs: "checkpointing", "set_to_none", "smaller_batch"
  std::string text;                 // a sentence
  std::uint64_t saves_bytes = 0;
};

struct Explanation {
  Moment peak;                               // of allocated memory
  std::string peak_operator, peak_module;    // what asked for the last block before it; empty: not known
  std::uint64_t reserved_peak_bytes = 0;     // ever
  std::uint64_t device_peak_bytes = 0;       // ever, of reserved and outside together
  std::map<Kind, std::uint64_t> bytes;       // at the peak, by kind
  std::vector<Share> activations;            // by module, largest first; operators where no module is known
  std::vector<Share> operators;              // of what is neither listed nor an activation
  std::vector<Moment> timeline;              // evenly over the events, each with the largest value of its part
  std::vector<Candidate> candidates;         // largest first
  std::uint64_t cache_bytes() const;         // at the peak
  bool attributed = false;                   // the tensors were listed; else parameters and the like are in `kept`
};

// One device of one process. `events` are all of the process; what is of other devices is passed over. `outside`: what was taken past
// PyTorch's allocator (allocator/outside.h), empty where that is not known.
Explanation explain(const std::vector<record::EventRecord>& events, const record::Process& process, int device,
                    const std::vector<allocator::Outside>& outside = {});

// The devices that `events` allocate on.
std::vector<int> devices_of(const std::vector<record::EventRecord>& events);

}  // namespace gpumem::explain
