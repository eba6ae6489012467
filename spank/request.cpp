// SPDX-License-Identifier: Apache-2.0
// The `decide` request of a submission.
#include "spank/request.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/protocol/messages.h"

extern char** environ;

namespace gpumem::spank {
namespace {

namespace field = protocol::field;

// Slurm refuses scripts larger than 4 MiB (max_script_size).
constexpr size_t kLargestScriptBytes = 4u << 20;

// What a decision may depend on. Names that a Slurm version does not know are simply never set.
constexpr const char* kOptions[] = {
    "account",        "array",           "chdir",         "comment",       "constraint",    "cores-per-socket",
    "cpu-bind",       "cpus-per-gpu",    "cpus-per-task", "exclusive",     "export",        "gpu-bind",
    "gpu-freq",       "gpus",            "gpus-per-node", "gpus-per-socket", "gpus-per-task", "gres",
    "gres-flags",     "job-name",        "jobid",         "mem",           "mem-bind",      "mem-per-cpu",
    "mem-per-gpu",    "nodelist",        "nodes",         "ntasks",        "ntasks-per-gpu", "ntasks-per-node",
    "oversubscribe",  "partition",       "qos",           "reservation",   "test-only",     "time",
    "tres-bind",      "tres-per-task",
};

struct Bytes {
  char* data;
  size_t count;
};

// Everything that can be read from `fd` up to `most` bytes, NUL-terminated; false (and nothing to free) otherwise.
// Reads by position where `in_place` is set, so that another reader of the same open file misses nothing.
bool read_all(int fd, bool in_place, size_t most, Bytes* out) {
  size_t capacity = 0;
  *out = {nullptr, 0};
  for (;;) {
    if (out->count + 1 >= capacity) {
      capacity = capacity == 0 ? 16384 : capacity * 2;
      char* larger = capacity <= 2 * most + 32768 ? static_cast<char*>(realloc(out->data, capacity)) : nullptr;
      if (larger == nullptr) break;
      out->data = larger;
    }
    const size_t room = capacity - out->count - 1;
    const ssize_t got = in_place ? pread(fd, out->data + out->count, room, static_cast<off_t>(out->count))
                                 : read(fd, out->data + out->count, room);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) break;
    if (got == 0) {
      out->data[out->count] = '\0';
      if (out->count > most) break;
      return true;
    }
    out->count += static_cast<size_t>(got);
  }
  free(out->data);
  *out = {nullptr, 0};
  return false;
}

bool read_file(const char* path, size_t most, Bytes* out) {
  // O_NONBLOCK: a FIFO named as a script must not hang sbatch here.
  const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return false;
  const bool read = read_all(fd, false, most, out);
  close(fd);
  return read;
}

// The command line as the kernel has it, behind the options that getopt has consumed.
struct Operands {
  Bytes line;
  const char* first;   // null when there is none
  int count;
  bool heterogeneous;  // a lone ":" among the options separates components
};

const char* next_argument(const char* at) { return at + strlen(at) + 1; }

Operands operands() {
  Operands found = {{nullptr, 0}, nullptr, 0, false};
  const int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return found;
  const bool read = read_all(fd, false, 8u << 20, &found.line);
  close(fd);
  if (!read) return found;
  const char* end = found.line.data + found.line.count;
  int index = 0;
  for (const char* at = found.line.data; at < end; at = next_argument(at), ++index) {
    // optind is where Slurm's own getopt stopped: at the script or command.
    if (index < optind && strcmp(at, ":") == 0) found.heterogeneous = true;
    if (index < optind) continue;
    if (found.first == nullptr) found.first = at;
    ++found.count;
  }
  return found;
}

// Slurm's `argv` is the script's resolved path followed by the arguments, joined by spaces: take the arguments off its
// end. sbatch looks for a script in PATH too, so the word on the command line may not be its path.
void resolved_script_path(const SlurmOptions& options, const Operands& words, char* path, size_t path_bytes) {
  snprintf(path, path_bytes, "%s", words.first);
  const char* joined = options.get_value(options.opt, "argv");
  if (joined == nullptr) return;
  size_t tail = 0;
  const char* at = next_argument(words.first);
  for (int i = 1; i < words.count; ++i, at = next_argument(at)) tail += 1 + strlen(at);
  const size_t length = strlen(joined);
  if (length <= tail || length - tail >= path_bytes || joined[0] != '/') return;
  if (tail != 0 && joined[length - tail] != ' ') return;
  memcpy(path, joined, length - tail);
  path[length - tail] = '\0';
  if (access(path, R_OK) != 0) snprintf(path, path_bytes, "%s", words.first);
}

// `sbatch < file`: the file is still there to be read by position. A pipe has been drained by sbatch and stays unknown.
bool read_standard_input(Bytes* out) {
  struct stat status;
  if (fstat(STDIN_FILENO, &status) != 0 || !S_ISREG(status.st_mode)) return false;
  return read_all(STDIN_FILENO, true, kLargestScriptBytes, out);
}

bool has_line_that_begins(const char* text, const char* prefix) {
  const size_t length = strlen(prefix);
  for (const char* at = text; at != nullptr; at = strchr(at, '\n')) {
    if (*at == '\n') ++at;
    if (strncmp(at, prefix, length) == 0) return true;
  }
  return false;
}

void add_script(client::Request* request, const SlurmOptions& options, const Operands& words, bool* heterogeneous) {
  const char* wrap = options.get("wrap");
  if (wrap != nullptr) {
    client::request_add(request, field::kWrap, wrap);
    return;
  }
  Bytes script;
  bool read;
  if (words.first != nullptr) {
    char path[4096];
    resolved_script_path(options, words, path, sizeof path);
    client::request_add(request, field::kScriptPath, path);
    read = read_file(path, kLargestScriptBytes, &script);
  } else {
    read = read_standard_input(&script);
  }
  if (read) {
    client::request_add_bytes(request, field::kScript, script.data, script.count);
    if (has_line_that_begins(script.data, "#SBATCH hetjob") || has_line_that_begins(script.data, "#SBATCH packjob")) {
      *heterogeneous = true;
    }
    free(script.data);
  }
}

void add_working_directory(client::Request* request, const SlurmOptions& options) {
  const char* chdir = options.get("chdir");
  char here[4096];
  if (getcwd(here, sizeof here) == nullptr) here[0] = '\0';
  char joined[8192];
  if (chdir == nullptr) snprintf(joined, sizeof joined, "%s", here);
  else if (chdir[0] == '/') snprintf(joined, sizeof joined, "%s", chdir);
  else snprintf(joined, sizeof joined, "%s/%s", here, chdir);
  client::request_add(request, field::kWorkingDirectory, joined);
}

}  // namespace

Command running_command() {
  const char* name = program_invocation_short_name;
  if (strcmp(name, "sbatch") == 0) return Command::sbatch;
  if (strcmp(name, "salloc") == 0) return Command::salloc;
  if (strcmp(name, "srun") == 0) return Command::srun;
  return Command::unknown;
}

const char* command_name(Command command) {
  switch (command) {
    case Command::sbatch: return "sbatch";
    case Command::salloc: return "salloc";
    case Command::srun: return "srun";
    case Command::unknown: break;
  }
  return "unknown";
}

const char* enclosing_job(const SlurmOptions& options) {
  const char* named = options.get("jobid");
  if (named != nullptr) return named;
  const char* job = getenv("SLURM_JOB_ID");
  return job != nullptr && *job != '\0' ? job : nullptr;
}

void request_gather(client::Request* request, Command command, const SlurmOptions& options, const char* mode,
                    const char* slurm_version, double deadline_s) {
  client::request_begin(request, protocol::kDecide);
  client::request_add(request, field::kCommand, command_name(command));
  client::request_add(request, field::kMode, mode);
  client::request_add(request, field::kSlurmVersion, slurm_version);
  client::request_add_number(request, field::kDeadline, static_cast<unsigned long long>(deadline_s));
  if (isatty(STDERR_FILENO)) client::request_add(request, field::kInteractive, "1");
  add_working_directory(request, options);

  Operands words = operands();
  bool heterogeneous = words.heterogeneous;
  if (command == Command::sbatch) add_script(request, options, words, &heterogeneous);
  const char* argument = words.first;
  for (int i = 0; i < words.count; ++i, argument = next_argument(argument)) {
    // Of sbatch the first word is the script, of salloc and srun it belongs to the command.
    if (i > 0 || command != Command::sbatch) client::request_add(request, field::kArgument, argument);
  }
  if (heterogeneous) client::request_add(request, field::kHeterogeneous, "1");

  // A new job submitted from inside another is a submission like any other; only steps belong to the enclosing job.
  if (command == Command::srun) client::request_add(request, field::kInsideJob, enclosing_job(options));

  for (const char* name : kOptions) {
    const char* value = options.get(name);
    if (value == nullptr) continue;
    char field_name[64];
    snprintf(field_name, sizeof field_name, "%s%s", field::kOptionPrefix, name);
    client::request_add(request, field_name, value);
  }
  for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable) {
    client::request_add(request, field::kEnvironment, *variable);
  }
  free(words.line.data);
}

}  // namespace gpumem::spank
