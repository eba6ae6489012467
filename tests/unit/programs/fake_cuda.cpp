// SPDX-License-Identifier: Apache-2.0
// A CUDA of a few functions behind the meter in its test: it hands out addresses and counts what reaches it.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>

static std::uint64_t next_address = 0x700000000000;

extern "C" {
int fake_cuda_calls = 0;
int fake_cuda_fails = 0;

int cudaGetDevice(int* device) { *device = 0; return 0; }
int cudaMalloc(void** pointer, std::size_t bytes) {
  ++fake_cuda_calls;
  if (fake_cuda_fails) return 2;
  *pointer = reinterpret_cast<void*>(next_address);
  next_address += bytes + 4096;
  return 0;
}
int cudaFree(void*) { ++fake_cuda_calls; return 0; }
int cudaMemGetInfo(std::size_t* free_bytes, std::size_t* total_bytes) {
  *free_bytes = 10ull << 30;
  *total_bytes = 12ull << 30;
  return 0;
}
int cuMemCreate(std::uint64_t* handle, std::size_t, const void*, unsigned long long) { ++fake_cuda_calls; *handle = next_address++; return 0; }
int cuMemRelease(std::uint64_t) { ++fake_cuda_calls; return 0; }
int cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned, unsigned long long, int* found) {
  *function = nullptr;
  if (std::strcmp(name, "cuMemCreate") == 0) *function = reinterpret_cast<void*>(&cuMemCreate);
  if (std::strcmp(name, "cuMemRelease") == 0) *function = reinterpret_cast<void*>(&cuMemRelease);
  *found = *function == nullptr ? 1 : 0;
  return 0;
}
}
