// SPDX-License-Identifier: Apache-2.0
// What the real CUDA runtime is to a look-up by handle: a library of that name whose functions must not be reached.
extern "C" {
int cudaGetDeviceCount(int *) { return 35; }
int cudaMalloc(void **, unsigned long) { return 35; }
int cudaGetDeviceProperties(void *, int) { return 35; }
int fake_only() { return 41; }
}
