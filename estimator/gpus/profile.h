// SPDX-License-Identifier: Apache-2.0
// GPU profiles: what a virtual GPU needs to know of a model. Used by gpumem, gpumemd and gpumem-probe.
//
// A profile is one JSON file, estimator/gpus/profiles/NAME.json, installed in $datadir/gpumem/gpus (contracts: GPU
// profiles). It holds what is the model's own; what its compute capability fixes and the context that is assumed where
// none was measured are filled in when it is read (architecture.h). Each field says measured, published (where) or
// assumed; an assumed value is the bound on the safe side and appears in the estimate's notes. Values are bytes, kHz,
// mW and bits as their names say. Plain values, no threads, no caches.
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

// Device memory of one process outside its allocator, with one build of PyTorch.
struct Context {
  std::string torch, cuda, driver;  // "2.6.0+cu124", "12.4", "550.54.15"
  std::uint64_t bare_bytes = 0;     // after the first allocation
  std::uint64_t warm_bytes = 0;     // after training steps with convolutions and matrix products
  std::string source, where;
};

// One size of GPU instance that a MIG-capable model can be cut into.
struct MigProfile {
  std::string name;  // "1g.5gb", as `nvidia-smi mig -lgip` prints it behind "MIG "
  std::uint64_t total_bytes = 0;
  std::uint32_t sm_count = 0, copy_engines = 0, instances = 0;  // instances: how many fit on one GPU
  std::uint64_t l2_bytes = 0;
  std::string source, where;
};

struct Profile {
  std::string name;  // as NVML prints it: "NVIDIA GeForce RTX 3060"
  std::vector<std::string> aliases;
  std::string compute_capability;  // "8.6"
  std::map<std::string, Field> fields;
  std::vector<Context> contexts;
  std::vector<MigProfile> mig_profiles;
  nlohmann::json cudnn_device;  // cuDNN's own description where one was taken from the GPU; null: made from the fields
  std::string path;             // the file it came from; empty when it came in a request

  // A field's number, 0 when the profile lacks it.
  std::uint64_t number(const std::string& field) const;
  std::uint64_t total_bytes() const { return number("total_bytes"); }
  // What contexts and allocations can take; the total where the profile says nothing else.
  std::uint64_t usable_bytes() const { return number("usable_bytes") ? number("usable_bytes") : total_bytes(); }
  // Of one process, before its PyTorch is known: the largest measured warm context, else Note [The assumed context].
  std::uint64_t context_bytes() const { return number("context_bytes"); }
  // The measured context that speaks best of this build ("2.11.0+cu130", "13.0"): the same build, else of the same CUDA generation
  // (major version) the closest PyTorch, else the closest at all. nullptr: none was measured, or the build is not known.
  const Context* closest_context(const std::string& torch, const std::string& cuda) const;
  std::vector<std::string> assumed_fields() const;
};

// Reads one profile and fills in what its compute capability fixes; `path` is used in messages. Fails with
// invalid_argument naming what is wrong.
Result<Profile> parse_profile(const nlohmann::json& object, const std::string& path);
// Everything, what was filled in included: a probe's request needs no table.
nlohmann::json to_json(const Profile& profile);
Result<Profile> load_profile(const std::string& path);

// All profiles of a directory (*.json), sorted by name. A file that cannot be read fails the whole: an admin must see it.
Result<std::vector<Profile>> load_profiles(const std::string& directory);

// The profile that `wanted` means: the exact name, an alias (both ignoring case), or a part of exactly one name.
// "… MIG 1g.5gb" behind any of these means an instance of that size. A `wanted` that contains '/' or ends in ".json" is
// the path of a profile file. Ambiguous or unknown: invalid_argument or not_found, with the candidates or where to look.
Result<Profile> find_profile(const std::string& directory, const std::string& wanted);

// The profile of a GPU that a driver calls `name`. Several models have one name (an RTX 3080 has 10 or 12 GB): then the
// one with the least memory, which promises nobody what is not there.
Result<Profile> find_profile_of_device(const std::string& directory, const std::string& name);

// One GPU instance as a device of its own, named as CUDA names it: "NVIDIA A100-SXM4-40GB MIG 1g.5gb".
Profile mig_instance(const Profile& parent, const MigProfile& size);

// The virtual device of this model with `capacity_bytes` (0: all that is usable), as the `index`th of a host.
book::DeviceDescription describe_device(const Profile& profile, int index, std::uint64_t capacity_bytes);

// cuDNN's device-property descriptor for this model, as the text that CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION takes.
std::string cudnn_device_json(const Profile& profile);

}  // namespace gpumem::gpus
