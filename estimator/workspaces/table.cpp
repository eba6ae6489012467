// SPDX-License-Identifier: Apache-2.0
// See table.h. Runs in a job's processes and in gpumemd.
#include "estimator/workspaces/table.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

namespace gpumem::workspaces {
namespace {

constexpr size_t kKeyDigits = 16;

bool read_number(const char *text, size_t length, unsigned base, uint64_t *value) {
  if (length == 0 || length > 19) return false;
  *value = 0;
  for (size_t i = 0; i < length; i++) {
    const char c = text[i];
    const unsigned digit = c >= '0' && c <= '9' ? static_cast<unsigned>(c - '0') : c >= 'a' && c <= 'f' ? static_cast<unsigned>(c - 'a' + 10) : 99;
    if (digit >= base) return false;
    *value = *value * base + digit;
  }
  return true;
}

struct Writer {
  char *line;
  size_t size, used;
  bool full;
  void put(const char *text, size_t length) {
    if (full || length > size - used) {
      full = true;
      return;
    }
    memcpy(line + used, text, length);
    used += length;
  }
  // Tabs and newlines would break the line.
  void put_text(const char *text, size_t length) {
    for (size_t i = 0; i < length; i++) {
      const char c = static_cast<unsigned char>(text[i]) < 0x20 ? ' ' : text[i];
      put(&c, 1);
    }
  }
  void put_number(uint64_t value, unsigned base, size_t least_digits) {
    char digits[24];
    size_t first = sizeof digits;
    do {
      digits[--first] = "0123456789abcdef"[value % base];
      value /= base;
    } while (value != 0 || sizeof digits - first < least_digits);
    put(digits + first, sizeof digits - first);
  }
};

}  // namespace

bool parse(const char *line, size_t length, Entry *entry) {
  const char *fields[5];
  size_t lengths[5];
  const char *at = line, *end = line + length;
  for (int i = 0; i < 5; i++) {
    const char *tab = i < 4 ? static_cast<const char *>(memchr(at, '\t', static_cast<size_t>(end - at))) : end;
    if (tab == nullptr) return false;
    fields[i] = at;
    lengths[i] = static_cast<size_t>(tab - at);
    at = i < 4 ? tab + 1 : end;
  }
  entry->gpu = fields[0];
  entry->gpu_length = lengths[0];
  entry->label = fields[4];
  entry->label_length = lengths[4];
  return length < kMaxLine && lengths[0] > 0 && lengths[2] == kKeyDigits && memchr(fields[4], '\t', lengths[4]) == nullptr &&
         read_number(fields[1], lengths[1], 10, &entry->cudnn_version) && read_number(fields[2], lengths[2], 16, &entry->key) &&
         read_number(fields[3], lengths[3], 10, &entry->workspace_bytes);
}

size_t format(const Entry &entry, char *line, size_t size) {
  Writer writer{line, size < kMaxLine ? size : kMaxLine, 0, false};
  writer.put_text(entry.gpu, entry.gpu_length);
  writer.put("\t", 1);
  writer.put_number(entry.cudnn_version, 10, 1);
  writer.put("\t", 1);
  writer.put_number(entry.key, 16, kKeyDigits);
  writer.put("\t", 1);
  writer.put_number(entry.workspace_bytes, 10, 1);
  writer.put("\t", 1);
  writer.put_text(entry.label, entry.label_length);
  writer.put("\n", 1);
  return writer.full ? 0 : writer.used;
}

bool map(const char *path, Table *table) {
  const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return false;
  bool mapped = false;
  const off_t size = lseek(fd, 0, SEEK_END);  // fstat is new in glibc 2.33; what is no file cannot be mapped
  if (size > 0 && static_cast<uint64_t>(size) <= kMaxTableBytes) {
    void *text = mmap(nullptr, static_cast<size_t>(size), PROT_READ, MAP_PRIVATE, fd, 0);
    if (text != MAP_FAILED) {
      table->text = static_cast<const char *>(text);
      table->bytes = static_cast<size_t>(size);
      mapped = true;
    }
  }
  close(fd);
  return mapped;
}

void unmap(Table *table) {
  if (table->text != nullptr) munmap(const_cast<char *>(table->text), table->bytes);
  *table = Table{};
}

bool look_up(const Table &table, const char *gpu, uint64_t cudnn_version, uint64_t key, uint64_t *workspace_bytes) {
  char wanted[kKeyDigits + 2];
  for (size_t i = 0; i < kKeyDigits; i++) wanted[i + 1] = "0123456789abcdef"[key >> (60 - 4 * i) & 0xf];
  wanted[0] = wanted[kKeyDigits + 1] = '\t';
  const char *at = table.text, *end = table.text + table.bytes;
  while (at < end) {
    const void *found = memmem(at, static_cast<size_t>(end - at), wanted, sizeof wanted);
    if (found == nullptr) return false;
    const char *middle = static_cast<const char *>(found);
    const void *before = memrchr(table.text, '\n', static_cast<size_t>(middle - table.text));
    const char *line = before != nullptr ? static_cast<const char *>(before) + 1 : table.text;
    const void *after = memchr(middle, '\n', static_cast<size_t>(end - middle));
    if (after == nullptr) return false;  // torn: its end was not written
    Entry entry;
    if (parse(line, static_cast<size_t>(static_cast<const char *>(after) - line), &entry) && entry.key == key &&
        entry.cudnn_version == cudnn_version && entry.gpu_length == strlen(gpu) && memcmp(entry.gpu, gpu, entry.gpu_length) == 0) {
      *workspace_bytes = entry.workspace_bytes;
      return true;
    }
    at = static_cast<const char *>(after) + 1;
  }
  return false;
}

}  // namespace gpumem::workspaces
