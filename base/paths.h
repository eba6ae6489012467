// SPDX-License-Identifier: Apache-2.0
// Where an installed gpumem keeps its parts: fixed by configure. Used by every program.
//
// No environment variable moves these: a program that root runs must not load code from where a user says.
#pragma once

#include <string>

namespace gpumem::paths {

std::string preload_library(const std::string& name);   // $libdir/gpumem/NAME, e.g. libgpumem_vgpu.so
std::string stand_in_directory();                       // $libdir/gpumem/bin: nvidia-smi, put first in PATH on virtual GPUs
std::string internal_program(const std::string& name);  // $libexecdir/gpumem/NAME, e.g. gpumem-probe
std::string data_file(const std::string& name);         // $datadir/gpumem/NAME, e.g. gpus, shim, tracer
std::string config_file();                              // $sysconfdir/gpumem/gpumem.conf
std::string state_directory();                          // $localstatedir/lib/gpumem
std::string shared_cache_directory();                   // $localstatedir/cache/gpumem, owned by root
std::string daemon_socket();                            // $runstatedir/gpumem/gpumemd.sock

}  // namespace gpumem::paths
