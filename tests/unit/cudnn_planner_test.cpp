// SPDX-License-Identifier: Apache-2.0
// cuDNN's planner, the real one behind the stand-in, learned workspaces or a rule. Which one is used is decided once a process, so each
// case has a process of its own.
#include <sys/stat.h>

#include <vector>

#include "estimator/workspaces/plans.h"
#include "estimator/workspaces/table.h"
#include "tests/unit/libraries_fixture.h"

namespace gpumem::libraries_test {
namespace {

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
}  // namespace gpumem::libraries_test
