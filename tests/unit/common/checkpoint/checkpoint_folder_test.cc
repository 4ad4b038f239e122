// Goal: a folder without a whole manifest of its own is no checkpoint, and
// deletion begins with the manifest.
// Method: folders of a test's own.

#include "common/checkpoint/checkpoint_folder.h"

#include <sys/stat.h>

#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/system/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace syncline {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::string Encoded(int64_t clock, uint64_t cut_id) {
  JobAssignment assignment;
  assignment.set_job_id("j-1");
  CheckpointParts parts;
  parts.cut_id = cut_id;
  parts.clocks = {clock};
  parts.shards.resize(1);
  parts.shards[0].set_file(ShardFileName(0, 1));
  parts.shards[0].set_bytes(5);
  return *EncodeManifest(MakeManifest(assignment, parts));
}

std::string Make(const TempDir& dir, int64_t clock, uint64_t cut_id) {
  const std::string path = dir.File(CheckpointName{clock, cut_id}.ToString());
  EXPECT_OK(MakeDirs(path));
  EXPECT_OK(WriteFileAtomically(absl::StrCat(path, "/", ShardFileName(0, 1)),
                                "state"));
  return path;
}

TEST(CheckpointFolderTest, ExistsOnceItsManifestDoes) {
  const TempDir dir;
  const std::string path = Make(dir, 7, 9);
  EXPECT_EQ(ReadManifest(path).status().code(), absl::StatusCode::kNotFound);
  ASSERT_OK(WriteManifest(path, Encoded(7, 9)));
  ASSERT_OK(WriteManifest(path, Encoded(7, 9)));  // a repeat
  const auto manifest = ReadManifest(path);
  ASSERT_OK(manifest.status());
  EXPECT_EQ(manifest->cut_id(), 9u);
  const absl::Status none = ReadManifest(dir.File("none")).status();
  EXPECT_EQ(none.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(none.message()), HasSubstr("is not there"));
}

TEST(CheckpointFolderTest, AManifestOfAnotherCheckpointIsDamage) {
  const TempDir dir;
  const std::string path = Make(dir, 7, 9);
  ASSERT_OK(WriteManifest(path, Encoded(7, 10)));
  const absl::Status status = ReadManifest(path).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr(path));
  // But a checkpoint may be given a name of one's own.
  const std::string renamed = dir.File("before-the-change");
  std::filesystem::rename(path, renamed);
  EXPECT_OK(ReadManifest(renamed).status());
}

TEST(CheckpointFolderTest, OneThatIsTooLargeIsNotRead) {
  const TempDir dir;
  const std::string path = Make(dir, 7, 9);
  ASSERT_OK(WriteFileAtomically(absl::StrCat(path, "/", kManifestFile),
                                std::string(kManifestBytesMax + 1, 'x')));
  EXPECT_EQ(ReadManifest(path).status().code(), absl::StatusCode::kDataLoss);
}

TEST(CheckpointFolderTest, AllOfAJobAreListedInOrder) {
  const TempDir dir;
  EXPECT_THAT(*ListCheckpoints(dir.File("none")), IsEmpty());
  ASSERT_OK(WriteManifest(Make(dir, 20, 3), Encoded(20, 3)));
  ASSERT_OK(WriteManifest(Make(dir, 3, 8), Encoded(3, 8)));
  Make(dir, 10, 5);
  ASSERT_OK(MakeDirs(dir.File("something else")));
  const auto all = ListCheckpoints(dir.path());
  ASSERT_OK(all.status());
  ASSERT_THAT(*all, SizeIs(3));
  EXPECT_EQ((*all)[0].name.clock, 3);
  EXPECT_OK((*all)[0].manifest.status());
  EXPECT_EQ((*all)[1].manifest.status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ((*all)[2].name.clock, 20);
}

TEST(CheckpointFolderTest, DeletionBeginsWithTheManifest) {
  const TempDir dir;
  const std::string path = Make(dir, 7, 9);
  ASSERT_OK(WriteManifest(path, Encoded(7, 9)));
  ASSERT_OK(DeleteCheckpoint(path));
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_OK(DeleteCheckpoint(path));
  // A manifest that cannot be removed keeps the rest.
  const std::string other = Make(dir, 8, 9);
  ASSERT_OK(MakeDirs(absl::StrCat(other, "/", kManifestFile)));
  EXPECT_FALSE(DeleteCheckpoint(other).ok());
  EXPECT_TRUE(
      std::filesystem::exists(absl::StrCat(other, "/", ShardFileName(0, 1))));
}

TEST(CheckpointFolderTest, AFolderThatIsNotThereCannotBeSynced) {
  const TempDir dir;
  EXPECT_OK(SyncFolder(dir.path()));
  EXPECT_EQ(SyncFolder(dir.File("none")).code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace syncline
