// SPDX-License-Identifier: Apache-2.0
// On the node: S_CTX_REMOTE, in slurmstepd as root, around each task of a job that has a GPU.
//
// The node's daemon says what the task's environment must be (its virtual or real GPU, the meter) and hears how the
// task ended. With the daemon away the task runs without a meter: a job is worth more than its measurement.
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/client/client.h"
#include "daemon/protocol/messages.h"
#include "spank/contexts.h"
#include "spank/settings.h"

namespace gpumem::spank {
namespace {

namespace field = protocol::field;

// slurmstepd waits for each task's hooks: the daemon on the same host answers in milliseconds or not at all.
constexpr double kConnect_s = 1;
constexpr double kAnswer_s = 3;

// A variable of the job, or "" where it has none or one longer than `bytes`.
const char* job_variable(spank_t spank, const char* name, char* value, int bytes) {
  value[0] = '\0';
  if (spank_getenv(spank, name, value, bytes) != ESPANK_SUCCESS) value[0] = '\0';
  return value;
}

struct Task {
  char token[64];
  char shards[32];
  char gpus[512];
  char visible_devices[4096];
};

// Reads what says that the job has something to do with GPUs; false when nothing does.
bool task_has_gpu(spank_t spank, Task* task) {
  job_variable(spank, "SLURM_SPANK_GPUMEM_TOKEN", task->token, sizeof task->token);
  job_variable(spank, "SLURM_SHARDS_ON_NODE", task->shards, sizeof task->shards);
  if (*job_variable(spank, "SLURM_STEP_GPUS", task->gpus, sizeof task->gpus) == '\0') {
    job_variable(spank, "SLURM_JOB_GPUS", task->gpus, sizeof task->gpus);
  }
  job_variable(spank, "CUDA_VISIBLE_DEVICES", task->visible_devices, sizeof task->visible_devices);
  return task->token[0] != '\0' || task->shards[0] != '\0' || task->gpus[0] != '\0';
}

template <class Number>
void add_item(spank_t spank, client::Request* request, const char* name, spank_item_t item) {
  Number number = 0;
  if (spank_get_item(spank, item, &number) == ESPANK_SUCCESS) {
    client::request_add_number(request, name, static_cast<unsigned long long>(number));
  }
}

void add_task(spank_t spank, client::Request* request) {
  add_item<uint32_t>(spank, request, field::kJobId, S_JOB_ID);
  add_item<uint32_t>(spank, request, field::kStepId, S_JOB_STEPID);
  add_item<int>(spank, request, field::kTaskId, S_TASK_ID);
}

void add_variable(spank_t spank, client::Request* request, const char* name) {
  static char value[128 * 1024];  // the kernel's largest single variable; too large for a hook's stack
  if (*job_variable(spank, name, value, sizeof value) == '\0') return;
  static char assignment[sizeof value + 64];
  snprintf(assignment, sizeof assignment, "%s=%s", name, value);
  client::request_add(request, field::kEnvironment, assignment);
}

client::CallStatus ask(const client::Request* request, client::Reply* reply) {
  client::CallOptions options = {};
  options.connect_s = kConnect_s;
  options.silence_s = kAnswer_s;
  options.total_s = kAnswer_s;
  return client::call(settings().socket, request, &options, reply);
}

void set_environment(spank_t spank, const client::Reply& reply) {
  const char* text;
  for (size_t i = 0; (text = client::reply_text_at(&reply, field::kUnset, i)) != nullptr; ++i) spank_unsetenv(spank, text);
  for (size_t i = 0; (text = client::reply_text_at(&reply, field::kSet, i)) != nullptr; ++i) {
    char name[128];
    const char* equals = strchr(text, '=');
    const size_t length = equals != nullptr ? static_cast<size_t>(equals - text) : 0;
    if (length == 0 || length >= sizeof name) continue;
    memcpy(name, text, length);
    name[length] = '\0';
    if (spank_setenv(spank, name, equals + 1, 1) != ESPANK_SUCCESS) {
      slurm_error("gpumem: %s could not be set for the task: it may run without its meter", name);
    }
  }
}

}  // namespace

int remote_task_init_privileged(spank_t spank) {
  Task task;
  if (!task_has_gpu(spank, &task)) return 0;
  client::Request request = {};
  client::request_begin(&request, protocol::kJobStart);
  add_task(spank, &request);
  client::request_add_number(&request, field::kPid, static_cast<unsigned long long>(getpid()));
  add_item<uid_t>(spank, &request, field::kUserId, S_JOB_UID);
  add_item<uint32_t>(spank, &request, field::kArrayJobId, S_JOB_ARRAY_ID);
  add_item<uint32_t>(spank, &request, field::kArrayTaskId, S_JOB_ARRAY_TASK_ID);
  client::request_add(&request, field::kToken, task.token);
  client::request_add(&request, field::kShards, task.shards);
  client::request_add(&request, field::kGpus, task.gpus);
  client::request_add(&request, field::kVisibleDevices, task.visible_devices);
  add_variable(spank, &request, "LD_PRELOAD");
  add_variable(spank, &request, "PATH");

  client::Reply reply = {};
  const client::CallStatus status = ask(&request, &reply);
  int result = 0;
  if (status == client::CallStatus::ok) {
    const char* refusal = client::reply_text(&reply, field::kRefuse);
    if (refusal != nullptr && *refusal != '\0') {
      slurm_error("gpumem: %s", refusal);
      result = -1;
    } else {
      set_environment(spank, reply);
    }
  } else {
    slurm_info("gpumem: this task runs without a meter: %s", reply.error);
  }
  client::reply_free(&reply);
  client::request_free(&request);
  return result;
}

void remote_task_exit(spank_t spank) {
  Task task;
  if (!task_has_gpu(spank, &task)) return;
  client::Request request = {};
  client::request_begin(&request, protocol::kTaskEnd);
  add_task(spank, &request);
  add_item<pid_t>(spank, &request, field::kPid, S_TASK_PID);
  int wait_status = 0;
  if (spank_get_item(spank, S_TASK_EXIT_STATUS, &wait_status) == ESPANK_SUCCESS) {
    client::request_add_number(&request, field::kWaitStatus, static_cast<unsigned>(wait_status));
  }
  client::Reply reply = {};
  if (ask(&request, &reply) != client::CallStatus::ok) {
    slurm_info("gpumem: the outcome of this task is not in the history: %s", reply.error);
  }
  client::reply_free(&reply);
  client::request_free(&request);
}

}  // namespace gpumem::spank
