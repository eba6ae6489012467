# SPDX-License-Identifier: Apache-2.0
# What: a program that nvcc linked with its default, static runtime: it cannot use the virtual GPU, and the estimate says so.
# needs: torch>=2.9 nvcc>=13
# timeout: 300
# expect: missing "cuGetExportTable"
import os
import subprocess
import tempfile

import torch

torch.ones(1 << 20, device="cuda")
SOURCE = r"""
#include <cstdio>
__global__ void add(float *x) { x[threadIdx.x] += 1; }
int main() {
  float *x = nullptr;
  cudaError_t error = cudaMalloc(&x, 1 << 20);
  add<<<1, 32>>>(x);
  if (error == cudaSuccess) error = cudaDeviceSynchronize();
  std::printf("%s\n", cudaGetErrorName(error));
  return error == cudaSuccess ? 0 : 3;
}
"""
with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "add.cu")
    with open(path, "w") as file:
        file.write(SOURCE)
    for runtime in ("shared", "static"):
        program = os.path.join(folder, runtime)
        subprocess.run(["nvcc", "--cudart", runtime, "-o", program, path], check=True)
        library = os.path.join(os.path.dirname(torch.__file__), "..", "nvidia", "cu13", "lib")
        done = subprocess.run([program], stdout=subprocess.PIPE, text=True, env={**os.environ, "LD_LIBRARY_PATH": library})
        assert (done.returncode, done.stdout) == (0, "cudaSuccess\n") if runtime == "shared" else done.returncode == 3, (runtime, done)
print("ok")
