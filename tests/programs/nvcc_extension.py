# SPDX-License-Identifier: Apache-2.0
# What: an extension with its own <<<>>> kernel, built by nvcc through torch.utils.cpp_extension and used in autograd.
# needs: torch>=2.9 nvcc>=13 ninja
# timeout: 300
import os
import re
import subprocess
import tempfile

said = subprocess.run(["nvcc", "--dryrun", "-c", "x.cu"], stderr=subprocess.PIPE, text=True).stderr
os.environ["CUDA_HOME"] = os.path.realpath(re.search(r"TOP=(\S+)", said).group(1))

import torch  # noqa: E402
from torch.utils.cpp_extension import load  # noqa: E402

# Without torch's headers: they take nvcc a minute.
KERNEL = r"""
#include <cuda_runtime.h>
__device__ float offset_on_device = 0.f;
__global__ void scale_kernel(const float *x, float *y, float by, long n) {
  extern __shared__ float tile[];
  long i = blockIdx.x * long(blockDim.x) + threadIdx.x;
  tile[threadIdx.x] = i < n ? x[i] : 0.f;
  __syncthreads();
  if (i < n) y[i] = tile[threadIdx.x] * by + offset_on_device;
}
int scale(const float *x, float *y, float by, long n, cudaStream_t stream) {
  float offset = 1.f, back = 0.f;
  if (cudaMemcpyToSymbol(offset_on_device, &offset, sizeof offset) != cudaSuccess) return -1;
  if (cudaMemcpyFromSymbol(&back, offset_on_device, sizeof back) != cudaSuccess || back != 1.f) return -2;
  cudaFuncAttributes attributes;
  if (cudaFuncGetAttributes(&attributes, scale_kernel) != cudaSuccess || attributes.maxThreadsPerBlock != 1024) return -3;
  int blocks = 0;
  if (cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, scale_kernel, 256, 1024) != cudaSuccess || blocks < 1) return -4;
  scale_kernel<<<(n + 255) / 256, 256, 256 * sizeof(float), stream>>>(x, y, by, n);
  return cudaGetLastError();
}
int too_many_threads() {
  scale_kernel<<<1, 4096>>>(nullptr, nullptr, 1.f, 0);
  return cudaGetLastError();
}
"""
BINDING = r"""
#include <ATen/Functions.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/csrc/utils/pybind.h>
int scale(const float *x, float *y, float by, long n, cudaStream_t stream);
int too_many_threads();
at::Tensor scale_tensor(at::Tensor x, double by) {
  TORCH_CHECK(x.is_cuda() && x.is_contiguous());
  auto y = at::empty_like(x);
  int error = scale(x.data_ptr<float>(), y.data_ptr<float>(), float(by), x.numel(), c10::cuda::getCurrentCUDAStream());
  TORCH_CHECK(error == 0, "error ", error);
  return y;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("scale", &scale_tensor);
  m.def("too_many_threads", &too_many_threads);
}
"""
os.environ["TORCH_CUDA_ARCH_LIST"] = "{}.{}".format(*torch.cuda.get_device_capability())
with tempfile.TemporaryDirectory() as folder:
    for name, text in (("scale.cu", KERNEL), ("binding.cpp", BINDING)):
        with open(os.path.join(folder, name), "w") as file:
            file.write(text)
    extension = load("gpumem_scale", [os.path.join(folder, "scale.cu"), os.path.join(folder, "binding.cpp")], build_directory=folder,
                     extra_ldflags=["-L" + os.path.join(os.environ["CUDA_HOME"], "lib64")])

    class Scale(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return extension.scale(x, 2.0)

        @staticmethod
        def backward(ctx, gradient):
            return extension.scale(gradient.contiguous(), 2.0)

    model = torch.nn.Linear(512, 512).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        Scale.apply(model(torch.rand(64, 512, device="cuda"))).mean().backward()
        optimizer.step()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    y = extension.scale(torch.empty(1 << 20, device="cuda"), 2.0)
    assert torch.cuda.memory_allocated() - before == 4 << 20
    assert extension.too_many_threads() == 9
print("ok")
