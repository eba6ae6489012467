// SPDX-License-Identifier: Apache-2.0
// Notes for the estimate and access to the real libraries behind the stand-ins; runs in the job's processes.
#include "estimator/virtual_gpu/libraries/library.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "estimator/virtual_gpu/device/record_lines.h"

namespace gpumem::virtual_gpu::libraries {

namespace {

constexpr int kMaxNotes = 64;  // distinct texts; further ones are dropped, the first ones tell enough

Lock notes_lock;
const char *noted[kMaxNotes];  // pointers given by callers, who pass literals
int noted_count = 0;
pid_t noted_by = 0;

// Text goes between JSON quotes, so nothing that would need an escape may pass.
void append(char *line, size_t size, size_t *length, const char *text, bool quote_safe) {
  for (; *text != '\0' && *length + 1 < size; text++) {
    unsigned char c = static_cast<unsigned char>(*text);
    if (quote_safe && (c < 0x20 || c > 0x7e || c == '"' || c == '\\')) c = '?';
    line[(*length)++] = static_cast<char>(c);
  }
}

// Writes `before`, the text and `after` as one line, once a process and text.
void write_note(const char *before, const char *text, const char *after) {
  const char *directory = getenv("GPUMEM_RECORD");
  if (directory == nullptr || directory[0] != '/') return;
  notes_lock.lock();
  if (noted_by != getpid()) {
    noted_by = getpid();
    noted_count = 0;
  }
  bool known = noted_count == kMaxNotes;
  for (int i = 0; i < noted_count && !known; i++) known = strcmp(noted[i], text) == 0;
  if (!known) noted[noted_count++] = text;
  notes_lock.unlock();
  if (known) return;

  char line[1024];
  size_t n = 0;
  append(line, sizeof line - 8, &n, before, false);
  append(line, sizeof line - 8, &n, text, true);
  append(line, sizeof line, &n, after, false);
  write_record_line("libraries", line, n);
}

}  // namespace

long missing(const char *function, long status) {
  report_missing(function);
  return status;
}

void note_guess(const char *text) { write_note("{\"event\": \"note\", \"kind\": \"guess-library\", \"text\": \"", text, "\"}\n"); }
void note_detail(const char *text) { write_note("{\"event\": \"note\", \"kind\": \"stand-in\", \"text\": \"", text, "\"}\n"); }
void note_cudnn(const char *text) { write_note("{\"event\": \"cudnn\", \"planner\": \"", text, "\"}\n"); }

void *loaded_library(const char *const *sonames) {
  for (; *sonames != nullptr; sonames++)
    if (void *handle = open_library(*sonames, RTLD_NOW | RTLD_NOLOAD)) return handle;
  return nullptr;
}

void *loaded_function(const char *const *sonames, const char *function) {
  void *library = loaded_library(sonames);
  return library != nullptr ? find_symbol(library, function) : nullptr;
}

}  // namespace gpumem::virtual_gpu::libraries
