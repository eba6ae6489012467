// SPDX-License-Identifier: Apache-2.0
// Messages from and to their bytes.
#include "daemon/protocol/fields.h"

#include <charconv>

#include "daemon/protocol/frame.h"

namespace gpumem::protocol {

Message& Message::add(std::string_view name, std::string_view value) {
  fields_.emplace_back(name, value);
  return *this;
}

Message& Message::add_number(std::string_view name, std::uint64_t value) { return add(name, std::to_string(value)); }

std::string_view Message::type() const { return fields_.empty() ? std::string_view() : fields_.front().second; }

bool Message::has(std::string_view name) const {
  for (const auto& [field, value] : fields_) {
    if (field == name) return true;
  }
  return false;
}

std::string_view Message::get(std::string_view name) const {
  for (const auto& [field, value] : fields_) {
    if (field == name) return value;
  }
  return {};
}

std::vector<std::string> Message::get_all(std::string_view name) const {
  std::vector<std::string> all;
  for (const auto& [field, value] : fields_) {
    if (field == name) all.push_back(value);
  }
  return all;
}

std::optional<std::uint64_t> Message::get_number(std::string_view name) const {
  const std::string_view text = get(name);
  std::uint64_t number = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (status != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::optional<double> Message::get_real(std::string_view name) const {
  const std::string_view text = get(name);
  double number = 0;
  const auto [end, status] =
      std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  if (status != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

Result<std::string> Message::to_frame() const {
  std::size_t body_bytes = 0;
  for (const auto& [name, value] : fields_) {
    if (!is_field_name(name.data(), name.size())) {
      return Error{ErrorKind::internal, "'" + name + "' is not a field name of the protocol"};
    }
    body_bytes += field_wire_bytes(name.size(), value.size());
  }
  if (body_bytes > kLargestBodyBytes) {
    return Error{ErrorKind::invalid_argument, "a '" + std::string(type()) + "' message of " + std::to_string(body_bytes) +
                                                  " bytes exceeds the protocol's largest"};
  }
  std::string frame(kHeaderBytes + body_bytes, '\0');
  encode_header(static_cast<std::uint32_t>(body_bytes), reinterpret_cast<unsigned char*>(frame.data()));
  char* at = frame.data() + kHeaderBytes;
  for (const auto& [name, value] : fields_) at += encode_field(at, name.data(), name.size(), value.data(), value.size());
  return frame;
}

Result<Message> Message::from_body(std::string_view body) {
  Message message;
  std::size_t at = 0;
  for (;;) {
    FieldView field{};
    switch (next_field(body.data(), body.size(), &at, &field)) {
      case FieldStatus::malformed:
        return Error{ErrorKind::protocol, "malformed field at byte " + std::to_string(at) + " of the message"};
      case FieldStatus::end:
        if (message.fields_.empty()) return Error{ErrorKind::protocol, "empty message"};
        return message;
      case FieldStatus::field:
        break;
    }
    const std::string_view name(field.name, field.name_bytes);
    if (message.fields_.empty() && name != "type") {
      return Error{ErrorKind::protocol, "the message does not begin with its type"};
    }
    message.add(name, std::string_view(field.value, field.value_bytes));
  }
}

}  // namespace gpumem::protocol
