// SPDX-License-Identifier: Apache-2.0
// Tests of estimator/virtual_gpu: a CUDA program (programs/vgpu_program.cpp) under the preloaded library, and the book
// afterwards. Nothing of NVIDIA's is needed.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "estimator/book/book.h"
#include "estimator/record/record.h"
#include "estimator/virtual_gpu/device/visible.h"

namespace book = gpumem::book;

namespace {

constexpr uint64_t kMiB = 1 << 20;

class VirtualGpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "vgpu_test.XXXXXX", here[4096];
    ASSERT_NE(mkdtemp(name), nullptr);
    ASSERT_NE(getcwd(here, sizeof here), nullptr);
    folder_ = std::string(here) + "/" + name;
    path_ = folder_ + "/book";
    unsetenv("CUDA_VISIBLE_DEVICES");
    unsetenv("CUDA_DEVICE_ORDER");
  }
  void TearDown() override {
    unlink(path_.c_str());
    rmdir(folder_.c_str());
  }
  void make(int devices = 1, book::Accounting accounting = book::Accounting::private_book,
            const char *name = "NVIDIA Test", uint32_t compute_major = 8) {
    std::vector<book::DeviceDescription> all(static_cast<size_t>(devices));
    for (int n = 0; n < devices; ++n) {
      book::DeviceDescription &d = all[static_cast<size_t>(n)];
      strcpy(d.name, name);
      snprintf(d.uuid, sizeof d.uuid, "GPU-%d0000000-0000-0000-0000-0000000000%02x", n, n);
      snprintf(d.pci_bus_id, sizeof d.pci_bus_id, "00000000:%02X:00.0", 9 - n);
      d.compute_major = compute_major, d.compute_minor = compute_major == 8 ? 6 : 0, d.sm_count = 28;
      d.sm_clock_khz = 1777000, d.warp_size = 32;
      d.threads_per_block = 1024, d.threads_per_sm = 1536, d.blocks_per_sm = 16;
      d.shared_per_block = 49152, d.shared_per_block_optin = 101376, d.shared_per_sm = 102400;
      d.registers_per_block = d.registers_per_sm = 65536;
      d.total_bytes = 200 * kMiB, d.usable_bytes = 110 * kMiB, d.context_bytes = 10 * kMiB;
      d.cuda_version = 13000;
    }
    char error[256];
    ASSERT_EQ(book::create(path_.c_str(), all.data(), devices, accounting, 0600, error, sizeof error), book::Status::ok) << error;
  }
  std::string command(const std::string &part, const std::string &environment = "", const std::string &program = "vgpu_program") {
    const std::string library = LIBRARY_DIR;
    return "env GPUMEM_BOOK='" + path_ + "' " + environment + " LD_PRELOAD='" + library + "/libgpumem_vgpu.so " + library +
           "/libcuda.so.1 " + library + "/libnvidia-ml.so.1' '" PROGRAM_DIR "/" + program + "' " + part;
  }
  // Exit status, or minus the signal. Output is kept in output_.
  int run(const std::string &part, const std::string &environment = "", const std::string &program = "vgpu_program") {
    FILE *pipe = popen((command(part, environment, program) + " 2>&1").c_str(), "r");
    output_.clear();
    char text[512];
    while (pipe != nullptr && fgets(text, sizeof text, pipe) != nullptr) output_ += text;
    const int status = pclose(pipe);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  std::vector<book::ProcessUse> processes() {
    std::vector<book::ProcessUse> all;
    book::Book view;
    char error[256];
    EXPECT_EQ(book::open(&view, path_.c_str(), true, error, sizeof error), book::Status::ok) << error;
    book::for_each_process(&view, [](void *to, const book::ProcessUse &p) { static_cast<decltype(all) *>(to)->push_back(p); }, &all);
    book::for_each_missing(&view, [](void *to, const book::MissingFunction &m) { static_cast<VirtualGpuTest *>(to)->missing_.push_back(m); }, this);
    book::device_use(&view, 0, &device_);
    book::close(&view);
    return all;
  }
  std::string folder_, path_, output_;
  std::vector<book::MissingFunction> missing_;
  book::DeviceUse device_ = {};
};

TEST_F(VirtualGpuTest, WithoutABookThereIsNoDevice) { EXPECT_EQ(run("no_device", "GPUMEM_BOOK="), 0) << output_; }
TEST_F(VirtualGpuTest, AnUnreadableBookIsNoDevice) { EXPECT_EQ(run("no_device"), 0) << output_; EXPECT_EQ(output_, ""); }

// Parts that say all by themselves
class Part : public VirtualGpuTest, public ::testing::WithParamInterface<const char *> {};
TEST_P(Part, BehavesAsInCuda) {
  make(2);
  EXPECT_EQ(run(GetParam()), 0) << output_;
  EXPECT_EQ(output_, "");
}
class RarerPart : public VirtualGpuTest, public ::testing::WithParamInterface<const char *> {};
TEST_P(RarerPart, BehavesAsInCuda) {
  make(2);
  EXPECT_EQ(run(GetParam(), "", "vgpu_interface"), 0) << output_;
  EXPECT_EQ(output_, "");
  processes();
  EXPECT_TRUE(missing_.empty()) << missing_[0].name;
}
INSTANTIATE_TEST_SUITE_P(VirtualGpu, RarerPart,
                         ::testing::Values("graph_memory", "graph_nodes", "mipmaps", "fills", "green", "per_thread"),
                         [](const auto &instance) { return std::string(instance.param); });

class AskedPart : public VirtualGpuTest, public ::testing::WithParamInterface<const char *> {};
TEST_P(AskedPart, BehavesAsInCuda) {
  make(2);
  EXPECT_EQ(run(GetParam(), "", "vgpu_queries"), 0) << output_;
  EXPECT_EQ(output_, "");
  processes();
  EXPECT_TRUE(missing_.empty()) << missing_[0].name;
}
INSTANTIATE_TEST_SUITE_P(VirtualGpu, AskedPart, ::testing::Values("textures", "node_parameters", "node_names", "execution", "batches"),
                         [](const auto &instance) { return std::string(instance.param); });

// What was taken and not returned at each line; what the record's reader makes of it.
TEST_F(VirtualGpuTest, ARecordHasAllDeviceMemoryByTime) {
  for (const char *part : {"out_of_memory", "small", "virtual_memory", "pools"}) {
    make(2);
    ASSERT_EQ(run(part, "GPUMEM_RECORD='" + folder_ + "'"), 0) << output_;
    const auto seen = processes();
    auto record = gpumem::record::read_record(folder_);
    ASSERT_TRUE(record.ok());
    ASSERT_EQ(record->memory.size(), 1u) << part;
    const auto &[pid, log] = *record->memory.begin();
    EXPECT_EQ(pid, seen.at(0).pid);
    EXPECT_FALSE(log.cut);
    uint64_t held = 0, peak = 0, before_ns = 0;
    for (const auto &change : log.changes) {
      EXPECT_GE(change.unix_ns, before_ns);
      before_ns = change.unix_ns;
      if (change.kind == gpumem::record::MemoryChange::Kind::taken) held += change.bytes;
      if (change.kind == gpumem::record::MemoryChange::Kind::returned) held -= change.bytes;
      peak = held > peak ? held : peak;
    }
    EXPECT_EQ(peak, seen.at(0).devices[0].allocated_peak_bytes) << part;
    unlink((folder_ + "/memory-" + std::to_string(pid) + ".jsonl").c_str());
    unlink(path_.c_str());
  }
}

class SharingPart : public VirtualGpuTest, public ::testing::WithParamInterface<const char *> {};
TEST_P(SharingPart, BehavesAsInCuda) {
  for (const char *name : {"NVIDIA Test", "NVIDIA Test SXM"}) {  // the second has multicast
    make(2, book::Accounting::private_book, name, strstr(name, "SXM") != nullptr ? 9 : 8);
    EXPECT_EQ(run(GetParam(), "", "vgpu_sharing"), 0) << name << ": " << output_;
    EXPECT_EQ(output_, "");
    processes();
    EXPECT_TRUE(missing_.empty()) << missing_[0].name;
    unlink(path_.c_str());
  }
}
INSTANTIATE_TEST_SUITE_P(VirtualGpu, SharingPart, ::testing::Values("external", "shared_pools", "multicast", "references"),
                         [](const auto &instance) { return std::string(instance.param); });

INSTANTIATE_TEST_SUITE_P(VirtualGpu, Part,
                         ::testing::Values("out_of_memory", "small", "contents", "stale", "pointers", "virtual_memory", "shared_memory", "pools",
                                           "streams", "graphs", "contexts", "properties", "code", "entry_points", "forks",
                                           "forks_with_locks_held", "family", "threads"),
                         [](const auto &instance) { return std::string(instance.param); });

// ctypes, cffi and others look the runtime's functions up in its library.
TEST_F(VirtualGpuTest, TheRuntimeBehindAHandleIsOurs) {
  make(2);
  for (const char *name : {"libcudart.so.11.0", "libcudart.so.12", "libcudart.so.13", "libcudart-9335f6a2.so.11.0"}) {
    const std::string link = folder_ + "/" + name;
    ASSERT_EQ(symlink(PROGRAM_DIR "/libfake_cudart.so", link.c_str()), 0);
    const std::string generation = "libcudart" + std::string(name).substr(std::string(name).find(".so"));
    EXPECT_EQ(run("by_handle " + link + " " + generation), 0) << name << ": " << output_;
    unlink(link.c_str());
  }
}

// Every function of the runtime, the driver and NVML: nothing crashes, nothing wrong is accepted.
TEST_F(VirtualGpuTest, WrongArgumentsAreAnsweredWithAnError) {
  make(2);
  EXPECT_EQ(run("", "", "vgpu_arguments"), 0) << output_;
}

TEST_F(VirtualGpuTest, LookingAtDevicesChargesNothing) {
  make();
  EXPECT_EQ(run("look"), 0) << output_;
  EXPECT_EQ(processes().size(), 0u);
  EXPECT_EQ(device_.peak_bytes, 0u);
}

TEST_F(VirtualGpuTest, TheContextIsChargedOnceAProcess) {
  make();
  EXPECT_EQ(run("out_of_memory"), 0) << output_;
  ASSERT_EQ(processes().size(), 1u);
  EXPECT_EQ(processes()[0].devices[0].context_peak_bytes, 10 * kMiB);
  EXPECT_EQ(processes()[0].devices[0].allocated_peak_bytes, 100 * kMiB);
  EXPECT_EQ(device_.peak_bytes, 110 * kMiB);
  EXPECT_EQ(device_.used_bytes, 0u);
}

TEST_F(VirtualGpuTest, AKilledProcessLeavesItsFiguresAndNothingElse) {
  make();
  EXPECT_NE(run("die"), 0);
  ASSERT_EQ(processes().size(), 1u);
  EXPECT_FALSE(processes()[0].alive);
  EXPECT_EQ(processes()[0].devices[0].allocated_peak_bytes, 50 * kMiB);
  EXPECT_EQ(device_.used_bytes, 0u);
}

TEST_F(VirtualGpuTest, AProcessThatEndsAtOnceLeavesItsFiguresAndItsRecord) {
  for (const std::string how : {"_exit", "exit_group", "quick_exit", "abort", "exec"}) {
    make();
    run("end " + how, "GPUMEM_RECORD='" + folder_ + "'");
    const auto seen = processes();
    ASSERT_GE(seen.size(), 1u) << how;
    EXPECT_EQ(seen[0].devices[0].allocated_peak_bytes, 50 * kMiB) << how;
    EXPECT_EQ(device_.used_bytes, 0u) << how;
    auto record = gpumem::record::read_record(folder_);
    ASSERT_TRUE(record.ok() && record->memory.size() == 1) << how;
    EXPECT_EQ(record->memory.begin()->second.changes.size(), 1u) << how;
    unlink((folder_ + "/memory-" + std::to_string(record->memory.begin()->first) + ".jsonl").c_str());
    unlink(path_.c_str());
  }
}

TEST_F(VirtualGpuTest, ProcessesOfAllJobsDrawOnOneDevice) {
  make(1, book::Accounting::shared_book);
  FILE *holder = popen(("echo wait | (sleep 3; cat) | " + command("hold 60", "GPUMEM_JOB=first")).c_str(), "r");
  char line[16];
  ASSERT_NE(fgets(line, sizeof line, holder), nullptr);
  EXPECT_EQ(run("refused", "GPUMEM_JOB=second"), 0) << output_;
  EXPECT_EQ(processes().size(), 2u);
  EXPECT_EQ(processes()[0].launches, 1u);
  EXPECT_TRUE(processes()[0].alive);
  EXPECT_STREQ(processes()[0].job_key, "first");
  EXPECT_EQ(processes()[1].devices[0].out_of_memory_count, 1u);
  EXPECT_EQ(processes()[1].devices[0].out_of_memory_bytes, 60 * kMiB);
  pclose(holder);
  EXPECT_NE(run("refused", "GPUMEM_JOB=second"), 0);  // there is room now
}

TEST_F(VirtualGpuTest, ALaggingDeviceIsBehindUntilSomethingWaits) {
  make();
  EXPECT_EQ(run("lagging", "GPUMEM_CLOCK=lagging"), 0) << output_;
}

// A job script's own LD_PRELOAD (or none) does not lose the virtual GPU to the programs that it starts.
TEST_F(VirtualGpuTest, PreloadsOfAScriptAreMergedWithOurs) {
  make();
  const std::string theirs = PROGRAM_DIR "/libfake_cudart.so", show = "sed -n 's/^LD_PRELOAD=//p'", ours = std::string(LIBRARY_DIR) + "/libgpumem_vgpu.so";
  const auto seen = [&](const std::string &how, const std::string &book) {
    const std::string whole = "env " + book + " LD_PRELOAD=" + ours + " " + how + " 2>/dev/null | tr '\\0' '\\n' | " + show;
    FILE *pipe = popen(whole.c_str(), "r");
    std::string text;
    char part[512];
    while (pipe != nullptr && fgets(part, sizeof part, pipe) != nullptr) text += part;
    pclose(pipe);
    return text;
  };
  const std::string all = ours + " " + LIBRARY_DIR "/libcuda.so.1 " LIBRARY_DIR "/libnvidia-ml.so.1 ";
  const std::string file = "/proc/self/environ";
  for (const std::string &how : {
           "bash -c 'LD_PRELOAD=" + theirs + " cat " + file + "'",
           "bash -c 'LD_PRELOAD=" + theirs + " exec cat " + file + "'",
           "sh -c 'export LD_PRELOAD=" + theirs + "; cat " + file + "'",
           "env LD_PRELOAD=" + theirs + " cat " + file,
           "env LD_PRELOAD=" + theirs + " sh -c 'exec cat " + file + "'",
           "python3 -c 'import os, subprocess; subprocess.call([\"cat\", \"" + file + "\"], env={**os.environ, \"LD_PRELOAD\": \"" + theirs + "\"})'",
           "python3 -c 'import os; os.posix_spawn(\"/bin/cat\", [\"cat\", \"" + file + "\"], {**os.environ, \"LD_PRELOAD\": \"" + theirs + "\"}); os.wait()'",
           "python3 -c 'import os; os.execlpe(\"cat\", \"cat\", \"" + file + "\", {**os.environ, \"LD_PRELOAD\": \"" + theirs + "\"})'",
           "perl -e '$ENV{LD_PRELOAD} = \"" + theirs + "\"; exec(\"cat\", \"" + file + "\")'",
       }) {
    EXPECT_EQ(seen(how, "GPUMEM_BOOK=" + path_), all + theirs + "\n") << how;
    EXPECT_EQ(seen(how, "-u GPUMEM_BOOK"), theirs + "\n") << how;
  }
  EXPECT_EQ(seen("env -u LD_PRELOAD cat " + file, "GPUMEM_BOOK=" + path_), all + "\n");
  EXPECT_EQ(seen("env -i cat " + file, "GPUMEM_BOOK=" + path_), "");
  EXPECT_EQ(seen("bash -c 'LD_PRELOAD=" + theirs + " cat " + file + "'", "GPUMEM_METER_BOOK=/x GPUMEM_BOOK=" + path_), LIBRARY_DIR "/libgpumem_meter.so " + all + theirs + "\n");
}

TEST_F(VirtualGpuTest, AHostLimitIsNoDeviceOutOfMemory) {
  make();
  EXPECT_EQ(run("host_limit"), 0) << output_;
  ASSERT_EQ(processes().size(), 1u);
  EXPECT_EQ(processes()[0].host_failures, 1u);
  EXPECT_EQ(processes()[0].host_failure_bytes, 30 * kMiB);
  EXPECT_EQ(processes()[0].devices[0].out_of_memory_count, 0u);
}

TEST_F(VirtualGpuTest, AFunctionThatWeLackIsRecordedByName) {
  make();
  EXPECT_EQ(run("missing"), 0) << output_;
  EXPECT_EQ(output_, "");
  processes();
  ASSERT_EQ(missing_.size(), 2u);
  EXPECT_STREQ(missing_[0].name, "cudaGraphicsGLRegisterBuffer");
  EXPECT_EQ(missing_[0].calls, 2u);
  EXPECT_EQ(std::string(missing_[1].name).substr(0, 16), "cuGetExportTable");
}

TEST_F(VirtualGpuTest, VisibleDevicesAsInCuda) {
  make(3);
  const struct {
    const char *environment, *seen;
  } cases[] = {
      {"", "0 1 2\n"}, {"CUDA_VISIBLE_DEVICES=2,0", "2 0\n"}, {"CUDA_VISIBLE_DEVICES=1,7,0", "1\n"},
      {"CUDA_VISIBLE_DEVICES=GPU-20", "2\n"}, {"CUDA_DEVICE_ORDER=PCI_BUS_ID", "2 1 0\n"},
      {"CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=0", "2\n"},
  };
  for (const auto &c : cases) {
    EXPECT_EQ(run("look", c.environment), 0) << c.environment << ": " << output_;
    EXPECT_EQ(output_, c.seen) << c.environment;
  }
  for (const char *none : {"CUDA_VISIBLE_DEVICES=", "CUDA_VISIBLE_DEVICES=-1", "CUDA_VISIBLE_DEVICES=GPU-", "CUDA_VISIBLE_DEVICES=1,1"})
    EXPECT_EQ(run("no_device", none), 0) << none << ": " << output_;
}

TEST_F(VirtualGpuTest, AProcessSeesOneMigInstanceOnly) {
  make(3);
  book::Book view;
  char error[256];
  ASSERT_EQ(book::open(&view, path_.c_str(), true, error, sizeof error), book::Status::ok) << error;
  for (int d = 1; d < 3; ++d) {
    auto *facts = const_cast<book::DeviceDescription *>(book::description(view, d));
    facts->mig = 1;
    memcpy(facts->uuid, "MIG", 3);
  }
  int devices[book::kMaxDevices];
  EXPECT_EQ(gpumem::virtual_gpu::visible_devices(view, "MIG-2", nullptr, devices), 1);
  EXPECT_EQ(devices[0], 2);
  EXPECT_EQ(gpumem::virtual_gpu::visible_devices(view, nullptr, nullptr, devices), 1);
  EXPECT_EQ(devices[0], 1);
  EXPECT_EQ(gpumem::virtual_gpu::visible_devices(view, "0", nullptr, devices), 1);
  EXPECT_EQ(devices[0], 0);
  book::close(&view);
}

}  // namespace
