// SPDX-License-Identifier: Apache-2.0
// Reads and checks gpumem.conf from the tables of keys. Used by gpumemd and the CLI.
#include "daemon/config.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <sstream>

#include <toml++/toml.h>

#include "base/file.h"
#include "base/paths.h"
#include "base/size.h"
#include "daemon/config_table.h"

namespace gpumem::config {
namespace {

// Collects every error of a file, so that an administrator repairs it once.
struct Reader {
  std::string name;
  Origins origins;
  std::string errors;

  std::string place(const toml::node& node) const {
    return name + ":" + std::to_string(node.source().begin.line);
  }
  void complain(const toml::node& node, const std::string& sentence) {
    if (!errors.empty()) errors += '\n';
    errors += place(node) + ": " + sentence;
  }
};

std::string alternatives(const std::vector<const char*>& words) {
  std::string out;
  for (const char* word : words) out += (out.empty() ? "" : ", ") + std::string(word);
  return out;
}

bool allowed(const std::vector<const char*>& words, const std::string& text) {
  return words.empty() || std::any_of(words.begin(), words.end(), [&](const char* word) { return text == word; });
}

template <class Section>
class KeyReader {
 public:
  KeyReader(Reader& reader, const std::string& path, Section& section, const Key<Section>& key)
      : reader_(reader), path_(path), section_(section), key_(key) {}

  void read(const toml::node& node) {
    std::visit([&](auto member) { read_member(node, section_.*member); }, key_.member);
  }

 private:
  void wrong_type(const toml::node& node, const char* wanted) {
    reader_.complain(node, "'" + path_ + "' must be " + wanted);
  }

  void read_member(const toml::node& node, std::string& value) {
    const auto text = node.value_exact<std::string>();
    if (!text) return wrong_type(node, "a text in quotes");
    if (!allowed(key_.words, *text)) {
      return reader_.complain(node, "'" + path_ + "' is \"" + *text + "\": it must be one of " + alternatives(key_.words));
    }
    if (key_.required && text->empty()) return wrong_type(node, "a text that is not empty");
    value = *text;
  }

  void read_member(const toml::node& node, std::vector<std::string>& value) {
    const toml::array* array = node.as_array();
    if (array == nullptr) return wrong_type(node, "a list of texts: [\"a\", \"b\"]");
    std::vector<std::string> list;
    for (const toml::node& item : *array) {
      const auto text = item.value_exact<std::string>();
      if (!text || text->empty()) return reader_.complain(item, "'" + path_ + "' must be a list of texts: [\"a\", \"b\"]");
      if (!allowed(key_.words, *text)) {
        return reader_.complain(item, "'" + path_ + "' has \"" + *text + "\": each must be one of " + alternatives(key_.words));
      }
      list.push_back(*text);
    }
    if (key_.required && list.empty()) return reader_.complain(node, "'" + path_ + "' must not be empty");
    value = std::move(list);
  }

  void read_member(const toml::node& node, bool& value) {
    const auto flag = node.value_exact<bool>();
    if (!flag) return wrong_type(node, "true or false");
    value = *flag;
  }

  bool in_range(const toml::node& node, double number) {
    if (number >= key_.least && number <= key_.most) return true;
    reader_.complain(node, "'" + path_ + "' is " + number_text(number) + ": it must be between " + number_text(key_.least) +
                               " and " + number_text(key_.most));
    return false;
  }

  void read_member(const toml::node& node, std::int64_t& value) {
    const auto number = node.value_exact<std::int64_t>();
    if (!number) return wrong_type(node, "a whole number");
    if (in_range(node, static_cast<double>(*number))) value = *number;
  }

  void read_member(const toml::node& node, double& value) {
    if (!node.is_number()) return wrong_type(node, "a number");
    const double number = node.value<double>().value_or(NAN);
    if (in_range(node, number)) value = number;
  }

  void read_member(const toml::node& node, Bytes& value) {
    const auto text = node.value_exact<std::string>();
    if (!text) return wrong_type(node, "a size in quotes, as \"8GiB\", or \"none\"");
    if (*text == "none") {
      value.bytes = 0;
      return;
    }
    const auto bytes = parse_size(*text);
    if (!bytes) return reader_.complain(node, "'" + path_ + "': " + bytes.error().message);
    value.bytes = *bytes;
  }

  void read_member(const toml::node& node, SlurmTime& value) {
    const auto text = node.value_exact<std::string>();
    if (!text) return wrong_type(node, "a time in quotes, as \"2:00:00\" or \"1-12\", or \"none\"");
    const auto seconds = parse_slurm_time(*text == "none" ? "UNLIMITED" : *text);
    if (!seconds) return reader_.complain(node, "'" + path_ + "': " + seconds.error().message);
    value.seconds = *seconds;
  }

  void read_member(const toml::node& node, std::vector<VirtualGpus>& value) {
    constexpr char kForm[] = "a list as [{gpu = \"NVIDIA GeForce RTX 3060\", count = 2}]";
    const toml::array* array = node.as_array();
    if (array == nullptr) return wrong_type(node, kForm);
    std::vector<VirtualGpus> list;
    for (const toml::node& item : *array) {
      const toml::table* table = item.as_table();
      if (table == nullptr) return wrong_type(item, kForm);
      VirtualGpus gpus;
      for (auto&& [name, value_node] : *table) {
        const toml::node& field = value_node;
        const auto text = field.value_exact<std::string>();
        const auto number = field.value_exact<std::int64_t>();
        if (name.str() == "gpu" && text && !text->empty()) {
          gpus.gpu = *text;
        } else if (name.str() == "count" && number) {
          if (!in_range(field, static_cast<double>(*number))) return;
          gpus.count = *number;
        } else {
          return wrong_type(field, kForm);
        }
      }
      if (gpus.gpu.empty()) return wrong_type(item, kForm);
      list.push_back(std::move(gpus));
    }
    value = std::move(list);
  }

  Reader& reader_;
  const std::string& path_;
  Section& section_;
  const Key<Section>& key_;
};

template <class Section>
void read_section(Reader& reader, const std::string& name, const toml::table& table, const std::vector<Key<Section>>& keys,
                  Section& section) {
  for (const auto& [key, node] : table) {
    const std::string path = name + "." + std::string(key.str());
    const auto known = std::find_if(keys.begin(), keys.end(), [&](const Key<Section>& k) { return key.str() == k.name; });
    if (known == keys.end()) {
      std::vector<const char*> names;
      for (const Key<Section>& k : keys) names.push_back(k.name);
      reader.complain(node, "unknown key '" + path + "': this section has " + alternatives(names));
      continue;
    }
    KeyReader<Section>(reader, path, section, *known).read(node);
    reader.origins[path] = reader.place(node);
  }
  for (const Key<Section>& key : keys) {
    if (key.required && !table.contains(key.name)) {
      reader.complain(table, "'" + name + "." + key.name + "' is missing");
    }
  }
}

void read_pools(Reader& reader, const toml::node& node, std::vector<PoolSection>& pools) {
  const toml::array* array = node.as_array();
  if (array == nullptr) return reader.complain(node, "'pool' must be written [[pool]]: there may be several");
  std::set<std::string> names;
  for (std::size_t i = 0; i < array->size(); ++i) {
    const toml::node& item = *array->get(i);
    const toml::table* table = item.as_table();
    if (table == nullptr) {
      reader.complain(item, "'pool' must be written [[pool]]: there may be several");
      continue;
    }
    PoolSection pool;
    read_section(reader, "pool[" + std::to_string(i) + "]", *table, pool_keys(), pool);
    if (!pool.name.empty() && !names.insert(pool.name).second) {
      reader.complain(*table, "a second pool is named \"" + pool.name + "\"");
    }
    pools.push_back(std::move(pool));
  }
}

void check_together(Reader& reader, const toml::table& root, const Config& config) {
  const std::string& mode = config.daemon.socket_mode;
  const bool octal = mode.size() >= 3 && mode.size() <= 4 && mode.find_first_not_of("01234567") == std::string::npos;
  const toml::node* node = root.at_path("daemon.socket_mode").node();
  if (!octal && node != nullptr) reader.complain(*node, "'daemon.socket_mode' must be an octal mode as \"0666\"");
  for (const char* path : {"daemon.socket", "daemon.state_directory"}) {
    node = root.at_path(path).node();
    if (node == nullptr) continue;
    const auto text = node->value<std::string>();
    if (text && (text->empty() || text->front() != '/')) reader.complain(*node, std::string("'") + path + "' must be an absolute path");
  }
  node = root.at_path("daemon.socket").node();
  if (node != nullptr && config.daemon.socket.size() > 107) {
    reader.complain(*node, "'daemon.socket' is longer than the 107 bytes that a Unix socket's path may have");
  }
}

}  // namespace

bool DaemonSection::has_role(const std::string& role) const {
  return std::find(roles.begin(), roles.end(), role) != roles.end();
}

Config defaults() {
  Config config;
  config.daemon.socket = paths::daemon_socket();
  config.daemon.state_directory = paths::state_directory();
  config.daemon.profiles_directory = paths::data_file("gpus");
  config.slurm.facts_program = paths::internal_program("gpumem-slurm-facts");
  config.submit.probe_program = paths::internal_program("gpumem-probe");
  return config;
}

Result<Config> parse(const std::string& text, const std::string& name) {
  toml::table root;
  try {
    root = toml::parse(text, name);
  } catch (const toml::parse_error& error) {
    return Error{ErrorKind::invalid_argument, name + ":" + std::to_string(error.source().begin.line) + ": " +
                                                  std::string(error.description())};
  }
  Config config = defaults();
  config.file = name;
  Reader reader{name, {}, {}};
  for (const auto& [key, node] : root) {
    const std::string section(key.str());
    if (section == "pool") {
      read_pools(reader, node, config.pools);
      continue;
    }
    const toml::table* table = node.as_table();
    if (table == nullptr) {
      reader.complain(node, "unknown key '" + section + "': keys stand in sections [daemon], [slurm], [submit], [margin], [node], [[pool]]");
    } else if (section == "daemon") {
      read_section(reader, section, *table, daemon_keys(), config.daemon);
    } else if (section == "slurm") {
      read_section(reader, section, *table, slurm_keys(), config.slurm);
    } else if (section == "submit") {
      read_section(reader, section, *table, submit_keys(), config.submit);
    } else if (section == "margin") {
      read_section(reader, section, *table, margin_keys(), config.margin);
    } else if (section == "node") {
      read_section(reader, section, *table, node_keys(), config.node);
    } else {
      reader.complain(node, "unknown section '[" + section + "]': there are [daemon], [slurm], [submit], [margin], [node], [[pool]]");
    }
  }
  check_together(reader, root, config);
  if (!reader.errors.empty()) return Error{ErrorKind::invalid_argument, reader.errors};
  config.origins = std::move(reader.origins);
  return config;
}

Result<Config> load(const std::string& path) {
  const auto text = read_file(path, 1 << 20);
  if (!text) return text.error();
  return parse(*text, path);
}

Result<std::uint64_t> parse_slurm_time(const std::string& text) {
  if (text == "UNLIMITED" || text == "INFINITE" || text == "unlimited" || text == "infinite" || text == "-1") return std::uint64_t{0};
  const Error bad{ErrorKind::invalid_argument, "'" + text + "' is not a time: write for example 30, 2:00:00 or 1-12"};
  std::uint64_t parts[4] = {0, 0, 0, 0};  // days, then what the colons separate
  std::string rest = text;
  const std::size_t dash = text.find('-');
  std::vector<std::string> words;
  if (dash != std::string::npos) {
    words.push_back(text.substr(0, dash));
    rest = text.substr(dash + 1);
  }
  std::istringstream stream(rest);
  for (std::string word; std::getline(stream, word, ':');) words.push_back(word);
  if (words.empty() || words.size() > (dash != std::string::npos ? 4u : 3u) || rest.empty() || rest.back() == ':') return bad;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i].empty() || words[i].size() > 9 || words[i].find_first_not_of("0123456789") != std::string::npos) return bad;
    parts[i] = std::stoull(words[i]);
  }
  if (dash != std::string::npos) return ((parts[0] * 24 + parts[1]) * 60 + parts[2]) * 60 + parts[3];
  if (words.size() == 1) return parts[0] * 60;
  if (words.size() == 2) return parts[0] * 60 + parts[1];
  return (parts[0] * 60 + parts[1]) * 60 + parts[2];
}

}  // namespace gpumem::config
