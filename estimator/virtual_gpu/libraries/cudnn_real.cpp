// SPDX-License-Identifier: Apache-2.0
// Finds the cuDNN that plans and reads the job's own version without calling it. Runs in the job's processes.
#include "estimator/virtual_gpu/libraries/cudnn_real.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "estimator/virtual_gpu/libraries/library.h"

namespace gpumem::virtual_gpu::libraries {

namespace {

constexpr size_t kFirstPlanner = 90800;  // device-property descriptors

const char *const kSonames[] = {"libcudnn.so.9", "libcudnn.so.8", nullptr};

// Found in two steps, for a program that only asks for the version needs no planner loaded.
Lock resolve_lock;
bool own_resolved, planner_resolved;
void *own;       // the job's own library
size_t own_version;
RealCudnn real;
bool have_real;

// "DIRECTORY/name" of a library's directory; false if it does not fit.
bool beside(const char *library_path, const char *name, char *out, size_t size) {
  const char *slash = strrchr(library_path, '/');
  if (slash == nullptr) return false;
  size_t directory = static_cast<size_t>(slash - library_path) + 1;
  if (directory + strlen(name) + 1 > size) return false;
  memcpy(out, library_path, directory);
  memcpy(out + directory, name, strlen(name) + 1);
  return true;
}

bool usable(void *library) {
  real.library = library;
  real.create = reinterpret_cast<decltype(real.create)>(find_symbol(library, "cudnnBackendCreateDescriptor"));
  real.destroy = reinterpret_cast<decltype(real.destroy)>(find_symbol(library, "cudnnBackendDestroyDescriptor"));
  real.set = reinterpret_cast<decltype(real.set)>(find_symbol(library, "cudnnBackendSetAttribute"));
  real.get = reinterpret_cast<decltype(real.get)>(find_symbol(library, "cudnnBackendGetAttribute"));
  real.finalize = reinterpret_cast<decltype(real.finalize)>(find_symbol(library, "cudnnBackendFinalize"));
  return real.create != nullptr && real.destroy != nullptr && real.set != nullptr && real.get != nullptr && real.finalize != nullptr;
}

size_t ask_version(void *library) {
  auto function = reinterpret_cast<size_t (*)()>(find_symbol(library, "cudnnGetVersion"));
  return function != nullptr ? function() : 0;
}

// "9.19.0" of 91900, "8.9.7" of 8907.
void append_version(char *text, size_t size, size_t version) {
  size_t major = version >= 10000 ? version / 10000 : version / 1000;
  size_t minor = version >= 10000 ? version / 100 % 100 : version / 100 % 10;
  size_t parts[3] = {major, minor, version % 100};
  size_t n = strlen(text);
  for (int i = 0; i < 3; i++) {
    char digits[24];
    int first = sizeof digits;
    do {
      digits[--first] = static_cast<char>('0' + parts[i] % 10);
      parts[i] /= 10;
    } while (parts[i] != 0);
    if (i > 0 && n + 1 < size) text[n++] = '.';
    for (; first < static_cast<int>(sizeof digits) && n + 1 < size; first++) text[n++] = digits[first];
  }
  text[n] = '\0';
}

void append_text(char *text, size_t size, const char *more) {
  size_t n = strlen(text);
  while (*more != '\0' && n + 1 < size) text[n++] = *more++;
  text[n] = '\0';
}

// A handle of glibc's dlopen is the library's link map.
const char *path_of(const void *library) { return static_cast<const link_map *>(library)->l_name; }

// Loads the cuDNN at `path` with the parts that plan, all of them from its own folder.
void *load_beside_own(const char *path) {
  static const char *const kParts[] = {"libcudnn_graph.so.9", "libcudnn_ops.so.9", "libcudnn_engines_runtime_compiled.so.9",
                                       "libcudnn_engines_precompiled.so.9", "libcudnn_heuristic.so.9"};
  char part[4096];
  for (const char *name : kParts)
    if (!beside(path, name, part, sizeof part) || open_library(part, RTLD_NOW | RTLD_LOCAL) == nullptr) return nullptr;
  return open_library(path, RTLD_NOW | RTLD_LOCAL);
}

void resolve_own() {
  own = loaded_library(kSonames);
  if (own == nullptr) return;
  char graph[4096];
  if (beside(path_of(own), "libcudnn_graph.so.9", graph, sizeof graph)) own_version = cudnn_version_of_file(graph);
  if (own_version == 0) own_version = ask_version(own);
}

void resolve_planner() {
  static char fact[256];  // the note keeps the pointer
  if (own_version >= kFirstPlanner && usable(own)) {
    have_real = true;
    real.version = own_version;
    append_version(fact, sizeof fact, own_version);
    append_text(fact, sizeof fact, " (the job's own)");
    note_cudnn(fact);
    return;
  }
  const char *other = getenv("GPUMEM_CUDNN");
  if (other != nullptr && other[0] == '/') {
    void *library = load_beside_own(other);
    size_t version = library != nullptr ? ask_version(library) : 0;
    if (version >= kFirstPlanner && usable(library)) {
      have_real = true;
      real.version = version;
      append_version(fact, sizeof fact, version);
      append_text(fact, sizeof fact, " (brought by gpumem)");
      if (own_version != 0) {
        append_text(fact, sizeof fact, " in place of the job's ");
        append_version(fact, sizeof fact, own_version);
      }
      note_cudnn(fact);
      return;
    }
  }
  append_text(fact, sizeof fact, "no cuDNN that can plan without a GPU");
  if (own_version != 0) {
    append_text(fact, sizeof fact, " (the job's own is ");
    append_version(fact, sizeof fact, own_version);
    append_text(fact, sizeof fact, ")");
  }
  if (other != nullptr) append_text(fact, sizeof fact, ": what GPUMEM_CUDNN names could not be loaded or is older than 9.8");
  note_cudnn(fact);
}

void find_own() {
  Locked locked(resolve_lock);
  if (own_resolved) return;
  resolve_own();
  own_resolved = true;
}

void find_planner() {
  find_own();
  Locked locked(resolve_lock);
  if (planner_resolved) return;
  resolve_planner();
  planner_resolved = true;
}

// File offset of a virtual address, or 0.
uint64_t file_offset(const unsigned char *file, const Elf64_Ehdr &header, uint64_t address) {
  const auto *segments = reinterpret_cast<const Elf64_Phdr *>(file + header.e_phoff);
  for (int i = 0; i < header.e_phnum; i++)
    if (segments[i].p_type == PT_LOAD && address >= segments[i].p_vaddr && address < segments[i].p_vaddr + segments[i].p_filesz)
      return address - segments[i].p_vaddr + segments[i].p_offset;
  return 0;
}

// libcudnn_graph exports its version as a number, `cudnn_graph_version` = MAJOR<<16 | MINOR<<8 | PATCH (seen in 9.1 to 9.19).
size_t version_in(const unsigned char *file, size_t size) {
  if (size < sizeof(Elf64_Ehdr) || memcmp(file, ELFMAG, SELFMAG) != 0 || file[EI_CLASS] != ELFCLASS64) return 0;
  const auto &header = *reinterpret_cast<const Elf64_Ehdr *>(file);
  if (header.e_shentsize != sizeof(Elf64_Shdr) || header.e_shoff > size ||
      (size - header.e_shoff) / sizeof(Elf64_Shdr) < header.e_shnum || header.e_phoff > size ||
      (size - header.e_phoff) / sizeof(Elf64_Phdr) < header.e_phnum)
    return 0;
  const auto *sections = reinterpret_cast<const Elf64_Shdr *>(file + header.e_shoff);
  for (int i = 0; i < header.e_shnum; i++) {
    const Elf64_Shdr &table = sections[i];
    if (table.sh_type != SHT_DYNSYM || table.sh_link >= header.e_shnum) continue;
    const Elf64_Shdr &names = sections[table.sh_link];
    if (table.sh_offset > size || table.sh_size > size - table.sh_offset || names.sh_offset > size || names.sh_size > size - names.sh_offset)
      continue;
    const auto *symbols = reinterpret_cast<const Elf64_Sym *>(file + table.sh_offset);
    static const char kName[] = "cudnn_graph_version";
    for (size_t k = 0; k < table.sh_size / sizeof(Elf64_Sym); k++) {
      if (symbols[k].st_name + sizeof kName > names.sh_size) continue;
      if (memcmp(file + names.sh_offset + symbols[k].st_name, kName, sizeof kName) != 0) continue;
      uint64_t offset = file_offset(file, header, symbols[k].st_value);
      if (offset == 0 || offset > size - sizeof(uint32_t)) return 0;
      uint32_t packed;
      memcpy(&packed, file + offset, sizeof packed);
      return static_cast<size_t>(packed >> 16) * 10000 + (packed >> 8 & 0xff) * 100 + (packed & 0xff);
    }
  }
  return 0;
}

}  // namespace

size_t cudnn_version_of_file(const char *path) {
  int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  size_t version = 0;
  off_t size = lseek(fd, 0, SEEK_END);
  if (size > 0) {
    void *file = mmap(nullptr, static_cast<size_t>(size), PROT_READ, MAP_PRIVATE, fd, 0);
    if (file != MAP_FAILED) {
      version = version_in(static_cast<const unsigned char *>(file), static_cast<size_t>(size));
      munmap(file, static_cast<size_t>(size));
    }
  }
  ::close(fd);
  return version;
}

const RealCudnn *real_cudnn() {
  find_planner();
  return have_real ? &real : nullptr;
}

void *cudnn_part(const RealCudnn &planner, const char *name) {
  char path[4096];
  return beside(path_of(planner.library), name, path, sizeof path) ? open_library(path, RTLD_NOW | RTLD_LOCAL) : nullptr;
}

size_t job_cudnn_version() {
  find_own();
  if (own_version != 0) return own_version;
  find_planner();
  return have_real ? real.version : 90000;
}

void *job_cudnn_function(const char *name) {
  find_own();
  return own != nullptr && own_version >= kFirstPlanner ? find_symbol(own, name) : nullptr;
}

}  // namespace gpumem::virtual_gpu::libraries
