// SPDX-License-Identifier: Apache-2.0
// Any bytes into the readers of a record: allocator events (and what is derived from them: requests, replays), settings of
// the allocator, and the shim's lines. Nothing may crash, hang or take memory without bound; sanitizers watch.
// fuzz_record EXECUTIONS [SEED]: a deterministic mutational driver; with -DGPUMEM_LIBFUZZER an entry point for libFuzzer.
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "estimator/allocator/outside.h"
#include "estimator/allocator/replay.h"
#include "estimator/record/events.h"
#include "estimator/record/record.h"

namespace {

using gpumem::record::EventAction;
using gpumem::record::EventHeader;
using gpumem::record::EventRecord;

void try_events(const std::string& bytes) {
  auto file = gpumem::record::parse_events(bytes, 4096);
  if (!file) return;
  const auto traces = gpumem::allocator::traces_of(*file);
  gpumem::allocator::Config config;
  config.version = {2, static_cast<int>(bytes.size() % 16)};
  config.expandable_segments = bytes.size() % 3 == 0;
  for (const auto& [device, trace] : traces) {
    gpumem::allocator::ReplayOptions options;
    options.capacity_bytes = std::uint64_t{1} << (21 + bytes.size() % 16);
    options.stop_at_out_of_memory = bytes.size() % 2 == 0;
    const auto result = gpumem::allocator::replay(trace, config, options);
    if (result.peak_device_bytes > options.capacity_bytes) abort();
  }
}

void try_settings(const std::string& text) {
  for (const gpumem::allocator::Version version : {gpumem::allocator::Version{2, 1}, gpumem::allocator::Version{2, 15}}) {
    if (auto config = gpumem::allocator::parse_config(text, version)) {
      for (const std::uint64_t bytes : {1ull, 513ull, 1ull << 20, 3ull << 20, 77ull << 20}) {
        if (gpumem::allocator::Allocator::block_bytes(*config, bytes) < bytes) abort();
      }
    }
  }
}

void try_lines(const std::string& text) {
  gpumem::record::Process process;
  gpumem::record::read_process_lines(text, process);
  gpumem::record::MemoryLog log;
  gpumem::record::read_memory_lines(text, log);
  gpumem::allocator::Trace trace = gpumem::allocator::trace_of_outside(log, 0);
  gpumem::record::EventFile file;
  for (const auto& change : log.changes) file.events.push_back({EventAction::segment_map, 0, 0, 0, 0, 0, 0, change.address, change.bytes, change.unix_ns});
  for (const auto& change : gpumem::allocator::outside_of(log, file, 0)) trace.outside.push_back(change);
  gpumem::allocator::ReplayOptions options;
  options.capacity_bytes = std::uint64_t{1} << 34;
  if (gpumem::allocator::replay(trace, {}, options).peak_device_bytes > options.capacity_bytes) abort();
}

void try_all(const std::string& bytes) {
  try_events(bytes);
  try_settings(bytes);
  try_lines(bytes);
}

#ifndef GPUMEM_LIBFUZZER
std::string sample_events(std::mt19937_64& random) {
  EventHeader header{};
  std::memcpy(header.magic, gpumem::record::kEventMagic, sizeof header.magic);
  header.version = gpumem::record::kEventVersion;
  header.record_bytes = sizeof(EventRecord);
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof header);
  const std::size_t count = random() % 24;
  for (std::size_t i = 0; i < count; ++i) {
    static constexpr int kActions[] = {0, 0, 0, 1, 1, 2, 2, 3, 4, 5, 6, 7, 8, 128, 129};
    EventRecord event{};
    event.action = static_cast<EventAction>(kActions[random() % std::size(kActions)]);
    event.device = static_cast<int8_t>(random() % 8 == 0 ? random() : 0);
    event.pool = random() % 16 == 0 ? static_cast<uint8_t>(random()) : 0;
    event.stream = random() % 3;
    event.address = 0x7e0000000000 - ((random() % 6) << 20);
    event.size = random() % 4 == 0 ? random() >> (random() % 64) : (random() % 64) << 18;
    event.time_ns = i;
    bytes.append(reinterpret_cast<const char*>(&event), sizeof event);
  }
  return bytes;
}

const char* const kLines[] = {
    R"({"event":"torch","version":"2.11.0+cu130","cuda":"13.0","cudnn":91900,"python":"3.11.2","argv":["python","t.py"],"tracer":"active","t":0.1})",
    R"({"event":"step","n":1,"devices":{"0":{"peak_allocated":100,"peak_reserved":200}}})",
    R"({"event":"peak","device":0,"reserved":18446744073709551615})",
    R"({"event":"note","kind":"epoch","text":"shortened \u00e9\ud800"})",
    R"({"event":"stop","reason":"stable","n":9,"devices":{},"status":0})",
    R"({"event":"allocator","cuda_alloc_conf":"expandable_segments:True","alloc_conf":null})",
    R"({"event":"operator","n":7,"name":"aten::mm"})",
    R"({"event":"module","n":7,"name":"layer.0","type":"Linear"})",
    R"({"event":"tensors","step":3,"device":0,"parameter":[1,2,3],"gradient":[[1,2]]})",
    R"({"event":"file","path":"/a/b"})",
    R"({"event":"memory","unix_ns":1700000000000000001,"device":0,"taken_bytes":2097152,"address":4096})",
    R"({"event":"memory","unix_ns":1700000000000000002,"handle":4096,"address":8192})",
    R"({"event":"memory","unix_ns":1700000000000000003,"device":0,"returned_bytes":2097152,"address":4096})",
    R"({"event":"memory_cut"})",
};
const char* const kSettings[] = {"expandable_segments:True,max_split_size_mb:128", "roundup_power2_divisions:[256:1,512:2,>:4]", "garbage_collection_threshold:0.8",
                                 "backend:cudaMallocAsync,large_segment_size_mb:40", "per_process_memory_fraction:0.5"};

std::string sample_text(std::mt19937_64& random) {
  if (random() % 4 == 0) return kSettings[random() % std::size(kSettings)];
  std::string text;
  for (std::size_t i = random() % 4 + 1; i > 0; --i) text += std::string(kLines[random() % std::size(kLines)]) + "\n";
  return text;
}

void mutate(std::string& bytes, std::mt19937_64& random) {
  for (std::size_t n = random() % 6; n > 0 && !bytes.empty(); --n) {
    const std::size_t at = random() % bytes.size();
    switch (random() % 6) {
      case 0: bytes[at] = static_cast<char>(random()); break;
      case 1: bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8)); break;
      case 2: bytes.erase(at, random() % 16 + 1); break;
      case 3: bytes.insert(at, bytes.substr(random() % bytes.size(), random() % 48)); break;
      case 4: bytes.resize(at); break;
      case 5: {
        static const char* const kWords[] = {"[", "]", "{", "}", "\"", ":", ",", "-1", "1e999", "18446744073709551616", "null", "[[[[[[[[", "\\u0000", "True"};
        bytes.insert(at, kWords[random() % std::size(kWords)]);
        break;
      }
    }
  }
}
#endif

}  // namespace

#ifdef GPUMEM_LIBFUZZER
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try_all(std::string(reinterpret_cast<const char*>(data), size));
  return 0;
}
#else
int main(int argc, char** argv) {
  const std::uint64_t executions = argc > 1 ? strtoull(argv[1], nullptr, 10) : 100000;
  const std::uint64_t seed = argc > 2 ? strtoull(argv[2], nullptr, 10) : 1;
  std::mt19937_64 random(seed);
  for (std::uint64_t i = 0; i < executions; ++i) {
    std::string bytes = i % 2 == 0 ? sample_events(random) : sample_text(random);
    mutate(bytes, random);
    if (i % 2 == 0) {
      try_events(bytes);
    } else {
      try_lines(bytes);
      try_settings(bytes);
    }
    if (i % 64 == 0) try_all(bytes);
  }
  printf("%" PRIu64 " executions, seed %" PRIu64 ": nothing found\n", executions, seed);
  return 0;
}
#endif
