// SPDX-License-Identifier: Apache-2.0
// What the node role is told: by gpumem.conf [node], by Slurm's configuration and by the installation. Used by gpumemd.
#pragma once

#include <string>
#include <vector>

#include "daemon/config.h"

namespace gpumem::node {

struct Settings {
  std::string cluster;               // Slurm's ClusterName
  std::string node;                  // this host's NodeName
  bool enforce = true;               // false: measure only, refuse nothing
  std::vector<config::VirtualGpus> virtual_gpus;  // empty: the node's GPUs are real

  std::string state_directory;       // books/ and jobs/ are made in it; local disk, never /tmp or /dev/shm
  std::string profiles_directory;    // $datadir/gpumem/gpus
  std::string library_directory;     // where the preloaded libraries are
  std::string stand_in_directory;    // nvidia-smi for virtual GPUs
  std::string cudnn_library;         // for GPUMEM_CUDNN on virtual GPUs where the file exists
  std::string proc = "/proc";        // tests give another
};

// Settings of this installation and host; cluster, enforce and virtual_gpus are the caller's.
Settings installed_settings(const std::string& state_directory);

}  // namespace gpumem::node
