// SPDX-License-Identifier: Apache-2.0
// Slurm's SPANK interface for C++. spank.h leaves its entry points outside its own extern "C".
#pragma once

#include <stdbool.h>

extern "C" {
#include <slurm/spank.h>
}
