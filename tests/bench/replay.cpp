// SPDX-License-Identifier: Apache-2.0
// How fast recorded requests are replayed through the allocator model: goal 5 million events a second. Part of make bench.
// bench_replay [events-PID.bin]: without a file, the requests of a made-up training loop.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <random>
#include <vector>

#include "estimator/allocator/replay.h"

namespace {

using gpumem::allocator::Request;
using gpumem::allocator::Trace;

// Layers that keep an activation each until the backward pass, with temporaries in between; lengths vary by step.
Trace training_loop(std::size_t steps) {
  Trace trace;
  std::mt19937_64 random(1);
  constexpr std::uint32_t kLayers = 200;
  trace.slots = kLayers * 2 + 2;
  const auto add = [&](Request::Kind kind, std::uint32_t slot, std::uint64_t bytes) { trace.requests.push_back({kind, 0, 0, slot, bytes, 0, 0}); };
  for (std::uint32_t layer = 0; layer < kLayers; ++layer) add(Request::Kind::allocate, kLayers + layer, (layer % 7 + 1) << 18);
  for (std::size_t step = 0; step < steps; ++step) {
    const std::uint64_t length = 64 + random() % 192;
    for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
      add(Request::Kind::allocate, layer, length * ((layer % 5 + 1) << 13));
      add(Request::Kind::allocate, kLayers * 2, length << 14);
      add(Request::Kind::allocate, kLayers * 2 + 1, length << 9);
      add(Request::Kind::free, kLayers * 2 + 1, 0);
      add(Request::Kind::free, kLayers * 2, 0);
    }
    for (std::uint32_t layer = kLayers; layer-- > 0;) add(Request::Kind::free, layer, 0);
  }
  return trace;
}

// Of this thread alone: a busy machine does not count.
double cpu_seconds() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<Trace> traces;
  if (argc > 1) {
    auto file = gpumem::record::read_events(argv[1]);
    if (!file) return std::fprintf(stderr, "%s\n", file.error().message.c_str()), 1;
    for (auto& [device, trace] : gpumem::allocator::traces_of(*file)) traces.push_back(std::move(trace));
  } else {
    traces.push_back(training_loop(2000));
  }
  for (const char* settings : {"", "expandable_segments:True", "max_split_size_mb:64"}) {
    const auto config = gpumem::allocator::parse_config(settings, {2, 11}).value_or({});
    double best = 0;
    std::uint64_t events = 0;
    for (int i = 0; i < 3; ++i) {
      events = 0;
      const double begin = cpu_seconds();
      for (const auto& trace : traces) events += gpumem::allocator::replay(trace, config).events;
      const double seconds = cpu_seconds() - begin;
      best = std::max(best, static_cast<double>(events) / seconds);
    }
    std::printf("replay, %-26s %9llu events, %6.1f million a second   goal: at least 5: %s\n", *settings ? settings : "default settings",
                static_cast<unsigned long long>(events), best / 1e6, best >= 5e6 ? "met" : "MISSED");
  }
  return 0;
}
