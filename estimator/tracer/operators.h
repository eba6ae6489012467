// SPDX-License-Identifier: Apache-2.0
// What kind of operator the dispatcher has called, found out once for each. Runs inside the job's Python, in probes only.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

namespace gpumem::tracer {

enum class Kind : uint8_t {
  passes,           // views, metadata, streams: changes no element; or calls only operators that come by themselves
  leaf,             // has a CUDA kernel of its own
  composite,        // calls other operators, which come by one by one; it has no kernel to follow
  foreign,          // not PyTorch's own: never run twice
  allocates,        // empty, empty_strided: memory nobody has written
  fresh,            // lift_fresh: a constant that was copied to the device with the dispatcher's view blocked
  copies,           // copy_
  resizes,          // resize_
  reads_scalar,     // _local_scalar_dense: .item()
  assumes_finite,   // GradScaler's check of gradients: a healthy run's are finite
  sizes_by_value,   // nonzero, unique: the output's size depends on values (value_sizes.h)
  coalesces,        // coalesce of a sparse matrix: so does its (sparse.h)
  picks_boxes,      // torchvision's nms: so does its
  fills_randomly,   // normal_, uniform_ …: put off on large CPU tensors (lazy_host.h)
  collective,       // c10d: what arrives is the virtual GPU's business
};

// How much the answer to a data-dependent question matters for memory.
// `host`: on the CPU, of tensors too large to be computed (lazy_host.h).
enum class Guess : uint8_t { scalar, size, finite, host };
constexpr size_t kGuesses = 4;

// Which result of an operator is an index that it chose by values (choices.h).
enum class Choice : uint8_t { none, first, second };

// Whether an operator's device kernel calls other operators that compute values (note [In place, once]).
enum class Nesting : uint8_t { unknown, alone, nests };

struct Direct;

struct Operator {
  const void* schema = nullptr;
  uint16_t number = 0;           // from 1 up, by first sight; 0 beyond 65535
  std::string name;              // "aten::add.Tensor"
  Kind kind = Kind::passes;
  uint32_t arguments = 0, returns = 0;
  bool writes = false;           // any argument is written
  bool has_out = false;          // any is an out=, which the kernel may resize
  bool runs_on_cpu = false;      // its CPU kernel may stand in for the CUDA kernel
  bool draws = false;            // random numbers without a generator argument, where it trains
  bool is_zero = false;          // may be a fill with zeros
  bool returns_tensor = false;
  bool is_softmax = false, is_softmax_backward = false;  // of sparse tensors
  bool compares = false;         // its result is a mask, which steers programs
  bool is_all = false;           // an unknown "are all …?" is yes in a healthy run, any other unknown question no
  Choice choice = Choice::none;
  bool choice_k = false;         // topk, sort, multinomial: several of each row
  int choice_dim = 0;            // index of the argument that says along which dimension; -1: the last
  const Direct* direct = nullptr;  // direct.h
  int generator = -1;            // index of its Generator argument
  uint64_t written = 0;          // arguments that are written, by bit
  uint64_t write_only = 0;       // of those: not read before
  uint64_t view_returns = 0;     // returns that alias an argument, by bit
  std::atomic<Nesting> nesting{Nesting::unknown};
  std::atomic<uint32_t> cpu_failures{0};
  std::atomic<uint64_t> guesses[kGuesses] = {};  // by Guess
};

// Thread-safe; the answer lives for ever.
Operator& operator_of(const c10::OperatorHandle& handle);

// PyTorch's operators that programs call often and that need not be seen at all: views and questions.
std::vector<c10::OperatorName> names_to_let_through();

// Of a number that operator_of() gave.
std::string operator_name(uint16_t number);

// Held while the process forks (see storage_states.h).
std::mutex& operators_mutex();

void count_guess(Operator& op, Guess guess);
// Values of a large CPU tensor that nobody knew were made up.
void count_lost();
// A JSON array of {"op", "kind": "scalar" | "size" | "finite" | "host", "count"}, for every operator whose values were guessed.
std::string guesses_as_json();

}  // namespace gpumem::tracer
