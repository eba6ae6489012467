// SPDX-License-Identifier: Apache-2.0
// Longest common subsequences of two lists of requests. See align.h.
#include "estimator/allocator/align.h"

#include <algorithm>
#include <unordered_map>

namespace gpumem::allocator {

std::optional<Matches> align(const std::vector<std::uint64_t>& a, const std::vector<std::uint64_t>& b, int most) {
  const int n = static_cast<int>(a.size()), m = static_cast<int>(b.size());
  std::vector<std::vector<int>> reached;  // by number of differences: how far in a, for each diagonal -d, -d + 2, …, d
  for (int d = 0; d <= most && d <= n + m; ++d) {
    std::vector<int> now(static_cast<std::size_t>(d) + 1);
    for (int i = 0; i <= d; ++i) {
      const int diagonal = 2 * i - d;  // x - y
      int x = 0;
      if (d > 0) {
        const auto& before = reached.back();
        const bool down = i == 0 || (i < d && before[static_cast<std::size_t>(i) - 1] < before[static_cast<std::size_t>(i)]);
        x = down ? before[static_cast<std::size_t>(i)] : before[static_cast<std::size_t>(i) - 1] + 1;
      }
      int y = x - diagonal;
      while (x < n && y >= 0 && y < m && a[static_cast<std::size_t>(x)] == b[static_cast<std::size_t>(y)]) ++x, ++y;
      now[static_cast<std::size_t>(i)] = x;
      if (x < n || y < m) continue;
      reached.push_back(std::move(now));
      Matches matches;  // backwards along the path
      for (int back = d, at = i; ; --back) {
        int start_x = 0;
        bool down = false;
        if (back > 0) {
          const auto& before = reached[static_cast<std::size_t>(back) - 1];
          down = at == 0 || (at < back && before[static_cast<std::size_t>(at) - 1] < before[static_cast<std::size_t>(at)]);
          start_x = down ? before[static_cast<std::size_t>(at)] : before[static_cast<std::size_t>(at) - 1] + 1;
        }
        for (int k = 2 * at - back; x > start_x; --x) matches.emplace_back(x - 1, x - 1 - k);
        if (back == 0) break;
        x = down ? start_x : start_x - 1;
        if (!down) --at;
      }
      std::reverse(matches.begin(), matches.end());
      return matches;
    }
    reached.push_back(std::move(now));
  }
  return std::nullopt;
}

namespace {

// Moves the runs of the second list that have no match.
void slide_second(const std::vector<std::uint64_t>& b, Matches& matches, const std::function<bool(int, int)>& fits) {
  for (std::size_t at = 1; at < matches.size(); ++at) {
    // The run lies in front of matches[at]; nothing of the first list may be missing there.
    const int run = matches[at].second - matches[at - 1].second - 1;
    if (run <= 0 || matches[at].first != matches[at - 1].first + 1) continue;
    int gain = 0, best = 0;
    std::size_t best_moves = 0;
    for (std::size_t moves = 1; moves <= at; ++moves) {  // to the left
      const auto [first, second] = matches[at - moves];
      if (moves > 1 && (matches[at - moves + 1].first != first + 1 || matches[at - moves + 1].second != second + 1)) break;
      if (b[static_cast<std::size_t>(second)] != b[static_cast<std::size_t>(second + run)]) break;
      gain += static_cast<int>(fits(first, second + run)) - static_cast<int>(fits(first, second));
      if (gain > best) best = gain, best_moves = moves;
    }
    for (std::size_t moves = 1; moves <= best_moves; ++moves) matches[at - moves].second += run;
    if (best_moves > 0) continue;
    gain = best = 0;
    for (std::size_t moves = 1; at + moves - 1 < matches.size(); ++moves) {  // to the right
      const auto [first, second] = matches[at + moves - 1];
      if (moves > 1 && (matches[at + moves - 2].first != first - 1 || matches[at + moves - 2].second != second - 1)) break;
      if (b[static_cast<std::size_t>(second)] != b[static_cast<std::size_t>(second - run)]) break;
      gain += static_cast<int>(fits(first, second - run)) - static_cast<int>(fits(first, second));
      if (gain > best) best = gain, best_moves = moves;
    }
    for (std::size_t moves = 1; moves <= best_moves; ++moves) matches[at + moves - 1].second -= run;
  }
}

}  // namespace

void slide(const std::vector<std::uint64_t>& a, const std::vector<std::uint64_t>& b, Matches& matches, const std::function<bool(int, int)>& fits) {
  slide_second(b, matches, fits);
  for (auto& [first, second] : matches) std::swap(first, second);
  slide_second(a, matches, [&](int second, int first) { return fits(first, second); });
  for (auto& [first, second] : matches) std::swap(first, second);
}

Matches align_unique(const std::vector<std::uint64_t>& a, const std::vector<std::uint64_t>& b) {
  std::unordered_map<std::uint64_t, int> place_in_a;
  place_in_a.reserve(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) place_in_a.emplace(a[i], static_cast<int>(i));
  // The longest rising subsequence of the places in a: of each length the one that ends lowest.
  Matches all;
  std::vector<int> before, ends;  // indices of `all`
  for (std::size_t j = 0; j < b.size(); ++j) {
    const auto found = place_in_a.find(b[j]);
    if (found == place_in_a.end()) continue;
    all.emplace_back(found->second, static_cast<int>(j));
    const auto end = std::lower_bound(ends.begin(), ends.end(), found->second, [&](int index, int place) { return all[static_cast<std::size_t>(index)].first < place; });
    before.push_back(end == ends.begin() ? -1 : *(end - 1));
    if (end == ends.end()) ends.push_back(static_cast<int>(all.size()) - 1);
    else *end = static_cast<int>(all.size()) - 1;
  }
  Matches matches;
  for (int index = ends.empty() ? -1 : ends.back(); index >= 0; index = before[static_cast<std::size_t>(index)]) matches.push_back(all[static_cast<std::size_t>(index)]);
  std::reverse(matches.begin(), matches.end());
  return matches;
}

}  // namespace gpumem::allocator
