// SPDX-License-Identifier: Apache-2.0
// Limits, actions and what the user reads.
#include "daemon/policy/decision.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/size.h"

namespace gpumem::policy {
namespace {

constexpr char kHelp[] = "a smaller batch, mixed precision, gradient checkpointing or a GPU with more memory would help";

// After an out of memory at its limit a job gets a fifth more: a third OOM in a row would mean a limit 44 % beyond the first.
constexpr double kAfterOutOfMemory = 1.2;

bool speaks(const config::PoolSection* pool) { return pool != nullptr && (pool->mode == "advise" || pool->mode == "apply"); }

std::string percent_text(double percent) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4g %%", percent);
  return text;
}

std::string margin_text(const Evidence& evidence, const MarginRule& margin) {
  const double by_percent = static_cast<double>(evidence.need_bytes) * margin.percent / 100;
  if (by_percent < static_cast<double>(margin.floor_bytes)) return format_size(margin.floor_bytes);
  return percent_text(margin.percent);
}

std::string need_text(const Evidence& evidence, const MarginRule& margin, const std::string& gpu, std::uint64_t limit_mib) {
  if (evidence.rule == "user") return "limit " + format_size(limit_mib * kMiB) + " as you asked";
  const std::string source = evidence.rule == "measured" ? "measured " : "estimate ";
  return "needs " + format_size(limit_mib * kMiB) + " on " + gpu + " (" + source + format_size(evidence.need_bytes) +
         " + margin " + margin_text(evidence, margin) + ")";
}

std::string brackets(const Evidence& evidence) { return evidence.how.empty() ? "" : " [" + evidence.how + "]"; }

}  // namespace

std::uint64_t margin_bytes(std::uint64_t need_bytes, const MarginRule& margin) {
  const double by_percent = std::ceil(static_cast<double>(need_bytes) * margin.percent / 100);
  return std::max(static_cast<std::uint64_t>(by_percent), margin.floor_bytes);
}

Answer keep(const config::PoolSection* pool, const std::string& rule, const std::string& reason, bool say_it) {
  Answer answer;
  answer.rule = rule;
  answer.reason = reason;
  if (say_it && speaks(pool)) answer.line = reason + ": submitted as it was";
  return answer;
}

Answer too_large(const Place& place, const std::string& what_it_reached) {
  return keep(place.pool, "too_large",
              "needs more than the " + format_size(place.shards_per_gpu * kMiB) + " of one " + place.gpu + " (" + what_it_reached +
                  "; " + kHelp + ")",
              true);
}

Answer decide(const Request& request, const GpuRequest& gpu, const Place& place, const SlurmFacts& facts,
              const Evidence& evidence, const MarginRule& margin) {
  Answer answer;
  answer.rule = evidence.rule;
  // What a user says is a limit already.
  answer.margin_bytes = evidence.rule == "user" ? 0 : margin_bytes(evidence.need_bytes, margin);
  answer.limit_mib = to_mib_ceil(evidence.need_bytes + answer.margin_bytes);
  if (evidence.larger_than_mib >= answer.limit_mib) {
    answer.limit_mib = static_cast<std::uint64_t>(std::ceil(static_cast<double>(evidence.larger_than_mib) * kAfterOutOfMemory));
  }
  const std::string needs = need_text(evidence, margin, place.gpu, answer.limit_mib);
  if (answer.limit_mib > place.shards_per_gpu) {
    const std::string whole = format_size(place.shards_per_gpu * kMiB);
    if (to_mib_ceil(evidence.need_bytes) > place.shards_per_gpu) {
      Answer large = too_large(place, evidence.rule == "user" ? "you asked for " + format_size(evidence.need_bytes)
                                                              : evidence.rule + " " + format_size(evidence.need_bytes));
      large.limit_mib = 0;
      return large;
    }
    answer.reason = needs + ", more than can be shared of " + whole + ": keeps a whole GPU";
    if (speaks(place.pool)) answer.line = answer.reason + brackets(evidence);
    answer.limit_mib = 0;
    return answer;
  }
  answer.rewrite = rewrite(request, gpu, answer.limit_mib, *place.pool, place.partitions, facts);
  if (!answer.rewrite.obstacle.empty()) {
    answer.reason = answer.rewrite.obstacle;
    if (speaks(place.pool)) answer.line = needs + ", but " + answer.rewrite.obstacle + ": submitted as it was" + brackets(evidence);
    return answer;
  }
  if (place.pool->mode == "apply") {
    answer.action = "rewrite";
    answer.line = needs + ": requesting " + answer.rewrite.gres + " instead of " + gpu.text + brackets(evidence);
    return answer;
  }
  answer.reason = "pool " + place.pool->name + " is in mode " + place.pool->mode;
  if (place.pool->mode == "advise") {
    answer.line = needs + ": " + answer.rewrite.gres + " would do instead of " + gpu.text + " (only advice here: submitted as it was)" +
                  brackets(evidence);
  }
  return answer;
}

}  // namespace gpumem::policy
