// SPDX-License-Identifier: Apache-2.0
// The stub of Slurm behind spank_test.
#include "tests/unit/spank_stub.h"

#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>

#include <set>

namespace {

spank_context_t g_context = S_CTX_ERROR;
char g_command[32];
std::map<std::string, std::string> g_options, g_job_control, g_job_environment;
std::map<std::string, spank_opt_cb_f> g_plugin_options;
std::set<std::string> g_refused;
std::vector<std::string> g_printed;
int g_handle;

// The options that the stub's "Slurm" knows, as 22.05 does.
const std::set<std::string> kKnown = {
    "gres", "gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket", "tres-per-task", "tres-bind", "gpu-bind",
    "cpus-per-gpu", "mem-per-gpu", "cpus-per-task", "mem", "mem-per-cpu", "partition", "chdir", "wrap", "ntasks", "time", "argv"};

void print(const char* format, va_list arguments) {
  char line[4096];
  vsnprintf(line, sizeof line, format, arguments);
  g_printed.push_back(line);
}

int copy_out(const std::map<std::string, std::string>& from, const char* name, char* value, int bytes) {
  const auto found = from.find(name);
  if (found == from.end()) return ESPANK_ENV_NOEXIST;
  if (static_cast<int>(found->second.size()) >= bytes) return ESPANK_NOSPACE;
  memcpy(value, found->second.c_str(), found->second.size() + 1);
  return ESPANK_SUCCESS;
}

// spank_err_t is another enumeration than the constants.
spank_err_t err(int number) { return static_cast<spank_err_t>(number); }

}  // namespace

namespace spank_stub {

void reset(const char* command, spank_context_t context) {
  snprintf(g_command, sizeof g_command, "%s", command);
  program_invocation_short_name = g_command;
  optind = 1 << 20;  // no operands: the test program's own arguments are not a job's
  g_context = context;
  g_options.clear();
  g_job_control.clear();
  g_job_environment.clear();
  g_refused.clear();
  g_printed.clear();
}

spank_t handle() { return reinterpret_cast<spank_t>(&g_handle); }
std::map<std::string, std::string>& options() { return g_options; }
std::map<std::string, std::string>& job_control() { return g_job_control; }
std::map<std::string, std::string>& job_environment() { return g_job_environment; }
std::vector<std::string>& printed() { return g_printed; }

int give_option(const std::string& name, const char* value) { return g_plugin_options.at(name)(0, value, 0); }
void refuse_to_set(const std::string& option) { g_refused.insert(option); }

}  // namespace spank_stub

extern "C" {

int opt;  // found by dlsym, like sbatch's

char* slurm_option_get(void*, const char* name) {
  const auto found = g_options.find(name);
  return found == g_options.end() ? nullptr : strdup(found->second.c_str());
}
bool slurm_option_isset(void*, const char* name) { return g_options.count(name) != 0; }
int slurm_option_set(void*, const char* name, const char* value, bool) {
  if (kKnown.count(name) == 0 || g_refused.count(name) != 0) return -1;
  g_options[name] = value;
  return 0;
}
bool slurm_option_reset(void*, const char* name) {
  g_options.erase(name);
  return kKnown.count(name) != 0;
}

spank_context_t spank_context(void) { return g_context; }

spank_err_t spank_option_register(spank_t, struct spank_option* option) {
  g_plugin_options[option->name] = option->cb;
  return err(ESPANK_SUCCESS);
}

spank_err_t spank_get_item(spank_t, spank_item_t item, ...) {
  va_list arguments;
  va_start(arguments, item);
  void* out = va_arg(arguments, void*);
  va_end(arguments);
  static char version[] = "22.05.8";
  switch (item) {
    case S_SLURM_VERSION: *static_cast<char**>(out) = version; return err(ESPANK_SUCCESS);
    case S_JOB_ID: *static_cast<uint32_t*>(out) = 42; return err(ESPANK_SUCCESS);
    case S_JOB_STEPID: *static_cast<uint32_t*>(out) = 0; return err(ESPANK_SUCCESS);
    case S_JOB_UID: *static_cast<uid_t*>(out) = 1000; return err(ESPANK_SUCCESS);
    case S_TASK_ID: *static_cast<int*>(out) = 0; return err(ESPANK_SUCCESS);
    case S_TASK_PID: *static_cast<pid_t*>(out) = 4711; return err(ESPANK_SUCCESS);
    case S_TASK_EXIT_STATUS: *static_cast<int*>(out) = 256; return err(ESPANK_SUCCESS);
    default: return err(ESPANK_NOT_AVAIL);
  }
}

spank_err_t spank_getenv(spank_t, const char* name, char* value, int bytes) {
  return err(copy_out(g_job_environment, name, value, bytes));
}
spank_err_t spank_setenv(spank_t, const char* name, const char* value, int) {
  g_job_environment[name] = value;
  return err(ESPANK_SUCCESS);
}
spank_err_t spank_unsetenv(spank_t, const char* name) {
  g_job_environment.erase(name);
  return err(ESPANK_SUCCESS);
}
spank_err_t spank_job_control_setenv(spank_t, const char* name, const char* value, int) {
  g_job_control[name] = value;
  return err(ESPANK_SUCCESS);
}
spank_err_t spank_job_control_unsetenv(spank_t, const char* name) {
  g_job_control.erase(name);
  return err(ESPANK_SUCCESS);
}

void slurm_info(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  print(format, arguments);
  va_end(arguments);
}
void slurm_error(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  print(format, arguments);
  va_end(arguments);
}
}
