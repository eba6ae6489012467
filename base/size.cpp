// SPDX-License-Identifier: Apache-2.0
// Amounts of memory as text.
#include "base/size.h"

#include <cstdio>

#include "base/size_text.h"

namespace gpumem {
namespace {

Error bad_size(std::string_view text) {
  return {ErrorKind::invalid_argument,
          "'" + std::string(text) + "' is not a size: write for example 24G, 1.5GiB or 800M"};
}

}  // namespace

Result<std::uint64_t> parse_size(std::string_view text) {
  std::uint64_t bytes = 0;
  if (!parse_size_text(text.data(), text.size(), &bytes)) return bad_size(text);
  return bytes;
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
