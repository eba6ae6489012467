// SPDX-License-Identifier: Apache-2.0
// See workspaces.h.
#include "daemon/node/workspaces.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace gpumem::node {

std::string seen_workspaces_path(const std::string& meter_book) { return meter_book + ".workspaces"; }
std::string workspaces_table_path(const std::string& state_directory) { return state_directory + "/workspaces.tsv"; }

Status prepare_seen_workspaces(const std::string& meter_book, std::uint32_t user_id) {
  const std::string path = seen_workspaces_path(meter_book);
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0 && errno == EEXIST) return {};
  bool made = fd >= 0;
  if (made && ::geteuid() == 0) made = ::fchown(fd, user_id, static_cast<gid_t>(-1)) == 0;
  const int why = errno;
  if (fd >= 0) ::close(fd);
  if (made) return {};
  if (fd >= 0) ::unlink(path.c_str());
  return Error{ErrorKind::io, "cannot make " + path + " for what the job's meter sees of cuDNN: " + std::strerror(why)};
}

Result<workspaces::Merged> collect_workspaces(const std::string& state_directory, const std::string& meter_book, const std::string& gpu,
                                              std::uint64_t device_bytes) {
  return workspaces::merge(seen_workspaces_path(meter_book), workspaces_table_path(state_directory), gpu, device_bytes);
}

}  // namespace gpumem::node
