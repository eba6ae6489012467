// SPDX-License-Identifier: Apache-2.0
// Child processes of gpumemd: started, fed, read, bounded and reaped from the event loop. Used by gpumemd.
//
// A child is a session of its own and dies with the daemon (PDEATHSIG). It gets nothing of the daemon's but its three
// standard descriptors and the one it answers on; it may be given another user's identity, which it takes before it runs anything.
// Everything belongs to the loop's one thread. Callbacks come from the loop, never from within start().
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "daemon/event.h"

namespace gpumem {

// Who a child becomes. Never root: start() refuses.
struct Identity {
  uid_t user_id = 0;
  gid_t group_id = 0;
  std::string user;  // for its supplementary groups
  std::string home;
};

// The account of a user id. Fails with not_found. May ask the network (NSS); answers are kept for the daemon's life.
Result<Identity> find_identity(uid_t user_id);

// How a child ended.
struct ChildEnd {
  int exit_status = -1;  // or -1 when a signal ended it
  int signal = 0;
  bool timed_out = false;
  bool killed = false;       // by kill()
  bool too_long = false;     // it answered more than largest_answer_bytes
  std::string error_tail;    // the last 4 KiB of its standard error
};

struct ChildOptions {
  std::vector<std::string> arguments;    // arguments[0] is the program's path
  std::function<void(int answer_fd)> work;  // run in the child instead of a program: async-signal-safe care is the caller's
  std::vector<std::string> environment;  // all of it
  std::string input;                     // on standard input
  int answer_fd = 3;                     // its number in the child: 1 or 3
  const Identity* identity = nullptr;    // null: the daemon's own
  bool background = false;               // nice, and first to go when memory runs out
  double timeout_s = 60;                 // then SIGTERM to its session, and SIGKILL two seconds later
  std::size_t largest_answer_bytes = 16u << 20;
  std::function<void(std::string_view line)> on_line;
  std::function<void(const ChildEnd&)> on_end;  // exactly once, after the last line
};

class Children {
 public:
  explicit Children(event_base* base);
  ~Children();  // kills all, waits for none: init reaps them

  Result<std::uint64_t> start(ChildOptions options);
  // Ends it: SIGTERM, then SIGKILL. on_end still comes. An unknown id is ignored.
  void kill(std::uint64_t id);
  std::size_t count() const { return children_.size(); }

 private:
  struct Child;
  void read_answer(std::uint64_t id);
  void read_errors(std::uint64_t id);
  void write_input(std::uint64_t id);
  void reap();
  void escalate(std::uint64_t id, bool timed_out);
  void finish_if_done(std::uint64_t id);

  event_base* base_;
  std::map<std::uint64_t, std::unique_ptr<Child>> children_;
  std::uint64_t next_id_ = 1;
  SignalEvent child_signal_;
};

}  // namespace gpumem
