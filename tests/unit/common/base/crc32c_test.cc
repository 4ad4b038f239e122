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

}  // namespace
}  // namespace syncline
