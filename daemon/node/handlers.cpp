// SPDX-License-Identifier: Apache-2.0
// The socket messages job_start and task_end for a Node.
#include "daemon/node/handlers.h"

#include <pwd.h>

#include <vector>

#include "daemon/protocol/messages.h"

namespace gpumem::node {
namespace {

namespace field = protocol::field;
using protocol::Message;

Error missing(const Message& request, const char* name) {
  return {ErrorKind::protocol, std::string(request.type()) + ": the field '" + name + "' is missing or not a number"};
}

Status read_number(const Message& request, const char* name, std::uint32_t& number) {
  const auto value = request.get_number(name);
  if (!value || *value > 0xffffffffull) return missing(request, name);
  number = static_cast<std::uint32_t>(*value);
  return {};
}

std::optional<std::uint32_t> optional_number(const Message& request, const char* name) {
  const auto value = request.get_number(name);
  if (!value || *value >= 0xfffffffeull) return std::nullopt;  // Slurm's NO_VAL: not an array
  return static_cast<std::uint32_t>(*value);
}

Status check_peer(const Peer& peer, const Message& request) {
  if (peer.is_privileged) return {};
  return Error{ErrorKind::permission, std::string(request.type()) + " is for Slurm's own daemons, not for " + peer.user};
}

std::string user_name(std::uint32_t user_id) {
  std::vector<char> buffer(16384);
  passwd entry{};
  passwd* found = nullptr;
  if (::getpwuid_r(user_id, &entry, buffer.data(), buffer.size(), &found) == 0 && found != nullptr) return found->pw_name;
  return std::to_string(user_id);
}

}  // namespace

Result<Message> answer_job_start(Node& node, const Peer& peer, const Message& request) {
  if (auto allowed = check_peer(peer, request); !allowed) return allowed.error();
  JobStart start;
  std::uint32_t pid = 0;
  for (auto [name, number] : {std::pair(field::kJobId, &start.job_id), std::pair(field::kStepId, &start.step_id),
                              std::pair(field::kTaskId, &start.task_id), std::pair(field::kUserId, &start.user_id),
                              std::pair(field::kPid, &pid)}) {
    // The extern step's task has no number (-1).
    if (name == field::kTaskId && start.step_id == kExternStep) continue;
    if (auto read = read_number(request, name, *number); !read) return read.error();
  }
  start.pid = static_cast<std::int32_t>(pid);
  start.array_job_id = optional_number(request, field::kArrayJobId);
  if (start.array_job_id && *start.array_job_id != 0) start.array_task_id = optional_number(request, field::kArrayTaskId);
  if (!start.array_task_id) start.array_job_id.reset();
  start.user = user_name(start.user_id);
  start.token = request.get(field::kToken);
  start.shards = request.get(field::kShards);
  start.gpus = request.get(field::kGpus);
  start.visible_devices = request.get(field::kVisibleDevices);
  start.environment = request.get_all(field::kEnvironment);

  auto environment = node.job_start(start);
  if (!environment) return environment.error();
  Message reply(protocol::kJobEnvironment);
  for (const auto& assignment : environment->set) reply.add(field::kSet, assignment);
  for (const auto& name : environment->unset) reply.add(field::kUnset, name);
  if (!environment->refuse.empty()) reply.add(field::kRefuse, environment->refuse);
  return reply;
}

Result<Message> answer_task_end(Node& node, const Peer& peer, const Message& request) {
  if (auto allowed = check_peer(peer, request); !allowed) return allowed.error();
  TaskEnd end;
  if (auto read = read_number(request, field::kJobId, end.job_id); !read) return read.error();
  if (auto read = read_number(request, field::kStepId, end.step_id); !read) return read.error();
  if (end.step_id == kExternStep) return Message(protocol::kDone);
  if (auto read = read_number(request, field::kTaskId, end.task_id); !read) return read.error();
  std::uint32_t status = 0;
  if (auto read = read_number(request, field::kWaitStatus, status); !read) return read.error();
  end.wait_status = static_cast<int>(status);
  end.pid = static_cast<std::int32_t>(request.get_number(field::kPid).value_or(0));
  if (auto ended = node.task_end(end); !ended) return ended.error();
  return Message(protocol::kDone);
}

}  // namespace gpumem::node
