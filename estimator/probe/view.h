// SPDX-License-Identifier: Apache-2.0
// The sandbox's view of the file systems. Used by gpumem-probe's init process, in namespaces of its own.
//
// Everything can be read as before; whatever is written or deleted changes a private copy only. Every directory tree
// is an overlay over the real one (see Note [Locked mounts]); where the kernel refuses an overlay (Lustre, GPFS and
// others) it is bound read-only, and the directories that a program is likely to write in become private ones. /run is
// empty (no foreign sockets; the one directory shared with the probe aside), /dev has harmless devices only, /proc is
// the new pid namespace's, /sys is read-only.
//
// Note [Where writes go]. In a file system that our namespace mounts, only ids that it maps exist: copying up a file
// of the user's second group would fail with EOVERFLOW. A user with several groups therefore writes to a directory on
// the host's disk, where those groups are valid; everyone else to a size-bounded tmpfs.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"

namespace gpumem::probe {

// Where the directory shared between probe and program is in the view.
inline constexpr const char* kSharedInView = "/run/gpumem-probe";

struct ViewPlan {
  std::string private_directory;     // the probe's own, on the host; holds "shared", "space" and "disk"
  bool prefer_disk = false;          // Note [Where writes go]
  std::uint64_t writable_bytes = 0;  // bound of the tmpfs
  std::vector<std::string> writable_directories;  // must be writable even where overlays are refused
  std::vector<std::pair<std::string, std::string>> replaced_programs;  // real path, stand-in: bound over it
  std::string runtime_directory;     // XDG_RUNTIME_DIR: an empty one is made; "" for none
};

// Builds the view and makes it the root of the calling process's mount namespace, in which it must have every
// capability. The error's message begins with the step that failed. `notes` gets a sentence for each fallback.
Status enter_view(const ViewPlan& plan, std::vector<std::string>& notes);

}  // namespace gpumem::probe
