// SPDX-License-Identifier: Apache-2.0
// Compiled tracers on their way into the sandbox and out of it. Used by gpumem-probe.
//
// Which Python a script runs, and so which tracer it needs, is known only inside. There gpumem-tracer finds every tracer
// of root's and the user's caches in one directory, and compiles what is missing into it. The program can write there
// too: what comes out goes only to the cache of the user who ran it (a user's code for that same user), regular files
// of bounded size only.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace gpumem::probe {

// Copies the newest tracers of both caches to `directory`: root's where it and the file are root's alone to write, the user's
// where they are theirs. Copies, because inside the sandbox root's files seem to be nobody's, and nobody trusts those.
void lend_compiled_tracers(const std::string& directory, const std::vector<std::string>& environment);

// Moves what is new in `directory` to ${XDG_CACHE_HOME:-~/.cache}/gpumem/tracer and drops the oldest there. A failure costs the next probe some
// seconds, nothing else: it is not reported.
void keep_compiled_tracers(const std::string& directory, const std::vector<std::string>& environment);

// Calls `each` with the path of every directory (no symbolic links) directly below `path`.
void for_each_subdirectory(const std::string& path, const std::function<void(const std::string&)>& each);

}  // namespace gpumem::probe
