// SPDX-License-Identifier: Apache-2.0
// Records that outlive their probe, for `gpumem explain` and `--snapshot`. Used by gpumem-probe and gpumem.
//
// A kept record is a directory: the record's files (contracts: Record) and estimate.json, readable by its user alone. By
// default it goes to ${XDG_CACHE_HOME:-~/.cache}/gpumem/records/, where the newest few are kept within a bound on their
// size; with a name of the user's it goes there and is never removed. What the program wrote into its record is copied as
// bounded regular files only.
#pragma once

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

#include "base/result.h"
#include "estimator/probe/request.h"

namespace gpumem::probe {

// Where this user's records are kept; empty where neither XDG_CACHE_HOME nor HOME says so.
std::string records_directory(const std::vector<std::string>& environment);

// Copies the record in `directory` and writes `estimate` beside it; tells where by "record" in `estimate`. A snapshot that
// was asked for goes to its own file. What does not succeed becomes a note of `estimate`: the estimate itself stands.
void keep_record(const std::string& directory, const Request& request, nlohmann::json& estimate);

// Writes the estimate again beside the record that it names, if it names one.
void update_kept_record(const nlohmann::json& estimate);

// The newest of the records in `directory`, or not_found.
Result<std::string> newest_record(const std::string& directory);

}  // namespace gpumem::probe
