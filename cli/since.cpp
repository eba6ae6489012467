// SPDX-License-Identifier: Apache-2.0
// Times and amounts as people type them on the command line.
#include "cli/since.h"

#include <charconv>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <optional>

namespace gpumem::cli {
namespace {

std::optional<double> parse_number(const std::string& text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(number)) return std::nullopt;
  return number;
}

std::optional<double> unit_s(char unit) {
  switch (unit) {
    case 'm': return 60;
    case 'h': return 3600;
    case 'd': return 86400;
    case 'w': return 7 * 86400;
    default: return std::nullopt;
  }
}

}  // namespace

Result<double> parse_since(const std::string& text, double now_s) {
  const Error wrong{ErrorKind::invalid_argument,
                    "\"" + text + "\" is no time: write 30m, 12h, 7d or 2w (ago), or a local time as 2026-11-20 or \"2026-11-20 14:00\""};
  if (text.empty()) return wrong;
  if (const auto unit = unit_s(text.back())) {
    const auto number = parse_number(text.substr(0, text.size() - 1));
    if (!number || *number < 0) return wrong;
    return now_s - *number * *unit;
  }
  int year = 0, month = 0, day = 0, hour = 0, minute = 0, second = 0, used = 0;
  char between[2] = "";
  const int found = std::sscanf(text.c_str(), "%4d-%2d-%2d%n%1[ T]%2d:%2d%n:%2d%n", &year, &month, &day, &used, between, &hour,
                                &minute, &used, &second, &used);
  const bool whole = static_cast<std::size_t>(used) == text.size();
  if ((found != 3 && found != 6 && found != 7) || !whole) return wrong;
  std::tm local{};
  local.tm_year = year - 1900;
  local.tm_mon = month - 1;
  local.tm_mday = day;
  local.tm_hour = hour;
  local.tm_min = minute;
  local.tm_sec = second;
  local.tm_isdst = -1;
  const std::tm asked = local;
  const std::time_t at = std::mktime(&local);
  // mktime makes 3 March of 31 February; a typing error must not pass as another day.
  if (at == static_cast<std::time_t>(-1) || local.tm_mon != asked.tm_mon || local.tm_mday != asked.tm_mday || hour > 23 || minute > 59) {
    return wrong;
  }
  return static_cast<double>(at);
}

Result<double> parse_percent(const std::string& text) {
  const bool sign = !text.empty() && text.back() == '%';
  const auto number = parse_number(sign ? text.substr(0, text.size() - 1) : text);
  if (!number || *number < 0) {
    return Error{ErrorKind::invalid_argument, "\"" + text + "\" is no percentage: write 8% or 7.5%"};
  }
  return *number;
}

}  // namespace gpumem::cli
