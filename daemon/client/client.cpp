// SPDX-License-Identifier: Apache-2.0
// One request and its reply over a Unix socket, in bounded time. libc only: compiled into the SPANK plugin.
#include "daemon/client/client.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "daemon/protocol/frame.h"
#include "daemon/protocol/messages.h"

namespace gpumem::client {
namespace {

using protocol::kHeaderBytes;

double now_s() {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

struct Connection {
  int fd;
  const char* path;
  const CallOptions* options;
  double end_s;  // of everything
  Reply* reply;
};

CallStatus fail(Connection* connection, CallStatus status, const char* what) {
  snprintf(connection->reply->error, sizeof connection->reply->error, "gpumemd at %s %s", connection->path, what);
  return status;
}

CallStatus fail_errno(Connection* connection, const char* what) {
  const int number = errno;
  char buffer[128];
  // GNU's strerror_r: never writes a shared buffer.
  snprintf(connection->reply->error, sizeof connection->reply->error, "gpumemd at %s: %s: %s", connection->path, what,
           strerror_r(number, buffer, sizeof buffer));
  if (number == EACCES || number == EPERM) return CallStatus::denied;
  if (number == ENOENT || number == ECONNREFUSED || number == ENOTDIR || number == ENOTSOCK) return CallStatus::absent;
  return CallStatus::failed;
}

bool interrupted(const Connection* connection) {
  return connection->options->interrupted != nullptr && *connection->options->interrupted != 0;
}

// Waits until the socket is ready or `end_s` has come. Wakes a few times a second, since a signal that arrives between the
// look at the flag and poll() would otherwise be noticed only at the end.
CallStatus wait_ready(Connection* connection, short events, double end_s, const char* late) {
  for (;;) {
    if (interrupted(connection)) return fail(connection, CallStatus::interrupted, "was not waited for: interrupted");
    const double left_s = end_s - now_s();
    if (left_s <= 0) return fail(connection, CallStatus::timeout, late);
    struct pollfd wanted = {connection->fd, events, 0};
    const int wait_ms = left_s > 0.2 ? 200 : static_cast<int>(left_s * 1000) + 1;
    const int ready = poll(&wanted, 1, wait_ms);
    if (ready > 0) return CallStatus::ok;
    if (ready < 0 && errno != EINTR) return fail_errno(connection, "cannot wait");
  }
}

CallStatus connect_to(Connection* connection, double end_s) {
  struct sockaddr_un address;
  memset(&address, 0, sizeof address);
  address.sun_family = AF_UNIX;
  const size_t length = strlen(connection->path);
  if (length == 0 || length >= sizeof address.sun_path) {
    return fail(connection, CallStatus::absent, "cannot be reached: the socket's path is empty or too long");
  }
  memcpy(address.sun_path, connection->path, length);
  connection->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (connection->fd < 0) return fail_errno(connection, "cannot make a socket");
  for (;;) {
    if (connect(connection->fd, reinterpret_cast<struct sockaddr*>(&address), sizeof address) == 0) return CallStatus::ok;
    // A Unix socket whose queue is full says EAGAIN at once: poll() would not wait for room.
    if (errno != EAGAIN && errno != EINTR) return fail_errno(connection, "cannot connect");
    if (interrupted(connection)) return fail(connection, CallStatus::interrupted, "was not waited for: interrupted");
    if (now_s() >= end_s) return fail(connection, CallStatus::timeout, "is too busy to be connected to");
    const struct timespec pause = {0, 5000000};
    nanosleep(&pause, nullptr);
  }
}

CallStatus send_all(Connection* connection, const char* bytes, size_t count, double end_s) {
  while (count > 0) {
    const ssize_t sent = send(connection->fd, bytes, count, MSG_NOSIGNAL);
    if (sent > 0) {
      bytes += sent;
      count -= static_cast<size_t>(sent);
    } else if (sent < 0 && errno == EPIPE) {
      return CallStatus::ok;  // closed early: it may have said why, so look for a reply
    } else if (sent < 0 && (errno == EAGAIN || errno == EINTR)) {
      const CallStatus status = wait_ready(connection, POLLOUT, end_s, "does not take the request");
      if (status != CallStatus::ok) return status;
    } else {
      return fail_errno(connection, "cannot send");
    }
  }
  return CallStatus::ok;
}

CallStatus receive_all(Connection* connection, char* bytes, size_t count, double end_s) {
  while (count > 0) {
    const ssize_t got = recv(connection->fd, bytes, count, 0);
    if (got > 0) {
      bytes += got;
      count -= static_cast<size_t>(got);
    } else if (got == 0 || errno == ECONNRESET || errno == EPIPE) {
      return fail(connection, CallStatus::bad_answer, "closed the connection without an answer");
    } else if (errno == EAGAIN || errno == EINTR) {
      const CallStatus status = wait_ready(connection, POLLIN, end_s, "does not answer");
      if (status != CallStatus::ok) return status;
    } else {
      return fail_errno(connection, "cannot receive");
    }
  }
  return CallStatus::ok;
}

// Checks every field and ends every value with a NUL in place of its newline. The first field must be the type.
bool terminate_values(char* body, size_t bytes) {
  size_t at = 0;
  protocol::FieldView field;
  bool first = true;
  for (;;) {
    switch (protocol::next_field(body, bytes, &at, &field)) {
      case protocol::FieldStatus::end:
        break;
      case protocol::FieldStatus::malformed:
        return false;
      case protocol::FieldStatus::field:
        if (first && (field.name_bytes != 4 || memcmp(field.name, "type", 4) != 0)) return false;
        first = false;
        continue;
    }
    break;
  }
  if (first) return false;
  // Only now, since next_field() wants the newlines.
  for (at = 0; at < bytes;) {
    protocol::next_field(body, bytes, &at, &field);
    body[at - 1] = '\0';
  }
  return true;
}

// next_field() for a body whose newlines have become NULs; the body was checked by terminate_values().
bool next_terminated(const Reply* reply, size_t* at, protocol::FieldView* field) {
  if (reply->body == nullptr || *at >= reply->bytes) return false;
  const char* name = reply->body + *at;
  const char* equals = static_cast<const char*>(memchr(name, '=', reply->bytes - *at));
  char* colon = nullptr;
  const size_t length = strtoul(equals + 1, &colon, 10);
  field->name = name;
  field->name_bytes = static_cast<size_t>(equals - name);
  field->value = colon + 1;
  field->value_bytes = length;
  *at = static_cast<size_t>(field->value - reply->body) + length + 1;
  return true;
}

CallStatus receive_frame(Connection* connection, double end_s) {
  unsigned char bytes[kHeaderBytes];
  CallStatus status = receive_all(connection, reinterpret_cast<char*>(bytes), sizeof bytes, end_s);
  if (status != CallStatus::ok) return status;
  protocol::FrameHeader header;
  const size_t largest = connection->options->largest_reply_bytes != 0 ? connection->options->largest_reply_bytes
                                                                       : protocol::kLargestBodyBytes;
  if (protocol::decode_header(bytes, &header) != protocol::HeaderStatus::ok || header.body_bytes > largest) {
    return fail(connection, CallStatus::bad_answer, "answered with something that is not gpumem's protocol");
  }
  if (header.major != protocol::kMajor) {
    return fail(connection, CallStatus::bad_answer, "speaks another major version of the protocol: upgrade the older side");
  }
  Reply* reply = connection->reply;
  reply_free(reply);
  reply->body = static_cast<char*>(malloc(header.body_bytes + 1));
  if (reply->body == nullptr) return fail(connection, CallStatus::failed, "answered more than there is memory for");
  reply->bytes = header.body_bytes;
  status = receive_all(connection, reply->body, reply->bytes, end_s);
  if (status != CallStatus::ok) return status;
  if (!terminate_values(reply->body, reply->bytes)) {
    return fail(connection, CallStatus::bad_answer, "answered with a malformed message");
  }
  return CallStatus::ok;
}

CallStatus converse(Connection* connection, const Request* request, const CallOptions* options) {
  const double start_s = now_s();
  connection->end_s = start_s + (options->total_s > 0 ? options->total_s : 60.0);
  const double silence_s = options->silence_s > 0 ? options->silence_s : 10.0;
  double connect_end_s = start_s + (options->connect_s > 0 ? options->connect_s : 2.0);
  if (connect_end_s > connection->end_s) connect_end_s = connection->end_s;
  CallStatus status = connect_to(connection, connect_end_s);
  if (status == CallStatus::ok) status = send_all(connection, request->frame, request->bytes, connect_end_s);
  while (status == CallStatus::ok) {
    // A peer that floods us with progress never makes us wait, so time is looked at here too.
    if (interrupted(connection)) return fail(connection, CallStatus::interrupted, "was not waited for: interrupted");
    if (now_s() >= connection->end_s) return fail(connection, CallStatus::timeout, "does not come to an answer");
    double end_s = now_s() + silence_s;
    if (end_s > connection->end_s) end_s = connection->end_s;
    status = receive_frame(connection, end_s);
    if (status != CallStatus::ok) break;
    const Reply* reply = connection->reply;
    if (strcmp(reply_type(reply), protocol::kProgress) == 0) {
      const char* text = reply_text(reply, protocol::field::kText);
      if (options->progress != nullptr && text != nullptr && *text != '\0') options->progress(options->progress_context, text);
      continue;
    }
    if (strcmp(reply_type(reply), protocol::kError) == 0) {
      const char* kind = reply_text(reply, protocol::field::kKind);
      const char* message = reply_text(reply, protocol::field::kMessage);
      snprintf(connection->reply->error_kind, sizeof connection->reply->error_kind, "%s", kind != nullptr ? kind : "");
      snprintf(connection->reply->error, sizeof connection->reply->error, "%s", message != nullptr ? message : "unknown error");
      return CallStatus::error_reply;
    }
    return CallStatus::ok;
  }
  return status;
}

bool reserve(Request* request, size_t more) {
  if (request->failed) return false;
  if (more > protocol::kLargestBodyBytes + kHeaderBytes - request->bytes) {
    request->failed = 1;
    return false;
  }
  if (request->bytes + more <= request->capacity) return true;
  size_t capacity = request->capacity != 0 ? request->capacity : 4096;
  while (capacity < request->bytes + more) capacity *= 2;
  char* larger = static_cast<char*>(realloc(request->frame, capacity));
  if (larger == nullptr) {
    request->failed = 1;
    return false;
  }
  request->frame = larger;
  request->capacity = capacity;
  return true;
}

}  // namespace

void request_begin(Request* request, const char* type) {
  request->bytes = 0;
  request->failed = 0;
  if (!reserve(request, kHeaderBytes)) return;
  request->bytes = kHeaderBytes;
  protocol::encode_header(0, reinterpret_cast<unsigned char*>(request->frame));
  request_add(request, protocol::kType, type);
}

void request_add(Request* request, const char* name, const char* text) {
  if (text != nullptr) request_add_bytes(request, name, text, strlen(text));
}

void request_add_bytes(Request* request, const char* name, const char* bytes, size_t count) {
  const size_t name_bytes = strlen(name);
  if (!protocol::is_field_name(name, name_bytes) || count > protocol::kLargestBodyBytes) {
    request->failed = 1;
    return;
  }
  if (!reserve(request, protocol::field_wire_bytes(name_bytes, count))) return;
  request->bytes += protocol::encode_field(request->frame + request->bytes, name, name_bytes, bytes, count);
  protocol::encode_header(static_cast<uint32_t>(request->bytes - kHeaderBytes),
                          reinterpret_cast<unsigned char*>(request->frame));
}

void request_add_number(Request* request, const char* name, unsigned long long number) {
  char text[24];
  snprintf(text, sizeof text, "%llu", number);
  request_add(request, name, text);
}

void request_free(Request* request) {
  free(request->frame);
  memset(request, 0, sizeof *request);
}

CallStatus call(const char* socket_path, const Request* request, const CallOptions* options, Reply* reply) {
  static const CallOptions kDefaults = {0, 0, 0, 0, nullptr, nullptr, nullptr};
  memset(reply, 0, sizeof *reply);
  Connection connection = {-1, socket_path, options != nullptr ? options : &kDefaults, 0, reply};
  if (request->failed || request->frame == nullptr) {
    return fail(&connection, CallStatus::failed, "was not asked: the request is too large or there is no memory");
  }
  const CallStatus status = converse(&connection, request, connection.options);
  if (connection.fd >= 0) close(connection.fd);
  if (status != CallStatus::ok && status != CallStatus::error_reply) reply_free(reply);
  return status;
}

const char* reply_type(const Reply* reply) { return reply_text(reply, protocol::kType); }

const char* reply_text(const Reply* reply, const char* name) { return reply_text_at(reply, name, 0); }

const char* reply_text_at(const Reply* reply, const char* name, size_t index) {
  protocol::FieldView field;
  const size_t name_bytes = strlen(name);
  for (size_t at = 0; next_terminated(reply, &at, &field);) {
    if (field.name_bytes != name_bytes || memcmp(field.name, name, name_bytes) != 0) continue;
    if (index-- == 0) return field.value;
  }
  return nullptr;
}

const char* reply_bytes(const Reply* reply, const char* name, size_t* count) {
  protocol::FieldView field;
  const size_t name_bytes = strlen(name);
  for (size_t at = 0; next_terminated(reply, &at, &field);) {
    if (field.name_bytes != name_bytes || memcmp(field.name, name, name_bytes) != 0) continue;
    *count = field.value_bytes;
    return field.value;
  }
  *count = 0;
  return nullptr;
}

void reply_free(Reply* reply) {
  free(reply->body);
  reply->body = nullptr;
  reply->bytes = 0;
}

}  // namespace gpumem::client
