// SPDX-License-Identifier: Apache-2.0
// One probe from request to estimate.
#include "estimator/probe/probe.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/file.h"
#include "base/size.h"
#include "estimator/book/book.h"
#include "estimator/estimate/estimate.h"
#include "estimator/estimate/proof.h"
#include "estimator/probe/environment.h"
#include "estimator/probe/host_memory.h"
#include "estimator/probe/kept_record.h"
#include "estimator/probe/supervise.h"
#include "estimator/probe/tracer_cache.h"
#include "estimator/xmem/figures.h"

namespace gpumem::probe {
namespace {

// Of the host's available memory, what a probe may take when the request does not say: the rest keeps the host alive.
constexpr double kDefaultMemoryShare = 0.8;
// Of the host's memory, what a program may write to the sandbox's tmpfs, and the least of it.
constexpr std::uint64_t kWritableShare = 4;
constexpr std::uint64_t kLeastWritable = 512 * kMiB;
// Files that a program writes on the host's disk in the sandbox, each.
constexpr std::uint64_t kLargestFile = 64 * kGiB;
// A limit that saves less than this is not tried: if it failed, a third run would be needed to prove the peak.
constexpr std::uint64_t kWorthARun = 16 * kMiB;

// Everything of one probe on the host; removed with the object.
class PrivateDirectory {
 public:
  PrivateDirectory() = default;
  PrivateDirectory(const PrivateDirectory&) = delete;
  PrivateDirectory& operator=(const PrivateDirectory&) = delete;
  ~PrivateDirectory() {
    if (path_.empty()) return;
    if (remove_tree(path_)) return;
    // An overlay's work directories are closed even to their owner.
    open_directories(path_);
    (void)!remove_tree(path_).ok();
  }

  Status make() {
    Error last;
    remove_abandoned();
    // Not /tmp first: a directory that the sandbox must leave out is rebuilt entry by entry (view.h), and scripts clean it.
    for (const char* parent : {"/var/tmp", "/tmp"}) {
      auto made = make_temporary_directory(parent, "gpumem-probe");
      if (made) {
        path_ = *made;
        lock_ = FileDescriptor(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
        ::flock(lock_.get(), LOCK_EX);
        return {};
      }
      last = made.error();
    }
    return last;
  }
  const std::string& path() const { return path_; }

 private:
  static void remove_abandoned();
  static void open_directories(const std::string& path);
  std::string path_;
  FileDescriptor lock_;  // held for our life: what is not locked was left by a probe that was killed
};

// Directories of this user's that probes left behind when they were killed.
void PrivateDirectory::remove_abandoned() {
  constexpr double kOldEnough_s = 60;  // between its making and its locking a directory looks abandoned
  for_each_subdirectory("/var/tmp", [](const std::string& path) {
    struct stat found {};
    if (path.find("/gpumem-probe-") == std::string::npos || ::lstat(path.c_str(), &found) != 0 || found.st_uid != ::geteuid()) return;
    if (unix_time_s() - static_cast<double>(found.st_mtime) < kOldEnough_s) return;
    FileDescriptor lock(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
    if (!lock.valid() || ::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) return;
    open_directories(path);
    (void)!remove_tree(path).ok();
  });
}

void PrivateDirectory::open_directories(const std::string& path) {
  ::chmod(path.c_str(), 0700);
  for_each_subdirectory(path, [](const std::string& child) { open_directories(child); });
}

Status make_book(const Request& request, const std::string& path) {
  std::vector<book::DeviceDescription> devices;
  for (int i = 0; i < request.gpu_count; ++i) devices.push_back(gpus::describe_device(request.gpu, i, request.capacity_bytes));
  char message[512] = "";
  const auto status = book::create(path.c_str(), devices.data(), request.gpu_count, book::Accounting::private_book, 0600, message, sizeof message);
  if (status != book::Status::ok) return Error{ErrorKind::io, std::string("cannot make the book: ") + (message[0] ? message : book::status_text(status))};
  return {};
}

Status fill(const Request& request, const std::string& shared) {
  for (const char* name : {"", "/record", "/tracer", "/script"}) {
    if (::mkdir((shared + name).c_str(), 0700) != 0) return errno_error("cannot make " + shared + name);
  }
  if (request.is_script()) {
    if (auto written = write_file_atomically(shared + "/script/slurm_script", request.script_content, 0700); !written) return written;
  }
  return make_book(request, shared + "/book");
}

std::string progress_text(const std::string& book_path) {
  auto snapshot = estimate::read_book(book_path);
  if (!snapshot) return "running the program";
  std::uint64_t peak_bytes = 0, launches = 0;
  for (const auto& device : snapshot->devices) peak_bytes = std::max(peak_bytes, device.peak_bytes);
  for (const auto& process : snapshot->processes) launches += process.launches;
  if (peak_bytes == 0) return "the program has not used the GPU yet";
  return "peak " + format_size(peak_bytes) + " so far, " + std::to_string(launches) + " kernels launched";
}

std::vector<std::string> writable_directories(const Request& request, const Environment& environment) {
  std::vector<std::string> directories{request.working_directory, "/tmp", "/var/tmp"};
  for (const char* name : {"HOME", "TMPDIR", "XDG_CACHE_HOME", "SCRATCH"}) {
    const std::string* value = environment.get(name);
    if (value != nullptr && value->size() > 1 && (*value)[0] == '/') directories.push_back(*value);
  }
  return directories;
}

// Note [Foreign groups] in view.h; must be asked outside of the namespace, where groups have their numbers.
std::vector<std::string> foreign_directories(const std::vector<std::string>& directories) {
  std::vector<std::string> foreign;
  if (::geteuid() == 0) return foreign;
  gid_t groups[1024];
  const int count = std::max(0, ::getgroups(1024, groups));
  for (const auto& directory : directories) {
    struct stat found {};
    if (::stat(directory.c_str(), &found) != 0 || !S_ISDIR(found.st_mode) || found.st_gid == ::getegid()) continue;
    const bool member = std::find(groups, groups + count, found.st_gid) != groups + count;
    if ((member || found.st_uid == ::geteuid()) && ::access(directory.c_str(), W_OK) == 0) foreign.push_back(directory);
  }
  return foreign;
}

RunOptions run_options(const Request& request, const PrivateDirectory& directory, const HostMemory& host) {
  const std::string shared = request.sandbox_required ? kSharedInView : directory.path() + "/shared";
  RunOptions options;
  options.program.arguments = program_arguments(request, shared);
  options.program.environment = program_environment(request, shared);
  options.program.working_directory = request.working_directory;
  options.program.memory_bytes = request.memory_limit_bytes;
  if (options.program.memory_bytes == 0) {
    options.program.memory_bytes = static_cast<std::uint64_t>(static_cast<double>(host.available_bytes) * kDefaultMemoryShare);
  }
  options.program.cpus = request.cpu_limit;
  options.program.file_bytes = kLargestFile;
  // A process that spins on every CPU until the deadline has used this much; the deadline itself is kept elsewhere.
  const long cpus = ::sysconf(_SC_NPROCESSORS_ONLN);
  if (request.timeout_s > 0) options.program.cpu_seconds = request.timeout_s * static_cast<double>(std::max(1l, cpus)) + 60;

  const Environment environment(request.environment);
  options.view.private_directory = directory.path();
  options.view.writable_bytes = std::max(kLeastWritable, host.total_bytes / kWritableShare);
  options.view.writable_directories = writable_directories(request, environment);
  options.view.foreign_directories = foreign_directories(options.view.writable_directories);
  options.view.replaced_programs = replaced_programs(request.environment);
  if (const std::string* runtime = environment.get("XDG_RUNTIME_DIR")) options.view.runtime_directory = *runtime;
  options.sandbox = request.sandbox_required;
  // Through us where nobody sees it as it comes: then the estimate can quote its last line.
  options.keep_output = request.keep_output || ::isatty(2) != 1;
  options.forward_output = !request.keep_output;
  options.timeout_s = request.timeout_s;
  return options;
}

// A program may count on the batches that its loader has ("assert seen == len(dataset)"): an exception, not out of memory, in a process
// whose epochs were shortened.
bool failed_after_a_short_epoch(const estimate::Observation& seen, const nlohmann::json& estimate) {
  if (estimate.value("status", "") != "failed" || estimate.value("reason", "") != "program_failed") return false;
  return std::any_of(seen.record.processes.begin(), seen.record.processes.end(), [](const record::Process& process) {
    return process.stop_reason == "exception" &&
           std::any_of(process.notes.begin(), process.notes.end(), [](const record::Note& note) { return note.kind == "epoch"; });
  });
}

// `observation` (may be nullptr) gets what was seen; without `keep` no record stays.
Result<nlohmann::json> run_once(const Request& request, const Progress& progress, bool* short_epoch_failed,
                                estimate::Observation* observation = nullptr, bool keep = true) {
  const double start_s = monotonic_s();
  PrivateDirectory directory;
  if (auto made = directory.make(); !made) return made.error();
  const std::string shared = directory.path() + "/shared";
  if (auto filled = fill(request, shared); !filled) return filled.error();

  lend_compiled_tracers(shared + "/tracer", request.environment);
  const HostMemory host = look_at_host_memory();
  RunOptions options = run_options(request, directory, host);
  if (progress) {
    options.tick = [&](double elapsed_s) {
      progress(request.method == Method::xmem ? "training on the CPU" : progress_text(shared + "/book"), elapsed_s);
    };
  }
  auto run = supervise(options);
  if (!run) return run.error();
  keep_compiled_tracers(shared + "/tracer", request.environment);

  estimate::Observation seen;
  auto book = estimate::read_book(shared + "/book");
  // A book that the program has destroyed is the program's failure to be estimated, not ours.
  if (book) seen.book = std::move(*book);
  else run->notes.push_back(book.error().message);
  if (auto record = record::read_record(shared + "/record")) seen.record = std::move(*record);
  std::vector<std::string> unreadable;  // a record without events has figures all the same
  seen.events = record::read_all_events(shared + "/record", unreadable);
  seen.gpu = request.gpu;
  seen.capacity_bytes = gpus::describe_device(request.gpu, 0, request.capacity_bytes).usable_bytes;
  seen.no_sandbox_step = run->failed_step;
  seen.exit_status = run->exit_status;
  seen.signal = run->signal;
  seen.timed_out = run->timed_out;
  seen.interrupted = run->interrupted;
  seen.timeout_s = request.timeout_s;
  seen.memory_exceeded_bytes = run->memory_exceeded_bytes;
  seen.memory_allowed_bytes = options.program.memory_bytes;
  seen.memory_group_limit_bytes = host.group_limit_bytes;
  seen.kernel_kills = look_at_host_memory().kills - host.kills;
  for (const auto& process : run->torch_processes) {
    seen.seen_torch.push_back({process.pid, process.command, process.has_cuda_build, process.has_virtual_gpu});
  }
  seen.notes = std::move(run->notes);
  if (!request.sandbox_required) seen.notes.push_back("the program ran without a sandbox: what it wrote is there");
  seen.output_tail = std::move(run->output_tail);
  seen.has_output_tail = request.keep_output;
  const Environment environment(options.program.environment);
  seen.own_cudnn = environment.get("GPUMEM_CUDNN") != nullptr;
  const std::string* clock = environment.get("GPUMEM_CLOCK");
  seen.lagging_clock = clock != nullptr && *clock == "lagging";
  if (const auto overcommit = read_file("/proc/sys/vm/overcommit_memory")) seen.strict_overcommit = overcommit->starts_with("2");
  struct rlimit limit;
  if (::getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) seen.address_space_limit_bytes = limit.rlim_cur;
  if (::getrlimit(RLIMIT_DATA, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) seen.data_limit_bytes = limit.rlim_cur;
  seen.on_cpu = request.method == Method::xmem || xmem::was_recorded(shared + "/record");
  seen.wall_s = monotonic_s() - start_s;
  auto estimate = estimate::make_estimate(seen);
  if (seen.on_cpu) {
    xmem::add_figures(shared + "/record", seen, request.environment, estimate);
    estimate["wall_s"] = monotonic_s() - start_s;
  }
  if (keep) keep_record(shared + "/record", request, estimate);
  *short_epoch_failed = failed_after_a_short_epoch(seen, estimate);
  if (observation != nullptr) *observation = std::move(seen);
  return estimate;
}

// Runs the program again within what may be enough (Note [Proof] in estimate/proof.h), and completes the estimate.
nlohmann::json prove(const Request& request, nlohmann::json estimate, double start_s, const Progress& progress) {
  if (estimate.value("status", "") != "complete" || estimate.value("method", "") != "virtual_gpu") return estimate;
  const auto peak_bytes = estimate.value("need_bytes", std::uint64_t{0}), minimum_bytes = estimate.value("minimum_need_bytes", std::uint64_t{0});
  const double first_s = monotonic_s() - start_s;
  estimate::Proof proof;
  std::vector<std::uint64_t> to_try = {peak_bytes};
  if (!estimate["no_minimum"].is_null()) proof.why = estimate["no_minimum"].get<std::string>();
  else if (minimum_bytes > 0 && minimum_bytes + kWorthARun <= peak_bytes) to_try.insert(to_try.begin(), minimum_bytes);
  if (request.prove && !request.sandbox_required) {
    proof = {estimate::ProofResult::impossible, {}, "without a sandbox it is run once only"};
  } else if (request.prove) {
    proof.result = estimate::ProofResult::disproven;
    for (const std::uint64_t capacity_bytes : to_try) {
      Request bounded = request;
      bounded.capacity_bytes = capacity_bytes;
      // Figures are those of the PyTorch that was seen (estimate/figures.h, Note [Contexts by generation]).
      const auto context_bytes = estimate.value("context_of_a_process_bytes", std::uint64_t{0});
      if (context_bytes > 0) bounded.gpu.fields["context_bytes"].value = context_bytes;
      const double left_s = request.timeout_s - (monotonic_s() - start_s);
      if (request.timeout_s > 0 && left_s < 1.3 * first_s + 1) {  // with the cache given back now and then it takes longer
        if (proof.runs.empty()) proof = {estimate::ProofResult::no_time, {}, "a second run would not have ended within " + format_duration(request.timeout_s)};
        break;
      }
      if (request.timeout_s > 0) bounded.timeout_s = left_s;
      if (progress) progress("running it again with " + format_size(capacity_bytes), monotonic_s() - start_s);
      estimate::Observation seen;
      bool short_epoch_failed = false;
      auto second = run_once(bounded, progress, &short_epoch_failed, &seen, false);
      if (!second) break;
      proof.runs.push_back(estimate::judge_proof(estimate, seen, *second));
      if (!proof.runs.back().passed) continue;
      proof.result = capacity_bytes < peak_bytes ? estimate::ProofResult::proven : estimate::ProofResult::proven_at_peak;
      break;
    }
    if (proof.result == estimate::ProofResult::disproven && proof.runs.empty()) proof = {estimate::ProofResult::no_time, {}, "it could not be run again"};
  }
  estimate::apply_proof(estimate, proof);
  estimate["wall_s"] = monotonic_s() - start_s;
  update_kept_record(estimate);
  return estimate;
}

}  // namespace

Result<nlohmann::json> run_probe(const Request& request, const Progress& progress) {
  const double start_s = monotonic_s();
  bool short_epoch_failed = false;
  auto estimate = run_once(request, progress, &short_epoch_failed);
  if (!estimate) return estimate;
  // Without a sandbox the program has left its files: once is enough.
  if (!short_epoch_failed || request.epoch_batches == 0 || !request.sandbox_required) return prove(request, std::move(*estimate), start_s, progress);
  Request whole = request;
  whole.epoch_batches = 0;
  if (request.timeout_s > 0) whole.timeout_s = request.timeout_s - (monotonic_s() - start_s);
  if (request.timeout_s > 0 && whole.timeout_s < 1) return estimate;
  auto again = run_once(whole, progress, &short_epoch_failed);
  if (!again) return estimate;
  (*again)["notes"].push_back("the program failed where epochs had been shortened (" + estimate->value("error", "") + "): it was run again with whole epochs");
  (*again)["wall_s"] = monotonic_s() - start_s;
  whole.timeout_s = request.timeout_s;
  return prove(whole, std::move(*again), start_s, progress);
}

}  // namespace gpumem::probe
