// SPDX-License-Identifier: Apache-2.0
// Time as numbers and as text.
#include "base/clock.h"

#include <cmath>
#include <cstdio>
#include <ctime>

namespace gpumem {
namespace {

double read_clock_s(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

}  // namespace

double unix_time_s() { return read_clock_s(CLOCK_REALTIME); }

double monotonic_s() { return read_clock_s(CLOCK_MONOTONIC); }

std::string format_local_time(double unix_s) {
  const std::time_t seconds = static_cast<std::time_t>(std::floor(unix_s));
  std::tm local{};
  localtime_r(&seconds, &local);
  char text[64];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &local);
  return text;
}

std::string format_duration(double seconds) {
  char text[64];
  const long whole = std::lround(seconds);
  if (seconds < 1.0) {
    std::snprintf(text, sizeof text, "%.0f ms", seconds * 1e3);
  } else if (seconds < 60.0) {
    std::snprintf(text, sizeof text, "%.1f s", seconds);
  } else if (whole < 3600) {
    std::snprintf(text, sizeof text, "%ld min %ld s", whole / 60, whole % 60);
  } else {
    std::snprintf(text, sizeof text, "%ld h %ld min", whole / 3600, whole % 3600 / 60);
  }
  return text;
}

}  // namespace gpumem
