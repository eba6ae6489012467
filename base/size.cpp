// SPDX-License-Identifier: Apache-2.0
// Amounts of memory as text.
#include "base/size.h"

#include <charconv>
#include <cmath>
#include <cstdio>

namespace gpumem {
namespace {

// Sizes beyond 2^53 cannot be held exactly by JSON's numbers, and no GPU comes near.
constexpr double kLargest = 9007199254740992.0;

double unit_factor(std::string_view unit) {
  if (unit.empty()) return static_cast<double>(kMiB);
  const char letter = static_cast<char>(unit[0] | 0x20);
  const std::string_view rest = unit.substr(1);
  const bool tail_ok = rest.empty() || rest == "B" || rest == "b" || rest == "iB" || rest == "ib" || rest == "IB";
  if (letter == 'b' && rest.empty()) return 1.0;
  if (!tail_ok) return 0.0;
  switch (letter) {
    case 'k': return static_cast<double>(kKiB);
    case 'm': return static_cast<double>(kMiB);
    case 'g': return static_cast<double>(kGiB);
    case 't': return static_cast<double>(kGiB) * 1024.0;
    default: return 0.0;
  }
}

Error bad_size(std::string_view text) {
  return {ErrorKind::invalid_argument,
          "'" + std::string(text) + "' is not a size: write for example 24G, 1.5GiB or 800M"};
}

}  // namespace

Result<std::uint64_t> parse_size(std::string_view text) {
  double number = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  if (status != std::errc() || !std::isfinite(number)) return bad_size(text);
  std::string_view unit = text.substr(static_cast<std::size_t>(end - text.data()));
  while (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
  const double bytes = std::ceil(number * unit_factor(unit));
  if (bytes < 1.0 || bytes > kLargest) return bad_size(text);
  return static_cast<std::uint64_t>(bytes);
}

std::string format_size(std::uint64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  double amount = static_cast<double>(bytes);
  unsigned unit = 0;
  // 1023.95 would be printed as 1024.0: it belongs to the next unit.
  while (amount >= 1023.95 && unit < 5) {
    amount /= 1024.0;
    ++unit;
  }
  char text[32];
  const bool whole = unit == 0 || amount >= 99.95;
  std::snprintf(text, sizeof text, whole ? "%.0f %s" : "%.1f %s", amount, kUnits[unit]);
  return text;
}

}  // namespace gpumem
