// Goal: compressed blocks are read as float32 across their borders, those of
// one message and views of memory elsewhere, and bytes that are no block are
// refused.
// Method: blocks of every encoding that an encoder makes, read from each
// element on.

#include "common/update/compressed_source.h"

#include <algorithm>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace syncline {
namespace {

using ::testing::HasSubstr;

struct Blocks {
  std::vector<std::string> bytes;
  std::vector<size_t> counts = {40, 2500, 33};
  std::vector<float> values;  // decoded

  Blocks() {
    for (size_t b = 0; b < counts.size(); ++b) {
      std::vector<float> of(counts[b]);
      for (size_t i = 0; i < of.size(); ++i) {
        of[i] = b == 1 ? (i % 90 == 7 ? 1.5f : 0) : static_cast<float>(i) - 3;
      }
      std::string& out = bytes.emplace_back();
      std::vector<float> kept = of;
      if (b == 0) {
        EncodeWhole(of.data(), of.size(), &out);
      } else if (b == 1) {
        LargestElements largest{.bits = 1, .ties = 0};
        std::vector<uint32_t> chosen;
        EncodeLargest(of.data(), of.size(), &largest, &chosen, &out);
      } else {
        EncodeInt8(kept.data(), kept.size(), 32, &out);
        for (size_t i = 0; i < of.size(); ++i) of[i] -= kept[i];
      }
      values.insert(values.end(), of.begin(), of.end());
    }
  }
};

void ExpectReads(const CompressedSource& source,
                 const std::vector<float>& values) {
  for (size_t first = 0; first < values.size(); first += 13) {
    for (size_t n = 1; first + n <= values.size(); n += 57) {
      std::vector<float> read(n);
      source.CopyTo(first, n, read.data());
      for (size_t i = 0; i < n; ++i) {
        ASSERT_NEAR(read[i], values[first + i], 1e-5) << first + i;
      }
    }
  }
}

TEST(CompressedSourceTest, ReadsAcrossBlocksOfOneMessage) {
  const Blocks blocks;
  CompressedSource source(blocks.bytes[0] + blocks.bytes[1] + blocks.bytes[2]);
  for (size_t b = 0; b < blocks.bytes.size(); ++b) {
    ASSERT_OK(source.Add(blocks.bytes[b].size(), blocks.counts[b]));
  }
  ExpectReads(source, blocks.values);
}

TEST(CompressedSourceTest, ReadsAcrossViews) {
  const Blocks blocks;
  CompressedSource source;
  for (size_t b = 0; b < blocks.bytes.size(); ++b) {
    ASSERT_OK(source.AddView(blocks.bytes[b], blocks.counts[b]));
  }
  ExpectReads(source, blocks.values);
}

TEST(CompressedSourceTest, RefusesBytesThatAreNoBlock) {
  const Blocks blocks;
  CompressedSource source(blocks.bytes[0]);
  EXPECT_THAT(std::string(source.Add(blocks.bytes[0].size(), 41).message()),
              HasSubstr("bytes"));
  EXPECT_OK(source.Add(blocks.bytes[0].size(), 40));
  // Nothing is left.
  const absl::Status none = source.Add(8, 1);
  EXPECT_TRUE(absl::IsInvalidArgument(none));
  EXPECT_THAT(std::string(none.message()), HasSubstr("has 0 bytes"));
}

}  // namespace
}  // namespace syncline
