// SPDX-License-Identifier: Apache-2.0
// Which measured context speaks of a build of PyTorch. See profile.h. Used by gpumem-probe through estimate/.
#include <cstdlib>
#include <tuple>

#include "estimator/gpus/profile.h"

namespace gpumem::gpus {
namespace {

// Of "2.11.0+cu130" or "13.0": 2011, 13000; 0 where there is no number.
int version_number(const std::string& text) {
  char* rest = nullptr;
  const long major = std::strtol(text.c_str(), &rest, 10);
  const long minor = rest != nullptr && *rest == '.' ? std::strtol(rest + 1, nullptr, 10) : 0;
  return static_cast<int>(major * 1000 + minor);
}

int major_of(int version) { return version / 1000; }

}  // namespace

const Context* Profile::closest_context(const std::string& torch, const std::string& cuda) const {
  const int wanted_torch = version_number(torch), wanted_cuda = version_number(cuda);
  if (wanted_torch == 0) return nullptr;
  // Smaller is closer; of equally close ones the larger context, on the safe side.
  const auto distance = [&](const Context& context) {
    const int its_torch = version_number(context.torch), its_cuda = version_number(context.cuda);
    const bool other_generation = wanted_cuda != 0 && its_cuda != 0 && major_of(its_cuda) != major_of(wanted_cuda);
    return std::make_tuple(context.torch != torch, other_generation, std::abs(its_torch - wanted_torch), std::abs(its_cuda - wanted_cuda));
  };
  const Context* closest = nullptr;
  for (const auto& context : contexts) {
    if (closest == nullptr || distance(context) < distance(*closest) ||
        (distance(context) == distance(*closest) && context.warm_bytes > closest->warm_bytes)) {
      closest = &context;
    }
  }
  return closest;
}

}  // namespace gpumem::gpus
