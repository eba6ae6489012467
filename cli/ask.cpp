// SPDX-License-Identifier: Apache-2.0
// Asks gpumemd and gets its JSON.
#include "cli/ask.h"

#include <cstdlib>

#include "base/paths.h"
#include "daemon/client/client.h"
#include "daemon/config.h"
#include "daemon/protocol/messages.h"

namespace gpumem::cli {
namespace {

ErrorKind kind_from_name(const std::string& name) {
  for (const ErrorKind kind : {ErrorKind::invalid_argument, ErrorKind::not_found, ErrorKind::permission, ErrorKind::unavailable,
                               ErrorKind::timeout, ErrorKind::io, ErrorKind::protocol, ErrorKind::unsupported}) {
    if (name == error_kind_name(kind)) return kind;
  }
  return ErrorKind::internal;
}

Result<Json> read_reply(client::CallStatus status, const client::Reply& reply, const std::string& socket) {
  if (status == client::CallStatus::error_reply) return Error{kind_from_name(reply.error_kind), reply.error};
  if (status == client::CallStatus::absent) {
    return Error{ErrorKind::unavailable, "gpumemd is not running here (nobody listens on " + socket +
                                             "); the administrator starts it with: systemctl start gpumemd"};
  }
  if (status != client::CallStatus::ok) return Error{ErrorKind::unavailable, reply.error};
  const char* text = client::reply_text(&reply, protocol::field::kJson);
  if (text == nullptr) return Error{ErrorKind::protocol, "gpumemd on " + socket + " answered without data; is it another version?"};
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded() || !json.is_object()) {
    return Error{ErrorKind::protocol, "gpumemd on " + socket + " answered with something that is no JSON object; is it another version?"};
  }
  return json;
}

}  // namespace

Result<std::string> daemon_socket() {
  if (const char* given = std::getenv("GPUMEM_SOCKET"); given != nullptr && *given != '\0') return std::string(given);
  auto config = config::load(paths::config_file());
  if (config) return config->daemon.socket;
  const ErrorKind kind = config.error().kind;
  if (kind == ErrorKind::not_found || kind == ErrorKind::permission) return paths::daemon_socket();
  return config.error();
}

Result<Json> ask_daemon(const char* request_type, const std::vector<std::pair<const char*, std::string>>& fields) {
  const auto socket = daemon_socket();
  if (!socket) return socket.error();
  client::Request request = {};
  client::request_begin(&request, request_type);
  for (const auto& [name, value] : fields) client::request_add_bytes(&request, name, value.data(), value.size());
  client::Reply reply = {};
  const auto status = client::call(socket->c_str(), &request, nullptr, &reply);
  auto json = read_reply(status, reply, *socket);
  client::reply_free(&reply);
  client::request_free(&request);
  return json;
}

}  // namespace gpumem::cli
