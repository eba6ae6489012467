// SPDX-License-Identifier: Apache-2.0
// Where an installed gpumem keeps its parts.
#include "base/paths.h"

#include "config.h"

namespace gpumem::paths {

std::string preload_library(const std::string& name) { return std::string(GPUMEM_PKGLIBDIR "/") + name; }
std::string stand_in_directory() { return GPUMEM_PKGLIBDIR "/bin"; }
std::string internal_program(const std::string& name) { return std::string(GPUMEM_PKGLIBEXECDIR "/") + name; }
std::string data_file(const std::string& name) { return std::string(GPUMEM_PKGDATADIR "/") + name; }
std::string config_file() { return GPUMEM_SYSCONFDIR "/gpumem.conf"; }
std::string state_directory() { return GPUMEM_STATEDIR; }
std::string shared_cache_directory() { return GPUMEM_CACHEDIR; }
std::string daemon_socket() { return GPUMEM_RUNDIR "/gpumemd.sock"; }

}  // namespace gpumem::paths
