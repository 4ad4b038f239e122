// Goal: a long write is told of as long as it comes forward, and one that hangs
// is not; and the thread that watches never runs beside the one that writes on.
// Method: files of a folder that grow, stand still and go while they are
// watched; state without a lock, under the thread sanitizer.

#include "worker/export/file_growth.h"

#include <string>
#include <vector>

#include "common/system/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/fakes/wait_log.h"
#include "tests/testing/temp_dir.h"

namespace syncline::worker {
namespace {

using ::testing::ElementsAre;

constexpr absl::Duration kPeriod = absl::Milliseconds(1);

TEST(FileGrowthTest, TellsOfEachStepForwardAndOfNothingElse) {
  const TempDir dir;
  WaitLog<uint64_t> grown;
  {
    const FileGrowth growth(dir.path() + "/best", kPeriod,
                            [&](uint64_t bytes) { grown.Add(bytes); });
    ASSERT_TRUE(MakeDirs(dir.path() + "/best").ok());
    // Atomically: what is seen is a whole step.
    ASSERT_TRUE(WriteFileAtomically(dir.path() + "/a", "1234").ok());
    ASSERT_EQ(
        rename((dir.path() + "/a").c_str(), (dir.path() + "/best/a").c_str()),
        0);
    ASSERT_THAT(grown.Await(1), ElementsAre(4));
    ASSERT_TRUE(WriteFileAtomically(dir.path() + "/b", "123456").ok());
    ASSERT_EQ(
        rename((dir.path() + "/b").c_str(), (dir.path() + "/best/b").c_str()),
        0);
    ASSERT_THAT(grown.Await(2), ElementsAre(4, 10));
    ASSERT_TRUE(RemoveTree(dir.path() + "/best/b").ok());
  }
  ASSERT_TRUE(
      WriteFileAtomically(dir.path() + "/best/c", std::string(100, 'x')).ok());
  EXPECT_THAT(grown.Await(2), ElementsAre(4, 10));
}

// CutEvaluator and ParameterExchange rely on this: they have no lock for the
// state that the callback and the training thread share.
TEST(FileGrowthTest, CallsEndBeforeTheWriterGoesOn) {
  const TempDir dir;
  ASSERT_TRUE(WriteFileAtomically(dir.path() + "/model", "1234").ok());
  uint64_t seen = 0;
  for (int i = 0; i < 20; ++i) {
    seen = 0;
    WaitLog<uint64_t> grown;
    {
      const FileGrowth growth(dir.path(), kPeriod, [&](uint64_t bytes) {
        grown.Add(bytes);
        seen += bytes;  // nothing but the destructor orders this
      });
      ASSERT_THAT(grown.Await(1), ElementsAre(4));
    }
    EXPECT_EQ(seen, 4u);
  }
}

}  // namespace
}  // namespace syncline::worker
