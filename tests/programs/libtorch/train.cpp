// SPDX-License-Identifier: Apache-2.0
// A C++ program on LibTorch: trains a small network on the GPU. No Python runs in it. Prints what its allocator says at last.
#include <c10/cuda/CUDACachingAllocator.h>
#include <torch/torch.h>

#include <cstdio>

struct Net : torch::nn::Module {
  Net() {
    first = register_module("first", torch::nn::Linear(784, 4096));
    second = register_module("second", torch::nn::Linear(4096, 4096));
    last = register_module("last", torch::nn::Linear(4096, 10));
  }
  torch::Tensor forward(torch::Tensor x) { return last->forward(torch::relu(second->forward(torch::relu(first->forward(x))))); }
  torch::nn::Linear first{nullptr}, second{nullptr}, last{nullptr};
};

int main() {
  if (!torch::cuda::is_available()) return std::puts("no GPU"), 1;
  const torch::Device device(torch::kCUDA, 0);
  Net net;
  net.to(device);
  torch::optim::AdamW optimizer(net.parameters());
  torch::Tensor loss;
  for (int step = 0; step < 5; step++) {
    auto x = torch::randn({256, 784}, device), y = torch::randint(0, 10, {256}, torch::TensorOptions().device(device).dtype(torch::kLong));
    optimizer.zero_grad();
    loss = torch::nn::functional::cross_entropy(net.forward(x), y);
    loss.backward();
    optimizer.step();
  }
  const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(0);
  std::printf("allocated %lld reserved %lld loss %g\n", static_cast<long long>(stats.allocated_bytes[0].peak),
              static_cast<long long>(stats.reserved_bytes[0].peak), loss.item<double>());
  return 0;
}
