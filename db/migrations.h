// SPDX-License-Identifier: Apache-2.0
// The database's schema as a series of steps. Used by db/ alone (gpumemd).
//
// `PRAGMA user_version` counts the steps that a file has seen. A released step never changes; a change is a new one.
#pragma once

#include <span>

#include "db/database.h"

namespace gpumem::db {

// Step i brings a file from version i to i + 1.
std::span<const char* const> migrations();

// Brings the file to the last step, all in one commit. A file of a newer version is refused (unsupported), untouched.
Status migrate(Database& database, std::span<const char* const> steps);

}  // namespace gpumem::db
