// SPDX-License-Identifier: Apache-2.0
// Markers, and the Mersenne twister's jump ahead. See generator_skips.h.

#include "generator_skips.h"

#include <array>
#include <atomic>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace gpumem::tracer {
namespace {

constexpr int kState = 624, kShift = 397, kDegree = 19937;
// From here on the jump (40 ms once, then as much for each) is cheaper than the walk.
constexpr uint64_t kJumpBlocks = 400000;

using Window = std::array<uint32_t, kState>;

uint32_t twisted(uint32_t high, uint32_t low) {
  uint32_t y = (high & 0x80000000u) | (low & 0x7fffffffu);
  return (y >> 1) ^ ((low & 1) ? 0x9908b0dfu : 0u);
}

// The next 624 words in place. Each loop reads ahead of what it writes by more than a vector.
__attribute__((optimize("O3"))) void next_block(uint32_t* s) {
  for (int j = 0; j < kState - kShift; j++) s[j] = s[j + kShift] ^ twisted(s[j], s[j + 1]);
  for (int j = kState - kShift; j < kState - 1; j++) s[j] = s[j + kShift - kState] ^ twisted(s[j], s[j + 1]);
  s[kState - 1] = s[kShift - 1] ^ twisted(s[kState - 1], s[0]);
}

// Polynomials over F2, bit i of word i / 64 being the coefficient of x^i.
constexpr int kWords = kDegree / 64 + 1;  // 312
using Polynomial = std::array<uint64_t, kWords>;

bool bit(const uint64_t* p, int i) { return p[i >> 6] >> (i & 63) & 1; }

// The minimal polynomial of the twister's sequence, by Berlekamp and Massey from one bit of 2 * 19937 words of it.
std::vector<uint64_t> connection_polynomial() {
  constexpr int n = 2 * kDegree + 64, words = kWords + 1;
  Window window;
  for (int i = 0; i < kState; i++) window[i] = 0x9e3779b9u * (i + 1);
  next_block(window.data());
  // The sequence backwards, so that a dot product with the connection polynomial runs over whole words.
  std::vector<uint64_t> reversed((n + 63) / 64 + words + 1, 0);
  auto put = [&](int i, uint64_t b) { reversed[(n - 1 - i) >> 6] |= b << ((n - 1 - i) & 63); };
  std::vector<uint8_t> s(n);
  for (int i = 0; i < n; i++) {
    if (i % kState == 0) next_block(window.data());
    s[i] = window[i % kState] & 1;
    put(i, s[i]);
  }
  std::vector<uint64_t> c(words, 0), b(words, 0), kept(words);
  c[0] = b[0] = 1;
  int length = 0, since = 1;
  for (int i = 0; i < n; i++) {
    // discrepancy: the sum of c_j s_{i-j}; s_{i-j} is bit (n-1-i)+j of the reversed sequence.
    int at = (n - 1 - i) >> 6, off = (n - 1 - i) & 63;
    uint64_t sum = 0;
    for (int w = 0; w <= length / 64 && w < words; w++) {
      uint64_t part = reversed[at + w] >> off;
      if (off) part |= reversed[at + w + 1] << (64 - off);
      sum ^= c[w] & part;
    }
    if (!__builtin_parityll(sum)) {
      since++;
      continue;
    }
    kept = c;
    int by = since >> 6, rest = since & 63;
    for (int w = 0; w + by < words; w++) {
      c[w + by] ^= b[w] << rest;
      if (rest && w + by + 1 < words) c[w + by + 1] ^= b[w] >> (64 - rest);
    }
    if (2 * length <= i) {
      length = i + 1 - length;
      b = kept;
      since = 1;
    } else {
      since++;
    }
  }
  if (length != kDegree) return {};
  return c;
}

class Jump {
 public:
  Jump() {
    std::vector<uint64_t> c = connection_polynomial();
    if (c.empty()) return;
    // The characteristic polynomial is the reciprocal of the connection polynomial; kept in all 64 alignments.
    std::vector<uint64_t> p(kWords + 1, 0);
    for (int i = 0; i <= kDegree; i++)
      if (bit(c.data(), kDegree - i)) p[i >> 6] |= uint64_t{1} << (i & 63);
    for (int shift = 0; shift < 64; shift++) {
      shifted_[shift].fill(0);
      for (int w = 0; w <= kWords; w++) {
        shifted_[shift][w] ^= p[w] << shift;
        if (shift && w + 1 <= kWords) shifted_[shift][w + 1] ^= p[w] >> (64 - shift);
      }
    }
    usable_ = true;
  }
  bool usable() const { return usable_; }

  // The window `n` words later. The window must hold words of the recurrence only (any but a seed's first).
  void apply(Window& window, uint64_t n) const {
    Polynomial g{};
    g[0] = 1;
    for (int i = 63 - __builtin_clzll(n | 1); i >= 0; i--) {
      square(g);
      if (n >> i & 1) times_x(g);
    }
    std::vector<uint32_t> sequence(kDegree + 2 * kState);
    Window ahead = window;
    for (size_t i = 0; i < sequence.size(); i += kState) {
      std::copy(ahead.begin(), ahead.begin() + std::min<size_t>(kState, sequence.size() - i), sequence.begin() + i);
      next_block(ahead.data());
    }
    window.fill(0);
    for (int k = 0; k < kDegree; k++)
      if (bit(g.data(), k)) add(window.data(), sequence.data() + k);
  }

 private:
  __attribute__((optimize("O3"))) static void add(uint32_t* to, const uint32_t* from) {
    for (int j = 0; j < kState; j++) to[j] ^= from[j];
  }

  static uint64_t spread(uint32_t half) {
    uint64_t v = half;
    v = (v | v << 16) & 0x0000ffff0000ffffull;
    v = (v | v << 8) & 0x00ff00ff00ff00ffull;
    v = (v | v << 4) & 0x0f0f0f0f0f0f0f0full;
    v = (v | v << 2) & 0x3333333333333333ull;
    return (v | v << 1) & 0x5555555555555555ull;
  }

  __attribute__((optimize("O3"))) void reduce_bit(uint64_t* wide, int i) const {
    int at = (i - kDegree) >> 6;
    const auto& p = shifted_[(i - kDegree) & 63];
    for (int w = 0; w <= kWords; w++) wide[at + w] ^= p[w];
  }

  void square(Polynomial& g) const {
    uint64_t wide[2 * kWords + 2] = {};
    for (int w = 0; w < kWords; w++) {
      wide[2 * w] = spread(static_cast<uint32_t>(g[w]));
      wide[2 * w + 1] = spread(static_cast<uint32_t>(g[w] >> 32));
    }
    for (int i = 2 * (kDegree - 1); i >= kDegree; i--)
      if (bit(wide, i)) reduce_bit(wide, i);
    std::copy(wide, wide + kWords, g.begin());
  }

  void times_x(Polynomial& g) const {
    uint64_t wide[kWords + 2] = {};
    for (int w = 0; w < kWords; w++) {
      wide[w] |= g[w] << 1;
      wide[w + 1] |= g[w] >> 63;
    }
    if (bit(wide, kDegree)) reduce_bit(wide, kDegree);
    std::copy(wide, wide + kWords, g.begin());
  }

  bool usable_ = false;
  std::array<uint64_t, kWords + 1> shifted_[64];
};

at::mt19937 advance(at::mt19937 engine, uint64_t numbers) {
  if (numbers == 0) return engine;
  at::mt19937_data_pod data = engine.data();
  // left_ counts down from 624 at a block's first number to 1 at its last; 1 also before the first block.
  uint64_t total = 625 - data.left_ + numbers;
  uint64_t blocks = (total - 1) / kState;
  Window window;
  std::copy(data.state_.begin(), data.state_.end(), window.begin());
  if (blocks > kJumpBlocks) {
    static const Jump* jump = new Jump;
    if (jump->usable()) {
      next_block(window.data());
      jump->apply(window, (blocks - 1) * kState);
      total -= blocks * kState;
      blocks = 0;
    }
  }
  total -= blocks * kState;
  for (; blocks; blocks--) next_block(window.data());
  std::copy(window.begin(), window.end(), data.state_.begin());
  data.next_ = static_cast<uint32_t>(total);
  data.left_ = static_cast<int>(625 - total);
  engine.set_data(data);
  return engine;
}

// A marker's words: these three, its number, and nothing.
constexpr uint32_t kMarker[3] = {0x6770756d, 0x656d2073, 0x6b697073};
std::atomic<size_t> markers_made{0};
std::vector<SkippedState>& markers() {
  static auto* all = new std::vector<SkippedState>;
  return *all;
}

// The marker's number, or -1.
int64_t marker_of(const at::mt19937_data_pod& data) {
  for (int i = 0; i < 3; i++)
    if (data.state_[i] != kMarker[i]) return -1;
  return data.state_[3] < markers().size() ? data.state_[3] : -1;
}

at::CPUGeneratorImpl* implementation(const at::Generator& generator) {
  if (!generator.defined()) return static_cast<at::CPUGeneratorImpl*>(at::detail::getDefaultCPUGenerator().unsafeGetGeneratorImpl());
  if (generator.device().type() != c10::kCPU) return nullptr;
  return static_cast<at::CPUGeneratorImpl*>(generator.unsafeGetGeneratorImpl());
}

}  // namespace

std::mutex& generator_skips_mutex() {
  static auto* mutex = new std::mutex;
  return *mutex;
}

uint64_t numbers_drawn(bool normal, c10::ScalarType type, int64_t count) {
  uint64_t elements = count + (normal && count % 16 ? 16 : 0);
  return type == c10::ScalarType::Double ? 2 * elements : elements;
}

SkippedState skip_numbers(const at::Generator& generator, uint64_t numbers) {
  at::CPUGeneratorImpl* cpu = implementation(generator);
  std::lock_guard<std::mutex> hold_generator(cpu->mutex_);
  std::lock_guard<std::mutex> hold(generator_skips_mutex());
  at::mt19937 engine = cpu->engine();
  at::mt19937_data_pod data = engine.data();
  int64_t marker = marker_of(data);
  SkippedState before = marker < 0 ? SkippedState{engine, 0} : markers()[marker];
  markers().push_back({before.engine, before.numbers + numbers});
  markers_made.store(markers().size());
  data.state_.fill(0);
  for (int i = 0; i < 3; i++) data.state_[i] = kMarker[i];
  data.state_[3] = static_cast<uint32_t>(markers().size() - 1);
  data.left_ = 1;
  data.next_ = 0;
  engine.set_data(data);
  cpu->set_engine(engine);
  return before;
}

void settle_generator(const at::Generator& generator) {
  if (markers_made.load(std::memory_order_relaxed) == 0) return;
  at::CPUGeneratorImpl* cpu = implementation(generator);
  if (!cpu) return;
  std::lock_guard<std::mutex> hold_generator(cpu->mutex_);
  std::lock_guard<std::mutex> hold(generator_skips_mutex());
  int64_t marker = marker_of(cpu->engine().data());
  if (marker < 0) return;
  SkippedState& state = markers()[marker];
  state = {advance(state.engine, state.numbers), 0};
  cpu->set_engine(state.engine);
}

at::Generator generator_at(const SkippedState& state) {
  at::Generator generator = at::detail::createCPUGenerator();
  static_cast<at::CPUGeneratorImpl*>(generator.unsafeGetGeneratorImpl())->set_engine(advance(state.engine, state.numbers));
  return generator;
}

}  // namespace gpumem::tracer
