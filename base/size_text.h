// SPDX-License-Identifier: Apache-2.0
// Reads an amount of memory from text without the C++ runtime: what parse_size() and the SPANK plugin share.
//
// No allocation, no locale, no errors but `false`. Units are binary, as in base/size.h; a bare number is MiB.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gpumem {

// Sizes beyond 2^53 cannot be held exactly by JSON's numbers, and no GPU comes near.
inline constexpr std::uint64_t kLargestSizeBytes = std::uint64_t{1} << 53;

// Bytes in the unit that `unit` names ("", "M", "mb", "GiB", "B"); 0 when it names none.
constexpr std::uint64_t unit_bytes(const char* unit, std::size_t length) {
  if (length == 0) return std::uint64_t{1} << 20;
  const char letter = static_cast<char>(unit[0] | 0x20);
  if (letter == 'b') return length == 1 ? 1 : 0;
  const bool tail_ok = length == 1 || (length == 2 && (unit[1] | 0x20) == 'b') ||
                       (length == 3 && (unit[1] | 0x20) == 'i' && (unit[2] | 0x20) == 'b');
  if (!tail_ok) return 0;
  switch (letter) {
    case 'k': return std::uint64_t{1} << 10;
    case 'm': return std::uint64_t{1} << 20;
    case 'g': return std::uint64_t{1} << 30;
    case 't': return std::uint64_t{1} << 40;
    default: return 0;
  }
}

// "24G", "1.5 GiB", "800" to bytes, rounded up. False for what is not a size, zero, or more than kLargestSizeBytes.
constexpr bool parse_size_text(const char* text, std::size_t length, std::uint64_t* bytes) {
  std::uint64_t whole = 0;
  std::uint64_t fraction = 0;   // the first six digits behind the point: times a TiB it stays below 2^63
  std::uint64_t scale = 1;
  bool more = false;            // something is left behind those six
  std::size_t at = 0;
  std::size_t digits = 0;
  for (; at < length && text[at] >= '0' && text[at] <= '9'; ++at, ++digits) {
    whole = whole * 10 + static_cast<std::uint64_t>(text[at] - '0');
    if (whole > kLargestSizeBytes) return false;
  }
  if (at < length && text[at] == '.') {
    for (++at; at < length && text[at] >= '0' && text[at] <= '9'; ++at, ++digits) {
      if (scale < 1000000) {
        fraction = fraction * 10 + static_cast<std::uint64_t>(text[at] - '0');
        scale *= 10;
      } else {
        more = more || text[at] != '0';
      }
    }
  }
  if (digits == 0) return false;
  while (at < length && text[at] == ' ') ++at;
  const std::uint64_t unit = unit_bytes(text + at, length - at);
  if (unit == 0 || whole > kLargestSizeBytes / unit) return false;
  const std::uint64_t part = fraction * unit + (more ? unit - 1 : 0);
  const std::uint64_t sum = whole * unit + (part + scale - 1) / scale;
  if (sum == 0 || sum > kLargestSizeBytes) return false;
  *bytes = sum;
  return true;
}

}  // namespace gpumem
