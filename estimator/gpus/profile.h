// SPDX-License-Identifier: Apache-2.0
// GPU profiles: what a virtual GPU needs to know of a model. Used by gpumem, gpumemd and gpumem-probe.
//
// A profile is one JSON file, estimator/gpus/profiles/NAME.json, installed in $datadir/gpumem/gpus (contracts: GPU
// profiles). Each field says measured, published (where) or assumed; an assumed value is an upper bound and appears
// in the estimate's notes. Values are bytes, kHz, mW and bits as their names say. Plain values, no threads, no caches.
#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "estimator/book/book.h"

namespace gpumem::gpus {

struct Field {
  std::uint64_t value = 0;
  std::string source;  // measured, published or assumed
  std::string where;
};

struct Profile {
  std::string name;  // as NVML prints it: "NVIDIA GeForce RTX 3060"
  std::vector<std::string> aliases;
  std::string compute_capability;  // "8.6"
  std::map<std::string, Field> fields;
  std::string path;  // the file it came from; empty when it came in a request

  // A field's number, 0 when the profile lacks it.
  std::uint64_t number(const std::string& field) const;
  std::uint64_t total_bytes() const { return number("total_bytes"); }
  // What contexts and allocations can take; the total where the profile says nothing else.
  std::uint64_t usable_bytes() const { return number("usable_bytes") ? number("usable_bytes") : total_bytes(); }
  // Of one process, before anything better is known.
  std::uint64_t context_bytes() const { return number("context_bytes"); }
  std::vector<std::string> assumed_fields() const;
};

// Reads one profile; `path` is used in messages. Fails with invalid_argument naming what is wrong.
Result<Profile> parse_profile(const nlohmann::json& object, const std::string& path);
nlohmann::json to_json(const Profile& profile);
Result<Profile> load_profile(const std::string& path);

// All profiles of a directory (*.json), sorted by name. A file that cannot be read fails the whole: an admin must see it.
Result<std::vector<Profile>> load_profiles(const std::string& directory);

// The profile that `wanted` means: the exact name, an alias (both ignoring case), or a part of exactly one name.
// A `wanted` that contains '/' or ends in ".json" is the path of a profile file. Ambiguous or unknown: invalid_argument
// or not_found, with the candidates or where to look.
Result<Profile> find_profile(const std::string& directory, const std::string& wanted);

// The virtual device of this model with `capacity_bytes` (0: all that is usable), as the `index`th of a host.
book::DeviceDescription describe_device(const Profile& profile, int index, std::uint64_t capacity_bytes);

// cuDNN's device-property descriptor for this model, as the text that CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION takes.
std::string cudnn_device_json(const Profile& profile);

}  // namespace gpumem::gpus
