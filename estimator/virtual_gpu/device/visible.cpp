// SPDX-License-Identifier: Apache-2.0
// CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER. Part of libgpumem_vgpu.so, preloaded into jobs.

#include "estimator/virtual_gpu/device/visible.h"

#include <stdlib.h>
#include <string.h>

namespace gpumem::virtual_gpu {
namespace {

bool faster(const book::DeviceDescription &a, const book::DeviceDescription &b) {
  const uint64_t of_a = uint64_t{a.sm_count} * a.sm_clock_khz, of_b = uint64_t{b.sm_count} * b.sm_clock_khz;
  return of_a > of_b;
}

// The device whose UUID begins with the text, -1 when none or several do.
int by_uuid(const book::Book &book, const char *text, size_t size) {
  int found = -1;
  for (int d = 0; d < book::device_count(book); ++d) {
    if (strncmp(book::description(book, d)->uuid, text, size) != 0) continue;
    if (found >= 0) return -1;
    found = d;
  }
  return found;
}

}  // namespace

int visible_devices(const book::Book &book, const char *list, const char *order, int *devices) {
  int all[book::kMaxDevices];
  const int count = book::device_count(book);
  const bool by_bus = order != nullptr && strcmp(order, "PCI_BUS_ID") == 0;
  for (int d = 0; d < count; ++d) {  // a stable insertion sort: equal devices keep the book's order
    int at = d;
    while (at > 0) {
      const book::DeviceDescription &before = *book::description(book, all[at - 1]), &mine = *book::description(book, d);
      if (!(by_bus ? strcmp(mine.pci_bus_id, before.pci_bus_id) < 0 : faster(mine, before))) break;
      all[at] = all[at - 1];
      --at;
    }
    all[at] = d;
  }
  int visible = 0;
  if (list == nullptr) {
    for (int d = 0; d < count; ++d) devices[visible++] = all[d];
  } else {
    for (const char *at = list; *at != '\0' && visible < book::kMaxDevices;) {
      while (*at == ' ') ++at;
      const size_t size = strcspn(at, ", ");
      int device = -1;
      if (strncmp(at, "GPU-", 4) == 0 || strncmp(at, "MIG-", 4) == 0) {
        device = by_uuid(book, at, size);
      } else if (*at >= '0' && *at <= '9') {
        char *end = nullptr;
        const unsigned long index = strtoul(at, &end, 10);
        if (index < static_cast<unsigned long>(count)) device = all[index];
      }
      if (device < 0) break;
      for (int v = 0; v < visible; ++v)
        if (devices[v] == device) return 0;
      devices[visible++] = device;
      at += size;
      while (*at == ' ') ++at;
      if (*at == ',') ++at;
    }
  }
  for (int v = 0; v < visible; ++v) {
    if (!book::description(book, devices[v])->mig) continue;
    devices[0] = devices[v];
    return 1;
  }
  return visible;
}

}  // namespace gpumem::virtual_gpu
