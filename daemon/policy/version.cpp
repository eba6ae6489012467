// SPDX-License-Identifier: Apache-2.0
// The version that configure gave this build.
#include "daemon/policy/version.h"

#include "config.h"

namespace gpumem {

std::string program_version() { return PACKAGE_VERSION; }

}  // namespace gpumem
