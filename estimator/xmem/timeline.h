// SPDX-License-Identifier: Apache-2.0
// Events of a sequence, put together: what began with what ended. Part of xmem/ (see rebuild.h).
// Times are event numbers counted from 1, so that 0 can mean "never".
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "estimator/xmem/event_format.h"

namespace gpumem::xmem {

constexpr std::uint64_t kNever = ~std::uint64_t{0};

struct Block {
  std::uint64_t bytes, begin, end;  // end: kNever if it was not released
};

struct Operator {
  std::uint64_t begin, end, sequence;
};

struct Layer {
  std::uint64_t begin, end;
  bool is_loss;
  bool calls_others;
};

struct Step {
  std::uint64_t begin, end;
};

struct Iteration {
  std::uint64_t begin, end;                 // the end is the last event before the next one's beginning
  std::uint64_t zero_grad_begin;            // of the first zero_grad in it; 0: none
  std::uint64_t step_begin, step_end;       // of the last step in it; 0: none
};

struct Timeline {
  std::vector<Block> blocks;                // by beginning, as all of these but layers
  std::vector<Operator> operators;
  std::vector<Layer> layers;                // calls of modules; what is called inside a call stands before it
  std::vector<Step> steps;
  std::vector<Iteration> iterations;        // in which an optimizer stepped; if none did: all
  struct Parameter {
    std::uint64_t bytes;
    bool is_buffer;
  };
  std::vector<Parameter> parameters;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> data;  // when, bytes
  bool is_transformer = false;              // a model of the transformers package
};

Timeline make_timeline(const std::vector<SequenceEvent>& events);

}  // namespace gpumem::xmem
