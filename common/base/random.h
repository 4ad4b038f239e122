#ifndef SYNCLINE_COMMON_BASE_RANDOM_H_
#define SYNCLINE_COMMON_BASE_RANDOM_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace syncline {

// Mixes 64 bits; distinct inputs give distinct outputs.
// Source: SplitMix64's finaliser, Steele et al., OOPSLA 2014.
constexpr uint64_t Mix64(uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

// A seed for a sub-stream: SeedFor(SeedFor(seed, epoch), rank).
constexpr uint64_t SeedFor(uint64_t seed, uint64_t stream) {
  return Mix64(Mix64(seed) ^ (stream * 0xd6e8feb86659fd93ull + 1));
}

// A name as a number, for SeedFor. FNV-1a: names need spread, not secrecy, and
// the same number everywhere.
constexpr uint64_t HashName(absl::string_view name) {
  uint64_t hash = 0xcbf29ce484222325ull;
  for (const char c : name) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  }
  return hash;
}

// SplitMix64: the same sequence on every platform, compiler and library, which
// the standard distributions do not promise. Thread-compatible.
class Random {
 public:
  using result_type = uint64_t;
  explicit constexpr Random(uint64_t seed) : state_(seed) {}

  constexpr uint64_t Next() {
    const uint64_t out = Mix64(state_);
    state_ += 0x9e3779b97f4a7c15ull;
    return out;
  }
  // Uniform in [0, bound); bound > 0. Multiply-shift; the bias is below
  // bound / 2^64.
  constexpr uint64_t Below(uint64_t bound) {
    return static_cast<uint64_t>(
        (static_cast<unsigned __int128>(Next()) * bound) >> 64);
  }
  // Uniform in [0, 1), 53 bits.
  constexpr double Uniform() {
    return static_cast<double>(Next() >> 11) * 0x1.0p-53;
  }
  // Standard normal (Box and Muller 1958); one value per two uniforms.
  double Normal();

  static constexpr uint64_t min() { return 0; }
  static constexpr uint64_t max() { return ~0ull; }
  constexpr uint64_t operator()() { return Next(); }

 private:
  uint64_t state_;
};

// From the operating system; for incarnations, jitter and job names, never for
// anything that a job's result depends on. Never 0.
uint64_t EntropySeed();

}  // namespace syncline

#endif  // SYNCLINE_COMMON_BASE_RANDOM_H_
