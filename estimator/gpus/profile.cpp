// SPDX-License-Identifier: Apache-2.0
// GPU profiles: reading, filling in and writing.
#include "estimator/gpus/profile.h"

#include <exception>

#include "base/file.h"
#include "estimator/gpus/architecture.h"

namespace gpumem::gpus {
namespace {

// Without these, filled in or not, no virtual device can be described.
constexpr const char* kNeededFields[] = {"total_bytes",     "context_bytes",  "sm_count",       "sm_clock_khz",
                                         "memory_clock_khz", "l2_bytes",       "threads_per_sm", "blocks_per_sm",
                                         "shared_per_sm",    "shared_per_block"};

Error bad_profile(const std::string& path, const std::string& what) {
  return {ErrorKind::invalid_argument, "GPU profile " + (path.empty() ? "in the request" : path) + ": " + what};
}

bool known_source(const std::string& source) { return source == "measured" || source == "published" || source == "assumed"; }

Result<Field> parse_field(const std::string& name, const nlohmann::json& value, const std::string& path) {
  Field field;
  if (!value.is_object() || !value.contains("value") || !value["value"].is_number_unsigned()) {
    return bad_profile(path, "field " + name + " must be {\"value\": a number, \"source\": …, \"where\": …}");
  }
  field.value = value["value"].get<std::uint64_t>();
  field.source = value.value("source", "");
  field.where = value.value("where", "");
  if (!known_source(field.source)) return bad_profile(path, "field " + name + ": source must be measured, published or assumed");
  return field;
}

Result<Context> parse_context(const nlohmann::json& object, const std::string& path) {
  Context context;
  context.torch = object.at("torch").get<std::string>();
  context.cuda = object.value("cuda", "");
  context.driver = object.value("driver", "");
  context.bare_bytes = object.value("bare_bytes", std::uint64_t{0});
  context.warm_bytes = object.at("warm_bytes").get<std::uint64_t>();
  context.source = object.value("source", "");
  context.where = object.value("where", "");
  if (!known_source(context.source)) return bad_profile(path, "contexts: source must be measured, published or assumed");
  if (context.warm_bytes == 0 || context.bare_bytes > context.warm_bytes) {
    return bad_profile(path, "contexts: warm_bytes of torch " + context.torch + " must be above 0 and not below bare_bytes");
  }
  return context;
}

// Source and place are said once for the table, or by an entry that differs.
Result<MigProfile> parse_mig(const nlohmann::json& object, const nlohmann::json& table, const std::string& path) {
  MigProfile size;
  size.name = object.at("name").get<std::string>();
  size.total_bytes = object.at("total_bytes").get<std::uint64_t>();
  size.sm_count = object.at("sm_count").get<std::uint32_t>();
  size.l2_bytes = object.at("l2_bytes").get<std::uint64_t>();
  size.copy_engines = object.value("copy_engines", 0u);
  size.instances = object.value("instances", 1u);
  size.source = object.value("source", table.value("source", ""));
  size.where = object.value("where", table.value("where", ""));
  if (!known_source(size.source)) return bad_profile(path, "mig: source must be measured, published or assumed");
  if (size.name.empty() || size.total_bytes == 0 || size.sm_count == 0) return bad_profile(path, "mig: a profile lacks name, total_bytes or sm_count");
  return size;
}

void fill(Profile& profile, const char* name, std::uint64_t value, const char* source, const std::string& where) {
  profile.fields.emplace(name, Field{value, source, where});
}

// What the file need not say.
void fill_in(Profile& profile) {
  if (const Architecture* architecture = find_architecture(profile.compute_capability)) {
    const auto fixed = [&](const char* name, std::uint64_t value) { fill(profile, name, value, "published", kArchitectureSource); };
    fixed("threads_per_sm", architecture->threads_per_sm);
    fixed("blocks_per_sm", architecture->blocks_per_sm);
    fixed("shared_per_sm", architecture->shared_per_sm);
    fixed("shared_per_block", kSharedPerBlock);
    fixed("shared_per_block_optin", architecture->shared_per_block_optin);
    fixed("shared_reserved_per_block", architecture->shared_reserved_per_block);
    fixed("registers_per_block", kRegistersPerBlock);
    fixed("registers_per_sm", kRegistersPerSm);
    fixed("threads_per_block", kThreadsPerBlock);
    fixed("warp_size", kWarpSize);
  }
  // Which PyTorch a program uses is not known before it runs: the largest counts.
  const Context* largest = nullptr;
  for (const auto& context : profile.contexts) {
    if (largest == nullptr || context.warm_bytes > largest->warm_bytes) largest = &context;
  }
  if (largest != nullptr) {
    fill(profile, "context_bytes", largest->warm_bytes, largest->source.c_str(), "torch " + largest->torch + ", after training steps: " + largest->where);
  } else if (profile.number("sm_count") != 0 && profile.number("threads_per_sm") != 0) {
    fill(profile, "context_bytes", assumed_context_bytes(profile.number("sm_count"), profile.number("threads_per_sm")), "assumed", kAssumedContextReason);
  }
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
    if (object.value("virtual", false)) return bad_profile(path, "was written on a virtual GPU: run gpumem calibrate where the real one is");
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
    for (const auto& entry : object.value("contexts", nlohmann::json::array())) {
      auto context = parse_context(entry, path);
      if (!context) return context.error();
      profile.contexts.push_back(std::move(*context));
    }
    const auto mig = object.value("mig", nlohmann::json::object());
    for (const auto& entry : mig.value("profiles", nlohmann::json::array())) {
      auto size = parse_mig(entry, mig, path);
      if (!size) return size.error();
      profile.mig_profiles.push_back(std::move(*size));
    }
    profile.cudnn_device = object.value("cudnn_device", nlohmann::json());
    if (!profile.cudnn_device.is_null() && !profile.cudnn_device.is_object()) return bad_profile(path, "cudnn_device must be an object");
    fill_in(profile);
    for (const char* needed : kNeededFields) {
      if (profile.fields.count(needed) != 0) continue;
      const bool unknown = find_architecture(profile.compute_capability) == nullptr;
      return bad_profile(path, std::string("field ") + needed + " is missing" +
                                   (unknown ? ", and compute capability " + profile.compute_capability + " is not known to gpumem" : ""));
    }
    if (cudnn_device_json(profile).size() >= book::kCudnnTextSize) return bad_profile(path, "cudnn_device is too long");
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
  nlohmann::json object = {{"version", 1},
                           {"name", profile.name},
                           {"aliases", profile.aliases},
                           {"compute_capability", profile.compute_capability},
                           {"fields", std::move(fields)}};
  for (const auto& context : profile.contexts) {
    object["contexts"].push_back({{"torch", context.torch},
                                  {"cuda", context.cuda},
                                  {"driver", context.driver},
                                  {"bare_bytes", context.bare_bytes},
                                  {"warm_bytes", context.warm_bytes},
                                  {"source", context.source},
                                  {"where", context.where}});
  }
  for (const auto& size : profile.mig_profiles) {
    object["mig"]["profiles"].push_back({{"name", size.name},
                                         {"total_bytes", size.total_bytes},
                                         {"sm_count", size.sm_count},
                                         {"l2_bytes", size.l2_bytes},
                                         {"copy_engines", size.copy_engines},
                                         {"instances", size.instances},
                                         {"source", size.source},
                                         {"where", size.where}});
  }
  if (!profile.cudnn_device.is_null()) object["cudnn_device"] = profile.cudnn_device;
  return object;
}

Result<Profile> load_profile(const std::string& path) {
  auto text = read_file(path, 1 << 20);
  if (!text) return text.error();
  const auto object = nlohmann::json::parse(*text, nullptr, false);
  if (object.is_discarded()) return bad_profile(path, "is not JSON");
  return parse_profile(object, path);
}

Profile mig_instance(const Profile& parent, const MigProfile& size) {
  Profile instance = parent;
  instance.name = parent.name + " MIG " + size.name;
  instance.aliases.clear();
  instance.mig_profiles.clear();
  // Measured on the whole GPU: they say nothing of a part of it.
  instance.contexts.clear();
  instance.cudnn_device = nullptr;
  for (const char* of_the_whole : {"usable_bytes", "nvml_total_bytes", "context_bytes", "memory_bus_bits", "h2d_bytes_per_s", "d2h_bytes_per_s", "d2d_bytes_per_s"}) {
    instance.fields.erase(of_the_whole);
  }
  const auto set = [&](const char* name, std::uint64_t value) { instance.fields[name] = {value, size.source, size.where}; };
  set("total_bytes", size.total_bytes);
  set("sm_count", size.sm_count);
  set("l2_bytes", size.l2_bytes);
  if (size.copy_engines != 0) set("copy_engines", size.copy_engines);
  set("mig", 1);
  fill_in(instance);
  return instance;
}

}  // namespace gpumem::gpus
