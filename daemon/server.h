// SPDX-License-Identifier: Apache-2.0
// The daemon's socket: who is connected, what they ask, and the bounds that keep a bad client harmless. Used by gpumemd.
//
// Everything belongs to the loop's one thread. A request becomes an Exchange that its handler answers now or later; while it
// waits, the client gets a sign of life every second. A client that goes away ends its exchanges. Clients that send no frame, half a
// frame, too much, or nothing at all are dropped; nobody's mistakes cost others more than a connection.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "base/result.h"
#include "daemon/event.h"
#include "daemon/peer.h"
#include "daemon/protocol/fields.h"

namespace gpumem {

class Server;

// One request on its way to its answer. Handlers keep it as long as they need; every call is harmless after the client has gone.
class Exchange {
 public:
  Exchange(Server* server, std::uint64_t connection, Peer from, protocol::Message message)
      : peer(std::move(from)), request(std::move(message)), server_(server), connection_(connection) {}

  const Peer peer;
  const protocol::Message request;

  // The final reply; only the first counts.
  void reply(const protocol::Message& message);
  void reply_error(const Error& error);
  void progress(const std::string& text);
  bool open() const { return server_ != nullptr; }
  // Called once if the client goes away before the reply.
  void on_gone(std::function<void()> callback) { gone_ = std::move(callback); }

 private:
  friend class Server;
  Server* server_;  // null: answered or gone
  std::uint64_t connection_;
  std::function<void()> gone_;
};

using ExchangePtr = std::shared_ptr<Exchange>;

struct ServerOptions {
  std::string socket;
  unsigned socket_mode = 0666;
  std::string socket_group;      // empty: unchanged
  std::size_t connections_at_most = 512;
  double idle_timeout_s = 60;
};

class Server {
 public:
  using Handler = std::function<void(const ExchangePtr&)>;
  // Completes a peer (name, operator, privileged) from its ids.
  using Introduce = std::function<void(Peer&)>;

  // Binds the socket, taking it over from a daemon that is gone. Fails with unavailable when one listens there.
  static Result<std::unique_ptr<Server>> listen(event_base* base, const ServerOptions& options, Introduce introduce, Handler handler);
  ~Server();

  // Accepts nothing new; what is connected goes on.
  void stop_accepting();
  void set_limits(std::size_t connections_at_most, double idle_timeout_s);
  std::size_t connection_count() const { return connections_.size(); }
  // Answers every exchange that waits with this error: the daemon is about to end.
  void end_all(const Error& error);
  // Nothing that was answered is still to be sent.
  bool all_sent() const;

 private:
  friend class Exchange;
  struct Connection;
  Server(event_base* base, const ServerOptions& options, Introduce introduce, Handler handler);

  void accepted(int fd);
  void readable(std::uint64_t id);
  void closed(std::uint64_t id);
  void tick(std::uint64_t id);
  void send(std::uint64_t id, const protocol::Message& message, bool final);
  void refuse(std::uint64_t id, const Error& error);

  event_base* base_;
  ServerOptions options_;
  Introduce introduce_;
  Handler handler_;
  Listener listener_;
  std::map<std::uint64_t, std::unique_ptr<Connection>> connections_;
  std::uint64_t next_id_ = 1;
};

}  // namespace gpumem
