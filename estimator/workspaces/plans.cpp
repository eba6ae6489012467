// SPDX-License-Identifier: Apache-2.0
// See plans.h. Runs in a job's processes.
#include "estimator/workspaces/plans.h"

#include <string.h>
#include <sys/mman.h>

#include "estimator/book/lock.h"

namespace gpumem::workspaces {
namespace {

// cudnn_graph.h
enum : int {
  kTypeHandle = 0, kTypeVoidPointer = 6, kTypeDescriptor = 15,
  kHeuristicType = 4, kPlanType = 5, kGraphType = 15, kTensorType = 17,
  kHeuristicGraph = 201, kHeuristicResults = 202, kPlanConfig = 401,
  kGraphOperations = 801,
  kTensorAlignment = 900, kTensorDataType = 901, kTensorDimensions = 902, kTensorUniqueId = 906,
};

struct Descriptor {
  const void *address;  // nullptr: free; kRemoved: was used
  int type;
  bool reported, benchmarked;
  uint32_t executions;
  uint64_t hash;        // of the attributes, or of what it stands for (configurations, plans)
  char label[kMaxLabel];
};
const char removed_mark = 0;
const void *const kRemoved = &removed_mark;

struct Table {
  uint32_t lock;
  Descriptor *slots;
  size_t capacity, living, used;  // used: removed ones too
};
constinit Table table = {};
constexpr size_t kFirstCapacity = 1024, kMostCapacity = size_t{1} << 18;

class Locked {
 public:
  Locked() { book::lock_word(&table.lock); }
  ~Locked() { book::unlock_word(&table.lock); }
};

size_t slot_of(const void *address, size_t capacity) {
  return static_cast<size_t>((reinterpret_cast<uintptr_t>(address) >> 4) * 0x9e3779b97f4a7c15ull >> 20) & (capacity - 1);
}

Descriptor *find(const void *address) {
  if (table.capacity == 0 || address == nullptr) return nullptr;
  for (size_t at = slot_of(address, table.capacity);; at = (at + 1) & (table.capacity - 1)) {
    Descriptor &slot = table.slots[at];
    if (slot.address == address) return &slot;
    if (slot.address == nullptr) return nullptr;
  }
}

Descriptor *free_slot(Descriptor *slots, size_t capacity, const void *address) {
  size_t at = slot_of(address, capacity);
  while (slots[at].address != nullptr) at = (at + 1) & (capacity - 1);
  return &slots[at];
}

// Room for one more; false: no memory or far too many, then new descriptors are not followed.
bool make_room() {
  if ((table.used + 1) * 2 <= table.capacity) return true;
  const size_t capacity = table.capacity == 0 ? kFirstCapacity : table.living * 4 > table.capacity ? table.capacity * 2 : table.capacity;
  if (capacity > kMostCapacity) return false;
  void *memory = mmap(nullptr, capacity * sizeof(Descriptor), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return false;
  Descriptor *slots = static_cast<Descriptor *>(memory);
  for (size_t i = 0; i < table.capacity; i++) {
    const Descriptor &old = table.slots[i];
    if (old.address != nullptr && old.address != kRemoved) *free_slot(slots, capacity, old.address) = old;
  }
  if (table.slots != nullptr) munmap(table.slots, table.capacity * sizeof(Descriptor));
  table.slots = slots;
  table.capacity = capacity;
  table.used = table.living;
  return true;
}

constexpr uint64_t kFnvOffset = 0xcbf29ce484222325ull, kFnvPrime = 0x100000001b3ull;
uint64_t hashed(uint64_t hash, const void *bytes, size_t size) {
  for (size_t i = 0; i < size; i++) hash = (hash ^ static_cast<const unsigned char *>(bytes)[i]) * kFnvPrime;
  return hash;
}

// Bytes of one element of a cudnnBackendAttributeType_t that counts; 0: left out.
size_t element_bytes(int type) {
  switch (type) {
    case kTypeHandle: case kTypeVoidPointer: return 0;
    case 2: case 24: return 1;          // BOOLEAN, CHAR
    case 3: case 5: return 8;           // INT64, DOUBLE
    case 26: return 16;                 // FRACTION
    default: return 4;                  // FLOAT, INT32 and all enumerations
  }
}

bool left_out(int name) {
  return name == kTensorAlignment || name == kTensorUniqueId || name == 204 || name == 407 || name == 1307;  // device properties
}

void append(char *label, const char *text) {
  size_t n = strlen(label);
  while (*text != '\0' && n + 1 < kMaxLabel) label[n++] = *text++;
  label[n] = '\0';
}

void append_number(char *label, int64_t value) {
  char digits[24];
  int first = sizeof digits - 1;
  digits[first] = '\0';
  uint64_t rest = value < 0 ? 0 : static_cast<uint64_t>(value);
  do {
    digits[--first] = static_cast<char>('0' + rest % 10);
    rest /= 10;
  } while (rest != 0 && first > 0);
  append(label, digits + first);
}

const char *operation_name(int type) {
  switch (type) {
    case 10: return "conv_forward";
    case 11: return "conv_backward_filter";
    case 12: return "conv_backward_data";
    case 13: return "pointwise";
    case 19: return "matmul";
    case 22: return "reduction";
    case 25: case 26: return "resample";
    case 29: return "norm_forward";
    case 30: return "norm_backward";
    case 31: return "reshape";
    case 33: return "random";
    case 41: return "sdpa_forward";
    case 43: return "sdpa_backward";
    default: return "";
  }
}

const char *data_type_name(int type) {
  switch (type) {
    case 0: return "f32 ";
    case 1: return "f64 ";
    case 2: return "f16 ";
    case 3: return "i8 ";
    case 9: return "bf16 ";
    case 12: case 13: return "f8 ";
    default: return "";
  }
}

void extend_label(Descriptor &of, int name, int type, int64_t count, const void *values, const Descriptor *child) {
  if (of.type == kTensorType) {
    int data_type = 0;
    if (name == kTensorDataType && count == 1) {
      memcpy(&data_type, values, sizeof data_type);
      char dimensions[kMaxLabel];  // set before the type or after
      memcpy(dimensions, of.label, kMaxLabel);
      of.label[0] = '\0';
      append(of.label, data_type_name(data_type));
      append(of.label, dimensions);
    } else if (name == kTensorDimensions && type == 3) {
      for (int64_t i = 0; i < count && i < 8; i++) {
        if (i > 0) append(of.label, "x");
        append_number(of.label, static_cast<const int64_t *>(values)[i]);
      }
    }
    return;
  }
  if (child == nullptr) return;
  const char *operation = operation_name(of.type);
  if (operation[0] != '\0' && child->type == kTensorType) {
    if (of.label[0] == '\0') append(of.label, operation);
    append(of.label, strchr(of.label, ' ') == nullptr ? " " : ", ");
    append(of.label, child->label);
  } else if (of.type == kGraphType) {
    if (of.label[0] != '\0') append(of.label, "; ");
    append(of.label, child->label);
  }
}

}  // namespace

void created(const void *address, int type) {
  if (address == nullptr) return;
  Locked locked;
  Descriptor *slot = find(address);
  if (slot == nullptr) {
    if (!make_room()) return;
    slot = free_slot(table.slots, table.capacity, address);
    table.used++;
    table.living++;
  }
  memset(slot, 0, sizeof *slot);
  slot->address = address;
  slot->type = type;
  slot->hash = hashed(kFnvOffset, &type, sizeof type);
}

void destroyed(const void *address) {
  Locked locked;
  if (Descriptor *found = find(address)) {
    found->address = kRemoved;
    table.living--;
  }
}

void attribute_set(const void *address, int name, int type, int64_t count, const void *values) {
  if (count <= 0 || values == nullptr || left_out(name)) return;
  Locked locked;
  Descriptor *of = find(address);
  if (of == nullptr) return;
  uint64_t hash = hashed(kFnvOffset, &name, sizeof name);
  if (type == kTypeDescriptor) {
    for (int64_t i = 0; i < count; i++) {
      const Descriptor *child = find(static_cast<void *const *>(values)[i]);
      if (of->type == kPlanType && name == kPlanConfig && child != nullptr) {
        of->hash = child->hash;
        memcpy(of->label, child->label, kMaxLabel);
        return;
      }
      if (of->type == kHeuristicType && name == kHeuristicGraph && child != nullptr) memcpy(of->label, child->label, kMaxLabel);
      if (child == nullptr) continue;
      hash = hashed(hash, &child->hash, sizeof child->hash);
      extend_label(*of, name, type, 1, values, child);
    }
  } else {
    const size_t bytes = element_bytes(type);
    if (bytes == 0) return;
    hash = hashed(hash, values, bytes * static_cast<size_t>(count));
    extend_label(*of, name, type, count, values, nullptr);
  }
  // The mode of a heuristic belongs to the answer (an instant one and a fallback list may hold the same plan), not to the question.
  if (of->type == kHeuristicType && name != kHeuristicGraph) return;
  of->hash += hash;
}

void attribute_got(const void *address, int name, int type, int64_t count, const void *values) {
  if (name != kHeuristicResults || type != kTypeDescriptor || count <= 0 || values == nullptr) return;
  Locked locked;
  const Descriptor *heuristic = find(address);
  if (heuristic == nullptr) return;
  for (int64_t i = 0; i < count; i++) {
    Descriptor *config = find(static_cast<void *const *>(values)[i]);
    if (config == nullptr) continue;
    config->hash = heuristic->hash;
    memcpy(config->label, heuristic->label, kMaxLabel);
  }
}

bool find_plan(const void *address, Plan *plan) {
  Locked locked;
  const Descriptor *found = find(address);
  if (found == nullptr || found->type != kPlanType || found->label[0] == '\0') return false;
  plan->key = found->hash;
  memcpy(plan->label, found->label, kMaxLabel);
  return true;
}

bool executed(const void *address, Plan *plan) {
  Locked locked;
  Descriptor *found = find(address);
  if (found == nullptr || found->type != kPlanType || found->reported || found->label[0] == '\0') return false;
  if (found->executions++ == 0) {
    for (size_t i = 0; i < table.capacity; i++) {
      Descriptor &other = table.slots[i];
      if (&other == found || other.type != kPlanType || other.hash != found->hash || other.executions == 0) continue;
      if (other.address == nullptr || other.address == kRemoved) continue;
      other.benchmarked = found->benchmarked = true;
    }
  }
  if (found->executions < kInUseAfter || found->benchmarked) return false;
  found->reported = true;
  plan->key = found->hash;
  memcpy(plan->label, found->label, kMaxLabel);
  return true;
}

}  // namespace gpumem::workspaces
