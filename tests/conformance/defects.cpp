// SPDX-License-Identifier: Apache-2.0
// PyTorch's own allocator where it goes wrong by itself, on any device: why tests/conformance/run leaves these requests out. Without
// our model; compiled and run by `run --defects`, each case in a process of its own, with freed memory overwritten.
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>

#include <cstdio>
#include <cstring>
#include <vector>

namespace c10::cuda::_internal {
__attribute__((weak)) void setHasPrimaryContext(bool (*)(DeviceIndex));
}
namespace c10::cuda::detail {
__attribute__((weak)) void init_p2p_access_cache(int64_t);
}

namespace {

namespace real = c10::cuda::CUDACachingAllocator;
constexpr size_t kMiB = 1 << 20;

// An expandable segment of a private pool: a mapping counts once, each piece of it that is unmapped counts too. In use: 40 MiB of 60.
// unmap_block (CUDACachingAllocator.cpp) takes the count to 0, release_cached_blocks then deletes the released pool, and the block that
// is in use is freed into it.
void pool_in_use() {
  real::get()->beginAllocateToPool(0, {0, 7}, [](cudaStream_t) { return true; });
  real::get()->allocate(60 * kMiB);
  auto piece = real::get()->allocate(20 * kMiB), used = real::get()->allocate(40 * kMiB);
  real::get()->endAllocateToPool(0, {0, 7});
  piece.clear();
  real::get()->releasePool(0, {0, 7});
  real::emptyCache();
  used.clear();
}

// The same with two pieces: the count would be less than nothing, which PyTorch asserts.
void pool_in_pieces() {
  real::get()->beginAllocateToPool(0, {0, 7}, [](cudaStream_t) { return true; });
  real::get()->allocate(60 * kMiB);
  auto piece = real::get()->allocate(20 * kMiB), used = real::get()->allocate(20 * kMiB);
  real::get()->endAllocateToPool(0, {0, 7});
  piece.clear();
  real::get()->releasePool(0, {0, 7});
  real::emptyCache();
}

// max_split_size: release_available_cached_blocks adds up the sizes of blocks that it has deleted already. In 2 GiB the three largest
// make room for 1500 MiB; overwritten, the first one's size is garbage and enough, so that the retry gives back all four.
void oversize() {
  std::vector<c10::DataPtr> held;
  for (size_t mib : {300, 400, 500, 600}) held.push_back(real::get()->allocate(mib * kMiB));
  held.clear();
  held.push_back(real::get()->allocate(1500 * kMiB));
  if (real::get()->getDeviceStats(0).segment[0].current != 2) std::puts("a block was given back in vain");
}

}  // namespace

int main(int argc, char** argv) {
  if (c10::cuda::_internal::setHasPrimaryContext != nullptr) c10::cuda::_internal::setHasPrimaryContext([](c10::DeviceIndex) { return true; });
  if (c10::cuda::detail::init_p2p_access_cache != nullptr) c10::cuda::detail::init_p2p_access_cache(1);
  real::init(1);
  c10::cuda::setCurrentCUDAStream(c10::cuda::getDefaultCUDAStream(0));
  const char* what = argc == 2 ? argv[1] : "";
  if (std::strcmp(what, "pool-in-use") == 0) pool_in_use();
  else if (std::strcmp(what, "pool-in-pieces") == 0) pool_in_pieces();
  else if (std::strcmp(what, "oversize") == 0) oversize();
  else return std::fprintf(stderr, "usage: defects pool-in-use|pool-in-pieces|oversize\n"), 2;
  std::puts("alive");
  std::fflush(stdout);
  _Exit(0);
}
