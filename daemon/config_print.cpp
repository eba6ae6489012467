// SPDX-License-Identifier: Apache-2.0
// Prints gpumem.conf from the tables of keys: every value as it would be written there. Used by gpumemd and the CLI.
#include <cstdio>
#include <sstream>

#include "base/size.h"
#include "daemon/config.h"
#include "daemon/config_table.h"

namespace gpumem::config {
namespace {

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

// A size that reads back as the same number of bytes.
std::string exact_size(std::uint64_t bytes) {
  if (bytes == 0) return "none";
  static constexpr const char* kUnits[] = {"TiB", "GiB", "MiB", "KiB"};
  std::uint64_t unit = kGiB * 1024;
  for (const char* name : kUnits) {
    if (bytes % unit == 0) return std::to_string(bytes / unit) + name;
    unit /= 1024;
  }
  return std::to_string(bytes) + "B";
}

std::string exact_time(std::uint64_t seconds) {
  if (seconds == 0) return "none";
  char text[64];
  std::snprintf(text, sizeof text, "%llu-%02llu:%02llu:%02llu", static_cast<unsigned long long>(seconds / 86400),
                static_cast<unsigned long long>(seconds / 3600 % 24), static_cast<unsigned long long>(seconds / 60 % 60),
                static_cast<unsigned long long>(seconds % 60));
  return text;
}

std::string value_text(const std::string& text) { return quoted(text); }
std::string value_text(bool flag) { return flag ? "true" : "false"; }
std::string value_text(std::int64_t number) { return std::to_string(number); }
std::string value_text(double number) { return number_text(number); }
std::string value_text(Bytes size) { return quoted(exact_size(size.bytes)); }
std::string value_text(SlurmTime time) { return quoted(exact_time(time.seconds)); }
std::string value_text(const std::vector<std::string>& list) {
  std::string out = "[";
  for (const std::string& item : list) out += (out.size() > 1 ? ", " : "") + quoted(item);
  return out + "]";
}

std::string value_text(const std::vector<VirtualGpus>& list) {
  std::string out = "[";
  for (const VirtualGpus& item : list) {
    out += std::string(out.size() > 1 ? ", " : "") + "{gpu = " + quoted(item.gpu) + ", count = " + std::to_string(item.count) + "}";
  }
  return out + "]";
}

template <class Section>
void print_section(std::ostream& out, const std::string& heading, const std::string& name, const Section& section,
                   const std::vector<Key<Section>>& keys, const Origins& origins) {
  out << heading << '\n';
  for (const Key<Section>& key : keys) {
    const auto origin = origins.find(name + "." + key.name);
    out << key.name << " = " << std::visit([&](auto member) { return value_text(section.*member); }, key.member) << "  #";
    if (*key.unit != '\0') out << ' ' << key.unit << ';';
    out << ' ' << (origin != origins.end() ? origin->second : "default") << '\n';
  }
}

template <class Section>
void describe_section(std::ostream& out, const std::string& name, const Section& section, const std::vector<Key<Section>>& keys) {
  for (const Key<Section>& key : keys) {
    out << name << '.' << key.name << '\t' << std::visit([&](auto member) { return value_text(section.*member); }, key.member)
        << '\t' << key.unit << '\t' << key.help << '\n';
  }
}

}  // namespace

std::string number_text(double number) {
  char text[40];
  std::snprintf(text, sizeof text, "%.12g", number);
  return text;
}

std::string print(const Config& config) {
  std::ostringstream out;
  out << "# " << (config.file.empty() ? "no configuration file: all defaults" : "from " + config.file) << '\n';
  print_section(out, "[daemon]", "daemon", config.daemon, daemon_keys(), config.origins);
  print_section(out, "\n[slurm]", "slurm", config.slurm, slurm_keys(), config.origins);
  print_section(out, "\n[submit]", "submit", config.submit, submit_keys(), config.origins);
  print_section(out, "\n[margin]", "margin", config.margin, margin_keys(), config.origins);
  print_section(out, "\n[node]", "node", config.node, node_keys(), config.origins);
  for (std::size_t i = 0; i < config.pools.size(); ++i) {
    print_section(out, "\n[[pool]]", "pool[" + std::to_string(i) + "]", config.pools[i], pool_keys(), config.origins);
  }
  return out.str();
}

std::string describe_keys() {
  std::ostringstream out;
  const Config config = defaults();
  describe_section(out, "daemon", config.daemon, daemon_keys());
  describe_section(out, "slurm", config.slurm, slurm_keys());
  describe_section(out, "submit", config.submit, submit_keys());
  describe_section(out, "margin", config.margin, margin_keys());
  describe_section(out, "node", config.node, node_keys());
  describe_section(out, "pool", PoolSection(), pool_keys());
  return out.str();
}

}  // namespace gpumem::config
