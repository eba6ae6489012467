// SPDX-License-Identifier: Apache-2.0
// Random numbers of a CPU generator that nobody computed, and nobody misses. Runs inside the job's Python, in probes only.
#pragma once

#include <ATen/CPUGeneratorImpl.h>

#include <cstdint>
#include <mutex>

namespace gpumem::tracer {

// Note [Skipped random numbers]
// A program that seeds its generator, builds a model and then shuffles its data must see the order that it would have seen on
// a GPU node, though the model's initialisation was skipped. A skipped fill leaves a *marker* in the generator: a state of
// the Mersenne twister that stands for "this state, so many numbers later" and that no seed gives. Whoever draws next settles
// it. Programs may seed, save and restore states in between: a marker that comes back still says what it stands for.
// Settling walks the twister block by block (0.4 ns a number); beyond kJumpBlocks it multiplies the state by a power of x
// modulo the recurrence's polynomial, which Berlekamp and Massey's algorithm finds from the twister's own output
// (Haramoto, Matsumoto, Nishimura, Panneton, L'Ecuyer: Efficient jump ahead for F2-linear random number generators, 2008).

// A generator's state before a skipped fill.
struct SkippedState {
  at::mt19937 engine;   // never a marker
  uint64_t numbers = 0; // 32-bit outputs after it
};

// Numbers that a contiguous fill of `count` elements draws: normal_'s vectorised path and uniform_ take one output an element
// (two for double), and normal_ sixteen more for a rest that fills no vector (aten/src/ATen/native/cpu/DistributionTemplates.h).
uint64_t numbers_drawn(bool normal, c10::ScalarType type, int64_t count);

// The generator passes over that many numbers. Returns what its state was before. `generator`: undefined for the default one.
SkippedState skip_numbers(const at::Generator& generator, uint64_t numbers);

// Must be called before a CPU generator is drawn from: replaces a marker by the state that it stands for.
void settle_generator(const at::Generator& generator);

// A generator of its own in the given state, marker settled.
at::Generator generator_at(const SkippedState& state);

// Held while the process forks.
std::mutex& generator_skips_mutex();

}  // namespace gpumem::tracer
