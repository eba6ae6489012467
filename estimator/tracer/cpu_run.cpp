// SPDX-License-Identifier: Apache-2.0
// Aliases, copies and the call of the CPU kernel.

#include "cpu_run.h"

#include "direct_loops.h"
#include "dispatch_key.h"
#include "storage_states.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/CPUAllocator.h>

#include <cstring>

// Of the OpenMP runtime that torch brings, where it has one. The setting is the calling thread's own.
extern "C" {
__attribute__((weak)) void omp_set_num_threads(int);
__attribute__((weak)) int omp_get_max_threads(void);
}

namespace gpumem::tracer {
namespace {

// A copy that a kernel may resize (out=).
at::Tensor copy_on_cpu(const at::Tensor& device) {
  size_t nbytes = storage_of(device)->nbytes();
  auto* allocator = c10::GetCPUAllocator();
  c10::DataPtr memory = allocator->allocate(nbytes);
  if (nbytes) std::memcpy(memory.get(), bytes_of(device), nbytes);
  auto storage = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), nbytes, std::move(memory), allocator, true);
  auto t = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(std::move(storage)), kCpu, device.dtype());
  t.unsafeGetTensorImpl()->set_sizes_and_strides(device.sizes(), device.strides(), device.storage_offset());
  return t;
}

// The program's own CPU generator must come out of a probe as it would out of a run on a GPU.
at::Generator& private_generator() {
  static auto* generator = new at::Generator(at::detail::createCPUGenerator(0x6770756d656d));
  return *generator;
}

}  // namespace

Unseen::Unseen()
    : guard_(c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset |
             c10::DispatchKeySet({kFollowKey, c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot})),
      threads_(omp_get_max_threads ? omp_get_max_threads() : 1) {
  if (threads_ > 1) omp_set_num_threads(1);
}

Unseen::~Unseen() {
  if (threads_ > 1) omp_set_num_threads(threads_);
}

namespace {
// Stacks that have been used: their memory is kept.
torch::jit::Stack& spare(bool results) {
  static thread_local auto* stacks = new torch::jit::Stack[2];
  return stacks[results];
}
}  // namespace

CpuRun::CpuRun(const Operator& op, c10::ArrayRef<c10::IValue> arguments, bool copies) : copies_(copies) {
  c10::SmallVector<std::pair<c10::StorageImpl*, size_t>, 4> copied;  // a storage and its place among the loans
  auto convert = [&](const at::Tensor& t) -> at::Tensor {
    if (!t.defined() || !t.is_cuda()) return t;
    if (op.has_out) return copy_on_cpu(t);
    if (!copies) {
      loans_.push_back(borrow(t, false));
      return loans_.back().tensor;
    }
    for (auto& [original, place] : copied)
      if (original == storage_of(t)) {
        loans_.push_back(borrow_view(t, loans_[place]));
        return loans_.back().tensor;
      }
    copied.emplace_back(storage_of(t), loans_.size());
    loans_.push_back(borrow(t, true));
    return loans_.back().tensor;
  };
  arguments_.swap(spare(false));
  results_.swap(spare(true));
  arguments_.reserve(arguments.size());
  for (size_t i = 0; i < arguments.size(); i++) {
    if (static_cast<int>(i) == op.generator)
      arguments_.emplace_back(private_generator());
    else
      arguments_.push_back(with_tensors(arguments[i], convert, c10::Device(c10::kCPU)));
  }
}

CpuRun::~CpuRun() {
  arguments_.clear();
  results_.clear();
  for (Loan& loan : loans_) give_back(std::move(loan));
  spare(false).swap(arguments_);
  spare(true).swap(results_);
}

bool CpuRun::run(const c10::OperatorHandle& handle, Operator& op) {
  // Raising costs far more than the kernel: an operator that keeps failing is not asked again.
  constexpr uint32_t kGiveUpAfter = 16;
  if (op.cpu_failures.load(std::memory_order_relaxed) >= kGiveUpAfter) return false;
  // What is written must outlive the call; what is only read need not.
  if (op.writes)
    results_ = arguments_;
  else
    results_.swap(arguments_);
  try {
    Unseen unseen;
    handle.redispatchBoxed(kCpu, &results_);
    return true;
  } catch (const std::exception&) {
    op.cpu_failures.fetch_add(1, std::memory_order_relaxed);
    return false;
  }
}

bool copy_on_host(const at::Tensor& to, const at::Tensor& from) {
  static const auto copy = c10::Dispatcher::singleton().findSchemaOrThrow("aten::copy_", "");
  try {
    Unseen unseen;
    torch::jit::Stack stack{to, from, false};
    copy.redispatchBoxed(kCpu, &stack);
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

bool write_device(const at::Tensor& device, const at::Tensor& cpu) {
  if (device.sizes() != cpu.sizes()) return false;
  if (device.numel() == 0) return true;
  if (device.dtype() == cpu.dtype() && device.is_conj() == cpu.is_conj() && device.is_neg() == cpu.is_neg() &&
      (device.is_contiguous() ? cpu.is_contiguous() : device.strides() == cpu.strides() && device.is_non_overlapping_and_dense())) {
    std::memcpy(bytes_of(device) + device.storage_offset() * device.itemsize(), cpu.const_data_ptr(), device.nbytes());
    return true;
  }
  return copy_on_host(alias_on_cpu(device), cpu);
}

bool CpuRun::deliver(const Operator& op, c10::ArrayRef<c10::IValue> device_arguments, c10::IValue* device_returns) {
  bool complete = true;
  auto write = [&](const c10::IValue& device, const c10::IValue& cpu) {
    if (device.isTensor() && cpu.isTensor()) {
      const at::Tensor &d = device.toTensor(), &c = cpu.toTensor();
      if (!d.defined() || !d.is_cuda()) return;
      if (!c.defined() || !is_small(d) || !write_device(d, c)) complete = false;
    } else if (device.isList() && cpu.isList()) {
      auto ds = device.toListRef(), cs = cpu.toListRef();
      if (ds.size() != cs.size()) {
        complete = false;
        return;
      }
      for (size_t i = 0; i < ds.size(); i++)
        if (ds[i].isTensor() && ds[i].toTensor().defined() && ds[i].toTensor().is_cuda())
          if (!is_small(ds[i].toTensor()) || !cs[i].isTensor() || !write_device(ds[i].toTensor(), cs[i].toTensor())) complete = false;
    }
  };
  for (size_t i = 0; i < device_arguments.size() && i < 64; i++)
    if (copies_ && (op.written >> i & 1)) write(device_arguments[i], arguments_[i]);
  for (size_t i = 0; i < results_.size() && i < 64; i++) {
    if (op.view_returns >> i & 1) continue;
    c10::IValue& d = device_returns[i];
    if (d.isTensor() || d.isList())
      write(d, results_[i]);
    else
      d = results_[i];
  }
  return complete;
}

void fill_plausible(const at::Tensor& device, bool flag) {
  if (device.numel() == 0) return;
  char* bytes = bytes_of(device) + device.storage_offset() * device.itemsize();
  size_t span = device.numel();
  if (!device.is_contiguous()) {
    span = 1;
    for (int64_t d = 0; d < device.dim(); d++) span += (device.size(d) - 1) * device.stride(d);
  }
  switch (device.scalar_type()) {
    case c10::ScalarType::Double: std::fill_n(reinterpret_cast<double*>(bytes), span, 1.0); return;
    case c10::ScalarType::Float: return loops::fill(bytes, span, 1.0f);
    case c10::ScalarType::Half: return loops::fill(bytes, span, c10::Half(1.0f).x);
    case c10::ScalarType::BFloat16: return loops::fill(bytes, span, c10::BFloat16(1.0f).x);
    case c10::ScalarType::Bool: std::memset(bytes, flag ? 1 : 0, span); return;
    default: std::memset(bytes, 0, span * device.itemsize()); return;
  }
}

}  // namespace gpumem::tracer
