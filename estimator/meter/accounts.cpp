// SPDX-License-Identifier: Apache-2.0
// The meter's accounts: the job's book, and which address or handle holds how much. Runs in a job's processes.
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "estimator/book/book.h"
#include "estimator/book/lock.h"
#include "estimator/meter/meter.h"

namespace gpumem::meter {

__thread int Metered::depth_ __attribute__((tls_model("initial-exec"))) = 0;

namespace {

constexpr uint64_t kPage = 2ull << 20;   // the driver's page of device memory
constexpr uint64_t kSmall = 1ull << 20;  // below it requests share pages
constexpr uint64_t kAlign = 512;

struct Holding {
  uint64_t key;  // 0: free slot; kRemoved: was used
  uint64_t held;
  uint64_t handle;  // of a mapping: the key of its physical memory
  int device;
  uint32_t references;
};
constexpr uint64_t kRemoved = ~0ull;

// Open addressing; memory by mmap, since the program may replace malloc.
struct Holdings {
  Holding *slots;
  size_t capacity;  // a power of two
  size_t used;      // removed ones too
  size_t living;
};

struct State {
  uint32_t lock;
  bool opened, usable;
  pid_t pid;
  uint64_t context_bytes;
  bool has_context[book::kMaxDevices];
  Holdings holdings;
  book::Book book;
};
constinit State state = {};

class Locked {
 public:
  Locked() { book::lock_word(&state.lock); }
  ~Locked() { book::unlock_word(&state.lock); }
};

size_t slot_of(const Holdings &table, uint64_t key) {
  return static_cast<size_t>((key * 0x9e3779b97f4a7c15ull) >> 20) & (table.capacity - 1);
}

Holding *find(const Holdings &table, uint64_t key) {
  if (key == 0 || table.capacity == 0) return nullptr;
  for (size_t at = slot_of(table, key); table.slots[at].key != 0; at = (at + 1) & (table.capacity - 1)) {
    if (table.slots[at].key == key) return &table.slots[at];
  }
  return nullptr;
}

void put(Holdings &table, const Holding &holding) {
  if (Holding *known = find(table, holding.key)) {
    *known = holding;
    return;
  }
  size_t at = slot_of(table, holding.key);
  while (table.slots[at].key != 0 && table.slots[at].key != kRemoved) at = (at + 1) & (table.capacity - 1);
  if (table.slots[at].key == 0) ++table.used;
  table.slots[at] = holding;
  ++table.living;
}

// Room for one more: when half of the slots have been used, those that are still in use move to a table of their own.
bool make_room(Holdings &table) {
  if (table.used * 2 < table.capacity) return true;
  Holdings fresh = {};
  fresh.capacity = table.capacity == 0 ? 1024 : table.living * 4 >= table.capacity ? table.capacity * 2 : table.capacity;
  void *memory = mmap(nullptr, fresh.capacity * sizeof(Holding), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return table.used + 1 < table.capacity;
  fresh.slots = static_cast<Holding *>(memory);
  for (size_t i = 0; i < table.capacity; ++i) {
    if (table.slots[i].key != 0 && table.slots[i].key != kRemoved) put(fresh, table.slots[i]);
  }
  if (table.slots != nullptr) munmap(table.slots, table.capacity * sizeof(Holding));
  table = fresh;
  return true;
}

void remove(Holdings &table, Holding *holding) {
  holding->key = kRemoved;
  --table.living;
}

// A forked child holds nothing: the addresses it inherited are its parent's.
void start_child() {
  book::forked();
  state.lock = 0;
  if (state.holdings.slots != nullptr) munmap(state.holdings.slots, state.holdings.capacity * sizeof(Holding));
  state.holdings = {};
  memset(state.has_context, 0, sizeof state.has_context);
  if (state.usable) book::after_fork(&state.book);
  state.pid = getpid();
}

void open_book() {
  state.opened = true;
  state.pid = getpid();
  const char *path = getenv("GPUMEM_METER_BOOK");
  if (path == nullptr || *path == '\0') return;
  const char *context = getenv("GPUMEM_METER_CONTEXT_BYTES");
  state.context_bytes = context == nullptr ? 0 : strtoull(context, nullptr, 10);
  char error[256];
  // A book that is gone (the job ended, another mount namespace) leaves the program unmetered, never dead.
  state.usable = book::open(&state.book, path, true, error, sizeof error) == book::Status::ok;
}

bool attached() { return book::attach(&state.book, getenv("GPUMEM_JOB")) == book::Status::ok; }

}  // namespace

bool active() {
  if (state.opened && state.pid != getpid()) start_child();
  if (!__atomic_load_n(&state.opened, __ATOMIC_ACQUIRE)) {
    Locked locked;
    if (!state.opened) open_book();
  }
  return state.usable;
}

uint64_t held_bytes(uint64_t bytes) {
  const uint64_t unit = bytes < kSmall ? kAlign : kPage;
  return bytes > ~0ull - unit ? bytes : (bytes + unit - 1) / unit * unit;
}

bool charge(int device, uint64_t held) {
  if (device < 0 || device >= book::device_count(state.book)) return true;  // not a device of this job's account
  Locked locked;
  if (!attached()) return true;
  if (!state.has_context[device]) {
    if (book::charge(&state.book, device, state.context_bytes, book::Charge::context) == book::Status::out_of_memory) return false;
    state.has_context[device] = true;
  }
  return book::charge(&state.book, device, held, book::Charge::allocation) != book::Status::out_of_memory;
}

static void discharge(int device, uint64_t held) {
  if (device >= 0 && device < book::device_count(state.book)) book::discharge(&state.book, device, held, book::Charge::allocation);
}

static void drop_reference(uint64_t key) {
  Holding *holding = find(state.holdings, key);
  if (holding == nullptr || --holding->references != 0) return;
  discharge(holding->device, holding->held);
  remove(state.holdings, holding);
}

void remember(uint64_t key, int device, uint64_t held) {
  Locked locked;
  if (key != 0 && make_room(state.holdings)) put(state.holdings, {key, held, 0, device, 1});
}

void give_back(int device, uint64_t held) {
  Locked locked;
  discharge(device, held);
}

void forget(uint64_t key) {
  Locked locked;
  drop_reference(key);
}

void retain(uint64_t handle) {
  Locked locked;
  if (Holding *holding = find(state.holdings, handle | kHandleKey)) ++holding->references;
}

void mapped(uint64_t address, uint64_t bytes, uint64_t handle) {
  Locked locked;
  Holding *physical = find(state.holdings, handle | kHandleKey);
  if (physical == nullptr) return;
  ++physical->references;  // before `make_room` moves it
  const int device = physical->device;
  if (make_room(state.holdings))
    put(state.holdings, {address | kMappingKey, bytes, handle | kHandleKey, device, 1});
  else
    drop_reference(handle | kHandleKey);
}

void unmapped(uint64_t address, uint64_t bytes) {
  Locked locked;
  for (uint64_t at = address; at < address + bytes;) {
    Holding *mapping = find(state.holdings, at | kMappingKey);
    if (mapping == nullptr) {  // somebody else's memory
      at += kPage;
      continue;
    }
    const uint64_t handle = mapping->handle;
    at += mapping->held;
    remove(state.holdings, mapping);
    drop_reference(handle);
  }
}

void remember_pool(const void *pool, const PoolProperties &properties) {
  remember(reinterpret_cast<uint64_t>(pool) | kPoolKey, properties.location_type == kLocationDevice ? properties.location_id : kHost, 0);
}

int device_of(uint64_t key, int otherwise) {
  Locked locked;
  const Holding *holding = find(state.holdings, key);
  return holding != nullptr ? holding->device : otherwise;
}

const char *device_name(int device) {
  if (!active() || device < 0 || device >= book::device_count(state.book)) return nullptr;
  const book::DeviceDescription *description = book::description(state.book, device);
  return description != nullptr && description->name[0] != '\0' ? description->name : nullptr;
}

void limit_memory_info(int device, size_t *free_bytes, size_t *total_bytes) {
  if (free_bytes == nullptr || total_bytes == nullptr || device < 0 || device >= book::device_count(state.book)) return;
  Locked locked;
  book::JobUse use = {};
  if (!attached() || book::job_use(&state.book, getenv("GPUMEM_JOB"), &use) != book::Status::ok) return;
  const auto &mine = use.devices[device];
  if (mine.limit_bytes == 0) return;
  const uint64_t left = mine.limit_bytes > mine.used_bytes ? mine.limit_bytes - mine.used_bytes : 0;
  if (left < *free_bytes) *free_bytes = left;
  if (mine.limit_bytes < *total_bytes) *total_bytes = mine.limit_bytes;
}

}  // namespace gpumem::meter
