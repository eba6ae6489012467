// SPDX-License-Identifier: Apache-2.0
// An ordered set of blocks for the allocator model: std::set's order with arrays' speed. Part of estimator/allocator.
//
// Sorted chunks of at most kMost entries that carry their keys, so that a search touches no block. Positions are valid
// until the next insertion or removal. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace gpumem::allocator {

struct Block;

struct BlockKey {
  std::uint64_t stream = 0, size = 0;
  std::uint64_t order = 0;  // of its segment's making, where the version goes by it; 0 comes first
  std::uint64_t address = 0;
  bool operator<(const BlockKey& other) const {
    if (stream != other.stream) return stream < other.stream;
    if (size != other.size) return size < other.size;
    if (order != other.order) return order < other.order;
    return address < other.address;
  }
};

class OrderedBlocks {
 public:
  struct Position {
    std::size_t chunk = 0, index = 0;
  };

  bool empty() const { return chunks_.empty(); }

  Position begin() const { return {0, 0}; }
  bool at_end(Position p) const { return p.chunk >= chunks_.size(); }
  bool at_begin(Position p) const { return p.chunk == 0 && p.index == 0; }
  const BlockKey& key(Position p) const { return chunks_[p.chunk].entries[p.index].key; }
  Block* block(Position p) const { return chunks_[p.chunk].entries[p.index].block; }

  void advance(Position& p) const {
    if (++p.index >= chunks_[p.chunk].entries.size()) p = {p.chunk + 1, 0};
  }
  void retreat(Position& p) const {  // not from begin()
    if (p.index > 0) --p.index;
    else p = {p.chunk - 1, chunks_[p.chunk - 1].entries.size() - 1};
  }

  // The first that is not less than the key.
  Position lower_bound(const BlockKey& key) const {
    const auto chunk = std::partition_point(chunks_.begin(), chunks_.end(), [&](const Chunk& c) { return c.entries.back().key < key; });
    if (chunk == chunks_.end()) return {chunks_.size(), 0};
    const auto& entries = chunk->entries;
    const auto entry = std::partition_point(entries.begin(), entries.end(), [&](const Entry& e) { return e.key < key; });
    return {static_cast<std::size_t>(chunk - chunks_.begin()), static_cast<std::size_t>(entry - entries.begin())};
  }

  void insert(const BlockKey& key, Block* block) {
    if (chunks_.empty()) {
      chunks_.emplace_back();
      chunks_.back().entries.reserve(kMost);
      chunks_.back().entries.push_back({key, block});
      return;
    }
    Position p = lower_bound(key);
    if (at_end(p)) p = {chunks_.size() - 1, chunks_.back().entries.size()};
    auto& entries = chunks_[p.chunk].entries;
    if (entries.size() < kMost) {
      entries.insert(entries.begin() + static_cast<std::ptrdiff_t>(p.index), Entry{key, block});
      return;
    }
    Chunk upper;
    upper.entries.reserve(kMost);
    upper.entries.assign(entries.begin() + kMost / 2, entries.end());
    entries.resize(kMost / 2);
    if (p.index <= kMost / 2) entries.insert(entries.begin() + static_cast<std::ptrdiff_t>(p.index), Entry{key, block});
    else upper.entries.insert(upper.entries.begin() + static_cast<std::ptrdiff_t>(p.index - kMost / 2), Entry{key, block});
    chunks_.insert(chunks_.begin() + static_cast<std::ptrdiff_t>(p.chunk) + 1, std::move(upper));
  }

  void erase(Position p) {
    auto& entries = chunks_[p.chunk].entries;
    entries.erase(entries.begin() + static_cast<std::ptrdiff_t>(p.index));
    if (entries.empty()) chunks_.erase(chunks_.begin() + static_cast<std::ptrdiff_t>(p.chunk));
  }
  void erase(const BlockKey& key) { erase(lower_bound(key)); }

 private:
  struct Entry {
    BlockKey key;
    Block* block;
  };
  struct Chunk {
    std::vector<Entry> entries;
  };
  static constexpr std::size_t kMost = 128;
  std::vector<Chunk> chunks_;
};

}  // namespace gpumem::allocator
