// Goal: a mark is seen by whoever looks at the checkpoint's folder, and goes.
// Method: folders on a disk.

#include "common/checkpoint/checkpoint_marks.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/manifest.h"
#include "common/system/file.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace syncline {
namespace {

class CheckpointMarksTest : public testing::Test {
 protected:
  std::string Folder(int64_t clock) {
    const std::string path = dir_.File(CheckpointName{clock, 1}.ToString());
    EXPECT_OK(MakeDirs(path));
    return path;
  }
  TempDir dir_;
};

TEST_F(CheckpointMarksTest, EachMarkStandsForItself) {
  const std::string path = Folder(7);
  EXPECT_FALSE(IsMarked(path));
  ASSERT_OK(SetMark(path, CheckpointMark::kBeingRead));
  ASSERT_OK(SetMark(path, CheckpointMark::kBest));
  ASSERT_OK(SetMark(path, CheckpointMark::kBest));
  ASSERT_OK(ClearMark(path, CheckpointMark::kBeingRead));
  EXPECT_TRUE(IsMarked(path));
  ASSERT_OK(ClearMark(path, CheckpointMark::kBest));
  ASSERT_OK(ClearMark(path, CheckpointMark::kBest));
  EXPECT_FALSE(IsMarked(path));
}

TEST_F(CheckpointMarksTest, ThoseOfAJobAreCleared) {
  const std::string first = Folder(7);
  const std::string second = Folder(8);
  ASSERT_OK(SetMark(first, CheckpointMark::kBeingRead));
  ASSERT_OK(SetMark(second, CheckpointMark::kBest));
  ClearMarksOfJob(dir_.path());
  EXPECT_FALSE(IsMarked(first));
  EXPECT_FALSE(IsMarked(second));
  ClearMarksOfJob(dir_.File("nothing"));
}

TEST_F(CheckpointMarksTest, ACheckpointThatIsGoneIsNotFound) {
  const std::string gone = dir_.File("gone");
  EXPECT_TRUE(absl::IsNotFound(SetMark(gone, CheckpointMark::kBest)));
  EXPECT_OK(ClearMark(gone, CheckpointMark::kBest));
  EXPECT_FALSE(IsMarked(gone));
}

}  // namespace
}  // namespace syncline
