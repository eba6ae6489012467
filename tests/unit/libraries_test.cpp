// SPDX-License-Identifier: Apache-2.0
// The stand-ins for NVIDIA's libraries, driven at their C interfaces through dlsym, on a virtual GPU of our own book.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "estimator/book/book.h"
#include "estimator/workspaces/plans.h"
#include "estimator/workspaces/table.h"

namespace {

namespace fs = std::filesystem;
using gpumem::book::Book;

std::string directory() {
  static std::string made = [] {
    std::string pattern = (fs::temp_directory_path() / "gpumem-libraries-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) abort();
    return pattern;
  }();
  return made;
}

std::string book_path() { return directory() + "/book"; }

// One virtual GPU of compute capability 8.6 with 1 GiB.
void make_book() {
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

void *library() {
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

std::map<std::string, uint64_t> missing_functions() {
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

std::string notes() {
  std::ifstream file(directory() + "/libraries-" + std::to_string(getpid()) + ".jsonl");
  return {std::istreambuf_iterator<char>(file), {}};
}

struct Cleanup : testing::Environment {
  pid_t owner = getpid();
  void TearDown() override {
    if (getpid() == owner) fs::remove_all(directory());
  }
};
const testing::Environment *const cleanup = testing::AddGlobalTestEnvironment(new Cleanup);

TEST(Names, EveryNameOfTheListsIsExported) {
  const char *const names[] = {
#define COMPUTES(name) #name,
#define OTHER(name) #name,
#define ACCEPTS(name) #name,
#include "estimator/virtual_gpu/libraries/names/cublas.def"
#include "estimator/virtual_gpu/libraries/names/cublaslt.def"
#include "estimator/virtual_gpu/libraries/names/cudnn.def"
#include "estimator/virtual_gpu/libraries/names/cufft.def"
#include "estimator/virtual_gpu/libraries/names/cufile.def"
#include "estimator/virtual_gpu/libraries/names/cupti.def"
#include "estimator/virtual_gpu/libraries/names/curand.def"
#include "estimator/virtual_gpu/libraries/names/cusolver.def"
#include "estimator/virtual_gpu/libraries/names/cusolvermg.def"
#include "estimator/virtual_gpu/libraries/names/cusparse.def"
#include "estimator/virtual_gpu/libraries/names/cusparselt.def"
#include "estimator/virtual_gpu/libraries/names/nccl.def"
  };
  ASSERT_NE(library(), nullptr);
  for (const char *name : names) EXPECT_NE(dlsym(library(), name), nullptr) << name;
  EXPECT_GT(std::size(names), 2000u);
}

TEST(Names, WhatWeLackIsRecordedAndAnsweredNotSupported) {
  EXPECT_EQ(call("cublasAlloc"), 15);
  EXPECT_EQ(call("cublasAlloc"), 15);
  EXPECT_EQ(call("cudnnSetAttnDescriptor"), 3000);
  EXPECT_EQ(call("cusolverSpXcsrsymrcmHost"), 9);
  EXPECT_EQ(call("cufftXtQueryPlan"), 16);
  auto missing = missing_functions();
  EXPECT_EQ(missing["cublasAlloc"], 2u);
  EXPECT_EQ(missing.count("cusolverSpXcsrsymrcmHost"), 1u);
  EXPECT_EQ(missing.count("cublasCreate_v2"), 0u);
}

TEST(Cublas, HandlesAreDistinctAndDieWhenDestroyed) {
  void *first = nullptr, *second = nullptr;
  int mode = -1;
  ASSERT_EQ(call("cublasCreate_v2", &first), 0);
  ASSERT_EQ(call("cublasCreate_v2", &second), 0);
  EXPECT_NE(first, second);
  EXPECT_EQ(call("cublasDestroy_v2", first), 0);
  EXPECT_EQ(call("cublasGetMathMode", first, &mode), 1);
  EXPECT_EQ(call("cublasGetMathMode", static_cast<void *>(nullptr), &mode), 1);
  EXPECT_EQ(call("cublasDestroy_v2", second), 0);
}

TEST(Cublas, GettersGiveWhatSettersSetOnThatHandle) {
  void *handle = nullptr, *other = nullptr, *stream = nullptr;
  int value = -1;
  ASSERT_EQ(call("cublasCreate_v2", &handle), 0);
  ASSERT_EQ(call("cublasCreate_v2", &other), 0);
  EXPECT_EQ(call("cublasGetPointerMode_v2", handle, &value), 0);
  EXPECT_EQ(value, 0);
  EXPECT_EQ(call("cublasSetPointerMode_v2", handle, 1), 0);
  EXPECT_EQ(call("cublasSetMathMode", handle, 3), 0);
  EXPECT_EQ(call("cublasGetPointerMode_v2", handle, &value), 0);
  EXPECT_EQ(value, 1);
  EXPECT_EQ(call("cublasGetMathMode", handle, &value), 0);
  EXPECT_EQ(value, 3);
  EXPECT_EQ(call("cublasGetMathMode", other, &value), 0);
  EXPECT_EQ(value, 0);
  EXPECT_EQ(call("cublasSetStream_v2", handle, reinterpret_cast<void *>(2)), 0);
  EXPECT_EQ(call("cublasGetStream_v2", handle, &stream), 0);
  EXPECT_EQ(stream, reinterpret_cast<void *>(2));
  EXPECT_EQ(call("cublasSetWorkspace_v2", handle, static_cast<void *>(nullptr), size_t{8}), 7);
  call("cublasDestroy_v2", handle);
  call("cublasDestroy_v2", other);
}

TEST(Cublas, ScalarResultsReadAsZero) {
  void *handle = nullptr;
  ASSERT_EQ(call("cublasCreate_v2", &handle), 0);
  float x[4] = {1, 2, 3, 4}, result = 5;
  int64_t index = 7;
  EXPECT_EQ(call("cublasSdot_v2", handle, 4, static_cast<const void *>(x), 1, static_cast<const void *>(x), 1, static_cast<void *>(&result)), 0);
  EXPECT_EQ(result, 0);
  EXPECT_EQ(call("cublasIsamax_v2_64", handle, int64_t{4}, static_cast<const void *>(x), int64_t{1}, static_cast<void *>(&index)), 0);
  EXPECT_EQ(index, 0);
  call("cublasDestroy_v2", handle);
}

TEST(Cublas, SmallTransfersCarryTheirValues) {
  float from[6] = {1, 2, 3, 4, 5, 6}, to[8] = {};
  // Two columns of three elements into columns of four.
  EXPECT_EQ(call("cublasSetMatrix", 3, 2, 4, static_cast<const void *>(from), 3, static_cast<void *>(to), 4), 0);
  const float expected[8] = {1, 2, 3, 0, 4, 5, 6, 0};
  EXPECT_EQ(memcmp(to, expected, sizeof to), 0);
  float every_second[3] = {};
  EXPECT_EQ(call("cublasGetVector", 3, 4, static_cast<const void *>(from), 2, static_cast<void *>(every_second), 1), 0);
  EXPECT_EQ(every_second[2], 5);
}

struct HeuristicResult {
  uint64_t algorithm[8];
  size_t workspace_bytes;
  int state;
  float waves;
  int reserved[4];
};

TEST(CublasLt, OneAlgorithmWithoutWorkspaceAndNoFp8BeforeAda) {
  void *desc = nullptr, *half = nullptr, *fp8 = nullptr, *handle = nullptr;
  ASSERT_EQ(call("cublasLtCreate", &handle), 0);
  ASSERT_EQ(call("cublasLtMatmulDescCreate", &desc, 68, 0), 0);
  ASSERT_EQ(call("cublasLtMatrixLayoutCreate", &half, 2, uint64_t{16}, uint64_t{16}, int64_t{16}), 0);
  ASSERT_EQ(call("cublasLtMatrixLayoutCreate", &fp8, 28, uint64_t{16}, uint64_t{16}, int64_t{16}), 0);
  HeuristicResult results[2];
  memset(results, 0xff, sizeof results);
  int returned = -1;
  auto ask = [&](void *a) {
    return call("cublasLtMatmulAlgoGetHeuristic", handle, desc, a, half, half, half, static_cast<void *>(nullptr), 2,
                static_cast<void *>(results), &returned);
  };
  EXPECT_EQ(ask(half), 0);
  EXPECT_EQ(returned, 1);
  EXPECT_EQ(results[0].workspace_bytes, 0u);
  EXPECT_EQ(results[0].state, 0);
  EXPECT_EQ(ask(fp8), 15);
  EXPECT_EQ(returned, 0);
  for (void *layout : {half, fp8}) EXPECT_EQ(call("cublasLtMatrixLayoutDestroy", layout), 0);
  EXPECT_EQ(call("cublasLtMatmulDescDestroy", desc), 0);
  EXPECT_EQ(call("cublasLtDestroy", handle), 0);
}

TEST(CublasLt, AttributesReadAsTheyWereSetAndFreshOnesAsCreated) {
  void *layout = nullptr;
  ASSERT_EQ(call("cublasLtMatrixLayoutCreate", &layout, 0, uint64_t{5}, uint64_t{7}, int64_t{11}), 0);
  uint64_t rows = 0;
  size_t written = 0;
  EXPECT_EQ(call("cublasLtMatrixLayoutGetAttribute", layout, 2, static_cast<void *>(&rows), sizeof rows, &written), 0);
  EXPECT_EQ(rows, 5u);
  EXPECT_EQ(written, sizeof rows);
  int batches = 9, got = 0;
  EXPECT_EQ(call("cublasLtMatrixLayoutSetAttribute", layout, 5, static_cast<const void *>(&batches), sizeof batches), 0);
  EXPECT_EQ(call("cublasLtMatrixLayoutGetAttribute", layout, 5, static_cast<void *>(&got), sizeof got, static_cast<size_t *>(nullptr)), 0);
  EXPECT_EQ(got, 9);
  EXPECT_EQ(call("cublasLtMatrixLayoutGetAttribute", layout, 2, static_cast<void *>(&got), sizeof got, &written), 7) << "wrong size";
  EXPECT_EQ(call("cublasLtMatrixLayoutDestroy", layout), 0);
  EXPECT_EQ(call("cublasLtMatrixLayoutGetAttribute", layout, 2, static_cast<void *>(&rows), sizeof rows, &written), 7) << "destroyed";
}

TEST(Cudnn, TensorDescriptorsKeepDimensionsAndStrides) {
  void *tensor = nullptr;
  ASSERT_EQ(call("cudnnCreateTensorDescriptor", &tensor), 0);
  int dims[4] = {2, 3, 4, 5}, strides[4] = {60, 1, 15, 3}, type = -1, count = 0, got_dims[4] = {}, got_strides[4] = {};
  EXPECT_EQ(call("cudnnSetTensorNdDescriptor", tensor, 2, 4, static_cast<const int *>(dims), static_cast<const int *>(strides)), 0);
  EXPECT_EQ(call("cudnnGetTensorNdDescriptor", tensor, 4, &type, &count, got_dims, got_strides), 0);
  EXPECT_EQ(type, 2);
  EXPECT_EQ(count, 4);
  EXPECT_EQ(memcmp(dims, got_dims, sizeof dims), 0);
  EXPECT_EQ(memcmp(strides, got_strides, sizeof strides), 0);
  size_t bytes = 0;
  EXPECT_EQ(call("cudnnGetTensorSizeInBytes", tensor, &bytes), 0);
  EXPECT_EQ(bytes, 240u);  // 120 halves
  EXPECT_EQ(call("cudnnGetFilterNdDescriptor", tensor, 4, &type, &count, &count, got_dims), 2000) << "a tensor is no filter";
  EXPECT_EQ(call("cudnnDestroyTensorDescriptor", tensor), 0);
}

TEST(Cudnn, ConvolutionOutputFollowsTheDocumentedFormula) {
  void *convolution = nullptr, *x = nullptr, *w = nullptr;
  ASSERT_EQ(call("cudnnCreateConvolutionDescriptor", &convolution), 0);
  ASSERT_EQ(call("cudnnCreateTensorDescriptor", &x), 0);
  ASSERT_EQ(call("cudnnCreateFilterDescriptor", &w), 0);
  EXPECT_EQ(call("cudnnSetConvolution2dDescriptor", convolution, 3, 3, 2, 2, 1, 1, 1, 0), 0);
  EXPECT_EQ(call("cudnnSetTensor4dDescriptor", x, 0, 0, 8, 3, 224, 224), 0);
  EXPECT_EQ(call("cudnnSetFilter4dDescriptor", w, 0, 0, 64, 3, 7, 7), 0);
  int n = 0, c = 0, h = 0, width = 0, groups = 0;
  EXPECT_EQ(call("cudnnGetConvolution2dForwardOutputDim", convolution, x, w, &n, &c, &h, &width), 0);
  EXPECT_EQ((std::vector<int>{n, c, h, width}), (std::vector<int>{8, 64, 112, 112}));
  EXPECT_EQ(call("cudnnGetConvolutionGroupCount", convolution, &groups), 0);
  EXPECT_EQ(groups, 1);
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

// PyTorch takes the gates' matrices of one kind as one slice: they must follow each other, and all parts must fill the buffer.
void expect_layout(Rnn &rnn, int gates, int pseudo_layers, bool projection, long expected_elements) {
  std::map<long, long> parts;
  for (int layer = 0; layer < pseudo_layers; layer++)
    for (bool matrix : {true, false}) {
      long next = -1;
      for (int id = 0; id < 2 * gates; id++) {
        auto [offset, elements] = rnn.part(layer, id, matrix);
        ASSERT_GE(offset, 0) << layer << " " << id;
        if (id % gates != 0) {
          EXPECT_EQ(offset, next) << "layer " << layer << " id " << id;
        }
        next = offset + elements;
        EXPECT_TRUE(parts.emplace(offset, elements).second);
      }
      if (matrix && projection) {
        auto [offset, elements] = rnn.part(layer, 2 * gates, true);
        EXPECT_TRUE(parts.emplace(offset, elements).second);
      }
    }
  long end = 0;
  for (auto [offset, elements] : parts) {
    EXPECT_EQ(offset, end);
    end = offset + elements;
  }
  EXPECT_EQ(end, expected_elements);
  EXPECT_EQ(rnn.weight_bytes(), static_cast<size_t>(expected_elements) * 4);
}

TEST(CudnnRnn, WeightsOfAnLstmFillTheBufferInOrder) {
  Rnn lstm(2, 0, 10, 20, 0, 2);
  expect_layout(lstm, 4, 2, false, 4 * 20 * (10 + 20) + 4 * 20 * (20 + 20) + 2 * 8 * 20);
}
TEST(CudnnRnn, WeightsOfABidirectionalGruFillTheBufferInOrder) {
  Rnn gru(3, 1, 10, 20, 0, 2);
  expect_layout(gru, 3, 4, false, 2 * (3 * 20 * (10 + 20)) + 2 * (3 * 20 * (40 + 20)) + 4 * 6 * 20);
}
TEST(CudnnRnn, WeightsOfAnLstmWithProjectionFillTheBufferInOrder) {
  Rnn lstm(2, 0, 10, 20, 5, 1);
  expect_layout(lstm, 4, 1, true, 4 * 20 * (10 + 5) + 20 * 5 + 8 * 20);
}

// What cuDNN needed according to an engineer of NVIDIA's (pytorch/pytorch issue 2895).
TEST(CudnnRnn, TrainingSizesGivePublishedFiguresOfCudnn) {
  struct {
    int cell;
    size_t workspace, reserve;
  } published[] = {{2, 17730560, 736000000}, {3, 13169920, 864000000}};
  void *data = nullptr, *handle = nullptr;
  ASSERT_EQ(call("cudnnCreateRNNDataDescriptor", &data), 0);
  std::vector<int> lengths(100, 250);
  EXPECT_EQ(call("cudnnSetRNNDataDescriptor", data, 0, 0, 250, 100, 123, static_cast<const int *>(lengths.data()), handle), 0);
  for (auto &figures : published) {
    Rnn rnn(figures.cell, 0, 123, 320, 0, 4);
    size_t workspace = 0, reserve = 0;
    EXPECT_EQ(call("cudnnGetRNNTempSpaceSizes", handle, rnn.descriptor, 1, data, &workspace, &reserve), 0);
    EXPECT_EQ(workspace, figures.workspace);
    EXPECT_EQ(reserve, figures.reserve);
  }
}

TEST(CudnnRnn, OnlyTrainingReservesAndTheRuleIsNoted) {
  Rnn lstm(2, 0, 10, 20, 0, 2);
  void *data = nullptr;
  ASSERT_EQ(call("cudnnCreateRNNDataDescriptor", &data), 0);
  const int lengths[3] = {7, 7, 7};
  float fill = 0;
  EXPECT_EQ(call("cudnnSetRNNDataDescriptor", data, 0, 0, 7, 3, 10, lengths, static_cast<void *>(&fill)), 0);
  size_t workspace = 0, reserve = 1;
  void *handle = nullptr;
  EXPECT_EQ(call("cudnnGetRNNTempSpaceSizes", handle, lstm.descriptor, 0, data, &workspace, &reserve), 0);
  EXPECT_GT(workspace, 0u);
  EXPECT_EQ(reserve, 0u);
  EXPECT_EQ(call("cudnnGetRNNTempSpaceSizes", handle, lstm.descriptor, 1, data, &workspace, &reserve), 0);
  // At least the activated gates of every step, sequence and layer.
  EXPECT_GE(reserve, 7u * 3 * 2 * 4 * 20 * 4);
  EXPECT_NE(notes().find("\"guess-library\", \"text\": \"LSTM, GRU and RNN"), std::string::npos) << notes();
}

TEST(Cufft, PowersOfTwoTakeOneBufferAndLargePrimesMore) {
  int plan = 0, other = 0;
  ASSERT_EQ(call("cufftCreate", &plan), 0);
  ASSERT_EQ(call("cufftCreate", &other), 0);
  EXPECT_NE(plan, other);
  EXPECT_EQ(call("cufftSetAutoAllocation", plan, 0), 0);
  size_t bytes = 0, prime_bytes = 0, kept = 0;
  EXPECT_EQ(call("cufftMakePlan1d", plan, 1024, 0x29, 3, &bytes), 0);
  EXPECT_EQ(bytes, 1024u * 3 * 8);
  EXPECT_EQ(call("cufftGetSize", plan, &kept), 0);
  EXPECT_EQ(kept, bytes);
  EXPECT_EQ(call("cufftEstimate1d", 1009, 0x29, 1, &prime_bytes), 0);
  EXPECT_GT(prime_bytes, 1009u * 8);
  EXPECT_EQ(call("cufftDestroy", plan), 0);
  EXPECT_EQ(call("cufftGetSize", plan, &kept), 1);
  EXPECT_EQ(call("cufftDestroy", other), 0);
}

TEST(Cufft, APlanThatAllocatesItselfTakesDeviceMemoryAndGivesItBack) {
  size_t before = 0, during = 0, after = 0, total = 0;
  int plan = 0;
  ASSERT_EQ(call("cudaMemGetInfo", &before, &total), 0);
  ASSERT_EQ(call("cufftPlan1d", &plan, 1 << 20, 0x29, 4), 0);
  ASSERT_EQ(call("cudaMemGetInfo", &during, &total), 0);
  EXPECT_GE(before - during, size_t{32} << 20);
  EXPECT_EQ(call("cufftDestroy", plan), 0);
  ASSERT_EQ(call("cudaMemGetInfo", &after, &total), 0);
  EXPECT_GE(after, before - (size_t{2} << 20));
}

TEST(Cusolver, FactorizationsSucceedAndSaySo) {
  void *handle = nullptr;
  ASSERT_EQ(call("cusolverDnCreate", &handle), 0);
  int lwork = -1, info = 77;
  void *none = nullptr;
  EXPECT_EQ(call("cusolverDnSpotrf_bufferSize", handle, 0, 100, none, 100, &lwork), 0);
  EXPECT_GT(lwork, 0);
  EXPECT_EQ(call("cusolverDnSpotrf", handle, 0, 100, none, 100, none, lwork, &info), 0);
  EXPECT_EQ(info, 0);
  EXPECT_EQ(call("cusolverDnDestroy", handle), 0);
  EXPECT_EQ(call("cusolverDnSpotrf", handle, 0, 100, none, 100, none, lwork, &info), 1);
}

TEST(Cusparse, MatricesKeepTheirSizes) {
  void *matrix = nullptr;
  ASSERT_EQ(call("cusparseCreateCsr", &matrix, int64_t{10}, int64_t{20}, int64_t{30}, static_cast<void *>(nullptr),
                 static_cast<void *>(nullptr), static_cast<void *>(nullptr), 2, 2, 0, 0),
            0);
  int64_t rows = 0, columns = 0, elements = 0;
  EXPECT_EQ(call("cusparseSpMatGetSize", matrix, &rows, &columns, &elements), 0);
  EXPECT_EQ((std::vector<int64_t>{rows, columns, elements}), (std::vector<int64_t>{10, 20, 30}));
  EXPECT_EQ(call("cusparseDestroySpMat", matrix), 0);
  EXPECT_EQ(call("cusparseSpMatGetSize", matrix, &rows, &columns, &elements), 3);
}

TEST(CusparseLt, CompressedSizeIsHalfTheElementsAndTwoBitsForEachKept) {
  alignas(16) char handle[11024] = {}, matrix[11024] = {};
  size_t bytes = 0, buffer = 0;
  EXPECT_EQ(call("cusparseLtStructuredDescriptorInit", static_cast<void *>(handle), static_cast<void *>(matrix), int64_t{64}, int64_t{128},
                 int64_t{128}, 16u, 2, 1, 0), 1) << "no handle yet";
  ASSERT_EQ(call("cusparseLtInit", static_cast<void *>(handle)), 0);
  ASSERT_EQ(call("cusparseLtStructuredDescriptorInit", static_cast<void *>(handle), static_cast<void *>(matrix), int64_t{64}, int64_t{128},
                 int64_t{128}, 16u, 2, 1, 0), 0);
  EXPECT_EQ(call("cusparseLtSpMMACompressedSize2", static_cast<void *>(handle), static_cast<void *>(matrix), &bytes, &buffer), 0);
  EXPECT_EQ(bytes, size_t{64 * 128 * 2 * 9 / 16});
  EXPECT_EQ(call("cusparseLtMatDescriptorDestroy", static_cast<void *>(matrix)), 0);
  EXPECT_EQ(call("cusparseLtMatDescriptorDestroy", static_cast<void *>(matrix)), 3) << "destroyed twice";
  EXPECT_EQ(call("cusparseLtDestroy", static_cast<void *>(handle)), 0);
}

TEST(CublasXt, TilesAreHeldWhileARoutineRuns) {
  void *handle = nullptr;
  int device = 0, block = 0;
  ASSERT_EQ(call("cublasXtCreate", &handle), 0);
  EXPECT_EQ(call("cublasXtSgemm", handle), 1) << "no device was selected";
  EXPECT_EQ(call("cublasXtDeviceSelect", handle, 1, &device), 0);
  EXPECT_EQ(call("cublasXtSgemm", handle), 0);
  EXPECT_EQ(call("cublasXtGetBlockDim", handle, &block), 0);
  EXPECT_EQ(block, 2048);
  EXPECT_EQ(call("cublasXtSetBlockDim", handle, 1 << 14), 0);
  EXPECT_EQ(call("cublasXtSgemm", handle), 3) << "6 GiB of tiles on a GPU of 1 GiB";
  EXPECT_EQ(call("cublasXtDestroy", handle), 0);
}

TEST(Cufft, APlanOverSeveralGpusGivesEachItsShare) {
  struct Memory {
    int version, gpus, ids[64];
    void *data[64];
    size_t bytes[64];
    void *state;
  };
  struct Descriptor {
    int version;
    Memory *memory;
  } *descriptor = nullptr;
  int plan = 0, gpu = 0, none = 7;
  size_t work = 0;
  ASSERT_EQ(call("cufftCreate", &plan), 0);
  EXPECT_EQ(call("cufftXtSetGPUs", plan, 1, &none), 11);
  EXPECT_EQ(call("cufftXtSetGPUs", plan, 1, &gpu), 0);
  EXPECT_EQ(call("cufftXtMalloc", plan, &descriptor, 2), 1) << "not made yet";
  ASSERT_EQ(call("cufftMakePlan1d", plan, 1024, 0x29, 4, &work), 0);
  ASSERT_EQ(call("cufftXtMalloc", plan, &descriptor, 2), 0);
  EXPECT_EQ(descriptor->memory->gpus, 1);
  EXPECT_EQ(descriptor->memory->bytes[0], size_t{1024 * 4 * 8});
  std::vector<float> data(1024 * 4 * 2, 3.0f), back(data.size());
  EXPECT_EQ(call("cufftXtMemcpy", plan, static_cast<void *>(descriptor), static_cast<void *>(data.data()), 0), 0);
  EXPECT_EQ(call("cufftXtMemcpy", plan, static_cast<void *>(back.data()), static_cast<void *>(descriptor), 1), 0);
  EXPECT_EQ(back, data);
  EXPECT_EQ(call("cufftXtFree", descriptor), 0);
  EXPECT_EQ(call("cufftDestroy", plan), 0);
}

TEST(Cusolver, SparseAndMultiGpuSolversSucceed) {
  void *sparse = nullptr, *factors = nullptr, *grid = nullptr, *matrix = nullptr, *many = nullptr;
  int singularity = 5, device = 0, info = 5;
  int64_t elements = 0;
  ASSERT_EQ(call("cusolverSpCreate", &sparse), 0);
  void *none = nullptr;
  EXPECT_EQ(call("cusolverSpScsrlsvqr", sparse, 100, 500, none, none, none, none, none, 1e-6f, 0, none, &singularity), 0);
  EXPECT_EQ(singularity, -1);
  EXPECT_EQ(call("cusolverSpDestroy", sparse), 0);
  ASSERT_EQ(call("cusolverRfCreate", &factors), 0);
  EXPECT_EQ(call("cusolverRfAnalyze", factors), 3) << "nothing was set up";
  EXPECT_EQ(call("cusolverRfSetupDevice", 100, 500, none, none, none, 300, none, none, none, 400, none, none, none, none, none, factors), 0);
  EXPECT_EQ(call("cusolverRfAnalyze", factors), 0);
  EXPECT_EQ(call("cusolverRfDestroy", factors), 0);
  ASSERT_EQ(call("cusolverMgCreate", &many), 0);
  EXPECT_EQ(call("cusolverMgDeviceSelect", many, 1, &device), 0);
  EXPECT_EQ(call("cusolverMgCreateDeviceGrid", &grid, 1, 1, &device, 1), 0);
  EXPECT_EQ(call("cusolverMgCreateMatrixDesc", &matrix, int64_t{512}, int64_t{512}, int64_t{512}, int64_t{64}, 0, grid), 0);
  EXPECT_EQ(call("cusolverMgPotrf_bufferSize", many, 0, 512, none, 1, 1, matrix, 0, &elements), 0);
  EXPECT_GT(elements, 0);
  EXPECT_EQ(call("cusolverMgPotrf", many, 0, 512, none, 1, 1, matrix, 0, none, elements, &info), 0);
  EXPECT_EQ(info, 0);
  EXPECT_EQ(call("cusolverMgDestroyMatrixDesc", matrix), 0);
  EXPECT_EQ(call("cusolverMgDestroyGrid", grid), 0);
  EXPECT_EQ(call("cusolverMgDestroy", many), 0);
}

TEST(Cupti, ProfilersStartAndFindNothing) {
  void *subscriber = nullptr, *record = nullptr;
  EXPECT_EQ(call("cuptiSubscribe", &subscriber, static_cast<void *>(nullptr), static_cast<void *>(nullptr)), 0);
  EXPECT_NE(subscriber, nullptr);
  EXPECT_EQ(call("cuptiActivityEnable", 3), 0);
  EXPECT_EQ(call("cuptiActivityGetNextRecord", static_cast<uint8_t *>(nullptr), size_t{0}, &record), 12);
  EXPECT_EQ(call("cuptiUnsubscribe", subscriber), 0);
}

// --- cuDNN's planner. Which one is used is decided once a process, so each case has a process of its own. ---

class Planner : public testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }

  // A folder with the parts of a cuDNN 9, all copies of one fake.
  static std::string place(const char *name, const char *fake) {
    fs::path folder = fs::path(directory()) / name;
    fs::create_directories(folder);
    for (const char *part : {"libcudnn.so.9", "libcudnn_graph.so.9", "libcudnn_ops.so.9", "libcudnn_engines_runtime_compiled.so.9",
                             "libcudnn_engines_precompiled.so.9", "libcudnn_heuristic.so.9", "libcudnn_adv.so.9"})
      fs::copy_file(fs::path(PROGRAM_DIR) / fake, folder / part, fs::copy_options::overwrite_existing);
    return (folder / "libcudnn.so.9").string();
  }

  static int number_in(void *fake, const char *name) { return *static_cast<int *>(dlsym(fake, name)); }

  // The plan of an engine that is compiled at run time, made through the stand-in.
  static int64_t plan_workspace(int *finalized) {
    void *heuristics = nullptr, *config = nullptr, *plan = nullptr;
    int64_t count = 0, bytes = -1;
    if (call("cudnnBackendCreateDescriptor", 4, &heuristics) != 0 || call("cudnnBackendCreateDescriptor", 3, &config) != 0 ||
        call("cudnnBackendCreateDescriptor", 5, &plan) != 0)
      return -2;
    void *handle = nullptr;
    if (call("cudnnBackendSetAttribute", plan, 400, 0, int64_t{1}, static_cast<const void *>(&handle)) != 0) return -3;
    if (call("cudnnBackendSetAttribute", plan, 401, 15, int64_t{1}, static_cast<const void *>(&config)) != 0) return -4;
    *finalized = call("cudnnBackendFinalize", plan);
    if (call("cudnnBackendGetAttribute", plan, 402, 3, int64_t{1}, &count, static_cast<void *>(&bytes)) != 0) return -5;
    call("cudnnBackendDestroyDescriptor", plan);
    return bytes;
  }
};

#define CHECK_CHILD(condition)                                   \
  if (!(condition)) {                                            \
    fprintf(stderr, "line %d: %s\n", __LINE__, #condition);      \
    _exit(1);                                                    \
  }

TEST_F(Planner, ANewEnoughCudnnOfTheJobPlansWithTheGpusDescription) {
  auto child = [] {
    void *own = dlopen(place("own", "libfake_cudnn_new.so").c_str(), RTLD_NOW | RTLD_LOCAL);
    CHECK_CHILD(own != nullptr && library() != nullptr);
    int finalized = -1;
    CHECK_CHILD(plan_workspace(&finalized) == 12345);  // of the engine configuration
    CHECK_CHILD(finalized == 0 && number_in(own, "fake_finalized") == 0);
    CHECK_CHILD(number_in(own, "fake_device_properties_set") >= 2);
    CHECK_CHILD(strcmp(static_cast<char *>(dlsym(own, "fake_json")), "{\"deviceVer\": 860}") == 0);
    CHECK_CHILD(call<size_t>("cudnnGetVersion") == 90800);
    CHECK_CHILD(notes().find("{\"event\": \"cudnn\", \"planner\": \"9.8.0 (the job's own)\"}") != std::string::npos);
    CHECK_CHILD(notes().find("cuDNN chose engines that it compiles") != std::string::npos);
    fs::remove_all(directory());
    _exit(0);
  };
  EXPECT_EXIT(child(), testing::ExitedWithCode(0), "");
}

// The plan for a graph of one operation on one tensor, described through the stand-in or, to know its key, to
// estimator/workspaces itself.
struct ThroughStandIn {
  static void *made(int type) {
    void *descriptor = nullptr;
    return call("cudnnBackendCreateDescriptor", type, &descriptor) == 0 ? descriptor : nullptr;
  }
  static void set(void *of, int name, int type, int64_t count, const void *values) {
    call("cudnnBackendSetAttribute", of, name, type, count, values);
  }
  static void results(void *heuristic, void **config) {
    int64_t count = 0;
    call("cudnnBackendGetAttribute", heuristic, 202, 15, int64_t{1}, &count, static_cast<void *>(config));
  }
};
struct Directly {
  static void *made(int type) {
    static char places[16];
    static int used;
    gpumem::workspaces::created(&places[used], type);
    return &places[used++];
  }
  static void set(void *of, int name, int type, int64_t count, const void *values) { gpumem::workspaces::attribute_set(of, name, type, count, values); }
  static void results(void *heuristic, void **config) { gpumem::workspaces::attribute_got(heuristic, 202, 15, 1, config); }
};
template <class Way>
static void *plan_for(int64_t batch) {
  void *tensor = Way::made(17), *operation = Way::made(10), *graph = Way::made(15), *heuristic = Way::made(4), *config = Way::made(3),
       *plan = Way::made(5);
  const int64_t dimensions[] = {batch, 64, 56, 56};
  const int data_type = 0;
  Way::set(tensor, 901, 1, 1, &data_type);
  Way::set(tensor, 902, 3, 4, dimensions);
  Way::set(operation, 704, 15, 1, &tensor);
  Way::set(graph, 801, 15, 1, &operation);
  Way::set(heuristic, 201, 15, 1, &graph);
  Way::results(heuristic, &config);
  Way::set(plan, 401, 15, 1, &config);
  return plan;
}
static int64_t workspace_of(void *plan) {
  int64_t count = 0, bytes = -1;
  return call("cudnnBackendGetAttribute", plan, 402, 3, int64_t{1}, &count, static_cast<void *>(&bytes)) == 0 ? bytes : -2;
}
// A table in which the plan for `batch` was seen on this GPU under that cuDNN.
static void learn(int64_t batch, uint64_t version, uint64_t bytes) {
  gpumem::workspaces::Plan plan;
  ASSERT_TRUE(gpumem::workspaces::find_plan(plan_for<Directly>(batch), &plan));
  const std::string gpu = "A virtual GPU";
  char line[gpumem::workspaces::kMaxLine];
  const size_t length = gpumem::workspaces::format({gpu.data(), gpu.size(), version, plan.key, bytes, plan.label, strlen(plan.label)}, line, sizeof line);
  std::ofstream(fs::path(directory()) / "workspaces.tsv").write(line, static_cast<std::streamsize>(length));
  setenv("GPUMEM_WORKSPACES", (fs::path(directory()) / "workspaces.tsv").c_str(), 1);
}

TEST_F(Planner, WithoutACudnnThatPlansWorkspacesAreThoseLearnedOnTheNodes) {
  auto child = [] {
    learn(8, 90100, 5013520);
    void *own = dlopen(place("own", "libfake_cudnn_old.so").c_str(), RTLD_NOW | RTLD_LOCAL);
    CHECK_CHILD(own != nullptr && library() != nullptr);
    CHECK_CHILD(workspace_of(plan_for<ThroughStandIn>(8)) == 5013520);
    CHECK_CHILD(notes().find("jobs on this GPU model were seen to use") != std::string::npos);
    CHECK_CHILD(notes().find("taken as 0") == std::string::npos);
    CHECK_CHILD(workspace_of(plan_for<ThroughStandIn>(9)) == 0);
    CHECK_CHILD(notes().find("taken as 0") != std::string::npos);
    fs::remove_all(directory());
    _exit(0);
  };
  EXPECT_EXIT(child(), testing::ExitedWithCode(0), "");
}

TEST_F(Planner, ALearnedSizeStandsForAnEngineThatIsCompiledOnTheGpu) {
  auto child = [] {
    learn(8, 90800, 4242);
    void *own = dlopen(place("own", "libfake_cudnn_new.so").c_str(), RTLD_NOW | RTLD_LOCAL);
    CHECK_CHILD(own != nullptr && library() != nullptr);
    CHECK_CHILD(workspace_of(plan_for<ThroughStandIn>(8)) == 4242);
    CHECK_CHILD(notes().find("cuDNN chose engines that it compiles") == std::string::npos);
    CHECK_CHILD(workspace_of(plan_for<ThroughStandIn>(9)) == 12345);
    CHECK_CHILD(notes().find("cuDNN chose engines that it compiles") != std::string::npos);
    fs::remove_all(directory());
    _exit(0);
  };
  EXPECT_EXIT(child(), testing::ExitedWithCode(0), "");
}

// In order of evidence: the job's own cuDNN, what was learned under exactly its version, the installed cuDNN.
TEST_F(Planner, ALearnedSizeIsBetterEvidenceThanAnotherCudnnsPlanButNotThanTheJobsOwn) {
  auto child = [](bool own_plans) {
    const uint64_t version = own_plans ? 90800 : 90100;
    learn(8, version, 4242);
    setenv("FAKE_CUDNN_ENGINES", "precompiled", 1);
    setenv("GPUMEM_CUDNN", place("planner", "libfake_cudnn_new.so").c_str(), 1);
    void *own = dlopen(place("own", own_plans ? "libfake_cudnn_new.so" : "libfake_cudnn_old.so").c_str(), RTLD_NOW | RTLD_LOCAL);
    CHECK_CHILD(own != nullptr && library() != nullptr);
    void *first = plan_for<ThroughStandIn>(8);
    CHECK_CHILD(call("cudnnBackendFinalize", first) == 0);
    CHECK_CHILD(workspace_of(first) == (own_plans ? 777 : 4242));
    CHECK_CHILD((notes().find("jobs on this GPU model were seen to use") == std::string::npos) == own_plans);
    void *unknown = plan_for<ThroughStandIn>(9);
    CHECK_CHILD(call("cudnnBackendFinalize", unknown) == 0 && workspace_of(unknown) == 777);
    // The second plan of one list is finished only by a program that benchmarks: its size is not the learned one.
    void *tried = plan_for<ThroughStandIn>(8), *benchmarked = ThroughStandIn::made(5);
    CHECK_CHILD(call("cudnnBackendFinalize", tried) == 0 && call("cudnnBackendFinalize", benchmarked) == 0);
    CHECK_CHILD(workspace_of(benchmarked) == 777);
    fs::remove_all(directory());
    _exit(0);
  };
  EXPECT_EXIT(child(false), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(child(true), testing::ExitedWithCode(0), "");
}

// An LSTM of 20 units on two sequences of 3 and 5 steps: workspace and reserve in training.
static void ask_rnn(size_t *workspace, size_t *reserve) {
  Rnn lstm(2, 0, 10, 20, 0, 2);
  void *data = nullptr, *fill = nullptr, *handle = nullptr;
  const int lengths[] = {5, 3};
  CHECK_CHILD(call("cudnnCreateRNNDataDescriptor", &data) == 0);
  CHECK_CHILD(call("cudnnSetRNNDataDescriptor", data, 0, 1, 5, 2, 10, lengths, fill) == 0);
  CHECK_CHILD(call("cudnnGetRNNTempSpaceSizes", handle, lstm.descriptor, 1, data, workspace, reserve) == 0);
  CHECK_CHILD(call("cudnnDestroyRNNDataDescriptor", data) == 0);
}

TEST_F(Planner, SizesOfRecurrentNetworksAreAskedOfCudnn) {
  auto child = [] {
    void *own = dlopen(place("own", "libfake_cudnn_new.so").c_str(), RTLD_NOW | RTLD_LOCAL);
    CHECK_CHILD(own != nullptr && library() != nullptr);
    for (int round = 0; round < 2; round++) {
      size_t workspace = 0, reserve = 0;
      ask_rnn(&workspace, &reserve);
      CHECK_CHILD(workspace == 20000 && reserve == 8);
    }
    CHECK_CHILD(notes().find("are what cuDNN computes") != std::string::npos);
    CHECK_CHILD(notes().find("guess-library") == std::string::npos);
    fs::remove_all(directory());
    _exit(0);
  };
  EXPECT_EXIT(child(), testing::ExitedWithCode(0), "");
}

TEST_F(Planner, ACudnnThatCrashesWhenAskedForRecurrentNetworksDoesSoInAChild) {
  auto child = [] {
    setenv("FAKE_CUDNN_RNN", "crash", 1);
    void *own = dlopen(place("own", "libfake_cudnn_new.so").c_str(), RTLD_NOW | RTLD_LOCAL);
    CHECK_CHILD(own != nullptr && library() != nullptr);
    size_t workspace = 0, reserve = 0;
    ask_rnn(&workspace, &reserve);
    CHECK_CHILD(workspace != 0 && reserve == size_t{8} * (2 * 5 + 1) * 20 * 4);  // the rule, over the 8 steps that there are
    CHECK_CHILD(notes().find("by a rule that fits published figures") != std::string::npos);
    fs::remove_all(directory());
    _exit(0);
  };
  EXPECT_EXIT(child(), testing::ExitedWithCode(0), "");
}

TEST_F(Planner, AnOldCudnnOfTheJobIsNeverCalledAndTheNamedOnePlans) {
  auto child = [] {
    std::string planner_path = place("planner", "libfake_cudnn_new.so");
    setenv("GPUMEM_CUDNN", planner_path.c_str(), 1);
    void *own = dlopen(place("own", "libfake_cudnn_old.so").c_str(), RTLD_NOW | RTLD_LOCAL);
    CHECK_CHILD(own != nullptr && library() != nullptr);
    int finalized = -1;
    CHECK_CHILD(plan_workspace(&finalized) == 12345);
    CHECK_CHILD(number_in(own, "fake_calls") == 0);
    void *planner = dlopen(planner_path.c_str(), RTLD_NOW | RTLD_NOLOAD);
    CHECK_CHILD(planner != nullptr && number_in(planner, "fake_calls") > 0);
    CHECK_CHILD(call<size_t>("cudnnGetVersion") == 90100);  // what the program sees stays its own
    CHECK_CHILD(notes().find("9.8.0 (brought by gpumem) in place of the job's 9.1.0") != std::string::npos);
    fs::remove_all(directory());
    _exit(0);
  };
  EXPECT_EXIT(child(), testing::ExitedWithCode(0), "");
}

TEST_F(Planner, BenchmarkedPlansAreAsFastAsTheirPlaceInCudnnsList) {
  auto child = [] {
    void *own = dlopen(place("own", "libfake_cudnn_new.so").c_str(), RTLD_NOW | RTLD_LOCAL);
    CHECK_CHILD(own != nullptr && library() != nullptr);
    void *handle = nullptr, *heuristics = nullptr, *stream = nullptr, *start = nullptr, *end = nullptr;
    CHECK_CHILD(call("cudnnCreate", &handle) == 0);
    CHECK_CHILD(call("cudnnBackendCreateDescriptor", 4, &heuristics) == 0);
    CHECK_CHILD(call("cudaEventCreate", &start) == 0 && call("cudaEventCreate", &end) == 0);
    float took_ms[3] = {};
    for (float &took : took_ms) {
      void *plan = nullptr, *pack = nullptr;
      CHECK_CHILD(call("cudnnBackendCreateDescriptor", 5, &plan) == 0 && call("cudnnBackendCreateDescriptor", 16, &pack) == 0);
      CHECK_CHILD(call("cudaEventRecord", start, stream) == 0);
      CHECK_CHILD(call("cudnnBackendExecute", handle, plan, pack) == 0);
      CHECK_CHILD(call("cudaEventRecord", end, stream) == 0);
      CHECK_CHILD(call("cudaEventElapsedTime", &took, start, end) == 0);
    }
    CHECK_CHILD(took_ms[0] < took_ms[1] && took_ms[1] < took_ms[2]);
    CHECK_CHILD(notes().find("the program benchmarks cuDNN") != std::string::npos);
    fs::remove_all(directory());
    _exit(0);
  };
  EXPECT_EXIT(child(), testing::ExitedWithCode(0), "");
}

TEST_F(Planner, WithoutOneConvolutionsGetAPlanWithoutWorkspaceAndTheEstimateIsTold) {
  auto child = [] {
    unsetenv("GPUMEM_CUDNN");
    void *own = dlopen(place("own", "libfake_cudnn_old.so").c_str(), RTLD_NOW | RTLD_LOCAL);
    CHECK_CHILD(own != nullptr && library() != nullptr);
    int finalized = -1;
    CHECK_CHILD(plan_workspace(&finalized) == 0);
    CHECK_CHILD(finalized == 0 && number_in(own, "fake_calls") == 0);
    CHECK_CHILD(notes().find("no cuDNN that can plan without a GPU (the job's own is 9.1.0)") != std::string::npos);
    CHECK_CHILD(notes().find("no cuDNN 9.8 or newer could be asked") != std::string::npos);
    fs::remove_all(directory());
    _exit(0);
  };
  EXPECT_EXIT(child(), testing::ExitedWithCode(0), "");
}

}  // namespace
