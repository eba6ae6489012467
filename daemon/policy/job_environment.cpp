// SPDX-License-Identifier: Apache-2.0
// The job's environment as Slurm would make it, and fingerprints.
#include "daemon/policy/job_environment.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <map>
#include <string_view>

#include "daemon/policy/version.h"

namespace gpumem::policy {
namespace {

// Differ from login to login and change no program's memory.
constexpr std::array kVolatile = {
    "_", "SHLVL", "PWD", "OLDPWD", "TERM", "COLORTERM", "DISPLAY", "WAYLAND_DISPLAY", "WINDOWID", "XAUTHORITY", "LS_COLORS",
    "LESSOPEN", "LESSCLOSE", "PS1", "PS2", "PROMPT_COMMAND", "MAIL", "COLUMNS", "LINES", "STY", "TMUX", "TMUX_PANE",
    "TERM_PROGRAM", "TERM_PROGRAM_VERSION", "TERM_SESSION_ID", "KRB5CCNAME", "INVOCATION_ID", "JOURNAL_STREAM", "EDITOR",
    "VISUAL", "PAGER", "DBUS_SESSION_BUS_ADDRESS", "HISTSIZE", "HISTFILE", "HISTFILESIZE", "HISTCONTROL", "SUDO_COMMAND"};
constexpr std::array kVolatilePrefixes = {"SSH_", "XDG_", "GPUMEM_", "SLURM_", "SBATCH_", "SALLOC_", "SRUN_", "LC_", "VSCODE_"};

std::string name_of(const std::string& variable) { return variable.substr(0, variable.find('=')); }

bool is_volatile(const std::string& variable) {
  const std::string name = name_of(variable);
  return std::any_of(kVolatile.begin(), kVolatile.end(), [&](const char* item) { return name == item; }) ||
         std::any_of(kVolatilePrefixes.begin(), kVolatilePrefixes.end(),
                     [&](const char* prefix) { return name.rfind(prefix, 0) == 0; });
}

class Hash {
 public:
  // The length goes in too, so that "ab","c" and "a","bc" differ.
  void add(std::string_view text) {
    const std::string length = std::to_string(text.size()) + ":";
    for (const char c : length) step(c);
    for (const char c : text) step(c);
  }
  std::string hex() const {
    char text[33];
    std::snprintf(text, sizeof text, "%016llx%016llx", static_cast<unsigned long long>(state_ >> 64),
                  static_cast<unsigned long long>(state_));
    return text;
  }

 private:
  using Wide = unsigned __int128;
  void step(char c) {
    state_ ^= static_cast<unsigned char>(c);
    state_ *= kPrime;
  }
  // The offset basis and prime of FNV-1a, 128 bits (http://www.isthe.com/chongo/tech/comp/fnv).
  static constexpr Wide kPrime = (static_cast<Wide>(1) << 88) + 0x13b;
  Wide state_ = (static_cast<Wide>(0x6c62272e07bb0142ull) << 64) + 0x62b821756295c58dull;
};

// The variables that --export lets through; everything unless it names some.
std::map<std::string, std::string> exported(const Request& request) {
  std::map<std::string, std::string> all;
  for (const std::string& variable : request.environment) {
    const std::size_t equals = variable.find('=');
    if (equals != std::string::npos && equals > 0) all[variable.substr(0, equals)] = variable.substr(equals + 1);
  }
  const std::string option = request.option("export");
  if (option.empty() || option == "ALL") return all;
  std::map<std::string, std::string> kept;
  std::size_t start = 0;
  // Slurm starts from a login environment then; these stand for it.
  for (const char* name : {"HOME", "USER", "LOGNAME", "SHELL", "PATH", "LANG"}) {
    const auto found = all.find(name);
    if (found != all.end()) kept.insert(*found);
  }
  while (start <= option.size()) {
    std::size_t end = option.find(',', start);
    if (end == std::string::npos) end = option.size();
    const std::string item = option.substr(start, end - start);
    const std::size_t equals = item.find('=');
    if (item == "ALL") {
      for (const auto& variable : all) kept.insert(variable);
    } else if (equals != std::string::npos) {
      kept[item.substr(0, equals)] = item.substr(equals + 1);
    } else if (const auto found = all.find(item); found != all.end()) {
      kept.insert(*found);
    }
    start = end + 1;
  }
  return kept;
}

std::string first_array_task(const std::string& array) {
  std::size_t digits = 0;
  while (digits < array.size() && std::isdigit(static_cast<unsigned char>(array[digits]))) ++digits;
  return digits > 0 ? array.substr(0, digits) : "0";
}

}  // namespace

std::vector<std::string> job_environment(const Request& request, const std::string& user, const std::string& host) {
  std::map<std::string, std::string> variables = exported(request);
  for (auto variable = variables.begin(); variable != variables.end();) {
    variable = variable->first.rfind("GPUMEM_", 0) == 0 ? variables.erase(variable) : std::next(variable);
  }
  const std::string tasks = std::to_string(task_count(request));
  const std::string cpus = request.has("cpus-per-task") ? request.option("cpus-per-task")
                           : request.has("cpus-per-gpu") ? request.option("cpus-per-gpu")
                                                         : "1";
  const std::string directory = request.working_directory;
  variables["SLURM_JOB_ID"] = variables["SLURM_JOBID"] = "1";
  variables["SLURM_JOB_NAME"] = request.script_name();
  variables["SLURM_JOB_USER"] = user;
  variables["SLURM_SUBMIT_DIR"] = directory;
  variables["SLURM_SUBMIT_HOST"] = host;
  variables["SLURM_JOB_NODELIST"] = variables["SLURM_NODELIST"] = variables["SLURMD_NODENAME"] = host;
  variables["SLURM_JOB_NUM_NODES"] = variables["SLURM_NNODES"] = "1";
  variables["SLURM_NTASKS"] = variables["SLURM_NPROCS"] = tasks;
  variables["SLURM_PROCID"] = variables["SLURM_LOCALID"] = variables["SLURM_NODEID"] = "0";
  variables["SLURM_CPUS_ON_NODE"] = variables["SLURM_JOB_CPUS_PER_NODE"] = cpus;
  if (request.has("cpus-per-task")) variables["SLURM_CPUS_PER_TASK"] = cpus;
  variables["SLURM_GPUS_ON_NODE"] = "1";
  variables["SLURM_JOB_GPUS"] = "0";
  if (request.has("partition")) variables["SLURM_JOB_PARTITION"] = request.option("partition");
  if (request.has("account")) variables["SLURM_JOB_ACCOUNT"] = request.option("account");
  if (request.has("array")) {
    const std::string first = first_array_task(request.option("array"));
    variables["SLURM_ARRAY_JOB_ID"] = "1";
    variables["SLURM_ARRAY_TASK_ID"] = variables["SLURM_ARRAY_TASK_MIN"] = first;
  }
  std::vector<std::string> list;
  for (const auto& [name, value] : variables) list.push_back(name + "=" + value);
  return list;
}

std::string fingerprint(const Request& request, const std::string& gpu, std::uint64_t capacity_bytes) {
  Hash hash;
  hash.add(program_version());
  hash.add(gpu);
  hash.add(std::to_string(capacity_bytes));
  hash.add(request.script.value_or(""));
  hash.add(request.working_directory);
  for (const std::string& argument : request.arguments) hash.add(argument);
  // What of Slurm's options the script can see.
  for (const char* option : {"export", "array", "cpus-per-task", "cpus-per-gpu", "ntasks"}) hash.add(request.option(option));
  std::vector<std::string> environment = request.environment;
  std::sort(environment.begin(), environment.end());
  for (const std::string& variable : environment) {
    if (!is_volatile(variable)) hash.add(variable);
  }
  return hash.hex();
}

std::string family(const Request& request, const std::string& gpu) {
  Hash hash;
  hash.add(gpu);
  hash.add(request.script.value_or(""));
  hash.add(request.working_directory);
  return hash.hex();
}

}  // namespace gpumem::policy
