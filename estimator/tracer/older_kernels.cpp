// SPDX-License-Identifier: Apache-2.0
// CPU kernels that older versions of PyTorch lack and healthy values need. Runs inside the job's Python, in probes only.

#include <ATen/core/Tensor.h>
#include <torch/library.h>
#include <torch/version.h>

#include <cmath>

namespace gpumem::tracer {

#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 3

// GradScaler.update() by its documentation: grows after `interval` steps in a row without infinities, backs off at one.
static at::Tensor& amp_update_scale(at::Tensor& scale, at::Tensor& growth_tracker, const at::Tensor& found_inf, double growth, double backoff,
                                    int64_t interval) {
  float& value = *scale.mutable_data_ptr<float>();
  int& healthy = *growth_tracker.mutable_data_ptr<int>();
  if (*found_inf.const_data_ptr<float>() != 0) {
    value = static_cast<float>(value * backoff);
    healthy = 0;
  } else if (++healthy == interval) {
    const float grown = static_cast<float>(value * growth);
    if (std::isfinite(grown)) value = grown;
    healthy = 0;
  }
  return scale;
}

TORCH_LIBRARY_IMPL(aten, CPU, m) { m.impl("_amp_update_scale_", &amp_update_scale); }

#endif

}  // namespace gpumem::tracer
