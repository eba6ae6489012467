// SPDX-License-Identifier: Apache-2.0
// A message of the socket protocol as names and values. Used by gpumemd and tests; the plugin uses frame.h alone.
//
// A Message owns its fields, in the order they came; the first is its type. A plain value without locks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace gpumem::protocol {

class Message {
 public:
  Message() = default;
  explicit Message(std::string_view type) { add("type", type); }

  Message& add(std::string_view name, std::string_view value);
  Message& add_number(std::string_view name, std::uint64_t value);

  std::string_view type() const;
  bool has(std::string_view name) const;
  // The first field of that name; empty when there is none.
  std::string_view get(std::string_view name) const;
  std::vector<std::string> get_all(std::string_view name) const;
  // Nothing when the field is missing or not a decimal number of at most 2^64 - 1.
  std::optional<std::uint64_t> get_number(std::string_view name) const;
  std::optional<double> get_real(std::string_view name) const;
  const std::vector<std::pair<std::string, std::string>>& fields() const { return fields_; }

  // The whole frame, header included. Fails with invalid_argument when the body would be too large.
  Result<std::string> to_frame() const;
  // Fails with protocol for anything that is not a sequence of fields that starts with `type`.
  static Result<Message> from_body(std::string_view body);

 private:
  std::vector<std::pair<std::string, std::string>> fields_;
};

}  // namespace gpumem::protocol
