// SPDX-License-Identifier: Apache-2.0
// The allocator model against PyTorch's own: the same requests to both, every event and statistic compared. Compiled and
// run by tests/conformance/run for one PyTorch, on the virtual GPU; settings come in PYTORCH_CUDA_ALLOC_CONF as always.
// conformance SEED REQUESTS [--fraction F] [--pools | --keep-pools] [--streams] [--sizes small|mixed|large] [--record FILE]
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

#include "tests/conformance/comparison.h"

int main(int argc, char** argv) {
  conformance::Options options;
  if (argc < 3) {
    fprintf(stderr, "usage: conformance SEED REQUESTS [--fraction F] [--pools | --keep-pools] [--streams] [--sizes small|mixed|large] [--record FILE]\n");
    return 2;
  }
  options.seed = strtoull(argv[1], nullptr, 10);
  options.requests = strtoull(argv[2], nullptr, 10);
  for (int i = 3; i < argc; ++i) {
    const std::string option = argv[i];
    if (option == "--pools") options.pools = true;
    else if (option == "--keep-pools") options.pools = options.keep_pools = true;
    else if (option == "--streams") options.streams = true;
    else if (option == "--fraction" && i + 1 < argc) options.fraction = atof(argv[++i]);
    else if (option == "--sizes" && i + 1 < argc) options.sizes = argv[++i];
    else if (option == "--record" && i + 1 < argc) options.record = argv[++i];
    else return fprintf(stderr, "conformance: unknown option %s\n", argv[i]), 2;
  }
  try {
    return conformance::Comparison(options).run();
  } catch (const std::exception& error) {
    fprintf(stderr, "conformance: %s\n", error.what());
    return 1;
  }
}
