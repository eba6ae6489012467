// SPDX-License-Identifier: Apache-2.0
// What would lower a peak.
#include "estimator/explain/candidates.h"

#include <algorithm>
#include <cctype>

#include "base/size.h"

namespace gpumem::explain {
namespace {

// Less than this share of the peak is not worth a line.
constexpr std::uint64_t kLeastShare = 50;

// Activations of the repeated blocks of one container: "transformer.h" with its "transformer.h.0", "transformer.h.1", …
struct Repeated {
  std::map<std::string, std::uint64_t> bytes;  // by block
  std::string type;                            // of the blocks
};

// The outermost component that is a number, with what stands before it: "h" and "h.3" of "h.3.attn.0".
bool split_at_number(const std::string& path, std::string& container, std::string& block) {
  for (std::size_t begin = 0; begin < path.size();) {
    const std::size_t end = std::min(path.find('.', begin), path.size());
    if (std::all_of(path.begin() + static_cast<std::ptrdiff_t>(begin), path.begin() + static_cast<std::ptrdiff_t>(end),
                    [](unsigned char c) { return std::isdigit(c); })) {
      container = begin == 0 ? "" : path.substr(0, begin - 1);
      block = path.substr(0, end);
      return true;
    }
    begin = end + 1;
  }
  return false;
}

std::map<std::string, Repeated> repeated_blocks(const PeakBlocks& peak) {
  std::map<std::string, std::string> types;
  for (const auto& [number, module] : peak.process.modules) types[module.path] = module.type;
  std::map<std::string, Repeated> containers;
  for (const Block& block : peak.blocks) {
    const auto module = peak.process.modules.find(block.module);
    std::string container, path;
    if (block.kind != Kind::activation || module == peak.process.modules.end() ||
        !split_at_number(module->second.path, container, path)) {
      continue;
    }
    containers[container].bytes[path] += block.bytes;
    containers[container].type = types[path];
  }
  return containers;
}

void add_checkpointing(const PeakBlocks& peak, std::vector<Candidate>& candidates) {
  for (const auto& [container, repeated] : repeated_blocks(peak)) {
    if (repeated.bytes.size() < 2) continue;
    std::uint64_t sum = 0, largest = 0;
    for (const auto& [path, bytes] : repeated.bytes) {
      sum += bytes;
      largest = std::max(largest, bytes);
    }
    // One block at a time is computed again, and holds its activations then; each still keeps its input.
    candidates.push_back({"checkpointing",
                          "activation checkpointing of the " + std::to_string(repeated.bytes.size()) + " " + repeated.type + " in " +
                              (container.empty() ? "the model" : container) + " would drop up to " + format_size(sum - largest) +
                              " of their " + format_size(sum) + " of activations, for a second forward pass of them",
                          sum - largest});
  }
}

}  // namespace

std::uint64_t gradients_that_stay(const std::vector<Block>& blocks, const std::unordered_map<std::size_t, Kind>& listed,
                                  const std::map<std::uint64_t, std::size_t>& marks) {
  std::uint64_t bytes = 0;
  for (const auto& [index, kind] : listed) {
    if (kind != Kind::gradient) continue;
    const Block& block = blocks[index];
    const auto first = std::find_if(marks.begin(), marks.end(), [&](const auto& mark) { return mark.second > block.from; });
    if (first == marks.end() || std::next(first) == marks.end()) continue;
    if (block.until > std::next(first)->second) bytes += block.bytes;
  }
  return bytes;
}

std::vector<Candidate> find_candidates(const PeakBlocks& peak) {
  std::vector<Candidate> candidates;
  add_checkpointing(peak, candidates);
  const auto bytes_of = [&](Kind kind) {
    const auto found = peak.explanation.bytes.find(kind);
    return found == peak.explanation.bytes.end() ? 0 : found->second;
  };
  const std::uint64_t by_batch = bytes_of(Kind::activation) + bytes_of(Kind::backward) + bytes_of(Kind::at_peak);
  candidates.push_back({"smaller_batch",
                        "half the batch would drop up to half of what grows with it (activations, backward pass, the operator at the peak): " +
                            format_size(by_batch / 2) + "; gpumem estimate --batch-percent 50 tells",
                        by_batch / 2});
  if (peak.staying_gradient_bytes > 0) {
    candidates.push_back({"set_to_none",
                          "gradients stay allocated from step to step (" + format_size(peak.staying_gradient_bytes) +
                              "): zero_grad(set_to_none=True), unless they are accumulated on purpose, frees them for the forward pass",
                          std::min(peak.staying_gradient_bytes, bytes_of(Kind::gradient))});
  }
  const std::uint64_t least = peak.explanation.peak.allocated_bytes / kLeastShare;
  std::erase_if(candidates, [&](const Candidate& candidate) { return candidate.saves_bytes < std::max<std::uint64_t>(least, 1); });
  std::stable_sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) { return a.saves_bytes > b.saves_bytes; });
  return candidates;
}

}  // namespace gpumem::explain
