// SPDX-License-Identifier: Apache-2.0
// See cuda_runtime_api.h beside this file.
#pragma once

#include "cuda_runtime_api.h"
