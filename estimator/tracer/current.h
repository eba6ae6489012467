// SPDX-License-Identifier: Apache-2.0
// What the calling thread is doing, for whoever asks from inside the allocator. Runs inside the job's Python, in probes only.
#pragma once

#include <cstdint>

namespace gpumem::tracer {

struct Current {
  uint16_t op = 0;      // Operator::number of the innermost operator that is not itself an allocation; 0: none
  uint16_t module = 0;  // the shim's number of the innermost nn.Module whose forward runs here; 0: none, or not followed
  bool python = false;  // a thread of the program's own; false on autograd's threads, where the backward pass runs
};

inline thread_local Current current;

// Sets the operator for its own lifetime.
class CurrentOperator {
 public:
  explicit CurrentOperator(uint16_t number) : before_(current.op) {
    if (number) current.op = number;
  }
  ~CurrentOperator() { current.op = before_; }
  CurrentOperator(const CurrentOperator&) = delete;
  CurrentOperator& operator=(const CurrentOperator&) = delete;

 private:
  uint16_t before_;
};

}  // namespace gpumem::tracer
