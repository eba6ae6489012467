// SPDX-License-Identifier: Apache-2.0
// Reader of sequence-<pid>.bin.
#include "estimator/xmem/sequence.h"

#include <cstring>

#include "base/file.h"
#include "base/size.h"

namespace gpumem::xmem {
namespace {

constexpr std::size_t kLargestFile = 2 * kGiB;  // 90 million events; three iterations of a large model are one million

}  // namespace

Result<std::vector<SequenceEvent>> read_sequence(const std::string& path) {
  auto text = read_file(path, kLargestFile);
  if (!text) return text.error();
  SequenceHeader header;
  if (text->size() < sizeof header) return Error{ErrorKind::invalid_argument, path + " is too short to be a sequence"};
  std::memcpy(&header, text->data(), sizeof header);
  if (std::memcmp(header.magic, kSequenceMagic, sizeof header.magic) != 0 || header.version != kSequenceVersion ||
      header.event_bytes < sizeof(SequenceEvent)) {
    return Error{ErrorKind::invalid_argument, path + " is not a sequence of version " + std::to_string(kSequenceVersion)};
  }
  const std::size_t count = (text->size() - sizeof header) / header.event_bytes;
  std::vector<SequenceEvent> events(count);
  for (std::size_t i = 0; i < count; ++i) {
    std::memcpy(&events[i], text->data() + sizeof header + i * header.event_bytes, sizeof(SequenceEvent));
  }
  return events;
}

}  // namespace gpumem::xmem
