// SPDX-License-Identifier: Apache-2.0
// Every message and field name of the socket protocol, version 1.0. Used by gpumemd, the CLI and the SPANK plugin.
//
// Constants only. The table in doc/contracts.md (Socket protocol) says who sends what; this file fixes the spelling.
// Sizes are bytes unless the name says _mib; times are seconds; numbers are decimal text.
#pragma once

namespace gpumem::protocol {

inline constexpr char kType[] = "type";

// Requests
inline constexpr char kPing[] = "ping";                  // -> pong
inline constexpr char kDecide[] = "decide";              // -> decision
inline constexpr char kJobStart[] = "job_start";         // -> job_environment
inline constexpr char kTaskEnd[] = "task_end";           // -> done
inline constexpr char kHistory[] = "history";            // -> answer
inline constexpr char kShow[] = "show";                  // -> answer
inline constexpr char kStatus[] = "status";              // -> answer
inline constexpr char kMarginList[] = "margin_list";     // -> answer
inline constexpr char kMarginSet[] = "margin_set";       // -> answer
inline constexpr char kMarginUnset[] = "margin_unset";   // -> answer
inline constexpr char kReload[] = "reload";              // -> answer

// Replies
inline constexpr char kProgress[] = "progress";          // any number before the final reply
inline constexpr char kError[] = "error";
inline constexpr char kPong[] = "pong";
inline constexpr char kDecision[] = "decision";
inline constexpr char kJobEnvironment[] = "job_environment";
inline constexpr char kDone[] = "done";
inline constexpr char kAnswer[] = "answer";

namespace field {

// error, progress, pong, answer
inline constexpr char kKind[] = "kind";        // an ErrorKind's name (base/result.h)
inline constexpr char kMessage[] = "message";  // a sentence
inline constexpr char kText[] = "text";        // what is being done; empty: still alive, nothing new
inline constexpr char kVersion[] = "version";
inline constexpr char kPid[] = "pid";
inline constexpr char kJson[] = "json";

// decide
inline constexpr char kCommand[] = "command";                      // sbatch, salloc or srun
inline constexpr char kMode[] = "mode";                            // auto, off, or a limit in bytes
inline constexpr char kSlurmVersion[] = "slurm_version";           // "22.05.8"
inline constexpr char kWorkingDirectory[] = "working_directory";   // the job's
inline constexpr char kScript[] = "script";                        // its text; missing: not known (a pipe, salloc, srun)
inline constexpr char kScriptPath[] = "script_path";
inline constexpr char kArgument[] = "argument";                    // repeated: the script's arguments
inline constexpr char kWrap[] = "wrap";                            // --wrap's text instead of a script
inline constexpr char kEnvironment[] = "environment";              // repeated: "NAME=VALUE" of the submitter
inline constexpr char kOptionPrefix[] = "option.";                 // option.NAME: Slurm's long option name, only when set
inline constexpr char kDeadline[] = "deadline_s";                  // the submission waits at most this long
inline constexpr char kInsideJob[] = "inside_job";                 // id of the job inside which the command runs
inline constexpr char kHeterogeneous[] = "heterogeneous";          // "1": one component of several
inline constexpr char kInteractive[] = "interactive";              // "1": standard error is a terminal

// decision
inline constexpr char kToken[] = "token";      // 32 hex digits; empty: nothing was recorded
inline constexpr char kAction[] = "action";    // keep or rewrite
inline constexpr char kReset[] = "reset";      // repeated: option names to reset, first
inline constexpr char kSet[] = "set";          // repeated: "NAME=VALUE" to set, in order (also in job_environment)
inline constexpr char kLine[] = "line";        // what the user reads; empty: say nothing
inline constexpr char kRule[] = "rule";        // what decided (doc/contracts.md, Rules)
inline constexpr char kLimitMib[] = "limit_mib";

// job_start, task_end
inline constexpr char kJobId[] = "job_id";
inline constexpr char kStepId[] = "step_id";
inline constexpr char kTaskId[] = "task_id";
inline constexpr char kUserId[] = "user_id";
inline constexpr char kArrayJobId[] = "array_job_id";          // of a job array's task; else missing, 0 or Slurm's NO_VAL
inline constexpr char kArrayTaskId[] = "array_task_id";
inline constexpr char kShards[] = "shards";                    // SLURM_SHARDS_ON_NODE
inline constexpr char kGpus[] = "gpus";                        // SLURM_JOB_GPUS or SLURM_STEP_GPUS
inline constexpr char kVisibleDevices[] = "visible_devices";   // CUDA_VISIBLE_DEVICES
inline constexpr char kWaitStatus[] = "status";                // as wait(2) gives it
inline constexpr char kUnset[] = "unset";                      // repeated: variables to unset
inline constexpr char kRefuse[] = "refuse";                    // a sentence: fail the task

// history, show, margin_*
inline constexpr char kUser[] = "user";          // login name; "*": everybody (operators)
inline constexpr char kSince[] = "since_s";      // Unix time
inline constexpr char kLimit[] = "limit";        // rows at most
inline constexpr char kState[] = "state";
inline constexpr char kJob[] = "job";            // Slurm job id or token
inline constexpr char kPool[] = "pool";
inline constexpr char kGpu[] = "gpu";
inline constexpr char kAccount[] = "account";
inline constexpr char kPercent[] = "percent";
inline constexpr char kFloorBytes[] = "floor_bytes";
inline constexpr char kReason[] = "reason";

}  // namespace field

// decision's `action`
inline constexpr char kActionKeep[] = "keep";
inline constexpr char kActionRewrite[] = "rewrite";
// decide's `mode`
inline constexpr char kModeAuto[] = "auto";
inline constexpr char kModeOff[] = "off";

}  // namespace gpumem::protocol
