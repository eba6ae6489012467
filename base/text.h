// SPDX-License-Identifier: Apache-2.0
// Pieces of text that programs print. Used by every program but the preloaded libraries and the plugin.
#pragma once

#include <string>

namespace gpumem {

// The last line that holds more than blanks, without blanks at its end and cut to `most_bytes`; empty where there is none.
inline std::string last_line(const std::string& text, std::size_t most_bytes = std::string::npos) {
  const std::size_t end = text.find_last_not_of(" \t\r\n");
  if (end == std::string::npos) return "";
  const std::size_t before = text.rfind('\n', end), begin = before == std::string::npos ? 0 : before + 1;
  return text.substr(begin, end - begin + 1).substr(0, most_bytes);
}

}  // namespace gpumem
