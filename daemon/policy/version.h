// SPDX-License-Identifier: Apache-2.0
// This build's version, as in "0.1.0". Used by gpumemd.
#pragma once

#include <string>

namespace gpumem {

std::string program_version();

}  // namespace gpumem
