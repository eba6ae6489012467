// SPDX-License-Identifier: Apache-2.0
// Sums and other reductions of small contributions, in plain C++ on host memory; runs in the job's processes.
#include <string.h>

#include "estimator/virtual_gpu/libraries/nccl.h"

namespace gpumem::virtual_gpu::libraries::nccl {
namespace {

// ncclDataType_t, nccl.h.
enum Type : int { kInt8, kUint8, kInt32, kUint32, kInt64, kUint64, kHalf, kFloat, kDouble, kBfloat16, kFp8E4M3, kFp8E5M2 };

float from_bits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}
uint32_t to_bits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

float half_to_float(uint16_t half) {
  const uint32_t sign = (half & 0x8000u) << 16, exponent = half >> 10 & 31u, fraction = half & 0x3ffu;
  if (exponent == 31) return from_bits(sign | 0x7f800000u | fraction << 13);
  if (exponent != 0) return from_bits(sign | (exponent + 112) << 23 | fraction << 13);
  const float small = static_cast<float>(fraction) * 5.9604644775390625e-8f;  // 2^-24
  return sign != 0 ? -small : small;
}
uint16_t float_to_half(float value) {
  const uint32_t bits = to_bits(value), sign = bits >> 16 & 0x8000u;
  const float magnitude = from_bits(bits & 0x7fffffffu);
  if (magnitude != magnitude) return static_cast<uint16_t>(sign | 0x7e00u);
  if (magnitude >= 65520.0f) return static_cast<uint16_t>(sign | 0x7c00u);
  if (magnitude < 6.103515625e-5f) {  // below the smallest normal number: units of 2^-24, to nearest even by the addition
    const float scaled = magnitude * 16777216.0f + 8388608.0f;
    return static_cast<uint16_t>(sign | (to_bits(scaled) & 0x7ffu));
  }
  const uint32_t rounded = (bits & 0x7fffffffu) + 0xfffu + (bits >> 13 & 1u);
  return static_cast<uint16_t>(sign | ((rounded >> 13) - (112u << 10)));
}
float bfloat_to_float(uint16_t value) { return from_bits(static_cast<uint32_t>(value) << 16); }
uint16_t float_to_bfloat(float value) {
  if (value != value) return 0x7fc0;
  const uint32_t bits = to_bits(value);
  return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

template <typename T>
T combine(T a, T b, int operation) {
  switch (operation) {
    case kProduct: return static_cast<T>(a * b);
    case kMax: return a > b ? a : b;
    case kMin: return a < b ? a : b;
    default: return static_cast<T>(a + b);
  }
}

template <typename T>
void reduce_plain(void *into, const void *from, size_t count, int operation) {
  for (size_t i = 0; i < count; i++) {
    T a, b;
    memcpy(&a, static_cast<char *>(into) + i * sizeof(T), sizeof(T));
    memcpy(&b, static_cast<const char *>(from) + i * sizeof(T), sizeof(T));
    a = combine(a, b, operation);
    memcpy(static_cast<char *>(into) + i * sizeof(T), &a, sizeof(T));
  }
}

template <float (*Read)(uint16_t), uint16_t (*Write)(float)>
void reduce_halves(void *into, const void *from, size_t count, int operation) {
  for (size_t i = 0; i < count; i++) {
    uint16_t a, b;
    memcpy(&a, static_cast<char *>(into) + i * 2, 2);
    memcpy(&b, static_cast<const char *>(from) + i * 2, 2);
    a = Write(combine(Read(a), Read(b), operation));
    memcpy(static_cast<char *>(into) + i * 2, &a, 2);
  }
}

template <typename T>
void scale_plain(void *values, size_t count, double factor) {
  for (size_t i = 0; i < count; i++) {
    T a;
    memcpy(&a, static_cast<char *>(values) + i * sizeof(T), sizeof(T));
    a = static_cast<T>(static_cast<double>(a) * factor);
    memcpy(static_cast<char *>(values) + i * sizeof(T), &a, sizeof(T));
  }
}

// Whole numbers by whole numbers, so that large ones keep their last digit (and wrap as a sum would).
template <typename T>
void scale_integers(void *values, size_t count, double factor) {
  const T times = static_cast<T>(factor);
  if (static_cast<double>(times) != factor) return scale_plain<T>(values, count, factor);
  for (size_t i = 0; i < count; i++) {
    T a;
    memcpy(&a, static_cast<char *>(values) + i * sizeof(T), sizeof(T));
    a = static_cast<T>(a * times);
    memcpy(static_cast<char *>(values) + i * sizeof(T), &a, sizeof(T));
  }
}

}  // namespace

size_t bytes_of(int type) {
  switch (type) {
    case kInt8: case kUint8: case kFp8E4M3: case kFp8E5M2: return 1;
    case kHalf: case kBfloat16: return 2;
    case kInt64: case kUint64: case kDouble: return 8;
    default: return 4;
  }
}

bool is_integer(int type) { return type >= kInt8 && type <= kUint64; }

void reduce_values(void *into, const void *from, size_t count, int type, int operation) {
  switch (type) {
    case kInt8: return reduce_plain<int8_t>(into, from, count, operation);
    case kUint8: return reduce_plain<uint8_t>(into, from, count, operation);
    case kInt32: return reduce_plain<int32_t>(into, from, count, operation);
    case kUint32: return reduce_plain<uint32_t>(into, from, count, operation);
    case kInt64: return reduce_plain<int64_t>(into, from, count, operation);
    case kUint64: return reduce_plain<uint64_t>(into, from, count, operation);
    case kFloat: return reduce_plain<float>(into, from, count, operation);
    case kDouble: return reduce_plain<double>(into, from, count, operation);
    case kHalf: return reduce_halves<half_to_float, float_to_half>(into, from, count, operation);
    case kBfloat16: return reduce_halves<bfloat_to_float, float_to_bfloat>(into, from, count, operation);
    default: return;
  }
}

void scale_values(void *values, size_t count, int type, double factor) {
  if (factor == 1) return;
  switch (type) {
    case kInt8: return scale_integers<int8_t>(values, count, factor);
    case kUint8: return scale_integers<uint8_t>(values, count, factor);
    case kInt32: return scale_integers<int32_t>(values, count, factor);
    case kUint32: return scale_integers<uint32_t>(values, count, factor);
    case kInt64: return scale_integers<int64_t>(values, count, factor);
    case kUint64: return scale_integers<uint64_t>(values, count, factor);
    case kFloat: return scale_plain<float>(values, count, factor);
    case kDouble: return scale_plain<double>(values, count, factor);
    case kHalf:
    case kBfloat16:
      for (size_t i = 0; i < count; i++) {
        uint16_t a;
        memcpy(&a, static_cast<char *>(values) + i * 2, 2);
        const double value = (type == kHalf ? half_to_float(a) : bfloat_to_float(a)) * factor;
        a = type == kHalf ? float_to_half(static_cast<float>(value)) : float_to_bfloat(static_cast<float>(value));
        memcpy(static_cast<char *>(values) + i * 2, &a, 2);
      }
      return;
    default: return;
  }
}

double read_value(const void *value, int type) {
  if (type == kHalf || type == kBfloat16) {
    uint16_t half;
    memcpy(&half, value, 2);
    return type == kHalf ? half_to_float(half) : bfloat_to_float(half);
  }
  if (type == kDouble) {
    double number;
    memcpy(&number, value, sizeof number);
    return number;
  }
  if (type == kFloat) {
    float number;
    memcpy(&number, value, sizeof number);
    return number;
  }
  return 1;
}

}  // namespace gpumem::virtual_gpu::libraries::nccl
