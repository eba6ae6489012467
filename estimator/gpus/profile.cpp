// SPDX-License-Identifier: Apache-2.0
// GPU profiles: reading and finding.
#include "estimator/gpus/profile.h"

#include <dirent.h>
#include <strings.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <exception>

#include "base/file.h"

namespace gpumem::gpus {
namespace {

// Without these no virtual device can be described.
constexpr const char* kNeededFields[] = {"total_bytes",     "context_bytes",  "sm_count",       "sm_clock_khz",
                                         "memory_clock_khz", "l2_bytes",       "threads_per_sm", "blocks_per_sm",
                                         "shared_per_sm",    "shared_per_block"};

Error bad_profile(const std::string& path, const std::string& what) {
  return {ErrorKind::invalid_argument, "GPU profile " + (path.empty() ? "in the request" : path) + ": " + what};
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

Result<Field> parse_field(const std::string& name, const nlohmann::json& value, const std::string& path) {
  Field field;
  if (!value.is_object() || !value.contains("value") || !value["value"].is_number_unsigned()) {
    return bad_profile(path, "field " + name + " must be {\"value\": a number, \"source\": …, \"where\": …}");
  }
  field.value = value["value"].get<std::uint64_t>();
  field.source = value.value("source", "");
  field.where = value.value("where", "");
  if (field.source != "measured" && field.source != "published" && field.source != "assumed") {
    return bad_profile(path, "field " + name + ": source must be measured, published or assumed");
  }
  return field;
}

bool looks_like_path(const std::string& wanted) {
  return wanted.find('/') != std::string::npos || (wanted.size() > 5 && wanted.ends_with(".json"));
}

std::string list_names(const std::vector<const Profile*>& profiles) {
  std::string names;
  for (const Profile* profile : profiles) names += (names.empty() ? "" : ", ") + profile->name;
  return names;
}

}  // namespace

std::uint64_t Profile::number(const std::string& field) const {
  const auto found = fields.find(field);
  return found == fields.end() ? 0 : found->second.value;
}

std::vector<std::string> Profile::assumed_fields() const {
  std::vector<std::string> names;
  for (const auto& [key, field] : fields) {
    if (field.source == "assumed") names.push_back(key);
  }
  return names;
}

Result<Profile> parse_profile(const nlohmann::json& object, const std::string& path) {
  try {
    if (!object.is_object()) return bad_profile(path, "is not a JSON object");
    if (object.value("version", 0) != 1) return bad_profile(path, "version must be 1");
    Profile profile;
    profile.path = path;
    profile.name = object.value("name", "");
    profile.compute_capability = object.value("compute_capability", "");
    if (profile.name.empty() || profile.name.size() >= book::kNameSize) return bad_profile(path, "name is missing or too long");
    if (profile.compute_capability.find('.') == std::string::npos) {
      return bad_profile(path, "compute_capability must be MAJOR.MINOR, for example \"8.6\"");
    }
    if (object.contains("aliases")) profile.aliases = object["aliases"].get<std::vector<std::string>>();
    if (!object.contains("fields") || !object["fields"].is_object()) return bad_profile(path, "fields is missing");
    for (const auto& [name, value] : object["fields"].items()) {
      auto field = parse_field(name, value, path);
      if (!field) return field.error();
      profile.fields[name] = *field;
    }
    for (const char* needed : kNeededFields) {
      if (profile.fields.find(needed) == profile.fields.end()) return bad_profile(path, std::string("field ") + needed + " is missing");
    }
    return profile;
  } catch (const std::exception& error) {
    return bad_profile(path, error.what());
  }
}

nlohmann::json to_json(const Profile& profile) {
  nlohmann::json fields = nlohmann::json::object();
  for (const auto& [name, field] : profile.fields) {
    fields[name] = {{"value", field.value}, {"source", field.source}, {"where", field.where}};
  }
  return {{"version", 1},
          {"name", profile.name},
          {"aliases", profile.aliases},
          {"compute_capability", profile.compute_capability},
          {"fields", std::move(fields)}};
}

Result<Profile> load_profile(const std::string& path) {
  auto text = read_file(path, 1 << 20);
  if (!text) return text.error();
  const auto object = nlohmann::json::parse(*text, nullptr, false);
  if (object.is_discarded()) return bad_profile(path, "is not JSON");
  return parse_profile(object, path);
}

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
  std::sort(profiles.begin(), profiles.end(), [](const Profile& a, const Profile& b) { return a.name < b.name; });
  return profiles;
}

Result<Profile> find_profile(const std::string& directory, const std::string& wanted) {
  if (looks_like_path(wanted)) return load_profile(wanted);
  auto profiles = load_profiles(directory);
  if (!profiles) return profiles.error();
  const std::string needle = lower(wanted);
  if (needle.empty()) return Error{ErrorKind::invalid_argument, "the GPU's name is empty; 'gpumem gpus' lists the known ones"};
  std::vector<const Profile*> exact, partial;
  for (const auto& profile : *profiles) {
    bool is_exact = lower(profile.name) == needle;
    for (const auto& alias : profile.aliases) is_exact = is_exact || lower(alias) == needle;
    if (is_exact) exact.push_back(&profile);
    if (lower(profile.name).find(needle) != std::string::npos) partial.push_back(&profile);
  }
  const auto& found = exact.empty() ? partial : exact;
  if (found.size() == 1) return *found.front();
  if (found.empty()) {
    return Error{ErrorKind::not_found, "no GPU model is called '" + wanted +
                                           "': 'gpumem gpus' lists the known ones; a profile file can be given by its path"};
  }
  return Error{ErrorKind::invalid_argument, "'" + wanted + "' could be any of: " + list_names(found)};
}

}  // namespace gpumem::gpus
