// SPDX-License-Identifier: Apache-2.0
// The virtual GPU's library loaded in this process, on a book of its own, and its functions called by name. For libraries_test,
// whose files are by library: libraries_test.cpp, cudnn_test.cpp, cudnn_planner_test.cpp.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <utility>

#include "estimator/book/book.h"

namespace gpumem::libraries_test {

namespace fs = std::filesystem;
using gpumem::book::Book;

inline std::string directory() {
  static std::string made = [] {
    std::string pattern = (fs::temp_directory_path() / "gpumem-libraries-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) abort();
    return pattern;
  }();
  return made;
}

inline std::string book_path() { return directory() + "/book"; }

// One virtual GPU of compute capability 8.6 with 1 GiB.
inline void make_book() {
  gpumem::book::DeviceDescription device{};
  strcpy(device.name, "A virtual GPU");
  strcpy(device.uuid, "GPU-00000000-0000-0000-0000-000000000001");
  strcpy(device.pci_bus_id, "00000000:01:00.0");
  strcpy(device.cudnn_device_json, "{\"deviceVer\": 860}");
  device.compute_major = 8;
  device.compute_minor = 6;
  device.sm_count = 10;
  device.threads_per_sm = 1536;
  device.threads_per_block = 1024;
  device.warp_size = 32;
  device.cuda_version = 13000;
  device.total_bytes = device.usable_bytes = device.nvml_total_bytes = uint64_t{1} << 30;
  char error[256] = "";
  ASSERT_EQ(gpumem::book::create(book_path().c_str(), &device, 1, gpumem::book::Accounting::private_book, 0600, error, sizeof error),
            gpumem::book::Status::ok)
      << error;
}

inline void *library() {
  static void *handle = [] {
    make_book();
    setenv("GPUMEM_BOOK", book_path().c_str(), 1);
    setenv("GPUMEM_RECORD", directory().c_str(), 1);
    void *opened = dlopen(VIRTUAL_GPU_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (opened == nullptr) fprintf(stderr, "%s\n", dlerror());
    return opened;
  }();
  return handle;
}

// Calls a function of the library by name with the argument types given.
template <class Result = int, class... Arguments>
Result call(const char *name, Arguments... arguments) {
  void *function = dlsym(library(), name);
  EXPECT_NE(function, nullptr) << name;
  if (function == nullptr) return Result{};
  return reinterpret_cast<Result (*)(Arguments...)>(function)(arguments...);
}

inline std::map<std::string, uint64_t> missing_functions() {
  std::map<std::string, uint64_t> found;
  Book book;
  char error[256];
  EXPECT_EQ(gpumem::book::open(&book, book_path().c_str(), false, error, sizeof error), gpumem::book::Status::ok);
  gpumem::book::for_each_missing(
      &book,
      [](void *context, const gpumem::book::MissingFunction &missing) {
        (*static_cast<std::map<std::string, uint64_t> *>(context))[missing.name] = missing.calls;
      },
      &found);
  gpumem::book::close(&book);
  return found;
}

inline std::string notes() {
  std::ifstream file(directory() + "/libraries-" + std::to_string(getpid()) + ".jsonl");
  return {std::istreambuf_iterator<char>(file), {}};
}

// An RNN descriptor and what PyTorch asks about it.
struct Rnn {
  void *descriptor = nullptr;
  Rnn(int cell, int direction, int input, int hidden, int projection, int layers) {
    EXPECT_EQ(call("cudnnCreateRNNDescriptor", &descriptor), 0);
    EXPECT_EQ(call("cudnnSetRNNDescriptor_v8", descriptor, 0, cell, 2, direction, 0, 0, 0, 0, int32_t{input}, int32_t{hidden},
                   int32_t{projection}, int32_t{layers}, static_cast<void *>(nullptr), uint32_t{0}),
              0);
  }
  ~Rnn() { call("cudnnDestroyRNNDescriptor", descriptor); }
  size_t weight_bytes() {
    size_t bytes = 0;
    EXPECT_EQ(call("cudnnGetRNNWeightSpaceSize", static_cast<void *>(nullptr), descriptor, &bytes), 0);
    return bytes;
  }
  // Offset in floats and number of elements of a matrix or a bias; {-1, 0} when there is none.
  std::pair<long, long> part(int layer, int id, bool matrix) {
    void *tensor = nullptr, *address = nullptr, *none = nullptr;
    char *base = reinterpret_cast<char *>(uintptr_t{1} << 40);
    call("cudnnCreateTensorDescriptor", &tensor);
    EXPECT_EQ(call("cudnnGetRNNWeightParams", static_cast<void *>(nullptr), descriptor, int32_t{layer}, size_t{0},
                   static_cast<const void *>(base), int32_t{id}, matrix ? tensor : none, matrix ? &address : nullptr, matrix ? none : tensor,
                   matrix ? nullptr : &address),
              0);
    int type, count = 0, dims[3] = {}, strides[3];
    EXPECT_EQ(call("cudnnGetTensorNdDescriptor", tensor, 3, &type, &count, dims, strides), 0);
    call("cudnnDestroyTensorDescriptor", tensor);
    if (address == nullptr) return {-1, 0};
    long elements = 1;
    for (int i = 0; i < count; i++) elements *= dims[i];
    return {(static_cast<char *>(address) - base) / 4, elements};
  }
};

}  // namespace gpumem::libraries_test
