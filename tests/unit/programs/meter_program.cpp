// SPDX-License-Identifier: Apache-2.0
// A job's process in the meter's test: does what its arguments say, one after the other, and prints each result.
//   alloc:MIB  free  create:MIB  release  info  fail:0|1  calls  fork:ARGUMENT  kill  end:HOW
#include <dlfcn.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

template <class Function>
Function find(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
}

struct AllocationProperties {
  int type = 1, handle_types = 0, location_type = 1, location_id = 0;
  char rest[64] = {};
};

std::vector<void*> pointers;
std::vector<std::uint64_t> handles;

template <class Function>
Function entry_point(const char* name) {
  void* function = nullptr;
  int found = 0;
  find<int (*)(const char*, void**, unsigned, unsigned long long, int*)>("cudaGetDriverEntryPointByVersion")(name, &function, 12000, 0, &found);
  return reinterpret_cast<Function>(function);
}

void run(const char* what) {
  const char* colon = std::strchr(what, ':');
  const std::size_t bytes = colon ? std::strtoull(colon + 1, nullptr, 10) << 20 : 0;
  int status = 0;
  if (std::strncmp(what, "alloc:", 6) == 0) {
    void* pointer = nullptr;
    status = find<int (*)(void**, std::size_t)>("cudaMalloc")(&pointer, bytes);
    if (status == 0) pointers.push_back(pointer);
  } else if (std::strcmp(what, "free") == 0) {
    status = find<int (*)(void*)>("cudaFree")(pointers.back());
    pointers.pop_back();
  } else if (std::strncmp(what, "create:", 7) == 0) {
    const AllocationProperties properties;
    std::uint64_t handle = 0;
    status = entry_point<int (*)(std::uint64_t*, std::size_t, const void*, unsigned long long)>("cuMemCreate")(&handle, bytes, &properties, 0);
    if (status == 0) handles.push_back(handle);
  } else if (std::strcmp(what, "release") == 0) {
    status = entry_point<int (*)(std::uint64_t)>("cuMemRelease")(handles.back());
    handles.pop_back();
  } else if (std::strcmp(what, "info") == 0) {
    std::size_t free_bytes = 0, total_bytes = 0;
    find<int (*)(std::size_t*, std::size_t*)>("cudaMemGetInfo")(&free_bytes, &total_bytes);
    std::printf("info %zu %zu\n", free_bytes >> 20, total_bytes >> 20);
    return;
  } else if (std::strncmp(what, "fail:", 5) == 0) {
    *find<int*>("fake_cuda_fails") = what[5] - '0';
  } else if (std::strcmp(what, "calls") == 0) {
    std::printf("calls %d\n", *find<int*>("fake_cuda_calls"));
    return;
  } else if (std::strncmp(what, "fork:", 5) == 0) {
    std::fflush(stdout);
    if (fork() == 0) {
      run(what + 5);
      std::fflush(stdout);
      _exit(0);
    }
    wait(nullptr);
    return;
  } else if (std::strncmp(what, "end:", 4) == 0) {  // with what it holds, past every handler of the program's end
    std::fflush(stdout);
    const char* how = what + 4;
    if (std::strcmp(how, "_exit") == 0) _exit(0);
    if (std::strcmp(how, "exit_group") == 0) syscall(SYS_exit_group, 0);
    if (std::strcmp(how, "quick_exit") == 0) std::quick_exit(0);
    if (std::strcmp(how, "abort") == 0) std::abort();
    if (std::strcmp(how, "exec") == 0) execl("/bin/true", "true", static_cast<char*>(nullptr));
  } else if (std::strcmp(what, "kill") == 0) {
    std::fflush(stdout);
    kill(getpid(), SIGKILL);
  }
  std::printf("%s %d\n", what, status);
}

}  // namespace

int main(int count, char** arguments) {
  for (int i = 1; i < count; ++i) run(arguments[i]);
  return 0;
}
