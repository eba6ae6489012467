// SPDX-License-Identifier: Apache-2.0
// Tests of estimator/book: accounts shared by processes that die in every way.

#include "estimator/book/book.h"

#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "estimator/book/layout.h"

namespace book = gpumem::book;
using book::Charge;
using book::Status;

namespace {

constexpr uint64_t kMiB = 1 << 20;

class BookTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char folder[] = "book_test.XXXXXX";
    ASSERT_NE(mkdtemp(folder), nullptr);
    char here[4096];
    ASSERT_NE(getcwd(here, sizeof here), nullptr);
    folder_ = std::string(here) + "/" + folder;
    path_ = folder_ + "/book";
  }
  void TearDown() override {
    unlink(path_.c_str());
    rmdir(folder_.c_str());
  }
  void make(book::Accounting accounting = book::Accounting::private_book, uint64_t usable = 100 * kMiB, int devices = 1) {
    std::vector<book::DeviceDescription> descriptions(static_cast<size_t>(devices));
    for (auto &d : descriptions) {
      strcpy(d.name, "NVIDIA Test");
      d.total_bytes = 200 * kMiB;
      d.usable_bytes = usable;
      d.context_bytes = 10 * kMiB;
    }
    char error[256];
    ASSERT_EQ(book::create(path_.c_str(), descriptions.data(), devices, accounting, 0600, error, sizeof error), Status::ok) << error;
  }
  // Runs `work` in a child with a Book of its own and returns its wait status. The book is not closed: as with _exit.
  int in_child(const std::function<int(book::Book &)> &work, const char *job = "job") {
    const pid_t pid = start_child(work, job);
    int status = 0;
    waitpid(pid, &status, 0);
    return status;
  }
  pid_t start_child(const std::function<int(book::Book &)> &work, const char *job = "job") {
    const pid_t pid = fork();
    if (pid != 0) return pid;
    static book::Book mine;
    char error[256];
    if (book::open(&mine, path_.c_str(), true, error, sizeof error) != Status::ok) _exit(100);
    if (book::attach(&mine, job) != Status::ok) _exit(101);
    _exit(work(mine));
  }
  // The book as a reader sees it. One Book at a time a process: see book.h.
  struct Reader {
    explicit Reader(const std::string &path, bool writable = true) {
      char error[256] = "";
      EXPECT_EQ(book::open(&view, path.c_str(), writable, error, sizeof error), Status::ok) << error;
    }
    ~Reader() { book::close(&view); }
    book::DeviceUse device(int number = 0) {
      book::DeviceUse use;
      EXPECT_EQ(book::device_use(&view, number, &use), Status::ok);
      return use;
    }
    std::vector<book::ProcessUse> processes() {
      std::vector<book::ProcessUse> all;
      book::for_each_process(&view, [](void *to, const book::ProcessUse &p) { static_cast<decltype(all) *>(to)->push_back(p); }, &all);
      return all;
    }
    book::JobUse job(const char *key) {
      book::JobUse use;
      EXPECT_EQ(book::job_use(&view, key, &use), Status::ok);
      return use;
    }
    book::Book view;
  };
  std::string folder_, path_;
};

TEST_F(BookTest, ChargesUpToTheLastByteAndNotOneMore) {
  make();
  EXPECT_EQ(in_child([](book::Book &b) {
    if (book::charge(&b, 0, 10 * kMiB, Charge::context) != Status::ok) return 1;
    if (book::charge(&b, 0, 90 * kMiB, Charge::allocation) != Status::ok) return 2;
    if (book::charge(&b, 0, 1, Charge::allocation) != Status::out_of_memory) return 3;
    book::discharge(&b, 0, 1, Charge::allocation);
    if (book::charge(&b, 0, 1, Charge::allocation) != Status::ok) return 4;
    return 0;
  }), 0);
  Reader reader(path_);
  EXPECT_EQ(reader.device().peak_bytes, 100 * kMiB);
  ASSERT_EQ(reader.processes().size(), 1u);
  const book::ProcessUse process = reader.processes()[0];
  EXPECT_EQ(process.devices[0].allocated_peak_bytes, 90 * kMiB);
  EXPECT_EQ(process.devices[0].context_peak_bytes, 10 * kMiB);
  EXPECT_EQ(process.devices[0].allocation_calls, 3u);
  EXPECT_EQ(process.devices[0].out_of_memory_count, 1u);
  EXPECT_EQ(process.devices[0].out_of_memory_bytes, 1u);
  EXPECT_FALSE(process.alive);
  EXPECT_STREQ(process.job_key, "job");
}

TEST_F(BookTest, TakesBackWhatAnExitedProcessHeld) {
  make();
  ASSERT_EQ(in_child([](book::Book &b) { return book::charge(&b, 0, 60 * kMiB, Charge::allocation) != Status::ok; }), 0);
  Reader reader(path_);
  EXPECT_EQ(reader.device().used_bytes, 0u);
  EXPECT_EQ(reader.device().peak_bytes, 60 * kMiB);
}

TEST_F(BookTest, TakesBackWhatAKilledProcessHeldWhenSomeoneNeedsIt) {
  make();
  const int killed = in_child([](book::Book &b) {
    book::charge(&b, 0, 80 * kMiB, Charge::allocation);
    raise(SIGKILL);
    return 0;
  });
  ASSERT_TRUE(WIFSIGNALED(killed));
  EXPECT_EQ(in_child([](book::Book &b) { return book::charge(&b, 0, 100 * kMiB, Charge::allocation) != Status::ok; }), 0);
}

// A program starts an evaluation, which ends, and goes on itself: the two were never there together.
TEST_F(BookTest, APeakDoesNotCountTheDead) {
  make();
  EXPECT_EQ(in_child([&](book::Book &parent) {
    if (book::charge(&parent, 0, 30 * kMiB, Charge::allocation) != Status::ok) return 1;
    const pid_t child = fork();
    if (child == 0) {
      book::after_fork(&parent);
      if (book::attach(&parent, "job") != Status::ok) _exit(2);
      _exit(book::charge(&parent, 0, 20 * kMiB, Charge::allocation) != Status::ok);
    }
    int status = 1;
    waitpid(child, &status, 0);
    if (status != 0) return 2;
    return book::charge(&parent, 0, 25 * kMiB, Charge::allocation) == Status::ok ? 0 : 3;
  }), 0);
  Reader reader(path_);
  EXPECT_EQ(reader.device().peak_bytes, 55 * kMiB);
  EXPECT_EQ(reader.job("job").devices[0].peak_bytes, 55 * kMiB);
}

TEST_F(BookTest, StaysConsistentWhenHoldersOfTheLockAreKilled) {
  make(book::Accounting::shared_book, 1000 * kMiB);
  for (int round = 0; round < 40; ++round) {
    std::vector<pid_t> children;
    for (int c = 0; c < 3; ++c)
      children.push_back(start_child([](book::Book &b) {
        for (;;) {
          book::charge(&b, 0, 3 * kMiB, Charge::allocation);
          book::charge(&b, 0, 2 * kMiB, Charge::allocation);
          book::discharge(&b, 0, 5 * kMiB, Charge::allocation);
        }
        return 0;
      }));
    usleep(2000 + round * 97);
    for (pid_t child : children) kill(child, SIGKILL);
    for (pid_t child : children) waitpid(child, nullptr, 0);
  }
  Reader reader(path_);
  EXPECT_EQ(reader.device().used_bytes, 0u);
  EXPECT_EQ(reader.job("job").devices[0].used_bytes, 0u);
  EXPECT_LE(reader.device().peak_bytes, 15 * kMiB);
  for (const auto &process : reader.processes()) EXPECT_FALSE(process.alive);
}

TEST_F(BookTest, RepairsTotalsThatADeadWriterLeftHalfChanged) {
  make();
  const pid_t holder = start_child([](book::Book &b) {
    book::charge(&b, 0, 30 * kMiB, Charge::allocation);
    b.layout->dirty = 1;  // as after a kill between two stores
    b.layout->devices[0].used_bytes = 77;
    pause();
    return 0;
  });
  Reader reader(path_);
  while (reader.view.layout->devices[0].used_bytes != 77) usleep(1000);
  EXPECT_EQ(reader.device().used_bytes, 30 * kMiB);
  kill(holder, SIGKILL);
  waitpid(holder, nullptr, 0);
}

TEST_F(BookTest, ConcurrentProcessesNeverExceedTheDevice) {
  make(book::Accounting::shared_book, 10 * kMiB);
  std::vector<pid_t> children;
  for (int c = 0; c < 4; ++c)
    children.push_back(start_child([](book::Book &b) {
      int refused = 0;
      for (int i = 0; i < 2000; ++i) {
        if (book::charge(&b, 0, 4 * kMiB, Charge::allocation) == Status::ok)
          book::discharge(&b, 0, 4 * kMiB, Charge::allocation);
        else
          ++refused;
      }
      return refused == 2000;  // some must have come through
    }));
  for (pid_t child : children) {
    int status = 1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  Reader reader(path_);
  EXPECT_EQ(reader.device().used_bytes, 0u);
  EXPECT_LE(reader.device().peak_bytes, 10 * kMiB);
}

TEST_F(BookTest, AJobsLimitRefusesWhereTheDeviceWouldNot) {
  make();
  {
    Reader admin(path_);
    ASSERT_EQ(book::set_job_limit(&admin.view, "small", 0, 20 * kMiB), Status::ok);
  }
  EXPECT_EQ(in_child([](book::Book &b) {
    uint64_t free_bytes, total_bytes;
    book::available(&b, 0, &free_bytes, &total_bytes);
    if (free_bytes != 20 * kMiB || total_bytes != 20 * kMiB) return 1;
    if (book::charge(&b, 0, 20 * kMiB, Charge::allocation) != Status::ok) return 2;
    return book::charge(&b, 0, 1, Charge::allocation) == Status::out_of_memory ? 0 : 3;
  }, "small"), 0);
  EXPECT_EQ(in_child([](book::Book &b) { return book::charge(&b, 0, 70 * kMiB, Charge::allocation) != Status::ok; }, "other"), 0);
  Reader reader(path_);
  EXPECT_EQ(reader.job("small").devices[0].peak_bytes, 20 * kMiB);
  EXPECT_EQ(reader.job("small").devices[0].out_of_memory_count, 1u);
  EXPECT_EQ(reader.job("other").devices[0].peak_bytes, 70 * kMiB);
  EXPECT_EQ(reader.job("nobody").devices[0].peak_bytes, 0u);
}

TEST_F(BookTest, AMeterWithoutALimitOnlyMeasures) {
  make(book::Accounting::meter, 0);
  EXPECT_EQ(in_child([](book::Book &b) { return book::charge(&b, 0, 5000 * kMiB, Charge::allocation) != Status::ok; }), 0);
  Reader reader(path_);
  EXPECT_EQ(reader.job("job").devices[0].peak_bytes, 5000 * kMiB);
}

TEST_F(BookTest, ProcessesOfOneJobAddUp) {
  make(book::Accounting::private_book, 100 * kMiB, 2);
  int ready[2], go[2];
  ASSERT_EQ(pipe(ready), 0);
  ASSERT_EQ(pipe(go), 0);
  std::vector<pid_t> children;
  for (int c = 0; c < 2; ++c)
    children.push_back(start_child([&](book::Book &b) {
      book::charge(&b, 1, 40 * kMiB, Charge::allocation);
      char byte = 'x';
      if (write(ready[1], &byte, 1) != 1) return 1;
      return read(go[0], &byte, 1) == 1 ? 0 : 1;
    }));
  char bytes[2];
  for (int c = 0; c < 2; ++c) ASSERT_EQ(read(ready[0], bytes + c, 1), 1);
  {
    Reader reader(path_);
    EXPECT_EQ(reader.device(1).used_bytes, 80 * kMiB);
    EXPECT_EQ(reader.device(0).used_bytes, 0u);
    EXPECT_EQ(reader.job("job").processes_alive, 2);
    for (const auto &process : reader.processes()) EXPECT_EQ(process.visible_pid, process.pid);
  }
  ASSERT_EQ(write(go[1], bytes, 2), 2);
  for (pid_t child : children) waitpid(child, nullptr, 0);
}

TEST_F(BookTest, AForkedChildIsAProcessOfItsOwn) {
  make();
  EXPECT_EQ(in_child([](book::Book &b) {
    book::charge(&b, 0, 10 * kMiB, Charge::allocation);
    const pid_t pid = fork();
    if (pid == 0) {
      book::after_fork(&b);
      if (book::charge(&b, 0, kMiB, Charge::allocation) != Status::not_attached) _exit(1);
      if (book::attach(&b, "job") != Status::ok) _exit(2);
      _exit(book::charge(&b, 0, 20 * kMiB, Charge::allocation) != Status::ok);
    }
    int status = 1;
    waitpid(pid, &status, 0);
    if (status != 0) return 1;
    book::DeviceUse use;
    book::device_use(&b, 0, &use);
    return use.used_bytes == 10 * kMiB ? 0 : 2;
  }), 0);
  Reader reader(path_);
  ASSERT_EQ(reader.processes().size(), 2u);
  EXPECT_TRUE(reader.processes()[1].forked_after_use);
  EXPECT_EQ(reader.device().peak_bytes, 30 * kMiB);
}

TEST_F(BookTest, SurvivesAProgramThatClosesEveryDescriptor) {
  make();
  EXPECT_EQ(in_child([](book::Book &b) {
    book::charge(&b, 0, 10 * kMiB, Charge::allocation);
    for (int fd = 3; fd < 1024; ++fd) ::close(fd);
    if (book::charge(&b, 0, 10 * kMiB, Charge::allocation) != Status::ok) return 1;
    // The number may now belong to another file, which must not be locked or closed.
    ::close(b.fd);
    const int other = ::open("/dev/null", O_RDONLY);
    if (dup2(other, b.fd) < 0) return 2;
    return book::charge(&b, 0, 10 * kMiB, Charge::allocation) != Status::ok ? 3 : 0;
  }), 0);
  Reader reader(path_);
  EXPECT_EQ(reader.device().peak_bytes, 30 * kMiB);
}

TEST_F(BookTest, ReadersNeedNoWriteAccess) {
  make();
  ASSERT_EQ(in_child([](book::Book &b) {
    book::charge(&b, 0, 10 * kMiB, Charge::allocation);
    book::count_launch(&b);
    book::count_launch(&b);
    book::note_host_failure(&b, "mmap", ENOMEM, 123);
    book::note_missing(&b, "cudaSomething");
    book::note_missing(&b, "cudaSomething");
    book::note_missing(&b, "cudaOther");
    return 0;
  }), 0);
  Reader reader(path_, false);
  ASSERT_EQ(reader.processes().size(), 1u);
  const book::ProcessUse process = reader.processes()[0];
  EXPECT_FALSE(process.alive);
  EXPECT_EQ(process.launches, 2u);
  EXPECT_EQ(process.host_failures, 1u);
  EXPECT_STREQ(process.host_failure, "mmap");
  EXPECT_EQ(process.host_errno, ENOMEM);
  std::vector<book::MissingFunction> missing;
  book::for_each_missing(&reader.view, [](void *to, const book::MissingFunction &m) { static_cast<decltype(missing) *>(to)->push_back(m); }, &missing);
  ASSERT_EQ(missing.size(), 2u);
  EXPECT_STREQ(missing[0].name, "cudaSomething");
  EXPECT_EQ(missing[0].calls, 2u);
  EXPECT_EQ(book::attach(&reader.view, "job"), Status::cannot_open);
}

TEST_F(BookTest, MoreMissingFunctionsThanFitAreNoError) {
  make();
  Reader reader(path_);
  for (int n = 0; n < book::kMaxMissing + 20; ++n) book::note_missing(&reader.view, ("f" + std::to_string(n)).c_str());
  int count = 0;
  book::for_each_missing(&reader.view, [](void *to, const book::MissingFunction &) { ++*static_cast<int *>(to); }, &count);
  EXPECT_EQ(count, book::kMaxMissing);
}

TEST_F(BookTest, RowsOfEndedProcessesAreUsedAgain) {
  make();
  for (int n = 0; n < book::kMaxProcesses + 10; ++n)
    ASSERT_EQ(in_child([](book::Book &b) { return book::charge(&b, 0, kMiB, Charge::allocation) != Status::ok; }), 0) << n;
  Reader reader(path_);
  EXPECT_EQ(reader.processes().size(), static_cast<size_t>(book::kMaxProcesses));
  EXPECT_EQ(reader.device().used_bytes, 0u);
}

TEST_F(BookTest, RefusesWhatIsNoBook) {
  char error[256];
  book::Book none;
  EXPECT_EQ(book::open(&none, path_.c_str(), true, error, sizeof error), Status::cannot_open);
  EXPECT_NE(std::string(error).find(path_), std::string::npos);
  EXPECT_EQ(book::open(&none, "relative", true, error, sizeof error), Status::cannot_open);
  const int fd = ::open(path_.c_str(), O_RDWR | O_CREAT, 0600);
  ASSERT_EQ(ftruncate(fd, sizeof(book::Layout)), 0);
  ::close(fd);
  EXPECT_EQ(book::open(&none, path_.c_str(), true, error, sizeof error), Status::not_a_book);
  book::DeviceDescription device = {};
  EXPECT_EQ(book::create(path_.c_str(), &device, 1, book::Accounting::meter, 0600, error, sizeof error), Status::cannot_open);
  EXPECT_EQ(book::create((path_ + "2").c_str(), &device, 0, book::Accounting::meter, 0600, error, sizeof error), Status::no_such_device);
}

TEST_F(BookTest, TheModeIsWhatWasAskedForWhateverTheUmask) {
  const mode_t old = umask(0077);
  book::DeviceDescription device = {};
  char error[256];
  ASSERT_EQ(book::create(path_.c_str(), &device, 1, book::Accounting::shared_book, 0666, error, sizeof error), Status::ok);
  umask(old);
  struct stat status;
  ASSERT_EQ(stat(path_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0666u);
}

}  // namespace
