// SPDX-License-Identifier: Apache-2.0
// A book as it is at this moment, copied: how gpumemd reads books that jobs can write. Used by gpumemd on the node.
//
// A job's user may truncate its book (a mapped reader then gets SIGBUS) or keep its lock (a suspended process holds it
// for hours); the daemon must mind neither. So it maps a private copy, takes no lock of the job's, and believes nothing
// but numbers. Figures of one instant may differ by the allocation that was being entered; peaks only grow. What dead
// processes held still counts as used in a copy, until a living process or reclaim_in_child() takes it back.
#pragma once

#include <string>

#include "base/result.h"
#include "estimator/book/book.h"

namespace gpumem::node {

class Snapshot {
 public:
  static Result<Snapshot> take(const std::string& path);
  Snapshot(Snapshot&& other) noexcept;
  Snapshot& operator=(Snapshot&&) = delete;
  ~Snapshot();

  book::Book* book() { return &book_; }

 private:
  Snapshot() = default;
  book::Book book_;
};

// Takes back what dead processes held, in a short-lived process of its own that waits for the book's lock.
void reclaim_in_child(const std::string& path);

}  // namespace gpumem::node
