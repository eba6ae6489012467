// SPDX-License-Identifier: Apache-2.0
// Connections and their frames.
#include "daemon/server.h"

#include <grp.h>
#include <spdlog/spdlog.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/clock.h"
#include "base/file.h"
#include "daemon/protocol/frame.h"
#include "daemon/protocol/messages.h"

namespace gpumem {
namespace {

namespace field = protocol::field;

constexpr double kFrameTimeout_s = 10;  // from a frame's first byte to its last
constexpr double kSendTimeout_s = 10;   // a client that does not read its answer
constexpr double kTick_s = 1;           // sign of life
constexpr std::size_t kPending = 128;   // connections not yet accepted
// One user cannot take every place: a quarter of them at most, unless privileged.
constexpr std::size_t kShareOfOneUser = 4;

Result<sockaddr_un> address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path) {
    return Error{ErrorKind::invalid_argument, "the socket's path '" + path + "' is empty or longer than 107 bytes"};
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

bool somebody_listens(const sockaddr_un& address) {
  FileDescriptor probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  return ::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 || errno == EAGAIN;
}

Result<FileDescriptor> bind_socket(const ServerOptions& options) {
  const auto address = address_of(options.socket);
  if (!address) return address.error();
  struct stat found {};
  if (::lstat(options.socket.c_str(), &found) == 0) {
    if (!S_ISSOCK(found.st_mode)) return Error{ErrorKind::io, options.socket + " exists and is not a socket: remove it"};
    if (somebody_listens(*address)) {
      return Error{ErrorKind::unavailable, "another gpumemd listens at " + options.socket + ": end it first"};
    }
    ::unlink(options.socket.c_str());
  }
  FileDescriptor fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return errno_error("cannot make a socket");
  // Nobody may connect before mode and group are right.
  const mode_t before = ::umask(0177);
  const int bound = ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address);
  const int number = errno;
  ::umask(before);
  errno = number;
  if (bound != 0) return errno_error("cannot bind " + options.socket);
  if (!options.socket_group.empty()) {
    const group* entry = ::getgrnam(options.socket_group.c_str());
    if (entry == nullptr) return Error{ErrorKind::not_found, "daemon.socket_group: there is no group " + options.socket_group};
    if (::chown(options.socket.c_str(), static_cast<uid_t>(-1), entry->gr_gid) != 0) return errno_error("cannot change the group of " + options.socket);
  }
  if (::chmod(options.socket.c_str(), options.socket_mode) != 0) return errno_error("cannot set the mode of " + options.socket);
  if (::listen(fd.get(), kPending) != 0) return errno_error("cannot listen at " + options.socket);
  return fd;
}

}  // namespace

struct Server::Connection {
  Peer peer;
  BufferEvent stream;
  Timer timer;
  ExchangePtr exchange;     // waiting for its reply
  double idle_since_s = 0;
  double frame_since_s = 0; // 0: no frame has begun
  bool closing = false;     // goes when the output is out
  double sending_since_s = 0;
};

void Exchange::reply(const protocol::Message& message) {
  if (server_ == nullptr) return;
  Server* server = server_;
  server_ = nullptr;
  gone_ = nullptr;
  server->send(connection_, message, true);
}

void Exchange::reply_error(const Error& error) {
  protocol::Message message(protocol::kError);
  message.add(field::kKind, error_kind_name(error.kind)).add(field::kMessage, error.message);
  reply(message);
}

void Exchange::progress(const std::string& text) {
  if (server_ == nullptr) return;
  protocol::Message message(protocol::kProgress);
  message.add(field::kText, text);
  server_->send(connection_, message, false);
}

Server::Server(event_base* base, const ServerOptions& options, Introduce introduce, Handler handler)
    : base_(base), options_(options), introduce_(std::move(introduce)), handler_(std::move(handler)) {}

Server::~Server() {
  listener_.reset();
  for (const auto& [id, connection] : connections_) {
    if (connection->exchange) connection->exchange->server_ = nullptr;
  }
}

Result<std::unique_ptr<Server>> Server::listen(event_base* base, const ServerOptions& options, Introduce introduce, Handler handler) {
  auto fd = bind_socket(options);
  if (!fd) return fd.error();
  std::unique_ptr<Server> server(new Server(base, options, std::move(introduce), std::move(handler)));
  server->listener_.reset(evconnlistener_new(
      base,
      [](evconnlistener*, evutil_socket_t accepted, sockaddr*, int, void* self) {
        guarded([&] { static_cast<Server*>(self)->accepted(accepted); });
      },
      server.get(), LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC, 0, fd->get()));
  if (!server->listener_) return Error{ErrorKind::io, "libevent cannot listen at " + options.socket};
  fd->release();
  // Out of descriptors or memory: the client waits in the queue and is served later.
  evconnlistener_set_error_cb(server->listener_.get(), [](evconnlistener*, void*) {
    spdlog::warn("cannot accept a connection: {}", std::strerror(errno));
    ::usleep(10000);
  });
  return server;
}

void Server::stop_accepting() {
  listener_.reset();
  ::unlink(options_.socket.c_str());
}

void Server::set_limits(std::size_t connections_at_most, double idle_timeout_s) {
  options_.connections_at_most = connections_at_most;
  options_.idle_timeout_s = idle_timeout_s;
}

void Server::accepted(int fd) {
  FileDescriptor socket(fd);
  evutil_make_socket_nonblocking(fd);
  ucred who{};
  socklen_t length = sizeof who;
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &length) != 0) return;
  Peer peer;
  peer.user_id = who.uid;
  peer.group_id = who.gid;
  peer.pid = who.pid;
  introduce_(peer);
  const std::size_t of_user = static_cast<std::size_t>(std::count_if(
      connections_.begin(), connections_.end(), [&](const auto& item) { return item.second->peer.user_id == who.uid; }));
  const std::size_t share = std::max<std::size_t>(2, options_.connections_at_most / kShareOfOneUser);
  if (connections_.size() >= options_.connections_at_most || (!peer.is_privileged && of_user >= share)) {
    spdlog::warn("connection of {} (pid {}) refused: too many", peer.user, peer.pid);
    return;
  }
  const std::uint64_t id = next_id_++;
  auto connection = std::make_unique<Connection>();
  connection->peer = std::move(peer);
  connection->idle_since_s = monotonic_s();
  connection->stream.reset(bufferevent_socket_new(base_, socket.release(), BEV_OPT_CLOSE_ON_FREE | BEV_OPT_DEFER_CALLBACKS));
  if (!connection->stream) return;
  struct Key {
    Server* server;
    std::uint64_t id;
  };
  // The key is freed with the connection's timer, which owns it.
  auto key = std::make_shared<Key>(Key{this, id});
  bufferevent* stream = connection->stream.get();
  bufferevent_setcb(
      stream,
      [](bufferevent*, void* argument) {
        const Key k = *static_cast<Key*>(argument);
        guarded([&] { k.server->readable(k.id); });
      },
      [](bufferevent*, void* argument) {
        const Key k = *static_cast<Key*>(argument);
        guarded([&] {
          const auto found = k.server->connections_.find(k.id);
          if (found == k.server->connections_.end()) return;
          // Also called when the stream could be written but had nothing: only empty is done.
          if (evbuffer_get_length(bufferevent_get_output(found->second->stream.get())) > 0) return;
          found->second->sending_since_s = 0;
          if (found->second->closing) k.server->closed(k.id);
        });
      },
      [](bufferevent*, short what, void* argument) {
        const Key k = *static_cast<Key*>(argument);
        if (what & (BEV_EVENT_EOF | BEV_EVENT_ERROR)) guarded([&] { k.server->closed(k.id); });
      },
      key.get());
  bufferevent_setwatermark(stream, EV_READ, 0, protocol::kHeaderBytes + protocol::kLargestBodyBytes);
  connection->timer = Timer(base_, [this, id, key] { tick(id); });
  connection->timer.start(kTick_s);
  connections_.emplace(id, std::move(connection));
  bufferevent_enable(stream, EV_READ | EV_WRITE);
}

void Server::readable(std::uint64_t id) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  Connection& connection = *found->second;
  // One request at a time: what else a client sends waits.
  if (connection.exchange || connection.closing) return;
  evbuffer* input = bufferevent_get_input(connection.stream.get());
  const std::size_t available = evbuffer_get_length(input);
  if (available == 0) return;
  if (connection.frame_since_s == 0) connection.frame_since_s = monotonic_s();
  unsigned char header_bytes[protocol::kHeaderBytes];
  const auto looked = evbuffer_copyout(input, header_bytes, sizeof header_bytes);
  const std::size_t magic = std::min<std::size_t>(static_cast<std::size_t>(std::max<ev_ssize_t>(looked, 0)), 4);
  protocol::FrameHeader header{};
  if (std::memcmp(header_bytes, "GPUM", magic) != 0) return closed(id);
  if (available < protocol::kHeaderBytes) return;
  if (protocol::decode_header(header_bytes, &header) == protocol::HeaderStatus::too_large) {
    return refuse(id, {ErrorKind::protocol, "the message is larger than the protocol allows"});
  }
  if (header.major != protocol::kMajor) {
    return refuse(id, {ErrorKind::protocol, "gpumemd speaks version " + std::to_string(protocol::kMajor) + " of the protocol, not " +
                                                std::to_string(header.major) + ": use programs of one gpumem version"});
  }
  if (available < protocol::kHeaderBytes + header.body_bytes) return;
  evbuffer_drain(input, protocol::kHeaderBytes);
  std::string body(header.body_bytes, '\0');
  evbuffer_remove(input, body.data(), body.size());
  auto message = protocol::Message::from_body(body);
  if (!message) return refuse(id, message.error());
  connection.frame_since_s = 0;
  connection.exchange = std::make_shared<Exchange>(this, id, connection.peer, std::move(*message));
  const ExchangePtr exchange = connection.exchange;
  handler_(exchange);
}

void Server::send(std::uint64_t id, const protocol::Message& message, bool final) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  Connection& connection = *found->second;
  auto frame = message.to_frame();
  if (!frame) {
    spdlog::error("cannot answer: {}", frame.error().message);
    protocol::Message error(protocol::kError);
    error.add(field::kKind, error_kind_name(frame.error().kind)).add(field::kMessage, "the answer is too large: ask for fewer rows");
    frame = error.to_frame();
    if (!frame) return closed(id);
  }
  if (connection.sending_since_s == 0) connection.sending_since_s = monotonic_s();
  bufferevent_write(connection.stream.get(), frame->data(), frame->size());
  if (!final) return;
  connection.exchange.reset();
  connection.idle_since_s = monotonic_s();
  connection.frame_since_s = 0;
  // The next request may have arrived already; reading it must not happen inside the handler of this one.
  bufferevent_trigger(connection.stream.get(), EV_READ, BEV_TRIG_IGNORE_WATERMARKS | BEV_TRIG_DEFER_CALLBACKS);
}

void Server::refuse(std::uint64_t id, const Error& error) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  spdlog::debug("connection of {} (pid {}) ends: {}", found->second->peer.user, found->second->peer.pid, error.message);
  found->second->closing = true;
  found->second->idle_since_s = monotonic_s();
  protocol::Message message(protocol::kError);
  message.add(field::kKind, error_kind_name(error.kind)).add(field::kMessage, error.message);
  send(id, message, true);
}

void Server::closed(std::uint64_t id) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  const std::unique_ptr<Connection> connection = std::move(found->second);
  connections_.erase(found);
  const ExchangePtr exchange = std::move(connection->exchange);
  if (!exchange || exchange->server_ == nullptr) return;
  exchange->server_ = nullptr;
  if (exchange->gone_) {
    const std::function<void()> gone = std::move(exchange->gone_);
    gone();
  }
}

void Server::tick(std::uint64_t id) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  Connection& connection = *found->second;
  const double now_s = monotonic_s();
  if (connection.sending_since_s > 0 && now_s - connection.sending_since_s > kSendTimeout_s) return closed(id);
  if (connection.exchange) {
    connection.exchange->progress("");
  } else {
    const bool idle = connection.frame_since_s == 0 && !connection.closing;
    const double since_s = idle || connection.closing ? connection.idle_since_s : connection.frame_since_s;
    const double allowed_s = idle ? options_.idle_timeout_s : kFrameTimeout_s;
    if (now_s - since_s > allowed_s) return closed(id);
  }
  connection.timer.start(kTick_s);
}

void Server::end_all(const Error& error) {
  std::vector<ExchangePtr> waiting;
  for (const auto& [id, connection] : connections_) {
    if (connection->exchange) waiting.push_back(connection->exchange);
  }
  for (const ExchangePtr& exchange : waiting) exchange->reply_error(error);
}

bool Server::all_sent() const {
  return std::all_of(connections_.begin(), connections_.end(), [](const auto& item) {
    return evbuffer_get_length(bufferevent_get_output(item.second->stream.get())) == 0;
  });
}

}  // namespace gpumem
