// Goal: what the kernel says about memory is read right, and nonsense is not
// taken for a limit.
// Method: texts as the kernel writes them, and broken ones.

#include "common/system/available_memory.h"

#include <sys/resource.h>

#include <fstream>
#include <iterator>
#include <limits>
#include <string>

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

TEST(AvailableMemoryTest, ReadsControlGroupsOfVersionOne) {
  EXPECT_EQ(ParseMemoryControllerPath("12:cpuset:/a\n4:memory:/docker/1\n"),
            "/docker/1");
  EXPECT_EQ(ParseMemoryControllerPath("3:cpu,memory:/x:y\n0::/\n"), "/x:y");
  EXPECT_EQ(ParseMemoryControllerPath("0::/memory\n1:name=memory:/a\n"), "");
  EXPECT_EQ(ParseMemoryControllerPath("memory"), "");
  EXPECT_EQ(ParseMemoryControllerPath(""), "");
  // Version 1 says no limit with a number that no machine has.
  EXPECT_GT(ParseCgroupLeft("9223372036854771712\n", "300\n", ""),
            uint64_t{1} << 60);
  constexpr char kStat[] =
      "cache 900\ninactive_file 5\nactive_file 3\n"
      "total_inactive_file 500\ntotal_active_file 300\n";
  EXPECT_EQ(ParseCgroupLeft("1000\n", "950\n", kStat), 850u);
}

TEST(AvailableMemoryTest, ReadsTheLimitsOfTheProcess) {
  constexpr char kStatus[] =
      "Name:\tps\nVmSize:\t    1024 kB\nVmData:\t 512 kB\n";
  EXPECT_EQ(ParseProcessLeft(kUnknown, kUnknown, kStatus), kUnknown);
  EXPECT_EQ(ParseProcessLeft(4 << 20, kUnknown, kStatus), 3u << 20);
  EXPECT_EQ(ParseProcessLeft(4 << 20, 1 << 20, kStatus), 512u << 10);
  EXPECT_EQ(ParseProcessLeft(1 << 10, kUnknown, kStatus), 0u);
  EXPECT_EQ(ParseProcessLeft(4 << 20, kUnknown, ""), 4u << 20);
}

TEST(AvailableMemoryTest, ALimitOnTheAddressSpaceCounts) {
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
  std::ifstream status("/proc/self/status");
  const std::string text(std::istreambuf_iterator<char>(status), {});
  constexpr uint64_t kMost = uint64_t{1} << 62;
  const uint64_t used = kMost - ParseProcessLeft(kMost, kUnknown, text);
  constexpr uint64_t kRoom = uint64_t{256} << 20;
  rlimit small = before;
  small.rlim_cur = used + kRoom;
  ASSERT_EQ(setrlimit(RLIMIT_AS, &small), 0);
  const uint64_t left = AvailableMemoryBytes();
  ASSERT_EQ(setrlimit(RLIMIT_AS, &before), 0);
  EXPECT_LE(left, kRoom);
  EXPECT_GT(left, 0u);
}

TEST(AvailableMemoryTest, ThereIsSome) {
  EXPECT_GT(AvailableMemoryBytes(), uint64_t{1} << 20);
}

}  // namespace
}  // namespace syncline
