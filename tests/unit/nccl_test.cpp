// SPDX-License-Identifier: Apache-2.0
// NCCL's double, driven at its C interface through dlsym: a rank alone, ranks in processes of their own, several ranks in one.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "estimator/book/book.h"

namespace {

namespace fs = std::filesystem;
using gpumem::book::Book;

constexpr int kFloat = 7, kInt32 = 2, kInt64 = 4, kHalf = 6, kBfloat16 = 9;
constexpr int kSum = 0, kProduct = 1, kMax = 2, kAverage = 4;
constexpr size_t kConnectionBytes = (4 << 20) + (512 << 10) + 4915200;  // Note [Buffers of NCCL]

struct UniqueId {
  char bytes[128];
};

std::string book_path() {
  static std::string made = [] {
    std::string pattern = (fs::temp_directory_path() / "gpumem-nccl-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) abort();
    return pattern + "/book";
  }();
  return made;
}

void make_book(const char *name) {
  gpumem::book::DeviceDescription devices[2]{};
  for (auto &device : devices) {
    strcpy(device.name, name);
    strcpy(device.uuid, "GPU-00000000-0000-0000-0000-000000000001");
    strcpy(device.pci_bus_id, "00000000:01:00.0");
    device.compute_major = 8;
    device.sm_count = 10;
    device.cuda_version = 13000;
    device.total_bytes = device.usable_bytes = device.nvml_total_bytes = uint64_t{1} << 30;
  }
  char error[256] = "";
  ASSERT_EQ(gpumem::book::create(book_path().c_str(), devices, 2, gpumem::book::Accounting::private_book, 0600, error, sizeof error),
            gpumem::book::Status::ok)
      << error;
}

// Each case runs in a process of its own: a fork of one that has used CUDA may not use it.
void *library;

template <typename... Arguments>
int call(const char *name, Arguments... arguments) {
  auto function = reinterpret_cast<int (*)(Arguments...)>(dlsym(library, name));
  return function != nullptr ? function(arguments...) : -1;
}

using Body = std::function<bool()>;

pid_t start(const Body &body, const char *alone) {
  const pid_t child = fork();
  if (child != 0) return child;
  setenv("GPUMEM_BOOK", book_path().c_str(), 1);
  setenv("GPUMEM_ALONE", alone, 1);
  library = dlopen(VGPU_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) fprintf(stderr, "%s\n", dlerror());
  _exit(library != nullptr && body() ? 0 : 1);
}

bool ended_well(pid_t child) {
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// The children's complaints.
#define CHECK_THAT(condition) \
  if (!(condition)) return fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition), false

class Nccl : public testing::Test {
 protected:
  void SetUp() override { make_book("A virtual GPU"); }
  void TearDown() override { fs::remove(book_path()); }

  static bool alone(const Body &body) { return ended_well(start(body, "1")); }

  // `ranks` processes; each gets its number and a communicator of all. Returns whether all ended well.
  static bool together(int ranks, const std::function<bool(int, void *)> &body) {
    int pipes[2];
    if (pipe(pipes) != 0) return false;
    std::vector<pid_t> children;
    for (int rank = 0; rank < ranks; rank++) {
      children.push_back(start(
          [&, rank] {
            UniqueId id{};
            if (rank == 0) {
              CHECK_THAT(call("ncclGetUniqueId", &id) == 0);
              for (int i = 1; i < ranks; i++) CHECK_THAT(write(pipes[1], &id, sizeof id) == sizeof id);
            } else {
              CHECK_THAT(read(pipes[0], &id, sizeof id) == sizeof id);
            }
            void *communicator = nullptr;
            CHECK_THAT(call("ncclCommInitRankConfig", &communicator, ranks, id, rank, static_cast<void *>(nullptr)) == 0);
            return body(rank, communicator);
          },
          "0"));
    }
    bool well = true;
    for (const pid_t child : children) well = ended_well(child) && well;
    close(pipes[0]);
    close(pipes[1]);
    return well;
  }
};

void *const kNoStream = nullptr;

TEST_F(Nccl, ARankAloneTakesTheOthersToHoldWhatItHolds) {
  EXPECT_TRUE(alone([] {
    UniqueId id{};
    void *communicator = nullptr;
    CHECK_THAT(call("ncclGetUniqueId", &id) == 0);
    CHECK_THAT(call("ncclCommInitRank", &communicator, 4, id, 2) == 0);
    int ranks = 0, rank = 0;
    CHECK_THAT(call("ncclCommCount", communicator, &ranks) == 0 && ranks == 4);
    CHECK_THAT(call("ncclCommUserRank", communicator, &rank) == 0 && rank == 2);
    const float mine[2] = {1, 2};
    float all[8] = {}, part[2] = {}, sum[2] = {}, mean[2] = {};
    const void *send = mine;
    CHECK_THAT(call("ncclAllGather", send, static_cast<void *>(all), size_t{2}, kFloat, communicator, kNoStream) == 0);
    CHECK_THAT(all[0] == 1 && all[7] == 2);
    CHECK_THAT(call("ncclAllReduce", send, static_cast<void *>(sum), size_t{2}, kFloat, kSum, communicator, kNoStream) == 0);
    CHECK_THAT(sum[0] == 4 && sum[1] == 8);
    CHECK_THAT(call("ncclAllReduce", send, static_cast<void *>(mean), size_t{2}, kFloat, kAverage, communicator, kNoStream) == 0);
    CHECK_THAT(mean[0] == 1 && mean[1] == 2);
    CHECK_THAT(call("ncclAllReduce", send, static_cast<void *>(mean), size_t{2}, kFloat, kProduct, communicator, kNoStream) == 0);
    CHECK_THAT(mean[0] == 1 && mean[1] == 16);
    for (int i = 0; i < 8; i++) all[i] = static_cast<float>(i);
    send = all;
    CHECK_THAT(call("ncclReduceScatter", send, static_cast<void *>(part), size_t{2}, kFloat, kMax, communicator, kNoStream) == 0);
    CHECK_THAT(part[0] == 4 && part[1] == 5);
    float received[2] = {9, 9};
    CHECK_THAT(call("ncclRecv", static_cast<void *>(received), size_t{2}, kFloat, 0, communicator, kNoStream) == 0);
    CHECK_THAT(received[0] == 0 && received[1] == 0);
    int64_t large = int64_t{1} << 60;
    send = &large;
    CHECK_THAT(call("ncclAllReduce", send, static_cast<void *>(&large), size_t{1}, kInt64, kSum, communicator, kNoStream) == 0);
    CHECK_THAT(large == int64_t{1} << 62);
    CHECK_THAT(call("ncclCommDestroy", communicator) == 0);
    CHECK_THAT(call("ncclCommCount", communicator, &ranks) == 4);
    return true;
  }));
}

TEST_F(Nccl, AGroupOfSendsAndReceivesAloneGivesBackWhatWasSent) {
  EXPECT_TRUE(alone([] {
    UniqueId id{};
    void *communicator = nullptr;
    CHECK_THAT(call("ncclGetUniqueId", &id) == 0 && call("ncclCommInitRank", &communicator, 3, id, 0) == 0);
    const int32_t sent[3] = {5, 6, 7};
    int32_t received[3] = {};
    CHECK_THAT(call("ncclGroupStart") == 0);
    for (int i = 0; i < 3; i++) {
      CHECK_THAT(call("ncclSend", static_cast<const void *>(sent + i), size_t{1}, kInt32, i, communicator, kNoStream) == 0);
      CHECK_THAT(call("ncclRecv", static_cast<void *>(received + i), size_t{1}, kInt32, i, communicator, kNoStream) == 0);
    }
    CHECK_THAT(call("ncclGroupEnd") == 0);
    CHECK_THAT(memcmp(sent, received, sizeof sent) == 0);
    CHECK_THAT(call("ncclGroupEnd") != 0);
    return true;
  }));
}

TEST_F(Nccl, LocalRanksHearOfEachOther) {
  EXPECT_TRUE(together(3, [](int rank, void *communicator) {
    for (int round = 0; round < 50; round++) {  // more than there are slots
      float value = static_cast<float>(rank + round), sum = 0, all[3] = {};
      const void *send = &value;
      CHECK_THAT(call("ncclAllReduce", send, static_cast<void *>(&sum), size_t{1}, kFloat, kSum, communicator, kNoStream) == 0);
      CHECK_THAT(sum == static_cast<float>(3 * round + 3));
      CHECK_THAT(call("ncclAllGather", send, static_cast<void *>(all), size_t{1}, kFloat, communicator, kNoStream) == 0);
      CHECK_THAT(all[0] == static_cast<float>(round) && all[2] == static_cast<float>(round + 2));
      int64_t number = rank == 1 ? 77 : 0;
      CHECK_THAT(call("ncclBroadcast", static_cast<const void *>(&number), static_cast<void *>(&number), size_t{1}, kInt64, 1, communicator, kNoStream) == 0);
      CHECK_THAT(number == 77);
      const int32_t to[3] = {10 * rank, 10 * rank + 1, 10 * rank + 2};
      int32_t from[3] = {};
      CHECK_THAT(call("ncclAlltoAll", static_cast<const void *>(to), static_cast<void *>(from), size_t{1}, kInt32, communicator, kNoStream) == 0);
      for (int i = 0; i < 3; i++) CHECK_THAT(from[i] == 10 * i + rank);
    }
    return true;
  }));
}

TEST_F(Nccl, HalvesAreSummedAsHalves) {
  EXPECT_TRUE(together(2, [](int rank, void *communicator) {
    const uint16_t half[4] = {0x3c00, 0x3800, 0x0001, 0xc000}, brain[2] = {0x3f80, 0x4000};  // 1, 0.5, 2^-24, -2; 1, 2
    uint16_t halves[4] = {}, brains[2] = {};
    CHECK_THAT(call("ncclAllReduce", static_cast<const void *>(half), static_cast<void *>(halves), size_t{4}, kHalf, kSum, communicator, kNoStream) == 0);
    CHECK_THAT(halves[0] == 0x4000 && halves[1] == 0x3c00 && halves[2] == 0x0002 && halves[3] == 0xc400);
    CHECK_THAT(call("ncclAllReduce", static_cast<const void *>(brain), static_cast<void *>(brains), size_t{2}, kBfloat16, kAverage, communicator, kNoStream) == 0);
    CHECK_THAT(brains[0] == 0x3f80 && brains[1] == 0x4000 && rank < 2);
    return true;
  }));
}

TEST_F(Nccl, NeighboursMaySendAndReceiveInAnyOrderWithinAGroup) {
  EXPECT_TRUE(together(3, [](int rank, void *communicator) {
    for (int round = 0; round < 20; round++) {
      int32_t mine = 100 * round + rank, left = -1, right = -1;
      CHECK_THAT(call("ncclGroupStart") == 0);
      CHECK_THAT(call("ncclRecv", static_cast<void *>(&left), size_t{1}, kInt32, (rank + 2) % 3, communicator, kNoStream) == 0);
      CHECK_THAT(call("ncclRecv", static_cast<void *>(&right), size_t{1}, kInt32, (rank + 1) % 3, communicator, kNoStream) == 0);
      CHECK_THAT(call("ncclSend", static_cast<const void *>(&mine), size_t{1}, kInt32, (rank + 1) % 3, communicator, kNoStream) == 0);
      CHECK_THAT(call("ncclSend", static_cast<const void *>(&mine), size_t{1}, kInt32, (rank + 2) % 3, communicator, kNoStream) == 0);
      CHECK_THAT(call("ncclGroupEnd") == 0);
      CHECK_THAT(left == 100 * round + (rank + 2) % 3 && right == 100 * round + (rank + 1) % 3);
    }
    return true;
  }));
}

TEST_F(Nccl, ASplitKeepsTheRanksOfOneColorInTheOrderOfTheirKeys) {
  EXPECT_TRUE(together(4, [](int rank, void *communicator) {
    void *part = nullptr;
    CHECK_THAT(call("ncclCommSplit", communicator, rank % 2, -rank, &part, static_cast<void *>(nullptr)) == 0);
    int ranks = 0, number = 0;
    CHECK_THAT(call("ncclCommCount", part, &ranks) == 0 && ranks == 2);
    CHECK_THAT(call("ncclCommUserRank", part, &number) == 0 && number == (rank < 2 ? 1 : 0));
    int32_t sum = rank;
    CHECK_THAT(call("ncclAllReduce", static_cast<const void *>(&sum), static_cast<void *>(&sum), size_t{1}, kInt32, kSum, part, kNoStream) == 0);
    CHECK_THAT(sum == (rank % 2 == 0 ? 2 : 4));
    return true;
  }));
}

TEST_F(Nccl, OneProcessMayHoldAllRanks) {
  EXPECT_TRUE(ended_well(start(
      [] {
        void *communicators[2] = {};
        const int devices[2] = {0, 1};
        CHECK_THAT(call("ncclCommInitAll", static_cast<void **>(communicators), 2, static_cast<const int *>(devices)) == 0);
        int32_t values[12][2];
        CHECK_THAT(call("ncclGroupStart") == 0);
        for (int rank = 0; rank < 2; rank++) {
          for (int i = 0; i < 12; i++) {
            values[i][rank] = i + rank;
            CHECK_THAT(call("ncclAllReduce", static_cast<const void *>(&values[i][rank]), static_cast<void *>(&values[i][rank]), size_t{1}, kInt32, kSum,
                            communicators[rank], kNoStream) == 0);
          }
        }
        CHECK_THAT(call("ncclGroupEnd") == 0);
        for (int i = 0; i < 12; i++) CHECK_THAT(values[i][0] == 2 * i + 1 && values[i][1] == 2 * i + 1);
        return true;
      },
      "0")));
}

TEST_F(Nccl, WhoWaitsForARankThatDiedGoesOnAlone) {
  EXPECT_TRUE(together(2, [](int rank, void *communicator) {
    if (rank == 1) _exit(0);
    int32_t sum = 3;
    CHECK_THAT(call("ncclAllReduce", static_cast<const void *>(&sum), static_cast<void *>(&sum), size_t{1}, kInt32, kSum, communicator, kNoStream) == 0);
    CHECK_THAT(sum == 6);
    return true;
  }));
}

TEST_F(Nccl, BuffersAreChargedWithTheFirstOperationThatNeedsThemAndGivenBack) {
  EXPECT_TRUE(alone([] {
    UniqueId id{};
    void *communicator = nullptr;
    CHECK_THAT(call("ncclGetUniqueId", &id) == 0 && call("ncclCommInitRank", &communicator, 8, id, 0) == 0);
    Book book;
    char error[256];
    CHECK_THAT(gpumem::book::open(&book, book_path().c_str(), false, error, sizeof error) == gpumem::book::Status::ok);
    const auto used = [&] {
      gpumem::book::DeviceUse use{};
      gpumem::book::device_use(&book, 0, &use);
      return use.used_bytes - use.context_bytes;
    };
    float value = 1, all[8];
    const void *send = &value;
    CHECK_THAT(used() == 0);
    CHECK_THAT(call("ncclAllGather", send, static_cast<void *>(all), size_t{1}, kFloat, communicator, kNoStream) == 0);
    CHECK_THAT(used() == 2 * kConnectionBytes);
    CHECK_THAT(call("ncclAllReduce", send, static_cast<void *>(&value), size_t{1}, kFloat, kSum, communicator, kNoStream) == 0);
    CHECK_THAT(call("ncclAllReduce", send, static_cast<void *>(&value), size_t{1}, kFloat, kSum, communicator, kNoStream) == 0);
    CHECK_THAT(used() == 6 * kConnectionBytes);
    CHECK_THAT(call("ncclCommDestroy", communicator) == 0);
    CHECK_THAT(used() == 0);
    return true;
  }));
}

TEST_F(Nccl, ADeviceWithoutRoomForBuffersSaysSo) {
  EXPECT_TRUE(alone([] {
    setenv("NCCL_BUFFSIZE", "1073741824", 1);
    UniqueId id{};
    void *communicator = nullptr;
    CHECK_THAT(call("ncclGetUniqueId", &id) == 0 && call("ncclCommInitRank", &communicator, 8, id, 0) == 0);
    float value = 1;
    CHECK_THAT(call("ncclAllReduce", static_cast<const void *>(&value), static_cast<void *>(&value), size_t{1}, kFloat, kSum, communicator, kNoStream) == 1);
    auto last_error = reinterpret_cast<const char *(*)(void *)>(dlsym(library, "ncclGetLastError"));
    CHECK_THAT(std::string(last_error(communicator)).find("out of memory") != std::string::npos);
    return true;
  }));
}

}  // namespace
