// Goal: the checksum is the published one, on both code paths, however the data
// is cut. Method: RFC 3720's examples; random data against the table.

#include "common/base/crc32c.h"

#include <string>

#include "common/base/random.h"
#include "gtest/gtest.h"

namespace syncline {
namespace {

TEST(Crc32cTest, MatchesTheExamplesOfRfc3720) {
  EXPECT_EQ(Crc32c(""), 0u);
  EXPECT_EQ(Crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(Crc32c(std::string(32, '\xff')), 0x62a8ab43u);
}

TEST(Crc32cTest, InstructionAndTableAgreeForEveryLengthAndCut) {
  Random random(1);
  std::string data;
  for (int i = 0; i < 300; ++i)
    data.push_back(static_cast<char>(random.Next()));
  for (size_t size = 0; size <= data.size(); ++size) {
    const absl::string_view part(data.data(), size);
    const uint32_t expected = ExtendCrc32cPortable(0, part);
    ASSERT_EQ(Crc32c(part), expected) << size;
    const size_t cut = random.Below(size + 1);
    ASSERT_EQ(ExtendCrc32c(Crc32c(part.substr(0, cut)), part.substr(cut)),
              expected)
        << size << " cut at " << cut;
  }
}

// Long data is computed in three parts at a time.
TEST(Crc32cTest, InstructionAndTableAgreeOnLongData) {
  Random random(2);
  std::string data;
  for (int i = 0; i < 60'000; ++i) {
    data.push_back(static_cast<char>(random.Next()));
  }
  for (const size_t size : {12'287u, 12'288u, 12'289u, 24'576u, 36'863u,
                            36'864u, 50'001u, 60'000u}) {
    const absl::string_view part(data.data(), size);
    EXPECT_EQ(Crc32c(part), ExtendCrc32cPortable(0, part)) << size;
    const size_t cut = random.Below(size + 1);
    EXPECT_EQ(ExtendCrc32c(Crc32c(part.substr(0, cut)), part.substr(cut)),
              ExtendCrc32cPortable(0, part))
        << size << " cut at " << cut;
  }
}

TEST(Crc32cTest, TwoChecksumsGiveThatOfTheWholeAndOfTheRest) {
  Random random(3);
  std::string data;
  for (int i = 0; i < 3000; ++i) {
    data.push_back(static_cast<char>(random.Next()));
  }
  for (size_t cut = 0; cut <= data.size(); cut += 1 + random.Below(40)) {
    const absl::string_view a(data.data(), cut);
    const absl::string_view b(data.data() + cut, data.size() - cut);
    ASSERT_EQ(ConcatCrc32c(Crc32c(a), Crc32c(b), b.size()), Crc32c(data))
        << cut;
    ASSERT_EQ(Crc32cOfRest(Crc32c(data), Crc32c(a), b.size()), Crc32c(b))
        << cut;
  }
  EXPECT_EQ(ConcatCrc32c(Crc32c("a"), Crc32c(""), 0), Crc32c("a"));
  EXPECT_EQ(ConcatCrc32c(Crc32c(""), Crc32c("b"), 1), Crc32c("b"));
}

TEST(Crc32cTest, ARestMayHaveMoreBytesThanFourGiB) {
  // Two halves of zeros and a whole are one.
  const uint64_t half = uint64_t{5} << 30;
  const uint32_t a = Crc32c("a");
  const auto zeros = [](uint32_t crc, uint64_t bytes) {
    // The checksum of zeros alone, by doubling that of one.
    uint32_t of = Crc32c(absl::string_view("\0", 1));
    uint32_t all = 0;
    for (uint64_t size = 1; size <= bytes; size *= 2) {
      if ((bytes & size) != 0) all = ConcatCrc32c(all, of, size);
      of = ConcatCrc32c(of, of, size);
    }
    return ConcatCrc32c(crc, all, bytes);
  };
  EXPECT_EQ(zeros(zeros(a, half), half), zeros(a, 2 * half));
  EXPECT_EQ(zeros(a, 1000), ExtendCrc32c(a, std::string(1000, '\0')));
}

}  // namespace
}  // namespace syncline
