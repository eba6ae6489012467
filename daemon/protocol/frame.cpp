// SPDX-License-Identifier: Apache-2.0
// Frames and fields on the wire. libc only: this file is compiled into the SPANK plugin.
#include "daemon/protocol/frame.h"

#include <string.h>

namespace gpumem::protocol {
namespace {

constexpr unsigned char kMagic[4] = {'G', 'P', 'U', 'M'};

size_t decimal_digits(size_t number) {
  size_t digits = 1;
  for (; number >= 10; number /= 10) ++digits;
  return digits;
}

}  // namespace

void encode_header(uint32_t body_bytes, unsigned char out[kHeaderBytes]) {
  memcpy(out, kMagic, sizeof kMagic);
  out[4] = kMajor;
  out[5] = kMinor;
  out[6] = 0;
  out[7] = 0;
  for (int i = 0; i < 4; ++i) out[8 + i] = static_cast<unsigned char>(body_bytes >> (8 * i));
}

HeaderStatus decode_header(const unsigned char in[kHeaderBytes], FrameHeader* header) {
  if (memcmp(in, kMagic, sizeof kMagic) != 0) return HeaderStatus::not_a_frame;
  header->major = in[4];
  header->minor = in[5];
  header->body_bytes = 0;
  for (int i = 0; i < 4; ++i) header->body_bytes |= static_cast<uint32_t>(in[8 + i]) << (8 * i);
  return header->body_bytes > kLargestBodyBytes ? HeaderStatus::too_large : HeaderStatus::ok;
}

bool is_field_name(const char* name, size_t name_bytes) {
  if (name_bytes == 0 || name_bytes > kLargestNameBytes) return false;
  for (size_t i = 0; i < name_bytes; ++i) {
    const char c = name[i];
    const bool good = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
                      c == '-' || c == '.';
    if (!good) return false;
  }
  return true;
}

size_t field_wire_bytes(size_t name_bytes, size_t value_bytes) {
  return name_bytes + 1 + decimal_digits(value_bytes) + 1 + value_bytes + 1;
}

size_t encode_field(char* out, const char* name, size_t name_bytes, const char* value, size_t value_bytes) {
  char* at = out;
  memcpy(at, name, name_bytes);
  at += name_bytes;
  *at++ = '=';
  const size_t digits = decimal_digits(value_bytes);
  size_t rest = value_bytes;
  for (size_t i = digits; i-- > 0; rest /= 10) at[i] = static_cast<char>('0' + rest % 10);
  at += digits;
  *at++ = ':';
  if (value_bytes != 0) memcpy(at, value, value_bytes);
  at += value_bytes;
  *at++ = '\n';
  return static_cast<size_t>(at - out);
}

FieldStatus next_field(const char* body, size_t body_bytes, size_t* at, FieldView* field) {
  const size_t start = *at;
  if (start == body_bytes) return FieldStatus::end;
  if (start > body_bytes) return FieldStatus::malformed;
  const size_t left = body_bytes - start;
  const size_t look = left < kLargestNameBytes + 1 ? left : kLargestNameBytes + 1;
  const char* equals = static_cast<const char*>(memchr(body + start, '=', look));
  if (equals == nullptr) return FieldStatus::malformed;
  field->name = body + start;
  field->name_bytes = static_cast<size_t>(equals - field->name);
  if (!is_field_name(field->name, field->name_bytes)) return FieldStatus::malformed;
  size_t i = start + field->name_bytes + 1;
  const size_t first_digit = i;
  size_t length = 0;
  for (; i < body_bytes && body[i] >= '0' && body[i] <= '9'; ++i) {
    length = length * 10 + static_cast<size_t>(body[i] - '0');
    if (length > kLargestBodyBytes) return FieldStatus::malformed;
  }
  if (i == first_digit || i == body_bytes || body[i] != ':') return FieldStatus::malformed;
  ++i;
  if (body_bytes - i < length + 1) return FieldStatus::malformed;
  if (body[i + length] != '\n') return FieldStatus::malformed;
  field->value = body + i;
  field->value_bytes = length;
  *at = i + length + 1;
  return FieldStatus::field;
}

}  // namespace gpumem::protocol
