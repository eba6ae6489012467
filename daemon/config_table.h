// SPDX-License-Identifier: Apache-2.0
// How a section's keys are described: one row a key. Private to daemon/config*.cpp.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "daemon/config.h"

namespace gpumem::config {

// Which member of the section a key fills; its type decides what the file may hold.
template <class Section>
using Member = std::variant<std::string Section::*, bool Section::*, std::int64_t Section::*, double Section::*,
                            std::vector<std::string> Section::*, Bytes Section::*, SlurmTime Section::*,
                            std::vector<VirtualGpus> Section::*>;

template <class Section>
struct Key {
  const char* name;
  Member<Section> member;
  const char* unit;                 // "s", "MiB", …; empty: none
  const char* help;                 // one sentence
  std::vector<const char*> words;   // texts and lists: the words allowed; empty: any
  double least = 0;                 // numbers
  double most = 1e15;
  bool required = false;            // pools
};

const std::vector<Key<DaemonSection>>& daemon_keys();
const std::vector<Key<SlurmSection>>& slurm_keys();
const std::vector<Key<SubmitSection>>& submit_keys();
const std::vector<Key<MarginSection>>& margin_keys();
const std::vector<Key<PoolSection>>& pool_keys();
const std::vector<Key<NodeSection>>& node_keys();

// As it is written in the file and in messages.
std::string number_text(double number);

}  // namespace gpumem::config
