// SPDX-License-Identifier: Apache-2.0
// Programs that are started with an LD_PRELOAD of their own get ours as well. Part of libgpumem_vgpu.so, preloaded into jobs.
//
// Note [Preloads of a script's own]
// `export LD_PRELOAD=libjemalloc.so` in a job script replaces ours: the Python that it starts would train on the CPU and end
// well. The shell still has this library, so its exec is ours: where the new environment has a virtual GPU (GPUMEM_BOOK) and
// no libgpumem_vgpu.so in its LD_PRELOAD, our libraries are put in front of what is there. Otherwise the call goes on as it
// is. An emptied environment (env -i, a container) has no GPUMEM_BOOK and is left alone: the estimate says so.
// Everything here may run in the child of a vfork or of a fork with locks held: stack memory and system calls only.

#include <alloca.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdarg.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "estimator/virtual_gpu/internal.h"

namespace {

constexpr char kOurs[] = "libgpumem_vgpu.so", kPreload[] = "LD_PRELOAD=", kBook[] = "GPUMEM_BOOK=/", kMeterBook[] = "GPUMEM_METER_BOOK=/";
constexpr size_t kMostPath = 1024;

const char *find(char *const *environment, const char *prefix) {
  for (; *environment != nullptr; ++environment)
    if (strncmp(*environment, prefix, strlen(prefix)) == 0) return *environment;
  return nullptr;
}

bool lacks_ours(char *const *environment) {
  if (environment == nullptr || find(environment, kBook) == nullptr) return false;
  const char *preload = find(environment, kPreload);
  return preload == nullptr || strstr(preload, kOurs) == nullptr;
}

// The directory of this library, with its slash, by /proc/self/maps; its length, 0 when it cannot be found.
size_t own_directory(char *directory) {
  const int maps = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  if (maps < 0) return 0;
  char text[8192];
  size_t held = 0, length = 0;
  for (ssize_t got; length == 0 && (got = read(maps, text + held, sizeof(text) - 1 - held)) > 0;) {
    held += static_cast<size_t>(got);
    text[held] = '\0';
    char *line = text;
    for (char *end; length == 0 && (end = strchr(line, '\n')) != nullptr; line = end + 1) {
      *end = '\0';
      const char *path = strchr(line, '/'), *name = strrchr(line, '/');
      if (path == nullptr || strcmp(name + 1, kOurs) != 0 || static_cast<size_t>(name + 1 - path) >= kMostPath) continue;
      length = static_cast<size_t>(name + 1 - path);
      memcpy(directory, path, length);
    }
    held = strlen(line);
    if (held >= sizeof(text) - 1) break;
    memmove(text, line, held);
  }
  close(maps);
  return length;
}

// Bytes that merge() needs beside the pointers.
constexpr size_t kMostText = sizeof(kPreload) + 4 * (kMostPath + 32);

size_t append(char *text, size_t at, const char *what, size_t length) {
  memcpy(text + at, what, length);
  return at + length;
}

// Writes the environment with our libraries into `merged` and `text`; false when it cannot be done.
bool merge(char *const *environment, char **merged, char *text) {
  char directory[kMostPath];
  const size_t length = own_directory(directory);
  if (length == 0) return false;
  size_t at = append(text, 0, kPreload, sizeof(kPreload) - 1);
  const char *const names[] = {find(environment, kMeterBook) != nullptr ? "libgpumem_meter.so" : nullptr, kOurs, "libcuda.so.1", "libnvidia-ml.so.1"};
  for (const char *name : names) {
    if (name == nullptr) continue;
    at = append(text, at, directory, length);
    at = append(text, at, name, strlen(name));
    text[at++] = ' ';
  }
  const char *theirs = find(environment, kPreload);
  if (theirs != nullptr) at = append(text, at, theirs + sizeof(kPreload) - 1, strlen(theirs) - (sizeof(kPreload) - 1));
  text[at] = '\0';
  size_t count = 0;
  merged[count++] = text;
  for (; *environment != nullptr; ++environment)
    if (strncmp(*environment, kPreload, sizeof(kPreload) - 1) != 0) merged[count++] = *environment;
  merged[count] = nullptr;
  return true;
}

size_t count_of(char *const *list) {
  size_t count = 0;
  while (list[count] != nullptr) ++count;
  return count;
}

// The environment to use from here on, in the caller's frame.
#define WITH_OURS(environment)                                                                                  \
  char *const *with_ours = (environment);                                                                       \
  if (lacks_ours(environment)) {                                                                                \
    const char *theirs = find(environment, kPreload);                                                           \
    char *text = static_cast<char *>(alloca(kMostText + (theirs != nullptr ? strlen(theirs) : 0)));             \
    char **merged = static_cast<char **>(alloca((count_of(environment) + 2) * sizeof(char *)));                 \
    if (merge(environment, merged, text)) with_ours = merged;                                                   \
  }

int exec(const char *path, char *const *arguments, char *const *environment) {
  WITH_OURS(environment)
  return static_cast<int>(syscall(SYS_execve, path, arguments, with_ours));
}

// As execvp: names without a slash are looked for in PATH; a file that is no program is run by the shell.
int exec_or_shell(const char *path, char *const *arguments, char *const *environment) {
  exec(path, arguments, environment);
  if (errno != ENOEXEC) return -1;
  const size_t count = count_of(arguments);
  char **shell = static_cast<char **>(alloca((count + 3) * sizeof(char *)));
  size_t n = 0;
  shell[n++] = const_cast<char *>("/bin/sh");
  shell[n++] = const_cast<char *>(path);
  for (size_t a = 1; a < count; ++a) shell[n++] = arguments[a];
  shell[n] = nullptr;
  return exec("/bin/sh", shell, environment);
}

int exec_in_path(const char *file, char *const *arguments, char *const *environment) {
  if (file == nullptr || file[0] == '\0') {
    errno = ENOENT;
    return -1;
  }
  if (strchr(file, '/') != nullptr) return exec_or_shell(file, arguments, environment);
  const char *path = environ != nullptr ? find(environ, "PATH=") : nullptr;
  path = path != nullptr ? path + 5 : "/bin:/usr/bin";
  const size_t name = strlen(file);
  char *whole = static_cast<char *>(alloca(strlen(path) + name + 2));
  bool denied = false;
  for (const char *at = path;;) {
    const char *end = strchr(at, ':');
    const size_t length = end != nullptr ? static_cast<size_t>(end - at) : strlen(at);
    memcpy(whole, at, length);
    whole[length] = '/';
    memcpy(length > 0 ? whole + length + 1 : whole, file, name + 1);
    exec_or_shell(whole, arguments, environment);
    if (errno == EACCES)
      denied = true;
    else if (errno != ENOENT && errno != ENOTDIR && errno != ESTALE && errno != ENODEV && errno != ETIMEDOUT)
      return -1;
    if (end == nullptr) break;
    at = end + 1;
  }
  if (denied) errno = EACCES;
  return -1;
}

size_t count_arguments(va_list list) {
  size_t count = 1;
  while (va_arg(list, char *) != nullptr) ++count;
  return count;
}

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT int execve(const char *path, char *const *arguments, char *const *environment) noexcept { return exec(path, arguments, environment); }
EXPORT int execv(const char *path, char *const *arguments) noexcept { return exec(path, arguments, environ); }
EXPORT int execvp(const char *file, char *const *arguments) noexcept { return exec_in_path(file, arguments, environ); }
EXPORT int execvpe(const char *file, char *const *arguments, char *const *environment) noexcept { return exec_in_path(file, arguments, environment); }

// The arguments of execl and its like, as an array in the caller's frame; `rest` is left behind the terminating null.
#define COLLECT(first)                                                                        \
  va_list rest;                                                                               \
  va_start(rest, first);                                                                      \
  const size_t count = count_arguments(rest);                        \
  va_end(rest);                                                                               \
  char **arguments = static_cast<char **>(alloca((count + 1) * sizeof(char *)));              \
  va_start(rest, first);                                                                      \
  for (size_t n = 0; n < count; ++n) arguments[n] = n == 0 ? const_cast<char *>(first) : va_arg(rest, char *); \
  arguments[count] = va_arg(rest, char *);

EXPORT int execl(const char *path, const char *first, ...) noexcept {
  COLLECT(first)
  va_end(rest);
  return exec(path, arguments, environ);
}
EXPORT int execlp(const char *file, const char *first, ...) noexcept {
  COLLECT(first)
  va_end(rest);
  return exec_in_path(file, arguments, environ);
}
EXPORT int execle(const char *path, const char *first, ...) noexcept {
  COLLECT(first)
  char *const *environment = va_arg(rest, char *const *);
  va_end(rest);
  return exec(path, arguments, environment);
}

#if defined(__x86_64__)
#define SPAWN_GLIBC "GLIBC_2.15"
#else
#define SPAWN_GLIBC "GLIBC_2.17"
#endif
using Spawn = int (*)(pid_t *, const char *, const posix_spawn_file_actions_t *, const posix_spawnattr_t *, char *const *, char *const *);

static int spawn(const char *name, pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *attributes,
                 char *const *arguments, char *const *environment) {
  const Spawn real = reinterpret_cast<Spawn>(gpumem::virtual_gpu::next_function(name, SPAWN_GLIBC));
  if (real == nullptr) return ENOSYS;
  WITH_OURS(environment)
  return real(pid, path, actions, attributes, arguments, with_ours);
}
EXPORT int posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *attributes,
                       char *const *arguments, char *const *environment) {
  return spawn("posix_spawn", pid, path, actions, attributes, arguments, environment);
}
EXPORT int posix_spawnp(pid_t *pid, const char *file, const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *attributes,
                        char *const *arguments, char *const *environment) {
  return spawn("posix_spawnp", pid, file, actions, attributes, arguments, environment);
}
