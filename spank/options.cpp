// SPDX-License-Identifier: Apache-2.0
// --gpumem: registration, checking, and keeping it out of the job's environment.
#include "spank/options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/size_text.h"

namespace gpumem::spank {
namespace {

// How Slurm carries a plugin's option from command to node: _SLURM_SPANK_OPTION_<plugin>_<option>.
constexpr char kCarrier[] = "_SLURM_SPANK_OPTION_gpumem_gpumem";

OptionValue g_value = {Wish::none, 0, ""};

int take(int, const char* argument, int remote) {
  // On the node the decision has long been made: what was accepted at submit is not judged again.
  if (remote != 0) return 0;
  OptionValue value = {Wish::none, 0, ""};
  const char* text = argument != nullptr ? argument : "";
  if (strcmp(text, "auto") == 0) {
    value.wish = Wish::automatic;
  } else if (strcmp(text, "off") == 0) {
    value.wish = Wish::off;
  } else if (parse_size_text(text, strlen(text), &value.bytes)) {
    value.wish = Wish::size;
  } else {
    slurm_error("gpumem: --gpumem=%s is not auto, off or a size such as 8G or 1500M; nothing was submitted", text);
    return -1;
  }
  snprintf(value.text, sizeof value.text, "%s", text);
  g_value = value;
  return 0;
}

char g_name[] = "gpumem";
char g_argument[] = "auto|off|SIZE";
char g_usage[] = "GPU memory of this job: found out by gpumem (auto), a limit such as 8G, or leave the request alone (off)";
struct spank_option g_option = {g_name, g_argument, g_usage, 1, 0, take};

}  // namespace

void option_register(spank_t spank) {
  g_value = {Wish::none, 0, ""};
  if (spank_option_register(spank, &g_option) != ESPANK_SUCCESS) {
    slurm_error("gpumem: Slurm refused the option --gpumem: another plugin may have it");
  }
}

const OptionValue& option_value() { return g_value; }

void option_hide_from_job(spank_t spank) {
  unsetenv(kCarrier);
  char in_job[sizeof kCarrier + 16];
  snprintf(in_job, sizeof in_job, "SLURM_SPANK_%s", kCarrier);
  unsetenv(in_job);
  spank_job_control_unsetenv(spank, kCarrier);
}

}  // namespace gpumem::spank
