// SPDX-License-Identifier: Apache-2.0
// Longest common subsequences of two lists of requests. Part of allocator/ (see steps.h). Pure.
//
// Source of the first: Myers, "An O(ND) Difference Algorithm and Its Variations" (1986), the greedy form.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

namespace gpumem::allocator {

using Matches = std::vector<std::pair<int, int>>;  // (index in a, index in b), both rising

// nullopt: they differ in more than `most` places.
std::optional<Matches> align(const std::vector<std::uint64_t>& a, const std::vector<std::uint64_t>& b, int most);

// Where a run of one list has no match and its neighbours have equal keys, it may lie elsewhere as well: it is moved to where
// more of the pairs `fit`.
void slide(const std::vector<std::uint64_t>& a, const std::vector<std::uint64_t>& b, Matches& matches, const std::function<bool(int, int)>& fits);

// The same where no key is twice in a list: n log n.
Matches align_unique(const std::vector<std::uint64_t>& a, const std::vector<std::uint64_t>& b);

}  // namespace gpumem::allocator
