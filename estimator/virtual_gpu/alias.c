// SPDX-License-Identifier: Apache-2.0
// libcuda.so.1 and libnvidia-ml.so.1 of the virtual GPU: names without code. Looking a function up in one of them finds it
// in libgpumem_vgpu.so, on which both depend, so that all share one state.
typedef int gpumem_alias;
