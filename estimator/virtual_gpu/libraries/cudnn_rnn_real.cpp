// SPDX-License-Identifier: Apache-2.0
// Sizes of recurrent networks as the real cuDNN computes them: Note [cuDNN's own RNN sizes] in cudnn_rnn.h. In the job's processes.
#include <dlfcn.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "estimator/virtual_gpu/libraries/cudnn_real.h"
#include "estimator/virtual_gpu/libraries/cudnn_rnn.h"
#include "estimator/virtual_gpu/libraries/library.h"

namespace gpumem::virtual_gpu::libraries {

namespace {

constexpr size_t kHandleBytes = size_t{1} << 20;  // far more than a cudnnContext
constexpr size_t kNoAnswer = ~size_t{0};
constexpr int kNoDriver = 5;                      // CUDNN_STATUS_EXECUTION_FAILED and its kinds are 5000 to 5005
constexpr int kTrialMs = 5000;                    // the child's; an answer takes a millisecond

// Functions of libcudnn_adv.so.9 and of libcudnn_ops.so.9, which it needs.
struct Functions {
  int (*create_rnn)(void **);
  int (*create_data)(void **);
  int (*create_dropout)(void **);
  int (*destroy_rnn)(void *);
  int (*destroy_data)(void *);
  int (*destroy_dropout)(void *);
  int (*set_dropout)(void *, void *, float, void *, size_t, unsigned long long);  // cudnnRestoreDropoutDescriptor: runs nothing
  int (*set_rnn)(void *, int, int, int, int, int, int, int, int, int32_t, int32_t, int32_t, int32_t, void *, uint32_t);
  int (*set_data)(void *, int, int, int, int, int, const int *, void *);
  int (*sizes)(void *, void *, int, void *, size_t *, size_t *);
};

enum class State { unknown, answers, silent };
Lock lock;
State state = State::unknown;
Functions functions;
void *zeros;

bool load() {
  const RealCudnn *real = real_cudnn();
  void *library = real != nullptr ? cudnn_part(*real, "libcudnn_adv.so.9") : nullptr;
  if (library == nullptr) return false;
  const struct {
    const char *name;
    void **function;
  } wanted[] = {
      {"cudnnCreateRNNDescriptor", reinterpret_cast<void **>(&functions.create_rnn)},
      {"cudnnCreateRNNDataDescriptor", reinterpret_cast<void **>(&functions.create_data)},
      {"cudnnCreateDropoutDescriptor", reinterpret_cast<void **>(&functions.create_dropout)},
      {"cudnnDestroyRNNDescriptor", reinterpret_cast<void **>(&functions.destroy_rnn)},
      {"cudnnDestroyRNNDataDescriptor", reinterpret_cast<void **>(&functions.destroy_data)},
      {"cudnnDestroyDropoutDescriptor", reinterpret_cast<void **>(&functions.destroy_dropout)},
      {"cudnnRestoreDropoutDescriptor", reinterpret_cast<void **>(&functions.set_dropout)},
      {"cudnnSetRNNDescriptor_v8", reinterpret_cast<void **>(&functions.set_rnn)},
      {"cudnnSetRNNDataDescriptor", reinterpret_cast<void **>(&functions.set_data)},
      {"cudnnGetRNNTempSpaceSizes", reinterpret_cast<void **>(&functions.sizes)},
  };
  for (const auto &each : wanted)
    if ((*each.function = find_symbol(library, each.name)) == nullptr) return false;
  void *memory = mmap(nullptr, kHandleBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  zeros = memory != MAP_FAILED ? memory : nullptr;
  return zeros != nullptr;
}

struct Answer {
  size_t workspace, reserve;
};

bool ask(const CudnnDescriptor &rnn, bool training, const RnnInput &input, Answer *answer) {
  const CudnnDescriptor *wanted = cudnn_descriptor(rnn.pointers[0], CudnnDescriptorKind::dropout);
  const float rate = wanted != nullptr ? static_cast<float>(wanted->reals[0]) : 0;
  const int *n = rnn.numbers;
  void *network = nullptr, *data = nullptr, *dropout = nullptr;
  double fill = 0;  // the largest type that it may have
  *answer = {kNoAnswer, kNoAnswer};
  int status = functions.create_rnn(&network);
  if (status == 0) status = functions.create_data(&data);
  if (status == 0) status = functions.create_dropout(&dropout);
  if (status == 0) status = functions.set_dropout(dropout, zeros, rate, zeros, kHandleBytes, 0);
  // The persistent algorithms depend on the device; what they need is taken to be what the standard one does.
  if (status == 0)
    status = functions.set_rnn(network, 0, n[kCell], n[kBias], n[kDirection], n[kInputMode], n[kDataType], n[kMathPrecision], n[kMathType],
                               n[kInputSize], n[kHidden], n[kProjection] != 0 ? n[kProjection] : n[kHidden], n[kLayers], dropout,
                               static_cast<uint32_t>(n[kFlags]));
  if (status == 0)
    status = functions.set_data(data, input.data_type, input.layout, input.steps, input.batch, input.width, input.lengths, &fill);
  if (status == 0) status = functions.sizes(zeros, network, training ? 1 : 0, data, &answer->workspace, training ? &answer->reserve : nullptr);
  if (dropout != nullptr) functions.destroy_dropout(dropout);
  if (data != nullptr) functions.destroy_data(data);
  if (network != nullptr) functions.destroy_rnn(network);
  if (!training) answer->reserve = 0;
  return (status == 0 || status / 1000 == kNoDriver) && answer->workspace != kNoAnswer && answer->reserve != kNoAnswer;
}

// Whether a child that asks comes back, with an answer or without.
bool try_in_child(const CudnnDescriptor &rnn, bool training, const RnnInput &input) {
  // Shared with the child, whose end the program may hear of before we do (waitpid(-1)).
  void *shared = mmap(nullptr, sizeof(int), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return false;
  int *came_back = static_cast<int *>(shared);
  const pid_t child = fork();
  if (child == 0) {
    const int deaths[] = {SIGSEGV, SIGBUS, SIGABRT};
    for (int each : deaths) signal(each, SIG_DFL);  // the program's handlers have nothing to say about it
    Answer answer;
    ask(rnn, training, input, &answer);
    __atomic_store_n(came_back, 1, __ATOMIC_RELEASE);
    _exit(0);
  }
  bool ended = child < 0;
  for (int waited = 0; waited < kTrialMs && !ended; waited++) {
    ended = waitpid(child, nullptr, WNOHANG) != 0;
    const timespec millisecond{0, 1000000};
    if (!ended) nanosleep(&millisecond, nullptr);
  }
  if (!ended) {
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  }
  const bool answered = __atomic_load_n(came_back, __ATOMIC_ACQUIRE) != 0;
  munmap(shared, sizeof(int));
  return answered;
}

}  // namespace

bool real_rnn_sizes(const CudnnDescriptor &rnn, bool training, const RnnInput &input, size_t *workspace, size_t *reserve) {
  Locked locked(lock);
  if (input.lengths == nullptr || state == State::silent) return false;
  if (state == State::unknown) state = load() && try_in_child(rnn, training, input) ? State::answers : State::silent;
  Answer answer;
  if (state == State::silent || !ask(rnn, training, input, &answer)) return false;
  if (rnn.numbers[kAlgorithm] != 0)
    note_guess("LSTM, GRU and RNN: workspace and reserve of a persistent algorithm are taken to be those of cuDNN's standard one");
  else if (job_cudnn_version() == real_cudnn()->version)
    note_detail("LSTM, GRU and RNN: workspace and reserve are what cuDNN computes");
  else
    note_detail("LSTM, GRU and RNN: workspace and reserve are what another cuDNN than the job's computes");
  if (workspace != nullptr) *workspace = answer.workspace;
  if (reserve != nullptr) *reserve = answer.reserve;
  return true;
}

}  // namespace gpumem::virtual_gpu::libraries
