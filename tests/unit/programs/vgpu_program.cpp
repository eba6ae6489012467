// SPDX-License-Identifier: Apache-2.0
// A CUDA program in small parts, one a word on its command line, for virtual_gpu_test. Linked like an nvcc program:
// against the runtime's names. Exit status 0: all was as in CUDA; else the failing line is on standard error.

#include "tests/unit/programs/vgpu_program.h"

namespace {

constexpr Part kParts[] = {
    {"no_device", no_device}, {"out_of_memory", out_of_memory}, {"small", small}, {"contents", contents}, {"stale", stale},
    {"pointers", pointers}, {"virtual_memory", virtual_memory}, {"shared_memory", shared_memory}, {"pools", pools}, {"streams", streams}, {"graphs", graphs},
    {"contexts", contexts}, {"look", look}, {"properties", properties}, {"code", code}, {"missing", missing},
    {"entry_points", entry_points}, {"forks", forks}, {"forks_with_locks_held", forks_with_locks_held}, {"host_limit", host_limit},
    {"family", family}, {"threads", threads}, {"lagging", lagging}, {"die", die}, {"refused", refused},
};

}  // namespace

int main(int argc, char **argv) {
  if (argc == 3 && strcmp(argv[1], "hold") == 0) return hold(strtoul(argv[2], nullptr, 10)), 0;
  if (argc == 3 && strcmp(argv[1], "end") == 0) return end(argv[2]), 0;
  if (argc == 4 && strcmp(argv[1], "by_handle") == 0) return by_handle(argv[2], argv[3]), 0;
  return run_part(kParts, argc, argv);
}
