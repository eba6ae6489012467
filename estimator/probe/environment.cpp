// SPDX-License-Identifier: Apache-2.0
// The environment that a probed program gets.
#include "estimator/probe/environment.h"

#include <dirent.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "base/paths.h"

namespace gpumem::probe {
namespace {

std::string probe_stand_ins() { return paths::preload_library("probe-bin"); }

std::string index_list(int count) {
  std::string list;
  for (int i = 0; i < count; ++i) list += (i ? "," : "") + std::to_string(i);
  return list;
}

std::string host_name() {
  char name[256] = "localhost";
  ::gethostname(name, sizeof name - 1);
  std::string text = name;
  return text.substr(0, text.find('.'));
}

// What Slurm would set for a job of one task. Everything that the request's environment has already stays.
void add_job_variables(Environment& environment, const Request& request) {
  const std::string host = host_name();
  const std::string* asked = environment.get("SLURM_CPUS_PER_TASK");
  const std::string cpus = asked ? *asked : "1";
  // A number that no real job has now: Slurm counts up from 1 and wraps at 2^26.
  constexpr const char* kJobId = "67108863";
  for (const char* name : {"SLURM_JOB_ID", "SLURM_JOBID"}) environment.set_default(name, kJobId);
  for (const char* name : {"SLURM_NTASKS", "SLURM_NPROCS", "SLURM_JOB_NUM_NODES", "SLURM_NNODES", "SLURM_TASKS_PER_NODE",
                           "SLURM_NTASKS_PER_NODE", "SLURM_STEP_NUM_TASKS"}) {
    environment.set_default(name, "1");
  }
  for (const char* name : {"SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_GTIDS", "SLURM_RESTART_COUNT"}) {
    environment.set_default(name, "0");
  }
  for (const char* name : {"SLURM_JOB_NODELIST", "SLURM_NODELIST", "SLURMD_NODENAME", "SLURM_SUBMIT_HOST"}) environment.set_default(name, host);
  for (const char* name : {"SLURM_CPUS_PER_TASK", "SLURM_CPUS_ON_NODE", "SLURM_JOB_CPUS_PER_NODE"}) environment.set_default(name, cpus);
  environment.set_default("SLURM_JOB_NAME", "job");
  environment.set_default("SLURM_SUBMIT_DIR", request.working_directory);
  environment.set_default("SLURM_JOB_UID", std::to_string(::getuid()));
  if (const std::string* user = environment.get("USER")) environment.set_default("SLURM_JOB_USER", std::string(*user));
  environment.set_default("SLURM_GPUS_ON_NODE", std::to_string(request.gpu_count));
  environment.set_default("SLURM_JOB_GPUS", index_list(request.gpu_count));
  environment.set_default("ENVIRONMENT", "BATCH");
  environment.set("CUDA_VISIBLE_DEVICES", index_list(request.gpu_count));
}

void preload(Environment& environment) {
  // In the order in which they must be found: the runtime first, then those that are looked for by their SONAME.
  std::string libraries;
  for (const char* name : {"libgpumem_vgpu.so", "libcuda.so.1", "libnvidia-ml.so.1"}) {
    const std::string path = paths::preload_library(name);
    if (::access(path.c_str(), R_OK) == 0) libraries += (libraries.empty() ? "" : ":") + path;
  }
  if (!libraries.empty()) environment.put_first("LD_PRELOAD", libraries);
}

// What the redirected torch.cuda says of the GPU: NAME|BYTES|COUNT|MAJOR.MINOR|PROCESSORS.
std::string described_gpu(const Request& request) {
  const auto device = gpus::describe_device(request.gpu, 0, request.capacity_bytes);
  return request.gpu.name + "|" + std::to_string(device.usable_bytes) + "|" + std::to_string(request.gpu_count) + "|" +
         request.gpu.compute_capability + "|" + std::to_string(request.gpu.number("sm_count"));
}

// The newest cuDNN that gpumem's set-up brought, for jobs whose own cannot plan without a device.
std::string own_cudnn() {
  const std::string directory = paths::shared_cache_directory() + "/cudnn";
  struct stat found {};
  for (const char* place : {"/libcudnn.so.9", "/lib/libcudnn.so.9", "/nvidia/cudnn/lib/libcudnn.so.9"}) {
    const std::string path = directory + place;
    // Only root's: it is loaded into other users' programs.
    if (::stat(path.c_str(), &found) == 0 && S_ISREG(found.st_mode) && !(found.st_mode & 022)) return path;
  }
  return "";
}

// What jobs on this host's GPUs were seen to use of cuDNN's workspaces (gpumemd writes it); only root's, as above.
std::string learned_workspaces() {
  const std::string path = paths::state_directory() + "/workspaces.tsv";
  struct stat found {};
  return ::stat(path.c_str(), &found) == 0 && S_ISREG(found.st_mode) && !(found.st_mode & 022) ? path : "";
}

}  // namespace

Environment::Environment(const std::vector<std::string>& variables) {
  for (const auto& variable : variables) {
    const std::size_t equals = variable.find('=');
    if (equals == std::string::npos || equals == 0) continue;
    set(variable.substr(0, equals), variable.substr(equals + 1));
  }
}

const std::string* Environment::get(const std::string& name) const {
  for (const auto& [known, value] : variables_) {
    if (known == name) return &value;
  }
  return nullptr;
}

void Environment::set(const std::string& name, const std::string& value) {
  for (auto& [known, old] : variables_) {
    if (known == name) {
      old = value;
      return;
    }
  }
  variables_.emplace_back(name, value);
}

void Environment::set_default(const std::string& name, const std::string& value) {
  if (get(name) == nullptr) variables_.emplace_back(name, value);
}

void Environment::unset(const std::string& name) {
  std::erase_if(variables_, [&](const auto& variable) { return variable.first == name; });
}

void Environment::put_first(const std::string& name, const std::string& value) {
  const std::string* old = get(name);
  set(name, old != nullptr && !old->empty() ? value + ":" + *old : value);
}

std::vector<std::string> Environment::list() const {
  std::vector<std::string> variables;
  for (const auto& [name, value] : variables_) variables.push_back(name + "=" + value);
  return variables;
}

std::string user_cache_directory(const std::vector<std::string>& environment, const std::string& name) {
  const Environment variables(environment);
  const std::string* cache = variables.get("XDG_CACHE_HOME");
  if (cache != nullptr && !cache->empty() && (*cache)[0] == '/') return *cache + "/gpumem/" + name;
  const std::string* home = variables.get("HOME");
  if (home != nullptr && home->size() > 1 && (*home)[0] == '/') return *home + "/.cache/gpumem/" + name;
  return "";
}

std::vector<std::string> program_environment(const Request& request, const std::string& shared) {
  Environment environment(request.environment);
  // The user's own choice of devices is about real ones.
  for (const char* name : {"CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "GPUMEM_JOB", "GPUMEM_METER_BOOK", "GPUMEM_TRACER",
                           "GPUMEM_WORKSPACES_SEEN"}) {
    environment.unset(name);
  }
  environment.set_default("PATH", "/usr/local/bin:/usr/bin:/bin");
  if (const passwd* user = ::getpwuid(::getuid())) {
    environment.set_default("HOME", user->pw_dir);
    environment.set_default("USER", user->pw_name);
    environment.set_default("LOGNAME", user->pw_name);
  }
  if (request.is_script()) add_job_variables(environment, request);

  environment.put_first("PATH", probe_stand_ins() + ":" + paths::stand_in_directory());
  environment.put_first("PYTHONPATH", paths::data_file("shim"));
  // xMem's method runs on the CPU: no virtual GPU to be found there.
  if (request.method != Method::xmem) preload(environment);
  if (request.method != Method::virtual_gpu) {
    environment.set("GPUMEM_SHIM_METHOD", method_name(request.method));
    environment.set("GPUMEM_SHIM_GPU", described_gpu(request));
  }
  environment.set("TRITON_LIBCUDA_PATH", paths::preload_library(""));
  environment.set("GPUMEM_BOOK", shared + "/book");
  environment.set("GPUMEM_RECORD", shared + "/record");
  environment.set("GPUMEM_SHIM_EPOCH_BATCHES", std::to_string(request.epoch_batches));
  environment.set("GPUMEM_SHIM_STABLE_STEPS", std::to_string(request.stable_steps));
  environment.set("GPUMEM_SHIM_STOP", request.stop_when_stable ? "1" : "0");
  if (request.batch_percent != 100) environment.set("GPUMEM_SHIM_BATCH_PERCENT", std::to_string(request.batch_percent));
  if (!request.snapshot_file.empty()) environment.set("GPUMEM_SHIM_SNAPSHOT", "1");
  environment.set("GPUMEM_SHIM_TRACER_PROGRAM", paths::internal_program("gpumem-tracer"));
  environment.set("GPUMEM_SHIM_TRACER_CACHE", shared + "/tracer");
  if (environment.get("GPUMEM_CUDNN") == nullptr) {
    if (const std::string cudnn = own_cudnn(); !cudnn.empty()) environment.set("GPUMEM_CUDNN", cudnn);
  }
  if (environment.get("GPUMEM_WORKSPACES") == nullptr) {
    if (const std::string learned = learned_workspaces(); !learned.empty()) environment.set("GPUMEM_WORKSPACES", learned);
  }
  return environment.list();
}

std::vector<std::string> program_arguments(const Request& request, const std::string& shared) {
  if (!request.is_script()) return request.command;
  // As the kernel splits it: the interpreter, then at most one argument that may hold spaces.
  const std::string line = request.script_content.substr(2, request.script_content.find('\n') - 2);
  const std::size_t begin = line.find_first_not_of(" \t");
  const std::size_t end = begin == std::string::npos ? begin : line.find_first_of(" \t\r", begin);
  std::vector<std::string> arguments{begin == std::string::npos ? "/bin/sh" : line.substr(begin, end - begin)};
  if (end != std::string::npos) {
    const std::size_t argument = line.find_first_not_of(" \t\r", end);
    if (argument != std::string::npos) {
      const std::size_t last = line.find_last_not_of(" \t\r");
      arguments.push_back(line.substr(argument, last - argument + 1));
    }
  }
  arguments.push_back(shared + "/script/slurm_script");
  arguments.insert(arguments.end(), request.script_arguments.begin(), request.script_arguments.end());
  return arguments;
}

std::vector<std::pair<std::string, std::string>> replaced_programs(const std::vector<std::string>& environment) {
  std::vector<std::string> names;
  for (const std::string& directory : {probe_stand_ins(), paths::stand_in_directory()}) {
    DIR* listing = ::opendir(directory.c_str());
    if (listing == nullptr) continue;
    while (const dirent* entry = ::readdir(listing)) {
      if (entry->d_name[0] != '.') names.push_back(directory + "/" + entry->d_name);
    }
    ::closedir(listing);
  }
  const std::string* path = Environment(environment).get("PATH");
  std::string searched = (path ? *path : "") + ":/usr/bin:/usr/local/bin:/opt/slurm/bin:/usr/local/slurm/bin";
  std::vector<std::pair<std::string, std::string>> replaced;
  for (std::size_t at = 0; at < searched.size();) {
    const std::size_t end = std::min(searched.find(':', at), searched.size());
    const std::string directory = searched.substr(at, end - at);
    at = end + 1;
    if (directory.empty() || directory[0] != '/' || directory == probe_stand_ins() || directory == paths::stand_in_directory()) continue;
    for (const auto& stand_in : names) {
      const std::string program = directory + stand_in.substr(stand_in.rfind('/'));
      const bool known = std::any_of(replaced.begin(), replaced.end(), [&](const auto& pair) { return pair.first == program; });
      struct stat found {};
      if (!known && ::lstat(program.c_str(), &found) == 0 && S_ISREG(found.st_mode)) replaced.emplace_back(program, stand_in);
    }
  }
  return replaced;
}

}  // namespace gpumem::probe
