// SPDX-License-Identifier: Apache-2.0
// An estimate's figures by xMem's method: the rebuilt requests of each process, replayed through the allocator model with the
// job's own version and settings. Used by gpumem-probe.
#pragma once

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

#include "estimator/estimate/estimate.h"

namespace gpumem::xmem {

// True if some process of the record was recorded on the CPU (there is a sequence-<pid>.bin).
bool was_recorded(const std::string& record_directory);

// Completes `estimate`, which make_estimate() made of an observation with on_cpu: figures, confidence, notes, `xmem`; its status
// where the GPU is too small or nothing was trained. `environment` is the program's ("NAME=VALUE").
void add_figures(const std::string& record_directory, const estimate::Observation& seen, const std::vector<std::string>& environment,
                 nlohmann::json& estimate);

}  // namespace gpumem::xmem
