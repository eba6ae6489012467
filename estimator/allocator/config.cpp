// SPDX-License-Identifier: Apache-2.0
// The settings of PyTorch's caching allocator, as a version of PyTorch reads them.
#include "estimator/allocator/config.h"

#include <algorithm>
#include <bit>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <vector>

namespace gpumem::allocator {
namespace {

constexpr std::uint64_t kMib = 1u << 20;
constexpr std::uint64_t kLeastLargeMib = 10;

// From here on the settings are read by c10/core/AllocatorConfig.cpp, from PYTORCH_ALLOC_CONF too; before by
// c10/cuda/CUDAAllocatorConfig.cpp.
constexpr Version kSharedReader{2, 9};

Error refused(const std::string& key, const std::string& why) {
  return {ErrorKind::invalid_argument, "PYTORCH_CUDA_ALLOC_CONF: " + key + ": " + why};
}

// Keys and the first version that knows them.
struct Key {
  std::string_view name;
  Version since;
};
constexpr Key kKeys[] = {
    {"max_split_size_mb", {2, 0}},
    {"garbage_collection_threshold", {2, 0}},
    {"roundup_power2_divisions", {2, 0}},
    {"backend", {2, 0}},
    {"expandable_segments", {2, 1}},
    {"release_lock_on_cudamalloc", {2, 1}},
    {"pinned_use_cuda_host_register", {2, 1}},
    {"pinned_num_register_threads", {2, 1}},
    {"max_non_split_rounding_mb", {2, 6}},
    {"pinned_use_background_threads", {2, 6}},
    {"release_lock_on_hipmalloc", {2, 8}},
    {"pinned_use_hip_host_register", {2, 8}},
    {"graph_capture_record_stream_reuse", {2, 9}},
    {"pinned_reserve_segment_size_mb", {2, 9}},
    {"per_process_memory_fraction", {2, 10}},
    {"large_segment_size_mb", {2, 11}},
};

std::vector<std::string> tokens_of(std::string_view text) {
  std::vector<std::string> tokens;
  std::string token;
  const auto end_token = [&] {
    if (!token.empty()) tokens.push_back(std::move(token));
    token.clear();
  };
  for (const char c : text) {
    if (c == ',' || c == ':' || c == '[' || c == ']') {
      end_token();
      tokens.emplace_back(1, c);
    } else if (!std::isspace(static_cast<unsigned char>(c))) {
      token += c;
    }
  }
  end_token();
  return tokens;
}

bool read_number(const std::string& token, std::uint64_t& value) {
  // As std::stoi and its like: what follows the digits is not looked at.
  return std::from_chars(token.data(), token.data() + token.size(), value).ec == std::errc();
}

bool read_real(const std::string& token, double& value) {
  char* end = nullptr;
  value = std::strtod(token.c_str(), &end);
  return end != token.c_str();
}

class Parser {
 public:
  Parser(std::string_view text, Version version) : tokens_(tokens_of(text)) { config_.version = version; }

  Result<Config> parse() {
    // What the limits of others depend on is read first.
    for (std::size_t i = 0; i + 2 < tokens_.size(); ++i) {
      if (tokens_[i] != "large_segment_size_mb" || tokens_[i + 1] != ":" || config_.version < Version{2, 11}) continue;
      if (auto parsed = megabytes(tokens_[i], tokens_[i + 2], kLeastLargeMib + 1, config_.large_segment_bytes); !parsed) return parsed.error();
      config_.max_non_split_rounding_bytes = config_.large_segment_bytes;
    }
    while (at_ < tokens_.size()) {
      const std::string key = tokens_[at_++];
      if (key == ",") continue;  // PyTorch skips empty entries
      if (auto parsed = parse_key(key); !parsed) return parsed.error();
      if (at_ < tokens_.size() && tokens_[at_++] != ",") return refused(key, "a comma must follow its value");
    }
    return config_;
  }

 private:
  Status parse_key(const std::string& key) {
    const auto known = std::find_if(std::begin(kKeys), std::end(kKeys), [&](const Key& k) { return k.name == key; });
    const std::string torch = "PyTorch " + std::to_string(config_.version.major) + "." + std::to_string(config_.version.minor);
    if (known == std::end(kKeys)) return refused(key, "no such setting");
    if (known->since > config_.version) return refused(key, torch + " does not know it: it ends at its first use of the GPU");
    if (at_ >= tokens_.size() || tokens_[at_] != ":" || ++at_ >= tokens_.size()) return refused(key, "it has no value");
    if (key == "roundup_power2_divisions") return parse_divisions(key);
    const std::string value = tokens_[at_++];
    const std::uint64_t least_mib = config_.large_segment_bytes / kMib + (config_.version >= kSharedReader ? 0 : 1);
    if (key == "max_split_size_mb") return megabytes(key, value, least_mib, config_.max_split_bytes);
    if (key == "max_non_split_rounding_mb") return megabytes(key, value, least_mib, config_.max_non_split_rounding_bytes);
    if (key == "large_segment_size_mb") return {};
    if (key == "garbage_collection_threshold") return share(key, value, false, config_.garbage_collection_threshold);
    if (key == "per_process_memory_fraction") return share(key, value, true, config_.memory_fraction);
    if (key == "expandable_segments") return truth(key, value, config_.expandable_segments);
    if (key == "graph_capture_record_stream_reuse") return truth(key, value, config_.graph_capture_record_stream_reuse);
    if (key == "backend") {
      if (value != "native" && value != "cudaMallocAsync") return refused(key, "'" + value + "' is neither native nor cudaMallocAsync");
      config_.cuda_malloc_async = value == "cudaMallocAsync";
      return {};
    }
    if (key.starts_with("release_lock") || key.starts_with("pinned_use")) {
      bool ignored = false;
      return truth(key, value, ignored);
    }
    std::uint64_t ignored = 0;  // the pinned allocator's numbers
    return read_number(value, ignored) ? Status() : refused(key, "'" + value + "' is no number");
  }

  static Status megabytes(const std::string& key, const std::string& value, std::uint64_t least, std::uint64_t& bytes) {
    std::uint64_t number = 0;
    if (!read_number(value, number)) return refused(key, "'" + value + "' is no number");
    if (number < least) return refused(key, "must be at least " + std::to_string(least));
    bytes = std::min(number, kNoLimit / kMib) * kMib;
    return {};
  }

  static Status share(const std::string& key, const std::string& value, bool with_ends, double& number) {
    if (!read_real(value, number) || !std::isfinite(number)) return refused(key, "'" + value + "' is no number");
    if (with_ends ? number < 0 || number > 1 : number <= 0 || number >= 1) return refused(key, "must be between 0 and 1");
    return {};
  }

  static Status truth(const std::string& key, const std::string& value, bool& flag) {
    if (value != "True" && value != "False") return refused(key, "'" + value + "' is neither True nor False");
    flag = value == "True";
    return {};
  }

  // Either one number for all sizes, or [256:1,512:2,>:4]: sizes in MiB, the first holds for what is smaller, too.
  Status parse_divisions(const std::string& key) {
    auto& divisions = config_.roundup_power2_divisions;
    std::uint64_t number = 0;
    if (tokens_[at_] != "[") {
      if (!read_number(tokens_[at_], number) || (number != 0 && !std::has_single_bit(number))) return refused(key, "'" + tokens_[at_] + "' is no power of 2");
      ++at_;
      divisions.fill(number);
      return {};
    }
    std::size_t last = 0;
    bool first = true;
    for (++at_; at_ < tokens_.size() && tokens_[at_] != "]";) {
      const std::string size = tokens_[at_++];
      if (at_ + 1 >= tokens_.size() || tokens_[at_] != ":") return refused(key, "write [SIZE:DIVISIONS,…]");
      const std::string value = tokens_[++at_];
      ++at_;
      if (!read_number(value, number) || (number != 0 && !std::has_single_bit(number))) return refused(key, "'" + value + "' is no power of 2");
      std::uint64_t mib = 0;
      if (size == ">") {
        // The older reader takes the last size that was named along.
        std::fill(divisions.begin() + static_cast<std::ptrdiff_t>(config_.version >= kSharedReader ? last + 1 : last), divisions.end(), number);
      } else if (!read_number(size, mib) || !std::has_single_bit(mib)) {
        return refused(key, "'" + size + "' is no power of 2");
      } else {
        const auto index = std::min<std::size_t>(static_cast<std::size_t>(std::countr_zero(mib)), divisions.size() - 1);
        if (first) std::fill(divisions.begin(), divisions.begin() + static_cast<std::ptrdiff_t>(index), number);
        first = false;
        divisions[index] = number;
        last = index;
      }
      if (at_ < tokens_.size() && tokens_[at_] == ",") ++at_;
    }
    if (at_ >= tokens_.size()) return refused(key, "its list has no end");
    ++at_;
    return {};
  }

  std::vector<std::string> tokens_;
  std::size_t at_ = 0;
  Config config_;
};

}  // namespace

Result<Version> parse_version(std::string_view text) {
  Version version;
  const auto major = std::from_chars(text.data(), text.data() + text.size(), version.major);
  if (major.ec == std::errc() && major.ptr != text.data() + text.size() && *major.ptr == '.') {
    const auto minor = std::from_chars(major.ptr + 1, text.data() + text.size(), version.minor);
    if (minor.ec == std::errc()) return version;
  }
  return Error{ErrorKind::invalid_argument, "'" + std::string(text) + "' is no version of PyTorch"};
}

Result<Config> parse_config(std::string_view text, Version version) { return Parser(text, version).parse(); }

Result<Config> config_from_environment(const std::optional<std::string>& cuda_alloc_conf, const std::optional<std::string>& alloc_conf,
                                       Version version) {
  if (cuda_alloc_conf) return parse_config(*cuda_alloc_conf, version);
  if (alloc_conf && version >= kSharedReader) return parse_config(*alloc_conf, version);
  return parse_config("", version);
}

}  // namespace gpumem::allocator
