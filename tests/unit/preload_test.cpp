// SPDX-License-Identifier: Apache-2.0
// Tests of the rules for preloaded libraries (doc/HACKING.md): the ELF files, and programs that run with them.

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <regex>
#include <set>
#include <sstream>
#include <string>

namespace {

std::string output_of(const std::string &command, int *status = nullptr) {
  FILE *pipe = popen(command.c_str(), "r");
  std::string output;
  char text[4096];
  size_t got;
  while (pipe != nullptr && (got = fread(text, 1, sizeof text, pipe)) > 0) output.append(text, got);
  const int ended = pclose(pipe);
  if (status != nullptr) *status = ended;
  return output;
}

const std::string kVirtualGpu = BUILD_DIR "/estimator/virtual_gpu/";
const std::string kMeter = BUILD_DIR "/estimator/meter/libgpumem_meter.so";

class Library : public ::testing::TestWithParam<std::string> {
 protected:
  std::string readelf(const std::string &options) {
    int status = 1;
    const std::string output = output_of("LC_ALL=C readelf -W " + options + " '" + GetParam() + "'", &status);
    EXPECT_EQ(status, 0) << "readelf (binutils) is needed";
    EXPECT_FALSE(output.empty());
    return output;
  }
};

TEST_P(Library, NeedsNoGlibcAbove217) {
  const std::string versions = readelf("-V");
  const std::regex name("Name: GLIBC_([0-9]+)\\.([0-9]+)");
  for (std::sregex_iterator at(versions.begin(), versions.end(), name), end; at != end; ++at) {
    EXPECT_EQ((*at)[1], "2");
    EXPECT_LE(std::stoi((*at)[2]), 17) << at->str();
  }
  EXPECT_EQ(versions.find("GLIBC_PRIVATE"), std::string::npos);
}

TEST_P(Library, NeedsLibcAlone) {
  const std::string dynamic = readelf("-d");
  const std::regex needed("\\(NEEDED\\)[^\\[]*\\[([^\\]]*)\\]");
  for (std::sregex_iterator at(dynamic.begin(), dynamic.end(), needed), end; at != end; ++at) {
    const std::string library = (*at)[1];
    EXPECT_TRUE(library == "libc.so.6" || library == "libdl.so.2" || library == "libpthread.so.0" || library == "libgpumem_vgpu.so" ||
                library == "ld-linux-x86-64.so.2") << library;
  }
  const std::string symbols = readelf("--dyn-syms");
  for (const char *runtime : {"_Znw", "_Zdl", "__cxa_throw", "__gxx_personality", "_Unwind", "__cxa_guard", "__cxa_atexit", "__stack_chk"})
    EXPECT_EQ(symbols.find(runtime), std::string::npos) << runtime;
}

// The compiler's own frame_dummy and __do_global_dtors_aux are one pointer each.
TEST_P(Library, HasNoStaticConstructorsOrDestructors) {
  const std::string dynamic = readelf("-d");
  const std::regex array("\\((INIT|FINI)_ARRAYSZ\\)\\s+([0-9]+)");
  for (std::sregex_iterator at(dynamic.begin(), dynamic.end(), array), end; at != end; ++at)
    EXPECT_LE(std::stoi((*at)[2]), 8) << at->str();
}

TEST_P(Library, ExportsInterceptedNamesOnly) {
  std::istringstream symbols(readelf("--dyn-syms"));
  // gpumem_events_recorded: what the tracer asks of the virtual GPU (device/streams.h).
  const std::regex intercepted("gpumem_events_recorded|dlsym|execl[pe]?|execvp?e?|execve|posix_spawnp?|(__cuda|cuda|cu[A-Z]|nvml|nvrtc|cublas|cudnn|cufft|cusolver|cusparse|curand|cupti|nccl|libcudart\\.so\\.).*");
  std::string line;
  while (std::getline(symbols, line)) {
    std::istringstream fields(line);
    std::string number, value, size, type, bind, visibility, section, name;
    if (!(fields >> number >> value >> size >> type >> bind >> visibility >> section >> name)) continue;
    if (bind == "LOCAL" || section == "UND" || number == "Num:") continue;
    EXPECT_TRUE(std::regex_match(name, intercepted)) << name;
    EXPECT_EQ(name.find("_cuda1"), std::string::npos) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Preload, Library,
                         ::testing::Values(kVirtualGpu + "libgpumem_vgpu.so", kVirtualGpu + "libcuda.so.1",
                                           kVirtualGpu + "libnvidia-ml.so.1", kMeter),
                         [](const auto &instance) {
                           const std::string file = instance.param.substr(instance.param.rfind('/') + 1);
                           return std::regex_replace(file, std::regex("[^a-z0-9]"), "_");
                         });

TEST(Preload, SonamesAreThoseThatProgramsLookFor) {
  for (const char *name : {"libgpumem_vgpu.so", "libcuda.so.1", "libnvidia-ml.so.1"})
    EXPECT_NE(output_of("LC_ALL=C readelf -d '" + kVirtualGpu + name + "'").find("soname: [" + std::string(name) + "]"), std::string::npos);
}

// Every name of the runtime, the driver and NVML is there: implemented, or a stub that says so.
TEST(Preload, EveryNameOfTheInterfacesIsAnswered) {
  std::istringstream symbols(output_of("LC_ALL=C readelf -W --dyn-syms '" + kVirtualGpu + "libgpumem_vgpu.so'"));
  std::set<std::string> exported;
  std::string line;
  while (std::getline(symbols, line)) {
    const size_t at = line.rfind(' ');
    if (at != std::string::npos) exported.insert(line.substr(at + 1, line.find('@', at) - at - 1));
  }
  for (const char *name : {
#define F(name) #name,
#include "estimator/cuda_interface/runtime_functions.def"
#include "estimator/cuda_interface/driver_functions.def"
#include "estimator/cuda_interface/nvml_functions.def"
#undef F
       })
    EXPECT_EQ(exported.count(name), 1u) << name;
}

// With the whole set preloaded programs do what they do without: same output, same status.
class Program : public ::testing::TestWithParam<const char *> {};
TEST_P(Program, BehavesTheSame) {
  const std::string preload = "LD_PRELOAD='" + kMeter + " " + kVirtualGpu + "libgpumem_vgpu.so " + kVirtualGpu + "libcuda.so.1 " +
                              kVirtualGpu + "libnvidia-ml.so.1' ";
  const std::string program = GetParam();
  for (const char *environment : {"", "GPUMEM_BOOK=/nonexistent GPUMEM_METER_BOOK=/nonexistent "}) {
    int plain = -1, preloaded = -1;
    const std::string expected = output_of(program + " 2>&1", &plain);
    EXPECT_EQ(output_of("env " + std::string(environment) + preload + program + " 2>&1", &preloaded), expected);
    EXPECT_EQ(preloaded, plain);
  }
}
INSTANTIATE_TEST_SUITE_P(Preload, Program,
                         ::testing::Values("true", "false", "bash -c 'for i in 1 2 3; do (echo $i) & wait; done; echo $((6 * 7)) | cat'",
                                           "ls /", "sh -c 'exec sort /etc/passwd'", "readelf --version", "make --version",
                                           "python3 -c 'import os, threading; t = threading.Thread(target=print, args=(1,)); t.start(); t.join(); p = os.fork(); p and os.wait(); print(p >= 0, flush=True)'",
                                           "g++ --version", "awk 'BEGIN { print 1; exit 3 }'"),
                         [](const auto &instance) { return "case" + std::to_string(instance.index); });

}  // namespace
