// SPDX-License-Identifier: Apache-2.0
// Reads what the recorder wrote (event_format.h). Used by gpumem-probe and tests.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "estimator/xmem/event_format.h"

namespace gpumem::xmem {

// Events in order. Fails with io where the file cannot be read, with invalid_argument where it is no sequence of a version that
// we know. A torn last event is left out.
Result<std::vector<SequenceEvent>> read_sequence(const std::string& path);

}  // namespace gpumem::xmem
