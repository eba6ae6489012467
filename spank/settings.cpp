// SPDX-License-Identifier: Apache-2.0
// The plugin's arguments from plugstack.conf and the user's opt-out.
#include "spank/settings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config.h"
#include "spank/spank_api.h"

namespace gpumem::spank {
namespace {

// A probe takes 5 to 30 s; who waits longer than a minute for sbatch presses Ctrl-C anyway.
constexpr double kDefaultTimeout_s = 60;

Settings g_settings = {GPUMEM_RUNDIR "/gpumemd.sock", kDefaultTimeout_s};

}  // namespace

void settings_read(int ac, char** av) {
  for (int i = 0; i < ac; ++i) {
    const char* argument = av[i];
    if (strncmp(argument, "socket=", 7) == 0 && argument[7] == '/' && strlen(argument + 7) < sizeof g_settings.socket) {
      snprintf(g_settings.socket, sizeof g_settings.socket, "%s", argument + 7);
    } else if (strncmp(argument, "timeout=", 8) == 0) {
      char* end = nullptr;
      const double seconds = strtod(argument + 8, &end);
      if (end != argument + 8 && *end == '\0' && seconds > 0 && seconds <= 3600) g_settings.timeout_s = seconds;
      else slurm_error("gpumem: plugstack.conf: '%s' is not a time in seconds (1 to 3600): %.0f is used", argument, g_settings.timeout_s);
    } else {
      slurm_error("gpumem: plugstack.conf: '%s' is not understood (socket=/PATH, timeout=SECONDS)", argument);
    }
  }
}

const Settings& settings() { return g_settings; }

bool user_opted_out() {
  const char* wish = getenv("GPUMEM");
  if (wish != nullptr && strcmp(wish, "off") == 0) return true;
  char path[4096];
  const char* base = getenv("XDG_CONFIG_HOME");
  const char* home = getenv("HOME");
  if (base != nullptr && *base == '/') snprintf(path, sizeof path, "%s/gpumem/off", base);
  else if (home != nullptr && *home == '/') snprintf(path, sizeof path, "%s/.config/gpumem/off", home);
  else return false;
  return access(path, F_OK) == 0;
}

}  // namespace gpumem::spank
