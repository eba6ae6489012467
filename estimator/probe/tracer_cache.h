// SPDX-License-Identifier: Apache-2.0
// What gpumem-probe takes out of a sandbox: compiled tracers, for the calling user's own cache. Used by gpumem-probe.
//
// gpumem-tracer, running inside, compiles for a PyTorch that it sees for the first time and leaves the result in a
// directory outside of the copy-on-write view. The program could have written there too: what comes out goes only to
// the cache of the user who ran it (a user's code for that same user), regular files of bounded size only.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace gpumem::probe {

// Moves what is in `collected` (paths relative to the cache stay) to ${XDG_CACHE_HOME:-~/.cache}/gpumem/tracer.
// Files that are there already stay. A failure costs the next probe its time, nothing else: it is not reported.
void keep_compiled_tracers(const std::string& collected, const std::vector<std::string>& environment);

// Calls `each` with the path of every directory (no symbolic links) directly below `path`.
void for_each_subdirectory(const std::string& path, const std::function<void(const std::string&)>& each);

}  // namespace gpumem::probe
