// SPDX-License-Identifier: Apache-2.0
// The environment that a probed program gets: the user's own, with the virtual GPU in it. Used by gpumem-probe.
#pragma once

#include <string>
#include <vector>

#include "estimator/probe/request.h"

namespace gpumem::probe {

// A list of "NAME=VALUE" that can be changed; the last of two entries of one name wins, as the C library has it not:
// duplicates are removed on construction.
class Environment {
 public:
  explicit Environment(const std::vector<std::string>& variables);

  const std::string* get(const std::string& name) const;
  void set(const std::string& name, const std::string& value);
  void set_default(const std::string& name, const std::string& value);  // keeps what is there
  void unset(const std::string& name);
  void put_first(const std::string& name, const std::string& value);    // VALUE:what is there
  std::vector<std::string> list() const;

 private:
  std::vector<std::pair<std::string, std::string>> variables_;
};

// ${XDG_CACHE_HOME:-~/.cache}/gpumem/NAME of these variables; empty where neither says an absolute path.
std::string user_cache_directory(const std::vector<std::string>& environment, const std::string& name);

// `shared` is the directory shared with the probe, as the program sees it: book, record/, tracer/.
std::vector<std::string> program_environment(const Request& request, const std::string& shared);

// How the request's command or script is run: a script by the interpreter of its "#!" line.
std::vector<std::string> program_arguments(const Request& request, const std::string& shared);

// Real programs on this machine (in PATH and the usual places) with the stand-in for each.
std::vector<std::pair<std::string, std::string>> replaced_programs(const std::vector<std::string>& environment);

}  // namespace gpumem::probe
