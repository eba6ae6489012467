// SPDX-License-Identifier: Apache-2.0
// Time: stored as UTC nanoseconds or seconds, shown in local time. Used by every program.
#pragma once

#include <cstdint>
#include <string>

namespace gpumem {

// Seconds since the epoch (UTC), with fractions: what the database and the JSON hold.
double unix_time_s();

// Seconds on a clock that never jumps: for durations and deadlines.
double monotonic_s();

// "2026-11-21 14:03:27" in the local time zone (TZ), for people.
std::string format_local_time(double unix_s);

// "6.2 s", "3 min 20 s", "2 h 5 min": a duration for people.
std::string format_duration(double seconds);

}  // namespace gpumem
