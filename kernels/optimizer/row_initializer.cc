#include "kernels/optimizer/row_initializer.h"

#include <algorithm>
#include <cmath>

#include "common/base/random.h"
#include "kernels/elementwise/vector_math.h"

namespace syncline {
namespace {

constexpr uint64_t kRowStream = 0x726f7773;  // "rows"

// A permutation of 32 bits in which every input bit moves about half of the
// output's; multipliers found by search. Source: C. Wellons, Hash Prospector.
inline uint32_t Mix32(uint32_t x) {
  x = (x ^ (x >> 16)) * 0x7feb352du;
  x = (x ^ (x >> 15)) * 0x846ca68bu;
  return x ^ (x >> 16);
}

// Uniform in (-1, 1): odd multiples of 2^-23, so never -1, 0 or 1.
inline float Symmetric(uint32_t low, uint32_t high, uint32_t counter) {
  const uint32_t bits = Mix32(Mix32(low + counter * 0x9e3779b9u) ^ high);
  const int32_t odd = static_cast<int32_t>((bits >> 8) | 1) - (1 << 23);
  return static_cast<float>(odd) * 0x1p-23f;
}

// The standard normal's quantile at (1 + x) / 2, which is sqrt(2) times the
// inverse error function at x. Source: M. Giles, Approximating the erfinv
// function, GPU Computing Gems Jade Edition 2011, table 5 (single precision).
inline float NormalQuantile(float x) {
  const float w = -Log((1.0f - x) * (1.0f + x));
  const float near = w - 2.5f;
  float p = 2.81022636e-08f;
  p = p * near + 3.43273939e-07f;
  p = p * near - 3.5233877e-06f;
  p = p * near - 4.39150654e-06f;
  p = p * near + 0.00021858087f;
  p = p * near - 0.00125372503f;
  p = p * near - 0.00417768164f;
  p = p * near + 0.246640727f;
  p = p * near + 1.50140941f;
  const float far = std::sqrt(w) - 3.0f;
  float q = -0.000200214257f;
  q = q * far + 0.000100950558f;
  q = q * far + 0.00134934322f;
  q = q * far - 0.00367342844f;
  q = q * far + 0.00573950773f;
  q = q * far - 0.0076224613f;
  q = q * far + 0.00943887047f;
  q = q * far + 1.00167406f;
  q = q * far + 2.83297682f;
  return 1.41421356f * ((w < 5.0f ? p : q) * x);
}

}  // namespace

RowInitializer::RowInitializer(Scheme scheme, float amplitude, uint64_t seed,
                               absl::string_view table)
    : scheme_(scheme),
      amplitude_(amplitude),
      stream_(SeedFor(SeedFor(seed, kRowStream), HashName(table))) {}

float RowInitializer::XavierUniform(float gain, size_t dim) {
  return static_cast<float>(gain * std::sqrt(3.0 / static_cast<double>(dim)));
}

float RowInitializer::XavierNormal(float gain, size_t dim) {
  return static_cast<float>(gain / std::sqrt(static_cast<double>(dim)));
}

void RowInitializer::Fill(int64_t key, float* row, size_t dim) const {
  const uint64_t hash = Mix64(stream_ ^ Mix64(static_cast<uint64_t>(key)));
  const uint32_t low = static_cast<uint32_t>(hash);
  const uint32_t high = static_cast<uint32_t>(hash >> 32);
  const uint32_t count = static_cast<uint32_t>(dim);
  const float amplitude = amplitude_;
  switch (scheme_) {
    case Scheme::kZeros:
      std::fill_n(row, dim, 0.0f);
      return;
    case Scheme::kConstant:
      std::fill_n(row, dim, amplitude);
      return;
    case Scheme::kUniform:
      for (uint32_t j = 0; j < count; ++j) {
        row[j] = amplitude * Symmetric(low, high, j);
      }
      return;
    case Scheme::kNormal:
      for (uint32_t j = 0; j < count; ++j) {
        row[j] = amplitude * NormalQuantile(Symmetric(low, high, j));
      }
      return;
  }
}

}  // namespace syncline
