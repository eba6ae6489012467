// SPDX-License-Identifier: Apache-2.0
// Device memory that NCCL takes for its connections, by a rule; runs in the job's processes.
//
// Note [Buffers of NCCL]
// NCCL has one set of buffers for each connection and channel: NCCL_BUFFSIZE (4 MiB) for its simple protocol, 512 KiB for
// LL (512 threads x 8 steps x 8 lines of 16 bytes) and 4.69 MiB for LL128 (640 threads x 120 elements x 8 steps x 8 bytes);
// those are its defaults since 2.5 (src/init.cc computeBuffSizes). A rank has one connection to receive by in a ring and two
// in a tree (the neighbours of the chain within a node); trees are for all-reduce. Point-to-point pairs get connections of
// their own. They are made at the first operation that needs them.
// How many channels there are depends on the links that NCCL finds: assumed are 24 with NVLink (SXM and superchip boards) and
// 2 without; NCCL_MIN_NCHANNELS, NCCL_MAX_NCHANNELS and their newer names count as NCCL counts them. Cards without peer access
// hold the buffers in host memory instead: the rule is an upper bound, and the estimate's notes name it.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "estimator/virtual_gpu/device/facts.h"
#include "estimator/virtual_gpu/device/record_lines.h"
#include "estimator/virtual_gpu/libraries/nccl.h"

namespace gpumem::virtual_gpu::libraries::nccl {
namespace {

constexpr uint64_t kLlBytes = 8 * 512 * 8 * 16;
constexpr uint64_t kLl128Bytes = 120 * 640 * 8 * 8;
constexpr uint64_t kSimpleBytes = 4 << 20;
constexpr int kNvlinkChannels = 24, kOtherChannels = 2, kMostChannels = 64;

uint64_t number_from(const char *name, uint64_t otherwise) {
  const char *text = getenv(name);
  if (text == nullptr || text[0] < '0' || text[0] > '9') return otherwise;
  char *end = nullptr;
  const uint64_t number = strtoull(text, &end, 10);
  return *end == '\0' ? number : otherwise;
}

int channels_of(int device) {
  const book::DeviceDescription *description = device_description(device);
  uint64_t channels = description != nullptr && has_nvlink(description->name) ? kNvlinkChannels : kOtherChannels;
  const uint64_t least = number_from("NCCL_MIN_CTAS", number_from("NCCL_MIN_NCHANNELS", 0));
  const uint64_t most = number_from("NCCL_MAX_CTAS", number_from("NCCL_MAX_NCHANNELS", kMostChannels));
  if (channels < least) channels = least;
  if (channels > most) channels = most;
  return channels < 1 ? 1 : channels > kMostChannels ? kMostChannels : static_cast<int>(channels);
}

uint64_t connection_bytes() { return kLlBytes + kLl128Bytes + number_from("NCCL_BUFFSIZE", kSimpleBytes); }

// A power of two: a node's peers share the channels.
int peer_channels(int channels, int ranks) {
  int count = 1;
  while (count * 2 <= channels / (ranks < 8 ? ranks : 8)) count *= 2;
  return count < 2 && channels >= 2 ? 2 : count;
}

void say_rule(int channels) {
  static char text[240];
  static Lock lock;
  lock.lock();
  if (text[0] == '\0')
    snprintf(text, sizeof text, "buffers of NCCL are assumed to take %.1f MiB for each of %d channels and connection (3 connections for all-reduce, 1 for other collectives)",
             static_cast<double>(connection_bytes()) / (1 << 20), channels);
  lock.unlock();
  note_detail(text);
}

}  // namespace

bool connect(Communicator *communicator, Connection kind, int peer) {
  if (communicator->ranks < 2) return true;
  const int channels = channels_of(communicator->device);
  uint64_t connections = 0;
  if (kind == Connection::peer) {
    if (peer == communicator->rank || peer < 0 || peer >= 1024 || (communicator->peers[peer / 64] >> (peer % 64) & 1)) return true;
    communicator->peers[peer / 64] |= uint64_t{1} << (peer % 64);
    connections = static_cast<uint64_t>(peer_channels(channels, communicator->ranks));
  } else {
    if (!communicator->has_ring) connections += static_cast<uint64_t>(channels);
    communicator->has_ring = true;
    if (kind == Connection::ring_and_tree && !communicator->has_tree) {
      connections += static_cast<uint64_t>(channels) * 2;
      communicator->has_tree = true;
    }
  }
  if (connections == 0) return true;
  const uint64_t bytes = connections * connection_bytes();
  if (!charge(communicator->device, bytes)) return false;
  record_taken(communicator->device, bytes, 0);
  communicator->charged_bytes += bytes;
  say_rule(channels);
  return true;
}

void release_buffers(Communicator *communicator) {
  if (communicator->charged_bytes > 0) {
    record_returned(communicator->device, communicator->charged_bytes, 0);
    discharge(communicator->device, communicator->charged_bytes);
  }
  communicator->charged_bytes = 0;
}

}  // namespace gpumem::virtual_gpu::libraries::nccl
