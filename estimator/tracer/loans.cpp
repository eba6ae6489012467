// SPDX-License-Identifier: Apache-2.0
// See loans.h.

#include "loans.h"

#include "storage_states.h"

#include <cstring>
#include <vector>

namespace gpumem::tracer {
namespace {

constexpr size_t kShelf = 16;                // loans kept by a thread
constexpr size_t kKeptCopyBytes = 16 << 10;  // larger copies are freed at once

// Never destroyed: tensors outlive static destructors badly.
std::vector<Loan>& shelf() {
  static thread_local auto* loans = new std::vector<Loan>;
  return *loans;
}

// What a tensor knows of itself beside its elements: conjugates and negatives may be views.
void describe(const at::Tensor& t, const at::Tensor& like) {
  if (like.unsafeGetTensorImpl()->is_wrapped_number()) t.unsafeGetTensorImpl()->set_wrapped_number(true);
  if (t.is_conj() != like.is_conj()) t._set_conj(like.is_conj());
  if (t.is_neg() != like.is_neg()) t._set_neg(like.is_neg());
}

at::Tensor tensor_over(char* bytes, size_t nbytes, const at::Tensor& like) {
  auto storage = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), nbytes, c10::DataPtr(bytes, c10::Device(c10::kCPU)),
                                                       nullptr, false);
  auto t = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(std::move(storage)), kCpu, like.dtype());
  auto* impl = t.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(like.sizes(), like.strides(), like.storage_offset());
  describe(t, like);
  return t;
}

// The loan's tensor (none: a new one) over these bytes.
void point(Loan& loan, char* bytes, size_t nbytes, const at::Tensor& like) {
  if (!loan.tensor.defined()) {
    loan.tensor = tensor_over(bytes, nbytes, like);
    return;
  }
  auto* storage = storage_of(loan.tensor);
  storage->set_data_ptr_noswap(c10::DataPtr(bytes, c10::Device(c10::kCPU)));
  storage->set_nbytes(nbytes);
  auto* impl = loan.tensor.unsafeGetTensorImpl();
  if (impl->is_wrapped_number()) impl->set_wrapped_number(false);
  if (impl->dtype() != like.dtype()) impl->set_storage_and_dtype(c10::Storage(loan.tensor.storage()), like.dtype());
  impl->set_sizes_and_strides(like.sizes(), like.strides(), like.storage_offset());
  describe(loan.tensor, like);
}

Loan from_shelf() {
  auto& loans = shelf();
  if (loans.empty()) return {};
  Loan loan = std::move(loans.back());
  loans.pop_back();
  return loan;
}

}  // namespace

at::Tensor alias_on_cpu(const at::Tensor& device) { return tensor_over(bytes_of(device), storage_of(device)->nbytes(), device); }

Loan borrow(const at::Tensor& device, bool copy) {
  const size_t nbytes = storage_of(device)->nbytes();
  Loan loan = from_shelf();
  if (!copy) {
    point(loan, bytes_of(device), nbytes, device);
    return loan;
  }
  if (loan.capacity < nbytes) {
    // As aligned as PyTorch's own memory would be for these types: operator new gives 16 bytes.
    loan.bytes.reset(new char[nbytes]);
    loan.capacity = nbytes;
  }
  if (nbytes) std::memcpy(loan.bytes.get(), bytes_of(device), nbytes);
  point(loan, loan.bytes.get(), nbytes, device);
  return loan;
}

Loan borrow_view(const at::Tensor& device, const Loan& copy) {
  Loan loan = from_shelf();
  point(loan, copy.bytes.get(), storage_of(device)->nbytes(), device);
  return loan;
}

void give_back(Loan loan) {
  if (!loan.tensor.defined()) return;
  if (loan.tensor.use_count() != 1 || loan.tensor.storage().use_count() != 1) {
    // Someone keeps it, and so its bytes: rare enough to leave them.
    (void)loan.bytes.release();
    return;
  }
  if (loan.capacity > kKeptCopyBytes) {
    loan.bytes.reset();
    loan.capacity = 0;
  }
  if (shelf().size() < kShelf) shelf().push_back(std::move(loan));
}

}  // namespace gpumem::tracer
