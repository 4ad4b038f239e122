// Goal: 16-bit values are the nearest there are, ties to even, and nothing is
// lost on the way back.
// Method: all 65,536 patterns of both types, against their definition in
// double; the values halfway between neighbours, and next to these.

#include "common/base/element_type.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "common/base/random.h"
#include "gtest/gtest.h"

namespace syncline {
namespace {

struct Format {
  ElementType type;
  int exponent_bits;
  int fraction_bits;
};
constexpr Format kFormats[] = {{ElementType::kBfloat16, 8, 7},
                               {ElementType::kFloat16, 5, 10}};
constexpr uint32_t kPatterns = 1 << 16;

// The value of a pattern by IEEE 754.
double Value(const Format& format, uint32_t pattern) {
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  const uint32_t fraction = pattern & ((1 << format.fraction_bits) - 1);
  const int exponent = (pattern & 0x7fff) >> format.fraction_bits;
  const double sign = pattern >> 15 ? -1 : 1;
  if (exponent == (1 << format.exponent_bits) - 1) {
    return fraction == 0 ? sign * std::numeric_limits<double>::infinity()
                         : std::numeric_limits<double>::quiet_NaN();
  }
  const double scaled = exponent == 0
                            ? fraction
                            : fraction + std::ldexp(1.0, format.fraction_bits);
  return sign * std::ldexp(scaled, (exponent == 0 ? 1 : exponent) - bias -
                                       format.fraction_bits);
}

std::vector<uint16_t> NarrowAll(ElementType type,
                                const std::vector<float>& values) {
  std::vector<uint16_t> narrow(values.size());
  Narrow(type, values.data(), narrow.data(), values.size());
  return narrow;
}

TEST(ElementTypeTest, EveryPatternIsItsValueAndComesBack) {
  std::vector<uint16_t> patterns(kPatterns);
  for (uint32_t p = 0; p < kPatterns; ++p) patterns[p] = p;
  for (const Format& format : kFormats) {
    std::vector<float> values(kPatterns);
    Widen(format.type, patterns.data(), values.data(), kPatterns);
    const std::vector<uint16_t> back = NarrowAll(format.type, values);
    for (uint32_t p = 0; p < kPatterns; ++p) {
      const double expected = Value(format, p);
      if (std::isnan(expected)) {
        ASSERT_TRUE(std::isnan(values[p])) << p;
        ASSERT_TRUE(std::isnan(Value(format, back[p]))) << p;
        ASSERT_EQ(back[p] >> 15, p >> 15) << p;
        continue;
      }
      ASSERT_EQ(values[p], expected) << p;
      ASSERT_EQ(std::signbit(values[p]), p >> 15 == 1) << p;
      ASSERT_EQ(back[p], p);
    }
  }
}

TEST(ElementTypeTest, RoundsToTheNearestAndTiesToEven) {
  for (const Format& format : kFormats) {
    const uint32_t infinity = ((1u << format.exponent_bits) - 1)
                              << format.fraction_bits;
    for (uint32_t sign : {0u, 0x8000u}) {
      std::vector<float> values;
      std::vector<uint16_t> expected;
      for (uint32_t p = 0; p < infinity; ++p) {
        const double low = Value(format, p | sign);
        // Infinity stands where the next finite value would be.
        const double high = p + 1 < infinity
                                ? Value(format, (p + 1) | sign)
                                : 2 * low - Value(format, (p - 1) | sign);
        const float middle = static_cast<float>((low + high) / 2);
        if (middle != (low + high) / 2) continue;  // float has no such value
        const uint16_t even = (p % 2 == 0 ? p : p + 1) | sign;
        const float zero = 0;
        values.insert(values.end(),
                      {middle, std::nextafter(middle, zero),
                       std::nextafter(middle, 2 * static_cast<float>(high))});
        expected.insert(expected.end(),
                        {even, static_cast<uint16_t>(p | sign),
                         static_cast<uint16_t>((p + 1) | sign)});
      }
      ASSERT_GT(values.size(), infinity) << "not many values were tried";
      EXPECT_EQ(NarrowAll(format.type, values), expected);
    }
  }
}

TEST(ElementTypeTest, RandomFloatsAreAsNearAsCanBe) {
  Random random(5);
  for (const Format& format : kFormats) {
    std::vector<float> values(20'000);
    for (float& value : values) {
      value = std::bit_cast<float>(static_cast<uint32_t>(random.Next()));
    }
    const std::vector<uint16_t> narrow = NarrowAll(format.type, values);
    for (size_t i = 0; i < values.size(); ++i) {
      const double rounded = Value(format, narrow[i]);
      if (!std::isfinite(values[i]) || !std::isfinite(rounded)) continue;
      const double error = std::abs(rounded - values[i]);
      for (const int other : {narrow[i] - 1, narrow[i] + 1}) {
        const double neighbour = Value(format, other & 0xffff);
        if (!std::isfinite(neighbour)) continue;
        ASSERT_LE(error, std::abs(neighbour - values[i])) << values[i];
      }
    }
  }
}

TEST(ElementTypeTest, LengthsAndAlignmentDoNotMatter) {
  Random random(9);
  std::vector<float> values(100);
  for (float& value : values) value = static_cast<float>(random.Normal());
  for (const ElementType type :
       {ElementType::kFloat32, ElementType::kBfloat16, ElementType::kFloat16}) {
    const size_t bytes = ElementBytes(type);
    std::vector<char> whole(100 * bytes);
    Narrow(type, values.data(), whole.data(), 100);
    std::vector<float> wide(100);
    Widen(type, whole.data(), wide.data(), 100);
    for (size_t first = 0; first < 10; ++first) {
      for (size_t count = 0; count + first <= 40; ++count) {
        std::vector<char> part(1 + count * bytes + 4, 'x');
        Narrow(type, values.data() + first, part.data() + 1, count);
        ASSERT_EQ(std::memcmp(part.data() + 1, whole.data() + first * bytes,
                              count * bytes),
                  0);
        ASSERT_EQ(part[1 + count * bytes], 'x') << "written beyond the end";
        std::vector<float> back(count + 1, 77);
        Widen(type, part.data() + 1, back.data(), count);
        ASSERT_TRUE(
            std::equal(back.begin(), back.end() - 1, wide.begin() + first));
        ASSERT_EQ(back[count], 77);
      }
    }
  }
}

TEST(ElementTypeTest, FiniteMeansFiniteOnceNarrowed) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float value :
       {0.0f, -1.0f, 65504.0f, 65519.0f, std::nextafter(65520.0f, 0.0f),
        65520.0f, -65520.0f, 1e30f, 3.38e38f, 3.39e38f, 3.4e38f,
        std::bit_cast<float>(0x7f7f7fff), std::bit_cast<float>(0x7f7f8000),
        infinity, -infinity, nan}) {
    for (const Format& format : kFormats) {
      const std::vector<float> values = {1, value, 2};
      const uint16_t narrow = NarrowAll(format.type, values)[1];
      EXPECT_EQ(AllFiniteAs(format.type, values.data(), 3),
                std::isfinite(Value(format, narrow)))
          << value;
    }
    const std::vector<float> values = {1, value, 2};
    EXPECT_EQ(AllFiniteAs(ElementType::kFloat32, values.data(), 3),
              std::isfinite(value));
  }
}

}  // namespace
}  // namespace syncline
