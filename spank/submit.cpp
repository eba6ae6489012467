// SPDX-License-Identifier: Apache-2.0
// Asks the daemon for a decision and carries it out. Runs in sbatch, salloc and srun as the user.
#include "spank/submit.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "daemon/client/client.h"
#include "daemon/protocol/messages.h"
#include "spank/options.h"
#include "spank/rewrite.h"
#include "spank/settings.h"
#include "spank/slurm_options.h"

namespace gpumem::spank {
namespace {

namespace field = protocol::field;

constexpr char kToken[] = "GPUMEM_TOKEN";
constexpr char kTokenOnNode[] = "SLURM_SPANK_GPUMEM_TOKEN";

// What the daemon has beyond the deadline that it is told: its "not ready in time, because …" is better than silence.
constexpr double kGrace_s = 1;

volatile sig_atomic_t g_interrupted = 0;

void on_interrupt(int) { g_interrupted = 1; }

// While one exists, Ctrl-C ends the wait and not the command. Slurm's own handling comes back with the end of its life.
class InterruptScope {
 public:
  InterruptScope() {
    g_interrupted = 0;
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_interrupt;  // no SA_RESTART: the wait must notice
    sigemptyset(&action.sa_mask);
    active_ = sigaction(SIGINT, &action, &before_) == 0;
    // srun and salloc may have SIGINT blocked at this point.
    sigset_t interrupt;
    sigemptyset(&interrupt);
    sigaddset(&interrupt, SIGINT);
    sigprocmask(SIG_UNBLOCK, &interrupt, &mask_before_);
  }
  ~InterruptScope() {
    sigprocmask(SIG_SETMASK, &mask_before_, nullptr);
    if (active_) sigaction(SIGINT, &before_, nullptr);
  }
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;

 private:
  struct sigaction before_;
  sigset_t mask_before_;
  bool active_;
};

struct Progress {
  bool shown;  // something stands on the terminal's last line
};

void show_progress(void* context, const char* text) {
  auto* progress = static_cast<Progress*>(context);
  progress->shown = true;
  fprintf(stderr, "\r\033[Kgpumem: %.90s (Ctrl-C: submit without waiting)", text);
  fflush(stderr);
}

void clear_progress(const Progress& progress) {
  if (!progress.shown) return;
  fputs("\r\033[K", stderr);
  fflush(stderr);
}

// Null when this Slurm does not say.
const char* slurm_version(spank_t spank) {
  char* version = nullptr;
  return spank_get_item(spank, S_SLURM_VERSION, &version) == ESPANK_SUCCESS ? version : nullptr;
}

// The one line for a decision that could not be had.
void explain(client::CallStatus status, const client::Reply& reply) {
  switch (status) {
    case client::CallStatus::interrupted:
      slurm_info("gpumem: interrupted: the job is submitted as it was written");
      return;
    case client::CallStatus::error_reply:
      slurm_info("gpumem: %s; the job is submitted as it was written", reply.error);
      return;
    default:
      slurm_info("gpumem: no decision (%s); the job is submitted as it was written", reply.error);
  }
}

// Links the job to its decision, whatever becomes of it: the node reads the token from the job's environment.
void keep_token(spank_t spank, Command command, const char* token) {
  if (spank_job_control_setenv(spank, kToken, token, 1) != ESPANK_SUCCESS) {
    slurm_info("gpumem: Slurm did not take the decision's token: this job's outcome will be missing in the history");
  }
  // Of srun's own environment the steps of its job see all, of its job's SPANK environment nothing.
  if (command == Command::srun) setenv(kTokenOnNode, token, 1);
}

void carry_out(spank_t spank, Command command, const SlurmOptions& options, const client::Reply& reply) {
  const char* type = client::reply_type(&reply);
  const char* action = client::reply_text(&reply, field::kAction);
  const char* token = client::reply_text(&reply, field::kToken);
  const char* line = client::reply_text(&reply, field::kLine);
  if (type == nullptr || strcmp(type, protocol::kDecision) != 0 || action == nullptr) {
    slurm_info("gpumem: gpumemd answered something that is no decision; the job is submitted as it was written");
    return;
  }
  if (strcmp(action, protocol::kActionRewrite) == 0) {
    char problem[256] = "";
    if (!rewrite_apply(options, &reply, problem, sizeof problem)) {
      // Without the token: the history must not believe that this job runs with the limit.
      slurm_info("gpumem: %s; the job is submitted as it was written", problem);
      return;
    }
  }
  if (token != nullptr && *token != '\0') keep_token(spank, command, token);
  if (line != nullptr && *line != '\0') slurm_info("gpumem: %s", line);
}

}  // namespace

void forget_token(spank_t spank) {
  unsetenv(kTokenOnNode);
  spank_job_control_unsetenv(spank, kToken);
}

void submit(spank_t spank, Command command) {
  const OptionValue& wish = option_value();
  if (wish.wish == Wish::off || (wish.wish == Wish::none && user_opted_out())) return;
  SlurmOptions options;
  if (!slurm_options_find(&options)) {
    if (wish.wish != Wish::none) slurm_info("gpumem: this Slurm lacks what --gpumem needs; the job is submitted as it was written");
    return;
  }
  if (gpu_request(options) == nullptr) {
    if (wish.wish == Wish::size) {
      slurm_info("gpumem: --gpumem=%s changes nothing: this job asks for no GPU (add --gres=gpu:1)", wish.text);
    }
    return;
  }
  // Without a script there is nothing to find out: salloc and srun change only when the user gives the size.
  if (command != Command::sbatch && wish.wish != Wish::size) return;

  char mode[32] = "auto";
  if (wish.wish == Wish::size) snprintf(mode, sizeof mode, "%llu", static_cast<unsigned long long>(wish.bytes));

  client::Request request = {};
  request_gather(&request, command, options, mode, slurm_version(spank), settings().timeout_s);
  Progress progress = {false};
  client::CallOptions call_options = {};
  call_options.total_s = settings().timeout_s + kGrace_s;
  call_options.interrupted = &g_interrupted;
  if (isatty(STDERR_FILENO) && options.get("quiet") == nullptr) {
    call_options.progress = show_progress;
    call_options.progress_context = &progress;
  }
  client::Reply reply = {};
  client::CallStatus status;
  {
    InterruptScope interrupts;
    status = client::call(settings().socket, &request, &call_options, &reply);
  }
  clear_progress(progress);
  if (status == client::CallStatus::ok) carry_out(spank, command, options, reply);
  else explain(status, reply);
  client::reply_free(&reply);
  client::request_free(&request);
}

}  // namespace gpumem::spank
