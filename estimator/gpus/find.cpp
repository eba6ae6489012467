// SPDX-License-Identifier: Apache-2.0
// GPU profiles: the directory of them, and finding the one that somebody means.
#include <dirent.h>

#include <algorithm>
#include <cctype>

#include "base/file.h"
#include "estimator/gpus/profile.h"

namespace gpumem::gpus {
namespace {

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

bool looks_like_path(const std::string& wanted) {
  return wanted.find('/') != std::string::npos || (wanted.size() > 5 && wanted.ends_with(".json"));
}

// Where several models share a name, only an alias tells them apart.
std::string list_names(const std::vector<const Profile*>& profiles) {
  std::string names;
  for (const Profile* profile : profiles) {
    const auto same = std::count_if(profiles.begin(), profiles.end(), [&](const Profile* other) { return other->name == profile->name; });
    names += (names.empty() ? "" : ", ") + (same > 1 && !profile->aliases.empty() ? profile->aliases.front() : profile->name);
  }
  return names;
}

struct Found {
  std::vector<const Profile*> by_name, by_alias, by_part;
};

Found search(const std::vector<Profile>& profiles, const std::string& needle) {
  Found found;
  for (const auto& profile : profiles) {
    const std::string name = lower(profile.name);
    if (name == needle) found.by_name.push_back(&profile);
    if (std::any_of(profile.aliases.begin(), profile.aliases.end(), [&](const std::string& alias) { return lower(alias) == needle; })) {
      found.by_alias.push_back(&profile);
    }
    if (name.find(needle) != std::string::npos) found.by_part.push_back(&profile);
  }
  return found;
}

Result<Profile> instance_of(const Profile& parent, const std::string& size_name) {
  std::string known;
  for (const auto& size : parent.mig_profiles) {
    if (lower(size.name) == size_name) return mig_instance(parent, size);
    known += (known.empty() ? "" : ", ") + size.name;
  }
  if (known.empty()) return Error{ErrorKind::not_found, parent.name + " cannot be divided by MIG, or its GPU instances are not known"};
  return Error{ErrorKind::not_found, parent.name + " has no MIG profile '" + size_name + "', only " + known};
}

}  // namespace

Result<std::vector<Profile>> load_profiles(const std::string& directory) {
  DIR* listing = ::opendir(directory.c_str());
  if (listing == nullptr) return errno_error("cannot read the GPU profiles in " + directory);
  std::vector<std::string> paths;
  while (const dirent* entry = ::readdir(listing)) {
    const std::string name = entry->d_name;
    if (name.size() > 5 && name.ends_with(".json") && name[0] != '.') paths.push_back(directory + "/" + name);
  }
  ::closedir(listing);
  std::vector<Profile> profiles;
  for (const auto& path : paths) {
    auto profile = load_profile(path);
    if (!profile) return profile.error();
    profiles.push_back(std::move(*profile));
  }
  std::sort(profiles.begin(), profiles.end(), [](const Profile& a, const Profile& b) {
    return a.name != b.name ? a.name < b.name : a.total_bytes() < b.total_bytes();
  });
  return profiles;
}

Result<Profile> find_profile(const std::string& directory, const std::string& wanted) {
  const std::string needle = lower(wanted);
  if (const std::size_t mig = needle.rfind(" mig "); mig != std::string::npos) {
    auto parent = find_profile(directory, wanted.substr(0, mig));
    if (!parent) return parent.error();
    return instance_of(*parent, needle.substr(mig + 5));
  }
  if (looks_like_path(wanted)) return load_profile(wanted);
  auto profiles = load_profiles(directory);
  if (!profiles) return profiles.error();
  if (needle.empty()) return Error{ErrorKind::invalid_argument, "the GPU's name is empty; 'gpumem gpus' lists the known ones"};
  const Found all = search(*profiles, needle);
  const auto& found = !all.by_alias.empty() ? all.by_alias : !all.by_name.empty() ? all.by_name : all.by_part;
  if (found.size() == 1) return *found.front();
  if (found.empty()) {
    return Error{ErrorKind::not_found, "no GPU model is called '" + wanted +
                                           "': 'gpumem gpus' lists the known ones. On a machine that has one, 'gpumem calibrate --out FILE.json' "
                                           "measures a profile of it, which is then given by its path"};
  }
  return Error{ErrorKind::invalid_argument, "'" + wanted + "' could be any of: " + list_names(found)};
}

Result<Profile> find_profile_of_device(const std::string& directory, const std::string& name) {
  auto profiles = load_profiles(directory);
  if (!profiles) return profiles.error();
  const Found all = search(*profiles, lower(name));
  if (!all.by_name.empty()) return *all.by_name.front();  // sorted by memory
  return find_profile(directory, name);
}

}  // namespace gpumem::gpus
