// Goal: what the kernel says about memory is read right, and nonsense is not
// taken for a limit.
// Method: texts as the kernel writes them, and broken ones.

#include "common/base/available_memory.h"

#include <limits>

#include "gtest/gtest.h"

namespace syncline {
namespace {

constexpr uint64_t kUnknown = std::numeric_limits<uint64_t>::max();

TEST(AvailableMemoryTest, ReadsMeminfo) {
  EXPECT_EQ(ParseMemAvailable("MemTotal:       24052476 kB\n"
                              "MemFree:         1000000 kB\n"
                              "MemAvailable:   22000000 kB\n"),
            22000000ull * 1024);
  EXPECT_EQ(ParseMemAvailable("MemTotal: 5 kB\n"), kUnknown);
  EXPECT_EQ(ParseMemAvailable("MemAvailable: lots\n"), kUnknown);
  EXPECT_EQ(ParseMemAvailable("MemAvailable:"), kUnknown);
  EXPECT_EQ(ParseMemAvailable(""), kUnknown);
}

TEST(AvailableMemoryTest, ReadsControlGroups) {
  EXPECT_EQ(ParseCgroupLeft("1000\n", "300\n", ""), 700u);
  EXPECT_EQ(ParseCgroupLeft("1000\n", "1300\n", ""), 0u);
  EXPECT_EQ(ParseCgroupLeft("max\n", "300\n", ""), kUnknown);
  EXPECT_EQ(ParseCgroupLeft("", "", ""), kUnknown);
}

TEST(AvailableMemoryTest, CachedFilesAreAvailable) {
  constexpr char kStat[] =
      "anon 100\nfile 900\ninactive_anon 7\nactive_anon 8\n"
      "inactive_file 500\nactive_file 300\n";
  EXPECT_EQ(ParseCgroupLeft("1000\n", "950\n", kStat), 850u);
  EXPECT_EQ(ParseCgroupLeft("1000\n", "700\n", kStat), 1000u);
}

TEST(AvailableMemoryTest, FindsItsControlGroup) {
  EXPECT_EQ(ParseCgroupPath("0::/\n"), "/");
  EXPECT_EQ(ParseCgroupPath("1:name=systemd:/x\n0::/system.slice/a.service\n"),
            "/system.slice/a.service");
  EXPECT_EQ(ParseCgroupPath("4:memory:/docker\n"), "");
  EXPECT_EQ(ParseCgroupPath(""), "");
}

TEST(AvailableMemoryTest, ThereIsSome) {
  EXPECT_GT(AvailableMemoryBytes(), uint64_t{1} << 20);
}

}  // namespace
}  // namespace syncline
