// SPDX-License-Identifier: Apache-2.0
// See cpu_fills.h.

#include "cpu_fills.h"

#include "storage_states.h"

#include <c10/core/CPUAllocator.h>

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

namespace gpumem::tracer {
namespace {

bool large_and_plain(const c10::IValue& v) {
  if (!v.isTensor() || !v.toTensor().defined()) return false;
  const at::Tensor& t = v.toTensor();
  return t.is_cpu() && t.layout() == c10::kStrided && t.has_storage() && t.is_floating_point() && t.is_contiguous() &&
         t.nbytes() > kSkippedFillBytes && storage_of(t)->data() != nullptr;
}

// Memory that the heap had used before holds old bytes: give whole pages back, so that they read as zero and cost nothing.
void make_zero(const at::Tensor& t) {
  static const uintptr_t page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  char* begin = bytes_of(t) + t.storage_offset() * t.itemsize();
  char* end = begin + t.nbytes();
  char* first_page = reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(begin) + page - 1) & ~(page - 1));
  char* last_page = reinterpret_cast<char*>(reinterpret_cast<uintptr_t>(end) & ~(page - 1));
  // Private anonymous memory only reads as zero afterwards; pinned, shared or mapped memory must not be touched so.
  bool heap = storage_of(t)->data_ptr().get_deleter() == c10::GetDefaultCPUAllocator()->raw_deleter();
  if (!heap || madvise(first_page, last_page - first_page, MADV_DONTNEED) != 0) return;
  std::memset(begin, 0, first_page - begin);
  std::memset(last_page, 0, end - last_page);
}

}  // namespace

bool skip_cpu_fill(const Operator& op, torch::jit::Stack& stack, size_t first) {
  const c10::IValue& self = stack[first];
  if (!large_and_plain(self)) return false;
  const at::Tensor t = self.toTensor();
  switch (op.kind) {
    case Kind::fills_randomly:
      make_zero(t);
      set_skipped_fill(t, true);
      break;
    case Kind::adjusts:
      if (!is_skipped_fill(t)) return false;
      break;
    case Kind::copies: {
      const c10::IValue& source = stack[first + 1];
      if (!large_and_plain(source) || !is_skipped_fill(source.toTensor())) {
        set_skipped_fill(t, false);
        return false;
      }
      set_skipped_fill(t, true);
      break;
    }
    default: return false;
  }
  stack.erase(stack.begin() + first, stack.end());
  stack.emplace_back(t);
  return true;
}

}  // namespace gpumem::tracer
