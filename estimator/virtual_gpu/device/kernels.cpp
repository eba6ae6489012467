// SPDX-License-Identifier: Apache-2.0
// Registered device code. Part of libgpumem_vgpu.so, preloaded into jobs.

#include "estimator/virtual_gpu/device/kernels.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "estimator/virtual_gpu/device/memory.h"

namespace gpumem::virtual_gpu {
namespace {

// The wrapper that nvcc emits and the fat binary behind it [layout as in cuobjdump's and LLVM's public sources].
struct Wrapper {
  uint32_t magic;
  uint32_t version;
  const char *data;
  void *file;
};
constexpr uint32_t kWrapperMagic = 0x466243b1, kFatMagic = 0xba55ed50;

struct FatHeader {
  uint32_t magic;
  uint16_t version, header_bytes;
  uint64_t bytes;
};

struct FatEntry {
  uint16_t kind;  // 1: PTX, 2: machine code
  uint16_t version;
  uint32_t header_bytes;
  uint64_t bytes;
  uint32_t compressed_bytes, unknown;
  uint16_t minor, major;
  uint32_t arch;  // 86: sm_86
};

struct Module {
  void *self;         // the handle is the module's address; its first word points to the wrapper, as programs may expect
  const Wrapper *wrapper;
  CodeVersion chosen;  // for the first device that asked; 0: not looked yet
  uint32_t chosen_for;
};

struct Function {
  const void *host;
  const char *name;
  Module *module;
};

struct Variable {
  const void *host;
  size_t bytes;
  void *memory[book::kMaxDevices];
  Variable *next;
};

struct Code {
  Lock lock;
  Function *functions;  // open addressing
  size_t capacity, count;
  Variable *variables;
};
constinit Code code = {};

size_t hash(const void *pointer) {
  return static_cast<size_t>((reinterpret_cast<uintptr_t>(pointer) >> 4) * 0x9e3779b97f4a7c15ull >> 20);
}

Function *slot_of(Function *functions, size_t capacity, const void *host) {
  size_t at = hash(host) & (capacity - 1);
  while (functions[at].host != nullptr && functions[at].host != host) at = (at + 1) & (capacity - 1);
  return &functions[at];
}

bool grow() {
  const size_t capacity = code.capacity == 0 ? 4096 : code.capacity * 2;
  Function *grown = static_cast<Function *>(allocate_zeroed(capacity * sizeof(Function)));
  if (grown == nullptr) return false;
  for (size_t f = 0; f < code.capacity; ++f)
    if (code.functions[f].host != nullptr) *slot_of(grown, capacity, code.functions[f].host) = code.functions[f];
  release_zeroed(code.functions);
  code.functions = grown;
  code.capacity = capacity;
  return true;
}

const Function *find_function(const void *host) {
  if (code.capacity == 0) return nullptr;
  const Function *found = slot_of(code.functions, code.capacity, host);
  return found->host != nullptr ? found : nullptr;
}

int device_version(const book::DeviceDescription &facts) {
  return static_cast<int>(facts.compute_major * 10 + facts.compute_minor);
}

CodeVersion of_fat_binary(const char *data, int device) {
  FatHeader header;
  memcpy(&header, data, sizeof(header));
  if (header.magic != kFatMagic) return {device, device};
  int best = 0, ptx = 0;
  const char *at = data + header.header_bytes, *end = at + header.bytes;
  while (at + sizeof(FatEntry) <= end) {
    FatEntry entry;
    memcpy(&entry, at, sizeof(entry));
    if (entry.header_bytes < sizeof(FatEntry) || entry.bytes > static_cast<uint64_t>(end - at)) break;
    const int arch = static_cast<int>(entry.arch);
    if (entry.kind == 2 && arch <= device && arch / 10 == device / 10 && arch > best) best = arch;
    if (entry.kind == 1 && arch <= device && arch > ptx) ptx = arch;
    at += entry.header_bytes + entry.bytes;
  }
  if (best != 0) return {best, best};
  if (ptx != 0) return {ptx, device};
  return {device, device};
}

}  // namespace

void **register_module(void *wrapper) {
  Module *module = static_cast<Module *>(allocate_zeroed(sizeof(Module)));
  static Module nowhere;  // without memory: functions stay unknown, which only costs their attributes
  if (module == nullptr) module = &nowhere;
  module->self = wrapper;
  module->wrapper = static_cast<const Wrapper *>(wrapper);
  return reinterpret_cast<void **>(module);
}

// The library is being unloaded: its functions must not be followed any more.
void unregister_module(void **handle) {
  Module *module = reinterpret_cast<Module *>(handle);
  if (module != nullptr) __atomic_store_n(&module->wrapper, nullptr, __ATOMIC_RELEASE);
}

void register_function(void **module, const void *host, const char *name) {
  Locked locked(code.lock);
  if ((code.count + 1) * 2 > code.capacity && !grow()) return;
  Function *slot = slot_of(code.functions, code.capacity, host);
  if (slot->host == nullptr) ++code.count;
  *slot = {host, name, reinterpret_cast<Module *>(module)};
}

const char *function_name(const void *host) {
  Locked locked(code.lock);
  const Function *function = find_function(host);
  return function != nullptr && function->module->wrapper != nullptr ? function->name : nullptr;
}

void register_variable(const void *host, size_t bytes) {
  Variable *variable = static_cast<Variable *>(allocate_zeroed(sizeof(Variable)));
  if (variable == nullptr) return;
  variable->host = host;
  variable->bytes = bytes;
  Locked locked(code.lock);
  variable->next = code.variables;
  code.variables = variable;
}

void *variable_memory(const void *host, int device, size_t *bytes) {
  Locked locked(code.lock);
  for (Variable *variable = code.variables; variable != nullptr; variable = variable->next) {
    if (variable->host != host) continue;
    if (bytes != nullptr) *bytes = variable->bytes;
    if (variable->memory[device] != nullptr) return variable->memory[device];
    const size_t size = (variable->bytes + kGranularity - 1) / kGranularity * kGranularity;
    void *address = map_address_space(size);
    if (address == nullptr) return nullptr;
    insert_range(Range{reinterpret_cast<uintptr_t>(address), variable->bytes, size, 0, nullptr, 0,
                       static_cast<int16_t>(device), RangeKind::device, 0});
    variable->memory[device] = address;
    return address;
  }
  return nullptr;
}

CodeVersion code_version(const void *host, const book::DeviceDescription &facts) {
  const int device = device_version(facts);
  Locked locked(code.lock);
  const Function *function = find_function(host);
  if (function == nullptr || function->module->wrapper == nullptr) return {device, device};
  Module *module = function->module;
  if (module->chosen_for != static_cast<uint32_t>(device)) {
    const Wrapper *wrapper = module->wrapper;
    module->chosen = wrapper->magic == kWrapperMagic && wrapper->data != nullptr ? of_fat_binary(wrapper->data, device)
                                                                                 : CodeVersion{device, device};
    module->chosen_for = static_cast<uint32_t>(device);
  }
  return module->chosen;
}

CodeVersion image_version(const void *image, const book::DeviceDescription &facts) {
  const int device = device_version(facts);
  uint32_t magic;
  memcpy(&magic, image, sizeof(magic));
  if (magic == kWrapperMagic) return of_fat_binary(static_cast<const Wrapper *>(image)->data, device);
  if (magic == kFatMagic) return of_fat_binary(static_cast<const char *>(image), device);
  return {device, device};
}

CodeVersion file_version(int descriptor, const book::DeviceDescription &facts) {
  const int device = device_version(facts);
  FatHeader header = {};
  if (pread(descriptor, &header, sizeof(header), 0) != sizeof(header) || header.magic != kFatMagic) return {device, device};
  const off_t end = lseek(descriptor, 0, SEEK_END);
  const uint64_t size = end > 0 ? static_cast<uint64_t>(end) : 0, whole = header.header_bytes + header.bytes;
  if (header.bytes > size || whole > size) return {device, device};
  void *image = mmap(nullptr, whole, PROT_READ, MAP_PRIVATE, descriptor, 0);
  if (image == MAP_FAILED) return {device, device};
  const CodeVersion version = of_fat_binary(static_cast<const char *>(image), device);
  munmap(image, whole);
  return version;
}

int blocks_per_sm(const book::DeviceDescription &facts, int block_size, size_t shared_bytes) {
  const unsigned threads = (static_cast<unsigned>(block_size) + 31) / 32 * 32;
  if (threads == 0 || threads > facts.threads_per_block) return 0;
  unsigned blocks = facts.threads_per_sm / threads;
  if (facts.blocks_per_sm != 0 && blocks > facts.blocks_per_sm) blocks = facts.blocks_per_sm;
  const unsigned by_registers = facts.registers_per_sm / (threads * 32);
  if (facts.registers_per_sm != 0 && blocks > by_registers) blocks = by_registers;
  const size_t shared = shared_bytes + facts.shared_reserved_per_block;
  if (shared_bytes > facts.shared_per_block_optin) return 0;
  if (shared != 0 && facts.shared_per_sm != 0 && blocks > facts.shared_per_sm / shared)
    blocks = static_cast<unsigned>(facts.shared_per_sm / shared);
  return static_cast<int>(blocks);
}

}  // namespace gpumem::virtual_gpu
