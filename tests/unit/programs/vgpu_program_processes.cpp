// SPDX-License-Identifier: Apache-2.0
// Parts of vgpu_program: processes and threads that share a device, forks, looking without using, names of functions.

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/programs/vgpu_program.h"

void no_device() {
  int count = 7;
  CHECK(cudaGetDeviceCount(&count) == 100 && count == 0);
  void *p;
  CHECK(cudaMalloc(&p, 1) == 100);
  CHECK(cudaGetLastError() == 100);
  CHECK(cuInit(0) == 100);
}

// Only looks: must charge nothing.
void look() {
  int count = 0;
  CHECK(cudaGetDeviceCount(&count) == 0);
  void *get = dlsym(RTLD_DEFAULT, "cudaDeviceGetAttribute");
  for (int d = 0; d < count; ++d) {
    int value;
    CHECK(reinterpret_cast<int (*)(int *, int, int)>(get)(&value, 16, d) == 0 && value > 0);
  }
  auto uuid = reinterpret_cast<int (*)(unsigned char *, int)>(dlsym(RTLD_DEFAULT, "cuDeviceGetUuid"));
  for (int d = 0; d < count; ++d) {
    unsigned char bytes[16];
    CHECK(uuid(bytes, d) == 0);
    printf("%s%d", d == 0 ? "" : " ", bytes[15]);
  }
  printf("\n");
}

// Two processes: each sees what the other writes, and only the owner pays. The child begins before CUDA is used.
void shared_memory() {
  int down[2], up[2];
  CHECK(pipe(down) == 0 && pipe(up) == 0);
  gpumem::cuda::IpcHandle handle;
  char text[64];
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    void *seen = nullptr;
    CHECK(close(down[1]) == 0 && close(up[0]) == 0 && read(down[0], &handle, sizeof handle) == sizeof handle);
    const size_t before = free_bytes();
    CHECK(cudaIpcOpenMemHandle(&seen, handle, 1) == 0);
    CHECK(cudaMemcpy(text, seen, 64, kDeviceToHost) == 0 && strcmp(text, "from the owner") == 0);
    CHECK(cudaMemcpy(static_cast<char *>(seen) + kMiB, "from the other", 15, kHostToDevice) == 0);
    CHECK(free_bytes() == before);
    CHECK(write(up[1], "1", 1) == 1 && read(down[0], text, 1) == 1);  // the owner has seen it, cleared the whole, and freed it
    CHECK(cudaMemcpy(text, seen, 64, kDeviceToHost) == 0 && text[0] == 0);
    CHECK(cudaIpcCloseMemHandle(seen) == 0 && cudaIpcCloseMemHandle(seen) == 1);
    CHECK(cudaIpcOpenMemHandle(&seen, handle, 1) == 1);  // gone
    // The same through physical memory, by its descriptor.
    int fd;
    CHECK(read(down[0], &fd, sizeof fd) == sizeof fd);
    const size_t then = free_bytes();
    snprintf(text, sizeof text, "/proc/%d/fd/%d", getppid(), fd);
    const int opened = open(text, O_RDWR);
    uint64_t memory, address;
    CHECK(cuMemImportFromShareableHandle(&memory, reinterpret_cast<void *>(static_cast<intptr_t>(opened)), 1) == 0);
    CHECK(cuMemAddressReserve(&address, 4 * kMiB, 0, 0, 0) == 0 && cuMemMap(address, 4 * kMiB, 0, memory, 0) == 0);
    CHECK(cudaMemcpy(text, reinterpret_cast<void *>(address), 9, kDeviceToHost) == 0 && strcmp(text, "physical") == 0);
    CHECK(free_bytes() == then);
    CHECK(cuMemUnmap(address, 4 * kMiB) == 0 && cuMemRelease(memory) == 0);
    _exit(0);
  }
  CHECK(close(down[0]) == 0 && close(up[1]) == 0);
  char *mine, *other;
  CHECK(cudaMalloc(reinterpret_cast<void **>(&other), 1000) == 0 && cudaMalloc(reinterpret_cast<void **>(&mine), 3 * kMiB) == 0);
  memset(text, 0, sizeof text);
  strcpy(text, "from the owner");
  CHECK(cudaMemcpy(mine, text, 64, kHostToDevice) == 0);
  CHECK(cudaIpcGetMemHandle(&handle, mine) == 0 && cudaIpcGetMemHandle(&handle, mine) == 0);
  void *again;
  CHECK(cudaIpcOpenMemHandle(&again, handle, 1) == 1);  // not in the process that made it
  CHECK(cudaMemcpy(text, mine, 64, kDeviceToHost) == 0 && strcmp(text, "from the owner") == 0);
  CHECK(write(down[1], &handle, sizeof handle) == sizeof handle && read(up[0], text, 1) == 1);
  CHECK(cudaMemcpy(text, mine + kMiB, 15, kDeviceToHost) == 0 && strcmp(text, "from the other") == 0);
  CHECK(cudaMemset(mine, 0, 3 * kMiB) == 0 && cudaFree(mine) == 0 && cudaFree(other) == 0);
  CHECK(write(down[1], "1", 1) == 1);

  uint64_t address, twice, memory;
  PhysicalProperties properties = {};
  properties.type = 1;
  properties.location = {1, 0};
  properties.requestedHandleTypes = 1;
  CHECK(cuMemAddressReserve(&address, 4 * kMiB, 0, 0, 0) == 0 && cuMemCreate(&memory, 4 * kMiB, &properties, 0) == 0);
  CHECK(cuMemMap(address, 4 * kMiB, 0, memory, 0) == 0 && cuMemSetAccess(address, 4 * kMiB, nullptr, 0) == 0);
  CHECK(cudaMemcpy(reinterpret_cast<void *>(address), "physical", 9, kHostToDevice) == 0);
  int fd = -1;
  CHECK(cuMemExportToShareableHandle(&fd, memory, 1, 0) == 0);
  // Mapped twice, it has the same bytes in both places.
  CHECK(cuMemAddressReserve(&twice, 4 * kMiB, 0, 0, 0) == 0 && cuMemMap(twice, 4 * kMiB, 0, memory, 0) == 0);
  CHECK(cudaMemcpy(text, reinterpret_cast<void *>(twice), 9, kDeviceToHost) == 0 && strcmp(text, "physical") == 0);
  CHECK(write(down[1], &fd, sizeof fd) == sizeof fd);
  int status = 1;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  CHECK(cuMemUnmap(address, 4 * kMiB) == 0 && cuMemUnmap(twice, 4 * kMiB) == 0 && cuMemRelease(memory) == 0 && close(fd) == 0);
}

// The real runtime by its handle: the virtual GPU's functions, in the generation that the library's name says.
void by_handle(const char *path, const char *generation) {
  void *self = dlopen("libgpumem_vgpu.so", RTLD_LAZY | RTLD_NOLOAD), *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  CHECK(self != nullptr && library != nullptr);
  CHECK(dlsym(library, "cudaGetDeviceProperties") == dlvsym(self, "cudaGetDeviceProperties", generation));
  CHECK(dlsym(library, "cudaMalloc") == dlsym(self, "cudaMalloc"));
  CHECK(dlsym(library, "cudaNoSuchThing") == nullptr && dlerror() != nullptr);
  CHECK(reinterpret_cast<int (*)()>(dlsym(library, "fake_only"))() == 41);
  CHECK(dlsym(RTLD_DEFAULT, "cudaGetDeviceProperties") == dlvsym(self, "cudaGetDeviceProperties", generation));
  CHECK(dlsym(RTLD_NEXT, "fake_only") == nullptr);
  int count = 0;
  CHECK(reinterpret_cast<int (*)(int *)>(dlsym(library, "cudaGetDeviceCount"))(&count) == 0 && count == 2);
}

void missing() {
  CHECK(cudaGraphicsGLRegisterBuffer() == 801);
  CHECK(cudaGraphicsGLRegisterBuffer() == 801);
  const void *table = &table;
  CHECK(cuGetExportTable(&table, "0123456789abcdef") != 0 && table == nullptr);
}

void entry_points() {
  void *function = nullptr, *old = nullptr;
  int status = -1;
  CHECK(cuGetProcAddress_v2("cuMemAlloc", &function, 12000, 0, &status) == 0 && status == 0);
  CHECK(function == reinterpret_cast<void *>(&cuMemAlloc_v2));
  CHECK(cuGetProcAddress_v2("cuMemAlloc", &old, 2000, 0, &status) == 0 && old != function);
  CHECK(cuGetProcAddress_v2("cuNoSuchThing", &function, 12000, 0, &status) == 500 && status == 1 && function == nullptr);
  CHECK(cuGetProcAddress_v2("cuCtxGetDevice_v2", &function, 12000, 0, &status) == 500 && status == 1);
  CHECK(cudaGetDriverEntryPointByVersion("cuMemCreate", &function, 12000, 0, &status) == 0 && status == 0);
  CHECK(cudaGetDriverEntryPointByVersion("cuMemCreate", &function, 9000, 0, &status) == 0 && status == 2 && function == nullptr);
  CHECK(cudaGetDriverEntryPointByVersion("cuNoSuchThing", &function, 12000, 0, &status) == 0 && status == 1);
  // By the name of the driver's library, as Triton and cuda.bindings look.
  void *driver = dlopen("libcuda.so.1", RTLD_LAZY);
  CHECK(driver != nullptr && dlsym(driver, "cuMemAlloc_v2") == reinterpret_cast<void *>(&cuMemAlloc_v2));
  void *nvml = dlopen("libnvidia-ml.so.1", RTLD_LAZY);
  CHECK(nvml != nullptr && dlsym(nvml, "nvmlInit_v2") != nullptr);
}

void forks() {
  void *p;
  if (fork() == 0) {  // the parent has not used CUDA: the child may
    CHECK(cudaMalloc(&p, kMiB) == 0);
    _exit(0);
  }
  int status = 1;
  wait(&status);
  CHECK(status == 0);
  CHECK(cudaMalloc(&p, 4 * kMiB) == 0);
  if (fork() == 0) {
    CHECK(cudaMalloc(&p, kMiB) == 3);
    int count;
    CHECK(cudaGetDeviceCount(&count) == 3);
    _exit(0);
  }
  status = 1;
  wait(&status);
  CHECK(status == 0);
  CHECK(cudaFree(p) == 0);
}

// A parent and its child draw on one device, and what the child held is there again when it has ended without a word.
void family() {
  int told[2];
  CHECK(pipe(told) == 0);
  const pid_t child = fork();
  void *p;
  if (child == 0) {
    CHECK(cudaMalloc(&p, 60 * kMiB) == 0 && write(told[1], "1", 1) == 1);
    close(told[1]);
    usleep(300000);
    _exit(7);
  }
  char byte;
  CHECK(read(told[0], &byte, 1) == 1);
  CHECK(cudaMalloc(&p, 60 * kMiB) == kOutOfMemory && cudaGetLastError() == kOutOfMemory);
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 7);
  CHECK(cudaMalloc(&p, 60 * kMiB) == 0);
}

static bool stop_workers;
static void *worker(void *) {
  while (!__atomic_load_n(&stop_workers, __ATOMIC_RELAXED)) {
    void *p = nullptr, *event = nullptr;
    cudaMalloc(&p, 3 * kMiB);
    cudaFree(p);
    cudaMalloc(&p, 1000);
    cudaFree(p);
    if (cudaEventCreate(&event) == 0) cudaEventDestroy(event);
    cudaGraphicsGLRegisterBuffer();
  }
  return nullptr;
}
void forks_with_locks_held() {
  pthread_t threads[3];
  void *p;
  CHECK(cudaMalloc(&p, 1) == 0);
  for (pthread_t &thread : threads) CHECK(pthread_create(&thread, nullptr, worker, nullptr) == 0);
  for (int n = 0; n < 150; ++n) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(20);
      cudaMalloc(&p, 1);
      cudaGraphicsGLRegisterBuffer();  // takes the book's lock
      auto init = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "nvmlInit_v2"));
      _exit(init() == 0 ? 0 : 1);
    }
    int status = 1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
  }
  __atomic_store_n(&stop_workers, true, __ATOMIC_RELAXED);
  for (pthread_t &thread : threads) pthread_join(thread, nullptr);
}

// Everything at once from several threads, for the sanitizers.
static void *everything(void *seed) {
  unsigned n = static_cast<unsigned>(reinterpret_cast<uintptr_t>(seed)) * 7919 + 1;
  void *stream, *event, *held[8] = {};
  char text[300];
  CHECK(cudaSetDevice(static_cast<int>(n % 2)) == 0 && cudaStreamCreate(&stream) == 0 && cudaEventCreate(&event) == 0);
  for (int round = 0; round < 400; ++round) {
    n = n * 1664525 + 1013904223;
    void *&p = held[n >> 8 & 7];
    if (p != nullptr) {
      if (n >> 12 & 1) CHECK(cudaMemcpy(text, p, sizeof text, kDeviceToHost) == 0);
      CHECK((n >> 11 & 1 ? cudaFreeAsync(p, stream) : cudaFree(p)) == 0);
      p = nullptr;
    } else {
      const size_t size = n >> 13 & 1 ? 1000 : n >> 14 & 1 ? kMiB + 512 : 3 * kMiB;
      const int error = n >> 15 & 1 ? cudaMallocAsync(&p, size, stream) : cudaMalloc(&p, size);
      CHECK(error == 0 || error == kOutOfMemory);
      gpumem::cuda::PointerAttributes about;
      if (error == 0) {
        CHECK(cudaMemcpyAsync(p, text, sizeof text, kHostToDevice, stream) == 0 && cudaMemset(p, 1, size) == 0);
        CHECK(cudaPointerGetAttributes(&about, p) == 0 && about.type == 2);
      }
    }
    CHECK(cudaLaunchKernel(kernel(), {1, 1, 1}, {32, 1, 1}, nullptr, 0, stream) == 0 && cudaEventRecord(event, stream) == 0);
    const int done = cudaEventQuery(event);
    CHECK(done == 0 || done == 600);
    CHECK(cudaStreamSynchronize(stream) == 0);
    free_bytes();
    if (round % 50 == 0) {
      void *graph, *exec, *pinned, *fresh;
      CHECK(cudaStreamBeginCapture(stream, 2) == 0 && cudaLaunchKernel(kernel(), {1, 1, 1}, {32, 1, 1}, nullptr, 0, stream) == 0);
      CHECK(cudaStreamEndCapture(stream, &graph) == 0 && cudaGraphInstantiateWithFlags(&exec, graph, 0) == 0);
      CHECK(cudaGraphLaunch(exec, stream) == 0 && cudaGraphExecDestroy(exec) == 0 && cudaGraphDestroy(graph) == 0);
      CHECK(cudaHostAlloc(&pinned, 10000, 0) == 0 && cudaFreeHost(pinned) == 0);
      CHECK(cudaStreamCreate(&fresh) == 0 && cudaStreamDestroy(fresh) == 0);
      cudaGraphicsGLRegisterBuffer();
      __cudaRegisterFunction(__cudaRegisterFatBinary(text), text, text, "a kernel", -1, nullptr, nullptr, nullptr, nullptr, nullptr);
    }
  }
  for (void *p : held) CHECK(cudaFree(p) == 0);
  CHECK(cudaEventDestroy(event) == 0 && cudaStreamDestroy(stream) == 0);
  return nullptr;
}
void threads() {
  pthread_t all[6];
  for (uintptr_t t = 0; t < 6; ++t) CHECK(pthread_create(&all[t], nullptr, everything, reinterpret_cast<void *>(t + 1)) == 0);
  for (pthread_t &thread : all) CHECK(pthread_join(thread, nullptr) == 0);
  CHECK(cudaDeviceSynchronize() == 0);
}

void hold(size_t mib) {
  void *p;
  CHECK(cudaMalloc(&p, mib * kMiB) == 0);
  launch();
  printf("held\n");
  fflush(stdout);
  char byte;
  if (read(0, &byte, 1) < 0) exit(1);
}

// With what it holds, past every handler of the program's end.
void end(const char *how) {
  void *p;
  CHECK(cudaMalloc(&p, 50 * kMiB) == 0);
  if (strcmp(how, "_exit") == 0) _exit(0);
  if (strcmp(how, "exit_group") == 0) syscall(SYS_exit_group, 0);
  if (strcmp(how, "quick_exit") == 0) quick_exit(0);
  if (strcmp(how, "exec") == 0) execl("/bin/true", "true", static_cast<char *>(nullptr));
  abort();
}

void die() {
  void *p;
  CHECK(cudaMalloc(&p, 50 * kMiB) == 0);
  raise(SIGKILL);
}
