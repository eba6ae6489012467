// SPDX-License-Identifier: Apache-2.0
// Reads what a probe's processes wrote down (contracts: Record). Used by gpumem-probe.
//
// A record is a directory of *.jsonl files: process-<pid>.jsonl of the shim, memory-<pid>.jsonl of the virtual GPU, others of stand-ins. Writers die at any
// moment, so a last line may be cut; and the program can write here too: whatever is not understood is counted and
// left out, never an error, and every size is bounded. Device numbers are those of the process (CUDA_VISIBLE_DEVICES).
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace gpumem::record {

struct Note {
  std::string kind;  // a word: "epoch", "guess-size", "stand-in", …
  std::string text;  // a sentence
};

struct DevicePeaks {
  std::uint64_t allocated_bytes = 0, reserved_bytes = 0;  // of PyTorch's caching allocator
  bool allocated_is_older = false;  // reserved has risen since allocated was said: the process ended without another word
};

// Where what outlives a step lies after it: addresses of storages on one device.
struct TensorList {
  std::uint64_t step = 0;
  int device = 0;
  std::vector<std::uint64_t> parameters, buffers, gradients, states;
};

struct Module {
  std::string path, type;  // "layer1.0.conv1", "Conv2d"
};

// A batch's tensors as they came from a DataLoader: the number of dimensions of each and their sizes, one after the other.
using BatchShape = std::vector<std::uint32_t>;

// Written only for a DataLoader whose batches have several shapes.
struct BatchMark {
  std::uint64_t number = 0;         // as in the events
  std::uint64_t loader = 0;
  std::optional<BatchShape> shape;  // nullopt: its epoch is over
};

struct Process {
  pid_t pid = 0;             // as the process saw itself; 0 for files that belong to no process
  bool imported_torch = false;
  std::string torch, cuda, python;  // versions; cuda is empty for a CPU-only build
  int cudnn = 0;             // as torch.backends.cudnn.version() counts: 91900
  std::string planner;       // which cuDNN planned: "9.19.0 (the job's own)"; in the file of the libraries' stand-ins
  std::vector<std::string> arguments;
  std::string tracer;        // "active", or "absent: " and why
  std::uint64_t steps = 0;
  int rank = -1, world_size = 0;  // of torch.distributed's default group; 0: it has none
  std::string stop_reason;   // "stable", "exit", "exception"; empty: it died without a word
  std::string error;         // "TypeName: message" of the exception that ended it
  std::map<int, DevicePeaks> devices;
  std::vector<Note> notes;
  std::vector<std::string> files;  // opened for reading
  bool knows_allocator = false;                    // the two below have been recorded
  std::optional<std::string> cuda_alloc_conf, alloc_conf;  // PYTORCH_CUDA_ALLOC_CONF, PYTORCH_ALLOC_CONF when CUDA began
  std::map<std::uint16_t, std::string> operators;  // by their numbers in the events
  std::map<std::uint16_t, Module> modules;
  std::vector<TensorList> tensors;                 // in the order in which they were written
  std::map<std::uint64_t, std::vector<BatchShape>> batches;  // by DataLoader: the shapes of all that were looked at ahead, in their own order
  std::vector<BatchMark> batch_marks;              // in the order in which they were handed out
  std::uint64_t bad_lines = 0;
};

// Device memory that a process took or gave back, by whatever function; PyTorch's segments are among them.
struct MemoryChange {
  enum class Kind : std::uint8_t { taken, returned, mapped };
  Kind kind = Kind::taken;
  int device = 0;                // of the first two
  std::uint64_t unix_ns = 0;     // steady from the process's first line on
  std::uint64_t bytes = 0;
  std::uint64_t address = 0;     // of taken and returned: the handle where it is physical memory, 0 where it has no address
  std::uint64_t handle = 0;      // of mapped: that physical memory got `address`
};

struct MemoryLog {
  std::vector<MemoryChange> changes;  // in the order in which they were written
  bool cut = false;                   // there were more
};

struct Record {
  std::vector<Process> processes;  // by pid
  std::map<pid_t, MemoryLog> memory;  // of processes that used a device; none in records of earlier versions
};

// The lines of one file, added to `process`: any text. Throws nothing but bad_alloc.
void read_process_lines(const std::string& text, Process& process);
// The same of memory-<pid>.jsonl. What makes no sense is left out, and then the log counts as cut.
void read_memory_lines(const std::string& text, MemoryLog& log);

// A missing directory is an empty record. Fails with io where it exists and cannot be listed.
Result<Record> read_record(const std::string& directory);

// "9.19.0" for 91900, "8.9.2" for 8902, "" for 0.
std::string cudnn_version_text(int version);

}  // namespace gpumem::record
