// SPDX-License-Identifier: Apache-2.0
// The socket protocol's frames and fields on the wire. Used by gpumemd, the CLI and the SPANK plugin.
//
// libc only: no allocation, no exception, no global state; every function may be called from any thread.
// A frame is a 12-byte header and a body; a body is a sequence of fields `NAME '=' LENGTH ':' BYTES '\n'`
// (doc/contracts.md, Socket protocol). What a peer sends is never trusted: sizes are checked before they are used.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace gpumem::protocol {

inline constexpr uint8_t kMajor = 1;
inline constexpr uint8_t kMinor = 0;
inline constexpr size_t kHeaderBytes = 12;
// A job script of Slurm's largest size (4 MiB), an environment as large as the kernel's argument space (6 MiB), and room.
inline constexpr size_t kLargestBodyBytes = 16u << 20;
inline constexpr size_t kLargestNameBytes = 64;

struct FrameHeader {
  uint8_t major;
  uint8_t minor;
  uint32_t body_bytes;
};

enum class HeaderStatus {
  ok,           // also for another major: the reader compares `major`
  not_a_frame,  // the first four bytes are not "GPUM": the peer speaks something else
  too_large,    // the body would exceed kLargestBodyBytes
};

// Writes the 12 bytes that announce a body of `body_bytes`, with this build's version.
void encode_header(uint32_t body_bytes, unsigned char out[kHeaderBytes]);
HeaderStatus decode_header(const unsigned char in[kHeaderBytes], FrameHeader* header);

// Letters, digits, '_', '-' and '.', 1 to kLargestNameBytes of them.
bool is_field_name(const char* name, size_t name_bytes);

// Bytes that a field takes on the wire.
size_t field_wire_bytes(size_t name_bytes, size_t value_bytes);

// Writes one field; `out` has field_wire_bytes(…) bytes. Returns what was written.
size_t encode_field(char* out, const char* name, size_t name_bytes, const char* value, size_t value_bytes);

// One field, as a view into the body it was read from.
struct FieldView {
  const char* name;
  size_t name_bytes;
  const char* value;   // followed by '\n' in the body, which a reader that owns the body may overwrite with a NUL
  size_t value_bytes;
};

enum class FieldStatus { field, end, malformed };

// Reads the field at `*at` and moves `*at` behind it. Start with *at = 0.
FieldStatus next_field(const char* body, size_t body_bytes, size_t* at, FieldView* field);

}  // namespace gpumem::protocol
