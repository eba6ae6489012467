// SPDX-License-Identifier: Apache-2.0
// gpumem estimate: how much GPU memory a command needs, found out here and now on a virtual GPU.
// Runs gpumem-probe as the calling user; needs no daemon, no GPU and no Slurm.
#include <unistd.h>

#include <nlohmann/json.hpp>

#include <cstdio>
#include <string>

#include "base/clock.h"
#include "base/paths.h"
#include "base/size.h"
#include "cli/commands.h"
#include "cli/estimate_table.h"
#include "estimator/estimate/estimate.h"
#include "estimator/gpus/profile.h"
#include "estimator/probe/client.h"

extern char** environ;

namespace gpumem::cli {
namespace {

struct EstimateOptions {
  std::string gpu = "NVIDIA GeForce RTX 3060";
  int gpus = 1;
  std::string capacity;
  double timeout_s = 300;
  bool as_json = false;
  bool no_sandbox = false;
  bool full = false;
  int epoch_batches = 6;
  int stable_steps = 8;
  int batch_percent = 100;
  bool prove = false;
  std::string record, snapshot;
  std::string method = "auto";
};

std::string working_directory() {
  char path[4096];
  return ::getcwd(path, sizeof path) != nullptr ? path : "";
}

std::string absolute(const std::string& path) { return path[0] == '/' ? path : working_directory() + "/" + path; }

// One line on a terminal, overwritten each second and erased at the end.
class ProgressLine {
 public:
  explicit ProgressLine(bool quiet) : shown_(!quiet && ::isatty(2) == 1) {}
  void show(const std::string& text, double elapsed_s) {
    if (!shown_) return;
    std::fprintf(stderr, "\r\033[Kgpumem: %s, %s", text.c_str(), format_duration(elapsed_s).c_str());
    std::fflush(stderr);
    used_ = true;
  }
  void erase() {
    if (used_) std::fprintf(stderr, "\r\033[K");
  }

 private:
  bool shown_, used_ = false;
};

int estimate(const EstimateOptions& options, const Invocation& invocation) {
  if (!invocation.has_program || invocation.program.empty()) {
    return complain("no command to estimate: write gpumem estimate [OPTIONS] -- python train.py …", kUsage);
  }
  auto gpu = gpus::find_profile(paths::data_file("gpus"), options.gpu);
  if (!gpu) {
    const bool users_fault = gpu.error().kind == ErrorKind::invalid_argument || gpu.error().kind == ErrorKind::not_found;
    return complain("--gpu: " + gpu.error().message, users_fault ? kUsage : kFailed);
  }
  probe::Request request;
  if (!options.capacity.empty()) {
    auto capacity = parse_size(options.capacity);
    if (!capacity) return complain("--capacity: " + capacity.error().message, kUsage);
    request.capacity_bytes = *capacity;
  }
  request.command = invocation.program;
  request.working_directory = working_directory();
  if (request.working_directory.empty()) return complain("the working directory does not exist any more");
  for (char** variable = environ; *variable != nullptr; ++variable) request.environment.push_back(*variable);
  request.gpu = std::move(*gpu);
  request.gpu_count = options.gpus;
  request.timeout_s = options.timeout_s;
  request.sandbox_required = !options.no_sandbox;
  request.stop_when_stable = !options.full;
  // With --full the program runs as it is, to its own end.
  request.epoch_batches = options.full ? 0 : options.epoch_batches;
  request.stable_steps = options.stable_steps;
  request.batch_percent = options.batch_percent;
  request.prove = options.prove;

  auto method = probe::parse_method(options.method);
  if (!method) return complain("--method: " + method.error().message, kUsage);
  request.method = *method;
  if (!options.record.empty()) request.record_directory = absolute(options.record);
  if (!options.snapshot.empty()) request.snapshot_file = absolute(options.snapshot);
  if (::access(request.record_directory.c_str(), F_OK) == 0) return complain("--record: " + options.record + " exists already", kUsage);

  ProgressLine progress(options.as_json);
  auto answer = probe::ask_probe(request, {paths::internal_program("gpumem-probe"),
                                           [&](const std::string& text, double elapsed_s) { progress.show(text, elapsed_s); }});
  progress.erase();
  if (!answer) return complain(answer.error().message);
  if (options.as_json) {
    std::printf("%s\n", answer->dump(2, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
  } else {
    std::printf("%s", estimate_table(*answer).c_str());
  }
  if (std::fflush(stdout) != 0) return complain("cannot write the estimate to standard output");
  return estimate::exit_status_of(*answer);
}

}  // namespace

void add_estimate_command(CLI::App& app, Invocation& invocation) {
  auto options = std::make_shared<EstimateOptions>();
  auto* command = app.add_subcommand("estimate", "Run a command on a virtual GPU and say how much GPU memory it needs");
  command->footer(
      "The command and its arguments follow \"--\": gpumem estimate --gpu A100-40GB -- python train.py --batch 32\n"
      "Exit status: 0 estimated, 3 out of memory on this GPU, 4 the program failed, 5 cannot be estimated,\n"
      "124 no end within --timeout, 2 wrong usage, 1 anything else.");
  command->add_option("--gpu", options->gpu, "GPU model: its name, a unique part of it, or the path of a profile; 'gpumem gpus' lists them")
      ->capture_default_str();
  command->add_option("--gpus", options->gpus, "How many of them")->check(CLI::Range(1, book::kMaxDevices))->capture_default_str();
  command->add_option("--capacity", options->capacity, "Memory of each, if not all of it: 8G, 800M");
  command->add_option("--timeout", options->timeout_s, "Seconds after which the program is ended; 0: none")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_option("--epoch-batches", options->epoch_batches, "Batches after which an epoch is ended; 0: epochs are left alone")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_option("--stable-steps", options->stable_steps, "Optimizer steps without a new peak after which the program is ended")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_flag("--prove", options->prove, "Run it a second time within the smallest limit that may be enough, and say whether it is");
  command->add_option("--batch-percent", options->batch_percent, "What would smaller batches need? Each DataLoader's are cut to this percentage")
      ->check(CLI::Range(1, 100))
      ->capture_default_str();
  command->add_option("--method", options->method, "virtual_gpu, xmem (three iterations on the CPU, xMem's rules) or auto: the virtual GPU where PyTorch has CUDA")
      ->check(CLI::IsMember({"auto", "virtual_gpu", "xmem"}))
      ->capture_default_str();
  command->add_flag("--full", options->full, "Run the program to its own end: epochs are not shortened, nothing ends it early");
  command->add_flag("--no-sandbox", options->no_sandbox, "Run it without protection of your files: what it writes is written");
  command->add_option("--record", options->record, "Keep the record in this new directory, for gpumem explain (by default: the newest 8 in your cache)");
  command->add_option("--snapshot", options->snapshot, "Write PyTorch's memory history with stack traces to this file; pytorch.org/memory_viz opens it");
  command->add_flag("--json", options->as_json, "One JSON object on standard output; the program's output goes to standard error");
  command->callback([options, &invocation] { invocation.exit_status = estimate(*options, invocation); });
}

}  // namespace gpumem::cli
