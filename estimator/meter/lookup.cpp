// SPDX-License-Identifier: Apache-2.0
// Which of CUDA's functions are ours, by symbol, by the driver's name and version, and by a library's handle (dlsym).
// Note [Ways to a function] in meter.h. Runs in a job's processes.
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "estimator/cuda_interface/dlsym.h"
#include "estimator/meter/meter.h"

extern "C" int gpumem_dladdr(const void *, Dl_info *);
#if defined(__x86_64__)
__asm__(".symver gpumem_dladdr,dladdr@GLIBC_2.2.5");
#elif defined(__aarch64__)
__asm__(".symver gpumem_dladdr,dladdr@GLIBC_2.17");
#endif

// Declared without parameters: only the addresses are wanted here.
#define F(name) extern "C" int name();
namespace addresses {
#include "estimator/meter/functions.def"
}
#undef F

namespace gpumem::meter {
namespace {

struct Ours {
  const char *symbol;
  int (*function)();
};
constexpr Ours kOurs[] = {
#define F(name) {#name, addresses::name},
#include "estimator/meter/functions.def"
#undef F
};
constexpr int kCount = sizeof(kOurs) / sizeof(kOurs[0]);

constexpr bool same(const char *a, const char *b) {
  while (*a != '\0' && *a == *b) ++a, ++b;
  return *a == *b;
}
constexpr int index_of(const char *symbol) {
  for (int i = 0; i < kCount; ++i)
    if (same(kOurs[i].symbol, symbol)) return i;
  return -1;
}

// What cuGetProcAddress hands out, of those names alone of which some version is ours; -1 where one is not.
struct Point {
  const char *name;
  int version, function, per_thread;
};
struct AllPoint {
  const char *name;
  int version;
  const char *symbol, *per_thread;
};
constexpr AllPoint kAll[] = {
#define P(name, version, symbol, per_thread) {name, version, #symbol, #per_thread},
#include "estimator/cuda_interface/driver_entry_points.def"
#undef P
};
constexpr bool concerns_us(const char *name) {
  for (const AllPoint &point : kAll)
    if (same(point.name, name) && index_of(point.symbol) >= 0) return true;
  return false;
}
constexpr int count_points() {
  int count = 0;
  for (const AllPoint &point : kAll) count += concerns_us(point.name);
  return count;
}
struct Points {
  Point point[count_points()];
};
constexpr Points chosen_points() {
  Points points = {};
  int count = 0;
  for (const AllPoint &point : kAll)
    if (concerns_us(point.name)) points.point[count++] = {point.name, point.version, index_of(point.symbol), index_of(point.per_thread)};
  return points;
}
constexpr Points kPoints = chosen_points();

// NVIDIA's own libraries whose memory is part of the context, and the tools that look on.
bool is_left_alone(const void *caller) {
  Dl_info info;
  if (gpumem_dladdr(caller, &info) == 0 || info.dli_fname == nullptr) return false;
  const char *slash = strrchr(info.dli_fname, '/');
  const char *file = slash != nullptr ? slash + 1 : info.dli_fname;
  static constexpr const char *kLibraries[] = {"libcublas", "libcudnn", "libcufft", "libcurand", "libcusolver", "libcusparse", "libcupti", "libnvrtc", "libnvJitLink"};
  for (const char *name : kLibraries)
    if (strncmp(file, name, strlen(name)) == 0) return true;
  return false;
}

// The next dlsym: the virtual GPU's, else libc's.
void find_real_dlsym() {
  if (__atomic_load_n(&gpumem_real_dlsym, __ATOMIC_RELAXED) != nullptr) return;
  void *in_libc = gpumem_dlvsym(RTLD_NEXT, "dlsym", FIRST_GLIBC);
  void *next = in_libc == nullptr ? nullptr : reinterpret_cast<void *(*)(void *, const char *)>(in_libc)(RTLD_NEXT, "dlsym");
  __atomic_store_n(&gpumem_real_dlsym, next != nullptr ? next : in_libc, __ATOMIC_RELAXED);
}

}  // namespace

void *find_in(void *library, const char *name) {
  find_real_dlsym();
  // No tail call: RTLD_NEXT is understood by the address that is returned to.
  void *volatile found = reinterpret_cast<void *(*)(void *, const char *)>(gpumem_real_dlsym)(library, name);
  return found;
}

void take_over(const char *name, int version, bool per_thread, void **function) {
  if (name == nullptr || function == nullptr || *function == nullptr || !active()) return;
  const Point *best = nullptr;
  for (const Point &point : kPoints.point)
    if (point.version <= version && strcmp(point.name, name) == 0) best = &point;
  const int ours = best == nullptr ? -1 : per_thread ? best->per_thread : best->function;
  if (ours < 0 || *function == reinterpret_cast<void *>(kOurs[ours].function)) return;
  set_next_function(kOurs[ours].symbol, *function);
  *function = reinterpret_cast<void *>(kOurs[ours].function);
}

}  // namespace gpumem::meter

using namespace gpumem::meter;

void *gpumem_look_up(void *handle, const char *name, const void *caller) {
  find_real_dlsym();
  if (name == nullptr || name[0] != 'c' || name[1] != 'u' || handle == RTLD_NEXT || handle == RTLD_DEFAULT) return nullptr;
  const int ours = index_of(name);
  if (ours < 0 || !active() || is_left_alone(caller)) return nullptr;
  void *found = find_in(handle, name), *function = reinterpret_cast<void *>(kOurs[ours].function);
  if (found == nullptr || found == function) return found;
  // The driver is one. Of runtimes a process may have several: calls go on only to the one that we stand in front of; what another
  // one takes is counted when it asks the driver.
  if (next_function(kOurs[ours].symbol) == nullptr) set_next_function(kOurs[ours].symbol, found);
  return next_function(kOurs[ours].symbol) == found ? function : found;
}
