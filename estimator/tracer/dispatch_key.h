// SPDX-License-Identifier: Apache-2.0
// The dispatch key under which the tracer sees every operator. Runs inside the job's Python, in probes only.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/DispatchKey.h>
#include <torch/version.h>

namespace gpumem::tracer {

// Note [The dispatch key]
// A key below autograd and above the backends: every operator passes it once, after autograd and autocast have had their say.
// `Fake` is declared and free up to 2.14, and lies above Python's modes and tensor subclasses, so that those are seen coming
// and left alone; Python's fallback blocks all keys above its own for what they call inside: python_handlers.h opens it again. Keys below it that
// nobody uses (CustomRNGKeyId) miss the factories, which BackendSelect sends straight to their backend, and count as a
// backend that composite kernels are chosen for.
//
// 2.15 has moved `Fake` below Python (what modes and subclasses call inside is followed there) and has a fallback of its own
// under it, for a fake tensor mode in C++. That key has no free neighbour and takes one fallback only: the tracer's takes its
// place and hands on what concerns fake tensors. The dispatcher keeps fallbacks in a private member; another layout of it fails
// to compile, and then values are not followed.
#define GPUMEM_FOLLOW_KEY Fake
constexpr c10::DispatchKey kFollowKey = c10::DispatchKey::GPUMEM_FOLLOW_KEY;

}  // namespace gpumem::tracer

#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 15

namespace gpumem::tracer {
constexpr bool kOwnKey = true;  // nobody else's: operators may be let through without a look
inline bool handed_on(const c10::OperatorHandle&, c10::DispatchKeySet, torch::jit::Stack*) { return false; }
inline bool in_fake_mode() { return false; }
}  // namespace gpumem::tracer

#else

#include <c10/core/impl/FakeTensorModeTLS.h>

namespace gpumem::tracer {

constexpr bool kOwnKey = false;

using Fallbacks = std::array<c10::impl::AnnotatedKernel, c10::num_runtime_entries>;
Fallbacks& fallbacks_of(c10::Dispatcher& dispatcher);
// Access is not checked in the arguments of an explicit instantiation (C++ standard, [temp.spec]).
template <Fallbacks c10::Dispatcher::*member>
struct Opened {
  friend Fallbacks& fallbacks_of(c10::Dispatcher& dispatcher) { return dispatcher.*member; }
};
template struct Opened<&c10::Dispatcher::backendFallbackKernels_>;

// PyTorch's own fallback, taken out before the tracer's is registered: this must be constructed before.
static const c10::KernelFunction fake_fallback = [] {
  auto& slot = fallbacks_of(c10::Dispatcher::singleton())[c10::getDispatchTableIndexForDispatchKey(kFollowKey)];
  c10::KernelFunction own = slot.kernel;
  slot = {};
  return own;
}();

// PyTorch's own fake tensor mode, in C++, on this thread.
inline bool in_fake_mode() { return c10::impl::FakeTensorModeTLS::get_state() != nullptr; }

// True where the operator was a fake tensor's, or is called in a fake tensor mode of C++: PyTorch has done it.
inline bool handed_on(const c10::OperatorHandle& handle, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  if (!fake_fallback.isValid()) return false;
  bool fake = in_fake_mode();
  const size_t count = handle.schema().arguments().size();
  for (size_t i = stack->size() - count; i < stack->size() && !fake; i++) {
    const c10::IValue& v = (*stack)[i];
    if (v.isTensor()) {
      fake = v.toTensor().defined() && v.toTensor().key_set().has(kFollowKey);
    } else if (v.isTensorList()) {
      for (const c10::IValue& t : v.toListRef()) fake = fake || (t.toTensor().defined() && t.toTensor().key_set().has(kFollowKey));
    }
  }
  if (fake) fake_fallback.callBoxed(handle, keys, stack);
  return fake;
}

}  // namespace gpumem::tracer

#endif
