// Goal: a block comes out of each encoding as its layout says, loses what the
// residual then has, and bytes of a peer are never read beyond their end.
// Method: blocks of every size around groups and pieces, of random and of
// special values; bytes cut, changed one by one, and written by hand.

#include "common/wire/compression.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "common/base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

const size_t kSizes[] = {1,
                         2,
                         7,
                         8,
                         9,
                         31,
                         32,
                         33,
                         255,
                         256,
                         257,
                         2047,
                         2048,
                         2049,
                         4096,
                         10'000,
                         kCompressedElementsMax};

std::vector<float> RandomValues(size_t count, uint64_t seed) {
  Random random(seed);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(random.Normal());
  return values;
}

std::vector<float> Decode(const std::string& bytes, size_t count) {
  const auto block = CompressedBlock::Parse(bytes, count);
  EXPECT_TRUE(block.ok()) << block.status();
  if (!block.ok()) return {};
  std::vector<float> values(count, -1);
  block->CopyTo(0, count, values.data());
  // By pieces, at any border, it is the same.
  Random random(count);
  for (size_t at = 0; at < count;) {
    const size_t n = std::min(count - at, 1 + random.Below(3000));
    std::vector<float> piece(n, -1);
    block->CopyTo(at, n, piece.data());
    EXPECT_EQ(0, std::memcmp(piece.data(), &values[at], n * sizeof(float)));
    at += n;
  }
  return values;
}

std::string Largest(std::vector<float>* values, uint64_t k,
                    std::vector<uint32_t>* chosen) {
  LargestFinder finder;
  finder.Begin();
  finder.Count(values->data(), values->size());
  finder.Choose(k);
  finder.Collect(values->data(), values->size());
  LargestElements largest = finder.Find();
  std::string bytes;
  EncodeLargest(values->data(), values->size(), &largest, chosen, &bytes);
  return bytes;
}

TEST(CompressionTest, WholeBlocksKeepEveryBit) {
  for (const size_t count : kSizes) {
    std::vector<float> values = RandomValues(count, count);
    values[count / 2] = std::numeric_limits<float>::quiet_NaN();
    values[0] = std::numeric_limits<float>::infinity();
    std::string bytes;
    EncodeWhole(values.data(), count, &bytes);
    const std::vector<float> decoded = Decode(bytes, count);
    EXPECT_EQ(0, std::memcmp(decoded.data(), values.data(), count * 4));
    EXPECT_EQ(bytes.size(), 4 + 4 * count);
  }
}

TEST(CompressionTest, Int8AndItsResidualAddUp) {
  for (const size_t count : kSizes) {
    for (const uint32_t group : {32u, 256u, 65'536u}) {
      const std::vector<float> values = RandomValues(count, group + count);
      std::vector<float> residual = values;
      std::string bytes;
      EncodeInt8(residual.data(), count, group, &bytes);
      const std::vector<float> decoded = Decode(bytes, count);
      for (size_t i = 0; i < count; ++i) {
        ASSERT_NEAR(decoded[i] + residual[i], values[i], 1e-6) << i;
        ASSERT_LE(std::abs(residual[i]), 6.0 / 254 + 1e-6) << i;
      }
      EXPECT_LE(bytes.size(), count + 4 * ((count + group - 1) / group) + 11);
    }
  }
}

TEST(CompressionTest, SignsAndTheirResidualAddUp) {
  for (const size_t count : kSizes) {
    for (const uint32_t group : {32u, 256u, 65'536u}) {
      const std::vector<float> values = RandomValues(count, group + count);
      std::vector<float> residual = values;
      std::string bytes;
      EncodeSigns(residual.data(), count, group, &bytes);
      const std::vector<float> decoded = Decode(bytes, count);
      for (size_t first = 0; first < count; first += group) {
        const size_t end = std::min<size_t>(first + group, count);
        double magnitude = 0;
        for (size_t i = first; i < end; ++i) magnitude += std::abs(values[i]);
        magnitude /= static_cast<double>(end - first);
        for (size_t i = first; i < end; ++i) {
          ASSERT_NEAR(decoded[i], std::copysign(magnitude, values[i]), 1e-5);
          ASSERT_NEAR(decoded[i] + residual[i], values[i], 1e-6) << i;
        }
      }
      EXPECT_LE(bytes.size(),
                (count + 7) / 8 + 4 * ((count + group - 1) / group) + 11);
    }
  }
  // Of zeros nothing is left, and none is made.
  std::vector<float> zeros(40);
  std::string bytes;
  EncodeSigns(zeros.data(), zeros.size(), 32, &bytes);
  EXPECT_THAT(zeros, Each(0.0f));
  EXPECT_THAT(Decode(bytes, zeros.size()), Each(0.0f));
}

TEST(CompressionTest, Int8TakesEveryFiniteScale) {
  const float huge = std::numeric_limits<float>::max();
  for (const float largest : {huge, 1e-29f, 1e-31f, 1e-40f, 0.0f}) {
    std::vector<float> values(40, largest / 3);
    values[7] = -largest;
    std::vector<float> residual = values;
    std::string bytes;
    EncodeInt8(residual.data(), values.size(), 32, &bytes);
    const std::vector<float> decoded = Decode(bytes, values.size());
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_TRUE(std::isfinite(residual[i]) && std::isfinite(decoded[i]));
      ASSERT_NEAR(decoded[i] / 2 + residual[i] / 2, values[i] / 2,
                  largest * 1e-6);
    }
    if (largest < 1e-30f) {
      EXPECT_THAT(decoded, Each(0));
    }
  }
}

TEST(CompressionTest, LargestElementsAreExactlyTheLargest) {
  for (const size_t count : kSizes) {
    for (const uint64_t k : {uint64_t{1}, uint64_t{count / 100 + 1},
                             uint64_t{count / 4 + 1}, uint64_t{count}}) {
      if (k > count) continue;
      std::vector<float> values = RandomValues(count, k);
      std::vector<uint32_t> chosen;
      const std::string bytes = Largest(&values, k, &chosen);
      ASSERT_EQ(chosen.size(), k) << count;
      const std::vector<float> decoded = Decode(bytes, count);
      float least_in = std::numeric_limits<float>::max();
      float most_out = 0;
      for (size_t i = 0; i < count; ++i) {
        if (decoded[i] != 0) {
          ASSERT_EQ(decoded[i], values[i]);
          least_in = std::min(least_in, std::abs(values[i]));
        } else {
          most_out = std::max(most_out, std::abs(values[i]));
        }
      }
      EXPECT_GE(least_in, most_out);
      EXPECT_LE(bytes.size(), 15 + 4 * k + std::min((count + 7) / 8, 3 * k));
    }
  }
}

TEST(CompressionTest, OfEqualElementsTheFirstAreChosen) {
  std::vector<float> values(100, -0.5f);
  values[90] = 1;
  std::vector<uint32_t> chosen;
  Largest(&values, 4, &chosen);
  EXPECT_EQ(chosen, (std::vector<uint32_t>{0, 1, 2, 90}));
}

TEST(CompressionTest, ZerosAreNeverSent) {
  std::vector<float> values(5000, 0);
  std::vector<uint32_t> chosen;
  Largest(&values, 50, &chosen);
  EXPECT_TRUE(chosen.empty());
  values[3000] = 1e-44f;  // not normal
  values[4000] = -2;
  const std::string bytes = Largest(&values, 50, &chosen);
  EXPECT_EQ(chosen, (std::vector<uint32_t>{3000, 4000}));
  EXPECT_EQ(Decode(bytes, values.size()), values);
}

// The mean over many seeds comes near to the value: six standard deviations.
TEST(CompressionTest, TernaryIsUnbiased) {
  constexpr int kSeeds = 4000;
  std::vector<float> values = {1, -0.5f, 0.25f, 0, -1e-3f, 0.999f, -1};
  values.resize(70, 0.3f);
  std::vector<double> sums(values.size());
  for (int seed = 0; seed < kSeeds; ++seed) {
    std::string bytes;
    EncodeTernary(values.data(), values.size(), 32, Mix64(seed), &bytes);
    EXPECT_EQ(bytes.size(), 4u + 4 + 3 * 4 + 20);
    const std::vector<float> decoded = Decode(bytes, values.size());
    for (size_t i = 0; i < values.size(); ++i) sums[i] += decoded[i];
  }
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_NEAR(sums[i] / kSeeds, values[i], 6 * 0.5 / std::sqrt(kSeeds)) << i;
  }
  EXPECT_EQ(sums[0], kSeeds);
  EXPECT_EQ(sums[3], 0);
}

TEST(CompressionTest, TheSameSeedGivesTheSameBytes) {
  const std::vector<float> values = RandomValues(3000, 1);
  std::string a, b, c;
  EncodeTernary(values.data(), values.size(), 256, 5, &a);
  EncodeTernary(values.data(), values.size(), 256, 5, &b);
  EncodeTernary(values.data(), values.size(), 256, 6, &c);
  EXPECT_EQ(a, b);
  EXPECT_NE(a, c);
}

std::vector<std::string> EveryEncoding(size_t count) {
  std::vector<float> values = RandomValues(count, 3);
  std::vector<std::string> all(6);
  std::vector<uint32_t> chosen;
  EncodeWhole(values.data(), count, &all[0]);
  EncodeTernary(values.data(), count, 32, 1, &all[1]);
  all[2] = Largest(&values, count / 2, &chosen);   // bitmap
  all[3] = Largest(&values, count / 50, &chosen);  // deltas
  EncodeInt8(values.data(), count, 32, &all[4]);
  EncodeSigns(values.data(), count, 32, &all[5]);
  return all;
}

TEST(CompressionTest, EncodingsAreThoseOfTheLayout) {
  const std::vector<std::string> all = EveryEncoding(1000);
  const BlockEncoding expected[] = {
      BlockEncoding::kWhole,  BlockEncoding::kTernary, BlockEncoding::kBitmap,
      BlockEncoding::kDeltas, BlockEncoding::kInt8,    BlockEncoding::kSigns};
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(CompressedBlock::Parse(all[i], 1000)->encoding(), expected[i]);
    // Another number of elements, or of bytes, is refused.
    EXPECT_FALSE(CompressedBlock::Parse(all[i], 900).ok()) << i;
    // Deltas alone do not say where the block ends.
    if (expected[i] != BlockEncoding::kDeltas) {
      EXPECT_FALSE(CompressedBlock::Parse(all[i], 1100).ok()) << i;
    }
    for (size_t n = 0; n < all[i].size(); ++n) {
      EXPECT_FALSE(CompressedBlock::Parse(all[i].substr(0, n), 1000).ok());
    }
    EXPECT_FALSE(CompressedBlock::Parse(all[i] + std::string(4, 0), 1000).ok());
  }
}

// Whatever is accepted can be read to the last element: under asan this finds
// every read beyond the bytes.
TEST(CompressionTest, ChangedBytesAreRefusedOrReadable) {
  constexpr size_t kCount = 1000;
  Random random(11);
  for (const std::string& good : EveryEncoding(kCount)) {
    for (int i = 0; i < 3000; ++i) {
      std::string bytes = good;
      for (uint64_t n = 1 + random.Below(3); n > 0; --n) {
        const size_t at = random.Below(2) == 0 ? random.Below(16)
                                               : random.Below(bytes.size());
        bytes[at] = static_cast<char>(random.Below(256));
      }
      const std::vector<char> tight(bytes.begin(), bytes.end());
      const auto block =
          CompressedBlock::Parse({tight.data(), tight.size()}, kCount);
      if (!block.ok()) continue;
      std::vector<float> values(kCount);
      block->CopyTo(0, kCount, values.data());
      block->CopyTo(kCount - 1, 1, values.data());
    }
  }
}

TEST(CompressionTest, MessagesSayWhatIsWrong) {
  const auto error = [](std::string bytes, size_t count) {
    return std::string(CompressedBlock::Parse(bytes, count).status().message());
  };
  using std::string;
  EXPECT_THAT(error("", 1), HasSubstr("has 0 bytes"));
  EXPECT_THAT(error(string("\7\0\0\0", 4), 1), HasSubstr("encoding 7"));
  EXPECT_THAT(error(string("\0\1\0\0", 4), 1), HasSubstr("bytes 1 to 3"));
  EXPECT_THAT(error(string("\1\0\0\0\1\0\0\0", 8), 1),
              HasSubstr("groups of 1 elements"));
  EXPECT_THAT(error(string("\3\0\0\0\2\0\0\0", 8), 1),
              HasSubstr("has 2 of 1 elements"));
  // Two set bits, one float.
  EXPECT_THAT(error(string("\3\0\0\0\1\0\0\0\3\0\0\0\0\0\0\0", 16), 8),
              HasSubstr("the bitmap has 2 elements, there are 1"));
  // One element, its index 8 of 8.
  EXPECT_THAT(error(string("\4\0\0\0\1\0\0\0\1\0\0\0\0\0\0\0\10\0\0\0", 20), 8),
              HasSubstr("names element 8 of 8"));
  EXPECT_THAT(
      error(string("\4\0\0\0\1\0\0\0\1\0\0\0\0\0\0\0\x80\0\0\0", 20), 8),
      HasSubstr("an index does not end"));
  EXPECT_THAT(error(string("\2\0\0\0\40\0\0\0\0\0\0\0\3\0\0\0", 16), 4),
              HasSubstr("a code is 3"));
}

}  // namespace
}  // namespace syncline
