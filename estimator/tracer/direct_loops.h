// SPDX-License-Identifier: Apache-2.0
// Loops over float32 numbers for direct.cpp. Runs inside the job's Python, in probes only.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

// The job's compiler decides for any machine of its kind: the wider instructions are chosen when the tracer is loaded.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define GPUMEM_WIDE __attribute__((target_clones("arch=haswell", "default"), optimize("O3")))
#else
#define GPUMEM_WIDE
#endif

namespace gpumem::tracer {

// One operand: many numbers, or one that stands for all.
struct Row {
  const float* many = nullptr;
  float one = 0;
};

// `out` may be one of the operands: numbers (or, of comparisons, flags) are written in order.
using Loop = void (*)(void* out, const float* x, const float* y, const float* z, size_t n, float factor);

struct Matrix {
  const float* data;
  int64_t rows, columns, row_stride, column_stride;
};

namespace loops {

// Every operand is loaded, so that choices between them need no jumps; what the expression does not use is not.
#define GPUMEM_LOOP(name, type, expression)                                                                       \
  GPUMEM_WIDE void name(void* to, const float* x, const float* y, const float* z, size_t n, float factor) {       \
    auto* out = static_cast<type*>(to);                                                                           \
    _Pragma("GCC ivdep") for (size_t i = 0; i < n; i++) {                                                         \
      const float a = x[i], b = y[i], c = z[i];                                                                   \
      out[i] = expression;                                                                                        \
    }                                                                                                             \
  }

GPUMEM_LOOP(neg, float, -a)
GPUMEM_LOOP(sqrt, float, std::sqrt(a))
GPUMEM_LOOP(rsqrt, float, 1.0f / std::sqrt(a))
GPUMEM_LOOP(reciprocal, float, 1.0f / a)
GPUMEM_LOOP(square, float, a* a)
GPUMEM_LOOP(pow, float, std::pow(a, b))
GPUMEM_LOOP(add, float, a + factor * b)
GPUMEM_LOOP(sub, float, a - factor * b)
GPUMEM_LOOP(mul, float, a* b)
GPUMEM_LOOP(div, float, a / b)
// What is not a number stays so, whichever side it is on.
GPUMEM_LOOP(maximum, float, (a != a) | (a > b) ? a : b)
GPUMEM_LOOP(minimum, float, (a != a) | (a < b) ? a : b)
GPUMEM_LOOP(clamp, float, a < b ? (b > c ? c : b) : a > c ? c : a)
GPUMEM_LOOP(lerp, float, std::fabs(c) < 0.5f ? a + c * (b - a) : b - (b - a) * (1 - c))
GPUMEM_LOOP(addcmul, float, a + factor * b * c)
GPUMEM_LOOP(addcdiv, float, a + factor * b / c)
GPUMEM_LOOP(threshold_backward, float, b <= c ? 0 : a)
GPUMEM_LOOP(gt, bool, a > b)
GPUMEM_LOOP(ge, bool, a >= b)
GPUMEM_LOOP(lt, bool, a < b)
GPUMEM_LOOP(le, bool, a <= b)
GPUMEM_LOOP(eq, bool, a == b)
GPUMEM_LOOP(ne, bool, a != b)
#undef GPUMEM_LOOP

GPUMEM_WIDE void fill(void* to, size_t n, float one) {
  auto* out = static_cast<float*>(to);
  for (size_t i = 0; i < n; i++) out[i] = one;
}
GPUMEM_WIDE void fill(void* to, size_t n, uint16_t one) {
  auto* out = static_cast<uint16_t*>(to);
  for (size_t i = 0; i < n; i++) out[i] = one;
}

// In eight parts, which are nearer to the true sum than one and fit a vector.
#define GPUMEM_SUM(name, expression)                             \
  GPUMEM_WIDE float name(const float* x, size_t n) {             \
    float parts[8] = {};                                         \
    size_t i = 0;                                                \
    for (; i + 8 <= n; i += 8)                                   \
      for (size_t j = 0; j < 8; j++) parts[j] += expression;     \
    for (size_t j = 0; i + j < n; j++) parts[j] += expression;   \
    float all = 0;                                               \
    for (float part : parts) all += part;                        \
    return all;                                                  \
  }
GPUMEM_SUM(sum, x[i + j])
GPUMEM_SUM(sum_of_squares, x[i + j] * x[i + j])
#undef GPUMEM_SUM

GPUMEM_WIDE void sum_rows(float* out, const float* x, size_t rows, size_t columns, float divisor) {
  std::fill_n(out, columns, 0.0f);
  for (size_t r = 0; r < rows; r++)
#pragma GCC ivdep
    for (size_t c = 0; c < columns; c++) out[c] += x[r * columns + c];
  if (divisor != 1)
    for (size_t c = 0; c < columns; c++) out[c] /= divisor;
}

// So many columns of two rows at a time are kept in registers. `b` is row by row. Returns the first column that is not done.
template <int64_t kBlock>
inline __attribute__((always_inline)) int64_t multiply_blocks(float* out, const Matrix& a, const float* b, int64_t columns, const float* bias, int64_t r, int64_t c,
                                                              bool two) {
  const float *row = a.data + r * a.row_stride, *below = two ? row + a.row_stride : row;
  for (; c + kBlock <= columns; c += kBlock) {
    float sums[kBlock], more[kBlock];
    for (int64_t j = 0; j < kBlock; j++) sums[j] = more[j] = bias ? bias[c + j] : 0;
    for (int64_t k = 0; k < a.columns; k++) {
      const float factor = row[k * a.column_stride], other = below[k * a.column_stride];
      for (int64_t j = 0; j < kBlock; j++) sums[j] += factor * b[k * columns + c + j];
      for (int64_t j = 0; j < kBlock; j++) more[j] += other * b[k * columns + c + j];
    }
    for (int64_t j = 0; j < kBlock; j++) out[r * columns + c + j] = sums[j];
    if (two)
      for (int64_t j = 0; j < kBlock; j++) out[(r + 1) * columns + c + j] = more[j];
  }
  return c;
}

GPUMEM_WIDE void multiply_rows(float* out, const Matrix& a, const float* b, int64_t columns, const float* bias) {
  for (int64_t r = 0; r < a.rows; r += 2) {
    const bool two = r + 1 < a.rows;
    int64_t c = multiply_blocks<32>(out, a, b, columns, bias, r, 0, two);
    c = multiply_blocks<8>(out, a, b, columns, bias, r, c, two);
    multiply_blocks<1>(out, a, b, columns, bias, r, c, two);
  }
}

inline void multiply(float* out, const Matrix& a, const Matrix& b, const float* bias) {
  if (b.column_stride == 1 && b.row_stride == b.columns) return multiply_rows(out, a, b.data, b.columns, bias);
  static thread_local auto* packed = new std::vector<float>;
  packed->resize(b.rows * b.columns);
  for (int64_t k = 0; k < b.rows; k++)
    for (int64_t j = 0; j < b.columns; j++) (*packed)[k * b.columns + j] = b.data[k * b.row_stride + j * b.column_stride];
  multiply_rows(out, a, packed->data(), b.columns, bias);
}

}  // namespace loops

// Applies the loop; an operand of one number is written out for a stretch at a time.
inline void compute(Loop loop, void* out, const Row (&rows)[3], int operands, float factor, size_t count, bool flags) {
  constexpr size_t kStretch = 256;
  float ones[3][kStretch];
  bool any = false;
  for (int o = 0; o < operands; o++)
    if (!rows[o].many) {
      std::fill_n(ones[o], std::min(kStretch, count), rows[o].one);
      any = true;
    }
  const size_t step = any ? kStretch : count;
  for (size_t at = 0; at < count; at += step) {
    const auto from = [&](int o) { return rows[o].many ? rows[o].many + at : ones[o]; };
    loop(static_cast<char*>(out) + at * (flags ? sizeof(bool) : sizeof(float)), from(0), from(1), from(2), std::min(step, count - at), factor);
  }
}

}  // namespace gpumem::tracer
