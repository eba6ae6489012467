// SPDX-License-Identifier: Apache-2.0
// The sandbox's view of the file systems. Used by gpumem-probe's init process, in namespaces of its own.
//
// Everything can be read as before; whatever is written or deleted changes a private copy only. Every directory tree
// is an overlay over the real one (see Note [Locked mounts]); where the kernel refuses an overlay (Lustre, GPFS and
// others) it is bound read-only, and the directories that a program is likely to write in become private ones. /run is
// empty (no foreign sockets; the one directory shared with the probe aside), /dev has harmless devices only, /proc is
// the new pid namespace's, /sys is read-only; /etc/hosts names this host first, for there is no name server.
//
// Note [Foreign groups]. An ordinary user's namespace maps that user and their primary group only, and an overlay
// copies nothing whose owner or group it cannot map: in a project directory of another group, files could be neither
// changed nor made. Where a directory that the program is likely to write in is like that, it is rebuilt as a private
// one: small files are copied, large ones can be read, subdirectories are treated alike, a bounded number of them.
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
  std::uint64_t writable_bytes = 0;  // bound of the tmpfs
  std::vector<std::string> writable_directories;  // must be writable even where overlays are refused
  std::vector<std::string> foreign_directories;   // those of them that are writable through another group of the user's
  std::vector<std::pair<std::string, std::string>> replaced_programs;  // real path, stand-in: bound over it
  std::string runtime_directory;     // XDG_RUNTIME_DIR: an empty one is made; "" for none
};

// Builds the view and makes it the root of the calling process's mount namespace, in which it must have every
// capability. The error's message begins with the step that failed. `notes` gets a sentence for each fallback.
Status enter_view(const ViewPlan& plan, std::vector<std::string>& notes);

}  // namespace gpumem::probe
