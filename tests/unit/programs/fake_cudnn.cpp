// SPDX-License-Identifier: Apache-2.0
// A cuDNN of a few functions for libraries_test: says its version in code and in its file, as libcudnn_graph.so.9 does,
// and remembers what its backend was asked. Built twice (FAKE_CUDNN_VERSION 9.1.0 and 9.8.0), placed by the test.
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT extern "C" __attribute__((visibility("default")))

#define PACKED(major, minor, patch) ((major) << 16 | (minor) << 8 | (patch))
EXPORT const int cudnn_graph_version = FAKE_CUDNN_PACKED;

// What the test looks at.
EXPORT int fake_calls, fake_device_properties_set, fake_finalized;
EXPORT char fake_json[256];
int fake_calls, fake_device_properties_set, fake_finalized;
char fake_json[256];

namespace {
struct Descriptor {
  int type, finalized;
};
Descriptor pool[256];
int used;
}  // namespace

EXPORT size_t cudnnGetVersion() {
  fake_calls++;
  return static_cast<size_t>(cudnn_graph_version >> 16) * 10000 + (cudnn_graph_version >> 8 & 0xff) * 100 + (cudnn_graph_version & 0xff);
}
EXPORT int cudnnBackendCreateDescriptor(int type, void **out) {
  fake_calls++;
  pool[used].type = type;
  *out = &pool[used++];
  return 0;
}
EXPORT int cudnnBackendDestroyDescriptor(void *) { return 0; }
EXPORT int cudnnBackendSetAttribute(void *, int name, int, int64_t count, const void *values) {
  if (name == 2702) memcpy(fake_json, values, static_cast<size_t>(count) < sizeof fake_json ? static_cast<size_t>(count) : sizeof fake_json - 1);
  if (name == 204 || name == 407 || name == 1307) fake_device_properties_set++;
  return name == 0 ? 2000 : 0;  // a handle must never arrive
}
EXPORT int cudnnBackendFinalize(void *pointer) {
  auto *descriptor = static_cast<Descriptor *>(pointer);
  if (descriptor->type == 5) fake_finalized++;
  return 0;
}
// Engine configurations are asked for their engine (300) and workspace (303), engines for their notes (1305).
EXPORT int cudnnBackendGetAttribute(void *, int name, int, int64_t, int64_t *count, void *values) {
  *count = 1;
  if (name == 303) *static_cast<int64_t *>(values) = 12345;
  if (name == 402) *static_cast<int64_t *>(values) = 777;
  const char *engines = getenv("FAKE_CUDNN_ENGINES");
  if (name == 1305) *static_cast<int *>(values) = engines != nullptr && strcmp(engines, "precompiled") == 0 ? 1 : 0;  // 0: at run time
  return 0;
}

// Recurrent networks, as libcudnn_adv.so.9 has them: sizes are given before the call fails for want of a driver.
// FAKE_CUDNN_RNN=crash: a version that looks into its handle.
EXPORT int fake_rnn_asked;
int fake_rnn_asked;
EXPORT int cudnnCreateRNNDescriptor(void **out) { return cudnnBackendCreateDescriptor(-1, out); }
EXPORT int cudnnCreateRNNDataDescriptor(void **out) { return cudnnBackendCreateDescriptor(-2, out); }
EXPORT int cudnnCreateDropoutDescriptor(void **out) { return cudnnBackendCreateDescriptor(-3, out); }
EXPORT int cudnnDestroyRNNDescriptor(void *) { return 0; }
EXPORT int cudnnDestroyRNNDataDescriptor(void *) { return 0; }
EXPORT int cudnnDestroyDropoutDescriptor(void *) { return 0; }
EXPORT int cudnnRestoreDropoutDescriptor(void *, void *, float, void *, size_t, unsigned long long) { return 0; }
EXPORT int cudnnSetRNNDescriptor_v8(void *pointer, int algorithm, int, int, int, int, int, int, int, int32_t, int32_t hidden, int32_t, int32_t,
                                    void *, uint32_t) {
  static_cast<Descriptor *>(pointer)->finalized = hidden;
  return algorithm == 0 ? 0 : 3000;
}
EXPORT int cudnnSetRNNDataDescriptor(void *pointer, int, int, int, int batch, int, const int *lengths, void *) {
  for (int i = 0; i < batch; i++) static_cast<Descriptor *>(pointer)->finalized += lengths[i];
  return 0;
}
EXPORT int cudnnGetRNNTempSpaceSizes(void *handle, void *rnn, int mode, void *data, size_t *workspace, size_t *reserve) {
  const char *behaviour = getenv("FAKE_CUDNN_RNN");
  if (behaviour != nullptr && strcmp(behaviour, "crash") == 0) ***static_cast<int ***>(handle) = 1;
  fake_rnn_asked++;
  *workspace = static_cast<size_t>(1000 * static_cast<Descriptor *>(rnn)->finalized);
  if (mode == 1) *reserve = static_cast<size_t>(static_cast<Descriptor *>(data)->finalized);
  return 5003;
}
