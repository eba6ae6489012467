// SPDX-License-Identifier: Apache-2.0
// See handles.h. Runs in the job's processes.
#include "estimator/virtual_gpu/libraries/handles.h"

namespace gpumem::virtual_gpu::libraries {

namespace {
constexpr int kSuccess = 0;
}

int create_handle(const HandleRules &rules, void **out) {
  if (out == nullptr) return rules.bad_argument;
  if (!ready()) return rules.not_ready;
  if (!use_device(current_device())) return rules.no_memory;
  return create_object(rules, out);
}

int create_object(const HandleRules &rules, void **out) {
  if (out == nullptr) return rules.bad_argument;
  Handle *made = new_handle(rules.kind);
  if (made == nullptr) return rules.no_memory;
  *out = made;
  return kSuccess;
}

int destroy_handle(const HandleRules &rules, void *handle) {
  Handle *found = cast(handle, rules.kind);
  if (found == nullptr) return rules.no_handle;
  delete_handle(found);
  return kSuccess;
}

int set_stream(const HandleRules &rules, void *handle, Stream stream) {
  Handle *found = cast(handle, rules.kind);
  if (found == nullptr) return rules.no_handle;
  found->stream = stream;
  return kSuccess;
}

int get_stream(const HandleRules &rules, const void *handle, Stream *stream) {
  const Handle *found = cast(handle, rules.kind);
  if (found == nullptr) return rules.no_handle;
  if (stream == nullptr) return rules.bad_argument;
  *stream = found->stream;
  return kSuccess;
}

int set_number(const HandleRules &rules, void *handle, int index, int value) {
  Handle *found = cast(handle, rules.kind);
  if (found == nullptr) return rules.no_handle;
  found->number[index] = static_cast<uint64_t>(value);
  return kSuccess;
}

int get_number(const HandleRules &rules, const void *handle, int index, int *value) {
  const Handle *found = cast(handle, rules.kind);
  if (found == nullptr) return rules.no_handle;
  if (value == nullptr) return rules.bad_argument;
  *value = static_cast<int>(found->number[index]);
  return kSuccess;
}

int library_property(const LibraryVersion &version, int part, int *value) {
  using Function = int (*)(int, int *);
  if (value == nullptr || part < 0 || part > 2) return version.bad_argument;
  if (auto real = reinterpret_cast<Function>(loaded_function(version.sonames, version.function))) return real(part, value);
  *value = version.fallback[part];
  return kSuccess;
}

int library_version(const LibraryVersion &version, int major_unit) {
  int parts[3] = {};
  for (int part = 0; part < 3; part++) library_property(version, part, &parts[part]);
  return parts[0] * major_unit + parts[1] * 100 + parts[2];
}

}  // namespace gpumem::virtual_gpu::libraries
