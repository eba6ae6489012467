// SPDX-License-Identifier: Apache-2.0
// PyTorch's caching allocator of one device and process as a model, without torch. Used by gpumem-probe and tests.
//
// Requests go in, events come out, in the order in which the real one makes them. The same requests under another
// Config or Driver answer what one run of a program cannot: another capacity, another setting.
// Source of every rule: c10/cuda/CUDACachingAllocator.cpp of PyTorch 2.1 to 2.15; tests/conformance compares event by
// event with the real one. Addresses are the Driver's. Sizes in bytes. Not thread-safe; nothing throws but bad_alloc.
//
// Note [Which pool]
// Small requests (<= 1 MiB) and large ones have pools of their own; so have captured graphs and torch.cuda.MemPool: the
// caller names such a private pool (PyTorch finds it by thread and stream). While a capture is under way
// (begin_capture), cached memory is not given back and blocks that other streams used are not reused.
//
// Note [Order on a miss]
// Best fit among free blocks of the pool and stream · garbage collection (with a threshold and a fraction) · a new segment
// · overflow pools · release of enough oversize blocks (with max_split_size) and a new segment · release of everything
// free and whole, events waited for, and a new segment · out of memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "estimator/allocator/config.h"
#include "estimator/allocator/driver.h"
#include "estimator/allocator/ordered_blocks.h"

namespace gpumem::allocator {

struct Pool;
struct PrivatePool;
struct Segment;

// A private pool; 0 is none: the default pools.
using PoolId = std::uint64_t;

// Values as in a record (estimator/tracer/event_format.h), which has PyTorch's own order.
enum class Action : std::uint8_t {
  allocate = 0,        // size: as requested
  free_requested = 1,  // size: as requested
  free_completed = 2,
  segment_allocate = 3,
  segment_free = 4,
  segment_map = 5,
  segment_unmap = 6,
  out_of_memory = 8,   // address: bytes free on the device; size: the rounded request
};

struct Event {
  Action action;
  std::uint64_t stream;
  std::uint64_t address;
  std::uint64_t size;
  PoolId pool;
  bool operator==(const Event&) const = default;
};

// Current values and peaks, as torch.cuda.memory_stats counts them.
struct Stats {
  struct Value {
    std::uint64_t current = 0, peak = 0;
    void increase(std::uint64_t by) {
      current += by;
      if (current > peak) peak = current;
    }
    void decrease(std::uint64_t by) { current -= by; }
  };
  Value allocated_bytes;   // blocks handed out, whole blocks
  Value active_bytes;      // … and those that a stream still uses
  Value requested_bytes;   // of the active ones, as requested
  Value reserved_bytes;    // segments
  Value segments, allocations, inactive_splits;
  Value inactive_split_bytes;
  std::uint64_t retries = 0;          // everything cached was given back for a request
  std::uint64_t out_of_memory = 0;    // requests refused
  std::uint64_t device_allocations = 0, device_frees = 0;
};

// A block handed out. Valid until its free is complete.
struct Block;

class Allocator {
 public:
  // `driver` must outlive the allocator. Its memory is not given back at the end.
  Allocator(const Config& config, Driver& driver);
  ~Allocator();
  Allocator(const Allocator&) = delete;
  Allocator& operator=(const Allocator&) = delete;

  // Events are appended there; nullptr (the start): none are made, which is faster.
  void log_to(std::vector<Event>* events) { events_ = events; }

  // nullptr: out of memory. `bytes` > 0: PyTorch never asks this allocator for nothing.
  Block* allocate(std::uint64_t bytes, std::uint64_t stream, PoolId pool = 0);

  // The program lets go of a block: reusable at once, or when the streams that it was recorded on have passed it.
  void free(Block* block);
  void record_stream(Block* block, std::uint64_t stream);
  // For replays, where a record says when: freed now, reusable from complete(ticket) on or when all events are waited
  // for (complete does nothing then).
  std::uint64_t free_later(Block* block);
  void complete(std::uint64_t ticket);

  void empty_cache();
  // torch.cuda.set_per_process_memory_fraction: of the device's total.
  void set_memory_fraction(double fraction);

  // Graphs and MemPools: a pool lives while it is used, and its memory is given back only after that.
  void use_pool(PoolId pool);      // makes it; counts
  void release_pool(PoolId pool);
  void begin_capture() { ++captures_; }
  void end_capture() { --captures_; }
  void set_use_on_oom(PoolId pool, bool use);
  void set_no_split(PoolId pool) { no_split_.insert(pool); }

  const Stats& stats() const { return stats_; }
  const Config& config() const { return config_; }

  static std::uint64_t address_of(const Block* block);
  static std::uint64_t size_of(const Block* block);       // of the block; never less than was requested
  static std::uint64_t requested_of(const Block* block);

  // The rules of sizes: a request's block, and the segment that is asked of the device for one.
  static std::uint64_t block_bytes(const Config& config, std::uint64_t requested_bytes);
  static std::uint64_t segment_bytes(const Config& config, std::uint64_t block_bytes);

 private:
  struct Search;
  struct Held {
    std::uint64_t ticket;
    Block* block;
  };
  struct Pending {
    std::uint64_t event;
    Block* block;
  };

  // allocator.cpp
  Block* new_block(std::uint64_t stream, std::uint64_t size, Pool* pool, std::uint64_t address);
  void delete_block(Block* block);
  void insert_free(Block* block);
  Pool& pool_for(std::uint64_t size, PoolId pool);
  bool find_free(Search& search);
  bool allocate_segment(Search& search, bool retry);
  bool from_overflow_pools(Search& search);
  Block* hand_out(Search& search, std::uint64_t requested);
  bool should_split(const Block& block, std::uint64_t size) const;
  // Note [Equal sizes]: among free blocks of one size the lowest address is taken; since 2.12 the oldest segment's first.
  std::uint64_t next_order() { return config_.version >= Version{2, 12} ? ++orders_ : 0; }
  void begin_free(Block* block);
  void complete_free(Block* block);
  std::uint64_t merge(Block* into, Block* other, Pool& pool);
  void log(Action action, std::uint64_t stream, std::uint64_t address, std::uint64_t size, const Pool* pool);

  // release.cpp: what is given back to the device, and when
  void collect_garbage();
  bool release_oversize(const Search& search);
  void release_cached();
  void release_blocks(Pool& pool);
  void release_block(Block* block);
  void insert_events(Block* block);
  void process_events();
  void wait_for_events();

  // expandable.cpp
  Block* allocate_expandable(Search& search);
  Block* find_expandable(Search& search);
  bool map_block(Block* block, std::uint64_t size);
  void unmap_block(Block* block);
  void release_segment(Block* block);

  Config config_;
  Driver& driver_;
  Stats stats_;
  std::vector<Event>* events_ = nullptr;
  std::unique_ptr<Pool> small_, large_;
  std::map<PoolId, std::unique_ptr<PrivatePool>> private_pools_;
  std::set<PoolId> use_on_oom_, no_split_;
  std::optional<std::uint64_t> allowed_bytes_;
  std::uint64_t total_bytes_ = 0;   // of segments: what a fraction limits
  int captures_ = 0;
  std::uint64_t orders_ = 0;
  std::vector<Held> held_;          // by ticket
  std::uint64_t next_ticket_ = 1;
  std::map<std::uint64_t, std::deque<Pending>> pending_;  // by stream
  std::vector<Block*> deferred_;    // freed while a capture was under way
  std::vector<std::unique_ptr<Segment>> expandable_;
  std::deque<Block> storage_;
  std::vector<Block*> spare_;
};

}  // namespace gpumem::allocator
