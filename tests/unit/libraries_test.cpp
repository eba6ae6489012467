// SPDX-License-Identifier: Apache-2.0
// The stand-ins for NVIDIA's libraries but cuDNN, driven at their C interfaces through dlsym, on a virtual GPU of our own book.
#include <fcntl.h>

#include <vector>

#include "tests/unit/libraries_fixture.h"

namespace gpumem::libraries_test {
namespace {

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
  // The record knows when: one line now, one when it is given back.
  const auto lines = [] {
    std::ifstream file(directory() + "/memory-" + std::to_string(getpid()) + ".jsonl");
    return std::string{std::istreambuf_iterator<char>(file), {}};
  };
  const std::string bytes = "_bytes\": " + std::to_string(before - during) + ",";
  EXPECT_NE(lines().find("\"taken" + bytes), std::string::npos) << lines();
  EXPECT_EQ(lines().find("\"returned" + bytes), std::string::npos);
  EXPECT_EQ(call("cufftDestroy", plan), 0);
  EXPECT_NE(lines().find("\"returned" + bytes), std::string::npos) << lines();
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

TEST(Cufile, FilesAreReadIntoDeviceMemoryAndWrittenFromIt) {
  const std::string path = directory() + "/data";
  std::ofstream(path) << std::string(5000, 'a') + "the end";
  const int descriptor = open(path.c_str(), O_RDWR);
  struct {
    int type;
    union {
      int descriptor;
      void *pointer;
    } handle;
    const void *operations;
  } description{1, {}, nullptr};
  description.handle.descriptor = descriptor;
  void *file = nullptr, *memory = nullptr;
  ASSERT_EQ(call<long>("cuFileDriverOpen"), 0);
  ASSERT_EQ(call("cudaMalloc", &memory, size_t{1} << 20), 0);
  ASSERT_EQ(call<long>("cuFileHandleRegister", &file, static_cast<const void *>(&description)), 0);
  EXPECT_EQ(call<long>("cuFileBufRegister", static_cast<const void *>(memory), size_t{1} << 20, 0), 0);
  const auto read = [&](size_t size, off_t offset, off_t at) { return call<long>("cuFileRead", file, memory, size, offset, at); };
  EXPECT_EQ(read(4096, 5000, 64), 7) << "there is no more";
  char back[8] = {};
  ASSERT_EQ(call("cudaMemcpy", static_cast<void *>(back), static_cast<const void *>(static_cast<char *>(memory) + 64), size_t{7}, 2), 0);
  EXPECT_STREQ(back, "the end");
  EXPECT_EQ(read(4096, 6000, 0), 0);
  EXPECT_EQ(read(size_t{4} << 20, 0, 0), -5012) << "beyond the memory";
  EXPECT_EQ(call<long>("cuFileRead", memory, memory, size_t{1}, off_t{0}, off_t{0}), -5027);
  const size_t whole = size_t{1} << 20;
  EXPECT_EQ(call<long>("cuFileWrite", file, static_cast<const void *>(memory), whole, off_t{100}, off_t{0}), static_cast<long>(whole));
  EXPECT_EQ(fs::file_size(path), whole + 100);
  EXPECT_EQ(call<long>("cuFileWrite", file, static_cast<const void *>(memory), size_t{7}, off_t{164}, off_t{64}), 7);
  std::ifstream written(path);
  written.seekg(164);
  written.read(back, 7);
  EXPECT_STREQ(back, "the end");
  EXPECT_EQ(read(whole, 0, 0), static_cast<long>(whole));
  EXPECT_NE(notes().find("cuFile: what is read"), std::string::npos);
  size_t size = 7;
  off_t offset = 164, at = 0;
  ssize_t done = 0;
  void *stream = nullptr;
  EXPECT_EQ(call<long>("cuFileReadAsync", file, memory, &size, &offset, &at, &done, stream), 0);
  EXPECT_EQ(done, 7);
  call<long>("cuFileHandleDeregister", file);
  EXPECT_EQ(read(1, 0, 0), -5027);
  EXPECT_EQ(call("cudaFree", memory), 0);
  EXPECT_EQ(call<long>("cuFileDriverClose"), 0);
  close(descriptor);
}

TEST(Cupti, ProfilersStartAndFindNothing) {
  void *subscriber = nullptr, *record = nullptr;
  EXPECT_EQ(call("cuptiSubscribe", &subscriber, static_cast<void *>(nullptr), static_cast<void *>(nullptr)), 0);
  EXPECT_NE(subscriber, nullptr);
  EXPECT_EQ(call("cuptiActivityEnable", 3), 0);
  EXPECT_EQ(call("cuptiActivityGetNextRecord", static_cast<uint8_t *>(nullptr), size_t{0}, &record), 12);
  EXPECT_EQ(call("cuptiUnsubscribe", subscriber), 0);
}

}  // namespace
}  // namespace gpumem::libraries_test
