// Goal: units hold what each operator reads, in memory of two neighbours.
// Method: small lists of reads with known cuts; seeded random ones, of which
// every promise is checked.

#include "worker/compute/gather_units.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/random.h"
#include "gtest/gtest.h"

namespace syncline::worker {
namespace {

using Reads = std::vector<std::vector<int>>;

// "0-2: 0,1  4-4: 1".
std::string TextOf(const GatherUnits& all) {
  return absl::StrJoin(
      all.units, "  ", [](std::string* out, const GatherUnit& unit) {
        absl::StrAppend(out, unit.first_step, "-", unit.last_step, ": ",
                        absl::StrJoin(unit.parameters, ","));
      });
}

TEST(GatherUnitsTest, OperatorsShareAUnitAsLongAsItIsSmall) {
  const Reads reads = {{0, 1}, {}, {2}, {3}, {}, {3, 2}, {0, 1}};
  const std::vector<int64_t> bytes = {64, 64, 128, 128};
  EXPECT_EQ(TextOf(CutGatherUnits(reads, bytes, 1)),
            "0-0: 0,1  2-2: 2  3-3: 3  5-5: 3,2  6-6: 0,1");
  EXPECT_EQ(TextOf(CutGatherUnits(reads, bytes, 256)),
            "0-2: 0,1,2  3-5: 3,2  6-6: 0,1");
  EXPECT_EQ(TextOf(CutGatherUnits(reads, bytes, 384)), "0-6: 0,1,2,3");
}

TEST(GatherUnitsTest, AParameterOfTwoFarOperatorsIsGatheredForEach) {
  // An embedding that is the last product, too.
  const GatherUnits all =
      CutGatherUnits(Reads{{0}, {1}, {2}, {0}}, {640, 64, 64, 64}, 64);
  EXPECT_EQ(TextOf(all), "0-0: 0  1-1: 1  2-2: 2  3-3: 0");
  EXPECT_EQ(all.pool_bytes, 640 + 64);
  EXPECT_EQ(all.OffsetAt(1, 0), -1);
  EXPECT_EQ(all.OffsetAt(3, 0), 704 - 640);
  EXPECT_EQ(all.OffsetAt(4, 0), -1);
}

TEST(GatherUnitsTest, NothingIsReadInNoUnits) {
  const GatherUnits none = CutGatherUnits(Reads{{}, {}}, {64}, 64);
  EXPECT_TRUE(none.units.empty());
  EXPECT_EQ(none.pool_bytes, 0);
  EXPECT_EQ(none.At(0), nullptr);
  EXPECT_EQ(none.OffsetAt(1, 0), -1);
}

TEST(GatherUnitsTest, NeighboursNeverOverlapAndEveryReadIsThere) {
  Random random(3);
  for (int round = 0; round < 500; ++round) {
    const size_t parameters = 1 + random.Below(8);
    std::vector<int64_t> bytes;
    for (size_t i = 0; i < parameters; ++i) {
      bytes.push_back(64 * (1 + static_cast<int64_t>(random.Below(6))));
    }
    Reads reads(1 + random.Below(30));
    for (std::vector<int>& of : reads) {
      for (int i = 0; i < static_cast<int>(parameters); ++i) {
        if (random.Below(4) == 0) of.push_back(i);
      }
    }
    const auto unit_bytes = static_cast<int64_t>(1 + random.Below(800));
    const GatherUnits all = CutGatherUnits(reads, bytes, unit_bytes);
    const auto ends_of = [&](const GatherUnit& unit) {
      return std::pair<int64_t, int64_t>{unit.offsets[0],
                                         unit.offsets[0] + unit.bytes};
    };
    int64_t largest_two = 0;
    for (size_t u = 0; u < all.units.size(); ++u) {
      const GatherUnit& unit = all.units[u];
      const auto [begin, end] = ends_of(unit);
      ASSERT_GE(begin, 0);
      ASSERT_LE(end, all.pool_bytes);
      int64_t at = begin;
      for (size_t i = 0; i < unit.parameters.size(); ++i) {
        ASSERT_EQ(unit.offsets[i], at);
        at += bytes[unit.parameters[i]];
      }
      ASSERT_EQ(at, end);
      if (unit.first_step != unit.last_step &&
          unit.parameters.size() > reads[unit.first_step].size()) {
        ASSERT_LE(unit.bytes, unit_bytes);
      }
      largest_two = std::max(largest_two, unit.bytes);
      if (u == 0) continue;
      ASSERT_GT(unit.first_step, all.units[u - 1].last_step);
      const auto [before_begin, before_end] = ends_of(all.units[u - 1]);
      ASSERT_TRUE(end <= before_begin || begin >= before_end);
      largest_two = std::max(largest_two, unit.bytes + all.units[u - 1].bytes);
    }
    ASSERT_EQ(all.pool_bytes, largest_two);
    for (size_t s = 0; s < reads.size(); ++s) {
      for (const int parameter : reads[s]) {
        ASSERT_GE(all.OffsetAt(static_cast<int>(s), parameter), 0);
      }
    }
  }
}

}  // namespace
}  // namespace syncline::worker
