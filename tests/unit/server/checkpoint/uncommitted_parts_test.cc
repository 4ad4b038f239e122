// Goal: a part that no checkpoint will have is found, and none that one may
// have. Method: parts at invented times.

#include "server/checkpoint/uncommitted_parts.h"

#include <set>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline::ps {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const absl::Time kFirstPart = absl::UnixEpoch() + absl::Hours(1);

TEST(UncommittedPartsTest, APartIsLeftOnceItsCheckpointCannotBeMadeAnyMore) {
  UncommittedParts parts(absl::Minutes(10));
  std::set<std::string> committed;
  const auto take = [&](absl::Duration later) {
    return parts.TakeLeft(kFirstPart + later, [&](const std::string& folder) {
      return committed.contains(folder);
    });
  };
  parts.Add("/a", kFirstPart);
  parts.Add("/b", kFirstPart + absl::Minutes(1));
  parts.Add("/c", kFirstPart + absl::Minutes(2));
  EXPECT_THAT(take(absl::Minutes(9)), IsEmpty());
  committed.insert("/b");
  EXPECT_THAT(take(absl::Minutes(11)), ElementsAre("/a"));
  EXPECT_THAT(take(absl::Minutes(12)), ElementsAre("/c"));
  EXPECT_THAT(take(absl::Hours(1)), IsEmpty());
}

TEST(UncommittedPartsTest, WhereNobodyElseCommitsItIsLeftAtOnce) {
  UncommittedParts parts(absl::ZeroDuration());
  parts.Add("/a", kFirstPart);
  EXPECT_THAT(parts.TakeLeft(kFirstPart, [](const auto&) { return false; }),
              ElementsAre("/a"));
}

}  // namespace
}  // namespace syncline::ps
