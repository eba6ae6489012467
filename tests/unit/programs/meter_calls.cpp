// SPDX-License-Identifier: Apache-2.0
// A job's process under the meter and a virtual GPU, for meter_test: takes memory by every function of CUDA, reached in every way, and
// looks at the memory information, which is what the job's limit leaves. Each must count once, be refused when it exceeds
// the limit, and come back. Exit status 0: all did; else each line says what did not. Argument: the folder with libcuda.so.1.
#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

constexpr std::size_t kMiB = 1 << 20, kBytes = 6 * kMiB, kTooMuch = 4096 * kMiB;
int wrong, checked;

struct Extent {
  std::size_t width, height, depth;
};
struct Pitched {
  void *pointer;
  std::size_t pitch, width, height;
};
struct Descriptor {
  std::size_t width, height;
  int format;
  unsigned channels;
};
struct Descriptor3D {
  std::size_t width, height, depth;
  int format;
  unsigned channels, flags;
};
constexpr int kFloats[5] = {32, 0, 0, 0, 2};  // cudaChannelFormatDesc
struct Location {
  int type = 1, handles = 0, location = 1, id = 0;
  char rest[96] = {};
};

enum class Way { name, handle, by_version, per_thread, runtime, runtime_per_thread };
constexpr const char *kWays[] = {"by name", "by dlsym on a handle", "by cuGetProcAddress", "by cuGetProcAddress, per thread", "by cudaGetDriverEntryPointByVersion",
                                 "by cudaGetDriverEntryPointByVersion_ptsz"};
void *driver;

void *raw(const char *name) { return dlsym(RTLD_DEFAULT, name); }

// The function of that name in that way; nullptr where there is no such way (the runtime's functions have only two).
void *reach(Way way, const char *name, const char *base) {
  void *function = nullptr;
  int found = 0;
  switch (way) {
    case Way::name: return raw(name);
    case Way::handle: return dlsym(driver, name);
    case Way::by_version: case Way::per_thread:
      if (base == nullptr) return nullptr;
      reinterpret_cast<int (*)(const char *, void **, int, std::uint64_t, int *)>(dlsym(driver, "cuGetProcAddress_v2"))(base, &function, 12000, way == Way::per_thread ? 2 : 0, &found);
      return function;
    case Way::runtime: case Way::runtime_per_thread: {
      if (base == nullptr) return nullptr;
      const char *get = way == Way::runtime ? "cudaGetDriverEntryPointByVersion" : "cudaGetDriverEntryPointByVersion_ptsz";
      reinterpret_cast<int (*)(const char *, void **, unsigned, unsigned long long, int *)>(raw(get))(base, &function, 12000, 0, &found);
      return function;
    }
  }
  return nullptr;
}

std::size_t left() {
  std::size_t free_bytes = 0, total = 0;
  reinterpret_cast<int (*)(std::size_t *, std::size_t *)>(raw("cudaMemGetInfo"))(&free_bytes, &total);
  return free_bytes;
}

void check(bool holds, const std::string &what) {
  ++checked;
  if (holds) return;
  ++wrong;
  std::printf("%s\n", what.c_str());
}

// One function and how it is called: 0 where memory was taken.
struct Call {
  const char *name, *base, *free, *free_base;
  int (*take)(void *function, void **made, std::size_t bytes);
};

template <class... Arguments>
int call(void *function, Arguments... arguments) {
  return reinterpret_cast<int (*)(Arguments...)>(function)(arguments...);
}
int plain(void *f, void **made, std::size_t bytes) { return call(f, made, bytes); }
int managed(void *f, void **made, std::size_t bytes) { return call(f, made, bytes, 1u); }
int queued(void *f, void **made, std::size_t bytes) { return call(f, made, bytes, static_cast<void *>(nullptr)); }
int pooled(void *f, void **made, std::size_t bytes) {
  void *pool = nullptr;
  call(raw("cudaDeviceGetDefaultMemPool"), &pool, 0);
  return call(f, made, bytes, pool, static_cast<void *>(nullptr));
}
int pitched(void *f, void **made, std::size_t bytes) {
  std::size_t pitch = 0;
  return call(f, made, &pitch, std::size_t{1024}, bytes / 1024);
}
int driver_pitched(void *f, void **made, std::size_t bytes) {
  std::size_t pitch = 0;
  return call(f, made, &pitch, std::size_t{1024}, bytes / 1024, 4u);
}
int box(void *f, void **made, std::size_t bytes) {
  Pitched got = {};
  const int status = call(f, &got, Extent{1024, bytes / 4096, 4});
  *made = got.pointer;
  return status;
}
int array(void *f, void **made, std::size_t bytes) { return call(f, made, &kFloats, std::size_t{256}, bytes / 1024, 0u); }
int array_3d(void *f, void **made, std::size_t bytes) { return call(f, made, &kFloats, Extent{256, 2, bytes / 2048}, 0u); }
int mipmaps(void *f, void **made, std::size_t bytes) { return call(f, made, &kFloats, Extent{256, 2, bytes / 2048}, 1u, 0u); }
int driver_array(void *f, void **made, std::size_t bytes) {
  const Descriptor wanted{256, bytes / 1024, 0x20, 1};
  return call(f, made, &wanted);
}
int driver_array_3d(void *f, void **made, std::size_t bytes) {
  const Descriptor3D wanted{256, 2, bytes / 2048, 0x20, 1, 0};
  return call(f, made, &wanted);
}
int driver_mipmaps(void *f, void **made, std::size_t bytes) {
  const Descriptor3D wanted{256, 2, bytes / 2048, 0x20, 1, 0};
  return call(f, made, &wanted, 1u);
}
int physical(void *f, void **made, std::size_t bytes) {
  const Location location;
  return call(f, made, bytes, &location, 0ull);
}

constexpr Call kCalls[] = {
    {"cudaMalloc", nullptr, "cudaFree", nullptr, plain},
    {"cudaMallocManaged", nullptr, "cudaFree", nullptr, managed},
    {"cudaMallocPitch", nullptr, "cudaFree", nullptr, pitched},
    {"cudaMalloc3D", nullptr, "cudaFree", nullptr, box},
    {"cudaMallocAsync", nullptr, "cudaFreeAsync", nullptr, queued},
    {"cudaMallocAsync_ptsz", nullptr, "cudaFreeAsync_ptsz", nullptr, queued},
    {"cudaMallocAsync_ptsz", nullptr, "cudaFree", nullptr, queued},
    {"cudaMalloc", nullptr, "cudaFreeAsync_ptsz", nullptr, plain},
    {"cudaMallocFromPoolAsync", nullptr, "cudaFreeAsync", nullptr, pooled},
    {"cudaMallocFromPoolAsync_ptsz", nullptr, "cudaFreeAsync_ptsz", nullptr, pooled},
    {"cudaMallocArray", nullptr, "cudaFreeArray", nullptr, array},
    {"cudaMalloc3DArray", nullptr, "cudaFreeArray", nullptr, array_3d},
    {"cudaMallocMipmappedArray", nullptr, "cudaFreeMipmappedArray", nullptr, mipmaps},
    {"cuMemAlloc_v2", "cuMemAlloc", "cuMemFree_v2", "cuMemFree", plain},
    {"cuMemAllocManaged", "cuMemAllocManaged", "cuMemFree_v2", "cuMemFree", managed},
    {"cuMemAllocPitch_v2", "cuMemAllocPitch", "cuMemFree_v2", "cuMemFree", driver_pitched},
    {"cuMemAllocAsync", "cuMemAllocAsync", "cuMemFreeAsync", "cuMemFreeAsync", queued},
    {"cuMemAllocAsync_ptsz", "cuMemAllocAsync", "cuMemFreeAsync_ptsz", "cuMemFreeAsync", queued},
    {"cuMemAllocFromPoolAsync", "cuMemAllocFromPoolAsync", "cuMemFreeAsync", "cuMemFreeAsync", pooled},
    {"cuMemAllocFromPoolAsync_ptsz", "cuMemAllocFromPoolAsync", "cuMemFreeAsync_ptsz", "cuMemFreeAsync", pooled},
    {"cuArrayCreate_v2", "cuArrayCreate", "cuArrayDestroy", "cuArrayDestroy", driver_array},
    {"cuArray3DCreate_v2", "cuArray3DCreate", "cuArrayDestroy", "cuArrayDestroy", driver_array_3d},
    {"cuMipmappedArrayCreate", "cuMipmappedArrayCreate", "cuMipmappedArrayDestroy", "cuMipmappedArrayDestroy", driver_mipmaps},
    {"cuMemCreate", "cuMemCreate", "cuMemRelease", "cuMemRelease", physical},
};

int give_back(void *function, void *made, bool with_stream) {
  return with_stream ? call(function, made, static_cast<void *>(nullptr)) : call(function, made);
}

void take(const Call &one, Way way) {
  void *function = reach(way, one.name, one.base), *free_function = reach(way, one.free, one.free_base);
  const bool is_driver = one.base != nullptr;
  if (function == nullptr || (!is_driver && way > Way::handle)) return;
  const std::string what = std::string(one.name) + " " + kWays[static_cast<int>(way)];
  void *made = nullptr;
  const std::size_t before = left();
  check(one.take(function, &made, kBytes) == 0, what + ": fails");
  const std::size_t during = left();
  check(before - during == kBytes, what + ": counts " + std::to_string((before - during) / kMiB) + " MiB of 6");
  check(give_back(free_function, made, std::strstr(one.free, "Async") != nullptr) == 0, what + ": cannot be freed");
  check(left() == before, what + ": " + std::to_string((before - left()) / kMiB) + " MiB do not come back");
  made = nullptr;
  check(one.take(function, &made, kTooMuch) == 2, what + ": exceeds the limit");
  check(left() == before, what + ": what was refused is counted");
}

// Physical memory lives as long as its handle or a mapping of it.
void mappings() {
  const Location location;
  std::uint64_t handle = 0, again = 0, address = 0;
  const std::size_t before = left();
  check(call(raw("cuMemAddressReserve"), &address, 4 * kBytes, std::size_t{0}, std::uint64_t{0}, 0ull) == 0, "no addresses");
  check(call(dlsym(driver, "cuMemCreate"), &handle, kBytes, &location, 0ull) == 0, "no physical memory");
  check(call(dlsym(driver, "cuMemMap"), address, kBytes, std::size_t{0}, handle, 0ull) == 0, "cuMemMap");
  check(call(raw("cuMemMap"), address + kBytes, kBytes, std::size_t{0}, handle, 0ull) == 0, "cuMemMap a second time");
  check(call(raw("cuMemRelease"), handle) == 0 && before - left() == kBytes, "mapped memory counts on when its handle was released");
  check(call(raw("cuMemUnmap"), address, kBytes) == 0 && before - left() == kBytes, "and while one of two mappings is left");
  check(call(raw("cuMemRetainAllocationHandle"), &again, address + kBytes) == 0 && again == handle, "cuMemRetainAllocationHandle");
  check(call(raw("cuMemUnmap"), address + kBytes, kBytes) == 0 && before - left() == kBytes, "and while it is retained");
  check(call(raw("cuMemRelease"), again) == 0 && left() == before, "and comes back with the last");
  std::uint64_t pieces[3];
  for (std::uint64_t i = 0; i < 3; ++i) {
    check(call(raw("cuMemCreate"), &pieces[i], kBytes, &location, 0ull) == 0, "a piece");
    check(call(raw("cuMemMap"), address + i * kBytes, kBytes, std::size_t{0}, pieces[i], 0ull) == 0, "its mapping");
    call(raw("cuMemRelease"), pieces[i]);
  }
  check(before - left() == 3 * kBytes, "three pieces count three times");
  check(call(raw("cuMemUnmap"), address, 3 * kBytes) == 0 && left() == before, "one call unmaps them all");
}

// Pools of host memory cost the device nothing; those of another device cost that one.
void pools() {
  const std::size_t before = left();
  for (const char *create : {"cudaMemPoolCreate", "cuMemPoolCreate"}) {
    Location host;
    host.location = 2;
    void *pool = nullptr, *block = nullptr;
    check(call(raw(create), &pool, &host) == 0, std::string(create) + " of host memory");
    check(call(raw("cudaMallocFromPoolAsync"), &block, kBytes, pool, static_cast<void *>(nullptr)) == 0 && left() == before, "a pool of host memory counts");
    check(call(raw("cudaFreeAsync"), block, static_cast<void *>(nullptr)) == 0 && call(raw("cudaMemPoolDestroy"), pool) == 0, "its end");
  }
}

std::size_t resident_bytes() {
  unsigned long long pages = 0, resident = 0;
  std::FILE *file = std::fopen("/proc/self/statm", "r");
  if (file == nullptr || std::fscanf(file, "%llu %llu", &pages, &resident) != 2) resident = 0;
  if (file != nullptr) std::fclose(file);
  return resident * 4096;
}

// A training loop that takes and gives back for days: what was given back costs no memory of the host.
void many() {
  const std::size_t before = left(), host_before = resident_bytes();
  for (int i = 0; i < 400000; ++i) {
    void *block = nullptr;
    call(raw("cudaMallocAsync"), &block, std::size_t{512} + 512 * static_cast<std::size_t>(i % 1000), static_cast<void *>(nullptr));
    call(raw("cudaFreeAsync"), block, static_cast<void *>(nullptr));
  }
  check(left() == before, "many allocations leave something behind");
  check(resident_bytes() < host_before + 4 * kMiB, "and take " + std::to_string((resident_bytes() - host_before) / kMiB) + " MiB of the host's memory");
}

}  // namespace

int main(int, char **arguments) {
  driver = dlopen((std::string(arguments[1]) + "/libcuda.so.1").c_str(), RTLD_LAZY);
  if (driver == nullptr) return std::printf("%s\n", dlerror()), 1;
  void *first = nullptr;
  call(raw("cudaMalloc"), &first, std::size_t{1024});  // the context
  for (const Call &one : kCalls)
    for (const Way way : {Way::name, Way::handle, Way::by_version, Way::per_thread, Way::runtime, Way::runtime_per_thread}) take(one, way);
  mappings();
  pools();
  many();
  std::printf("%d checked, %d wrong\n", checked, wrong);
  return wrong != 0;
}
