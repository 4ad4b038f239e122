// Goal: where the checkpoint that an attempt is to start from was deleted, the
// whole ones of the same job that are beside it are found, and no others.
// Method: folders of a test's own.

#include "common/checkpoint/checkpoint_search.h"

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/crc32c.h"
#include "common/checkpoint/checkpoint_folder.h"
#include "common/checkpoint/manifest.h"
#include "common/job/checkpoint_trouble.h"
#include "common/system/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace syncline {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr char kTensor[] = "w";

class CheckpointSearchTest : public ::testing::Test {
 protected:
  CheckpointSearchTest() {
    assignment_.set_job_id("j-0001");
    assignment_.set_attempt(2);
    assignment_.mutable_spec()->mutable_checkpoint()->set_directory(
        dir_.path());
    assignment_.add_parameters()->set_name(kTensor);
    assignment_.mutable_start_from()->set_path(Path(250, 5));
    assignment_.mutable_start_from()->set_clock(250);
  }

  std::string Folder() const { return dir_.File("j-0001"); }
  std::string Path(int64_t clock, uint64_t cut_id) const {
    return absl::StrCat(Folder(), "/",
                        CheckpointName{clock, cut_id}.ToString());
  }
  // Returns the manifest's bytes.
  std::string Make(int64_t clock, uint64_t cut_id, uint32_t attempt = 1,
                   const std::string& job = "j-0001",
                   const std::string& tensor = kTensor) const {
    JobAssignment writer;
    writer.set_job_id(job);
    writer.set_attempt(attempt);
    writer.add_parameters()->set_name(tensor);
    writer.add_regimes()->set_first_clock(0);
    CheckpointParts parts;
    parts.cut_id = cut_id;
    parts.clocks = {clock};
    parts.shards.resize(1);
    parts.shards[0].set_file(ShardFileName(0, 1));
    parts.shards[0].set_bytes(5);
    parts.time = absl::FromUnixSeconds(clock);
    std::string encoded = *EncodeManifest(MakeManifest(writer, parts));
    EXPECT_OK(MakeDirs(Path(clock, cut_id)));
    EXPECT_OK(WriteManifest(Path(clock, cut_id), encoded));
    return encoded;
  }
  std::vector<int64_t> Found(const std::string& own_dir = "") const {
    std::vector<int64_t> clocks;
    for (const FoundCheckpoint& one :
         FindInsteadOfStart(assignment_, own_dir)) {
      clocks.push_back(one.checkpoint().clock());
    }
    return clocks;
  }
  std::string Trouble() const {
    return std::string(
        WithManifestTrouble(
            ReadManifest(assignment_.start_from().path()).status(), assignment_,
            /*own_dir=*/"")
            .message());
  }

  const TempDir dir_;
  JobAssignment assignment_;
};

TEST_F(CheckpointSearchTest, BehindADiskThatHangsNothingIsLookedFor) {
  Make(350, 2);
  const auto found = [&](const absl::Status& opened,
                         const absl::Status& go_on = absl::OkStatus()) {
    return FindInsteadOfOpened(assignment_, "", opened, [&] { return go_on; })
        .size();
  };
  EXPECT_EQ(found(absl::NotFoundError("it was deleted")), 1u);
  EXPECT_EQ(found(absl::OkStatus()), 1u);
  EXPECT_EQ(found(absl::UnavailableError("the disk hangs")), 0u);
  EXPECT_EQ(found(absl::CancelledError("stopped")), 0u);
  EXPECT_EQ(found(absl::OkStatus(), absl::CancelledError("stopped")), 0u);
}

// Whoever waits sees that the disk answers.
TEST_F(CheckpointSearchTest, EachCallOfTheDiskIsCounted) {
  DiskCalls calls;
  FindInsteadOfStart(assignment_, "", &calls);
  const uint64_t none = calls.made();
  for (int i = 1; i <= 5; ++i) Make(300 + i, static_cast<uint64_t>(i));
  FindInsteadOfStart(assignment_, "", &calls);
  EXPECT_GE(calls.made(), none + 10) << "listed, and read";
}

TEST_F(CheckpointSearchTest, WholeOnesOfTheJobAreFoundInOrder) {
  Make(350, 2, /*attempt=*/1);
  Make(300, 9, /*attempt=*/2);
  const std::string last = Make(325, 10, /*attempt=*/2);
  Make(125, 1);
  Make(400, 20, 2, "j-0002");
  Make(425, 21, 2, "j-0001", "another model's");
  // Torn, and one that is being written.
  Make(450, 22, 2);
  std::filesystem::resize_file(absl::StrCat(Path(450, 22), "/", kManifestFile),
                               40);
  ASSERT_OK(MakeDirs(Path(475, 23)));
  EXPECT_THAT(Found(), ElementsAre(125, 350, 300, 325));
  const FoundCheckpoint found = FindInsteadOfStart(assignment_, "").back();
  EXPECT_EQ(found.checkpoint().path(), Path(325, 10));
  EXPECT_EQ(found.checkpoint().attempt(), 2u);
  EXPECT_EQ(found.checkpoint().shards(), 1u);
  EXPECT_EQ(found.checkpoint().bytes(), 5u);
  EXPECT_EQ(found.checkpoint().time().seconds(), 325);
  EXPECT_EQ(found.checkpoint().manifest_crc32c(), Crc32c(last));
  EXPECT_EQ(found.regimes_size(), 1);
}

TEST_F(CheckpointSearchTest, AJobOfATenantIsNotToldOfOthers) {
  Make(300, 9);
  assignment_.set_tenant("acme");
  EXPECT_THAT(Trouble(), HasSubstr("it was deleted"));
  assignment_.set_job_id("j-0009");
  EXPECT_THAT(Trouble(), Not(HasSubstr("deleted")));
  assignment_.clear_tenant();
  EXPECT_THAT(Trouble(), HasSubstr("it was deleted"));
}

TEST_F(CheckpointSearchTest, NothingIsLookedForWhereTheStartIsThere) {
  Make(250, 5);
  Make(300, 9);
  EXPECT_THAT(Found(), IsEmpty());
  // A manifest goes first when a checkpoint is deleted.
  std::filesystem::remove(absl::StrCat(Path(250, 5), "/", kManifestFile));
  EXPECT_THAT(Found(), ElementsAre(300));
}

// It starts from another job's checkpoint, whose folder has none of its own.
TEST_F(CheckpointSearchTest, CheckpointsOfAnotherJobAreNotTakenUp) {
  Make(300, 9);
  assignment_.set_attempt(1);
  EXPECT_THAT(Found(), IsEmpty());
  assignment_.set_attempt(2);
  assignment_.set_job_id("j-0002");
  EXPECT_THAT(Found(), IsEmpty());
}

TEST_F(CheckpointSearchTest, EachPsSaysWhatItsOwnFolderHas) {
  assignment_.mutable_spec()->mutable_checkpoint()->clear_directory();
  assignment_.mutable_start_from()->set_path(
      absl::StrCat("/of/another/j-0001/", CheckpointName{250, 5}.ToString()));
  EXPECT_THAT(Found(dir_.path()), IsEmpty());
  Make(300, 9);
  EXPECT_THAT(Found(dir_.path()), ElementsAre(300));
  // The others of the job know it by its name below theirs.
  EXPECT_EQ(
      FindInsteadOfStart(assignment_, dir_.path())[0].checkpoint().path(),
      absl::StrCat("/of/another/j-0001/", CheckpointName{300, 9}.ToString()));
  // Also one that has not deleted the start yet.
  Make(250, 5);
  EXPECT_THAT(Found(dir_.path()), ElementsAre(250, 300));
}

TEST_F(CheckpointSearchTest, AFolderThatIsThereIsNotCalledUnmounted) {
  EXPECT_THAT(Trouble(), HasSubstr(kUnseenCheckpoint));
  ASSERT_OK(MakeDirs(Folder()));
  EXPECT_THAT(Trouble(),
              AllOf(HasSubstr(absl::StrCat(Folder(), kDeletedCheckpoint,
                                           "250: it was deleted; no whole one "
                                           "is there")),
                    Not(HasSubstr(kUnseenCheckpoint))));
  Make(300, 9);
  EXPECT_THAT(Trouble(), HasSubstr(absl::StrCat(
                             "; the last whole one there is of clock 300, ",
                             Path(300, 9))));
  Make(250, 5);
  std::filesystem::resize_file(absl::StrCat(Path(250, 5), "/", kManifestFile),
                               40);
  EXPECT_THAT(Trouble(), HasSubstr(kDamagedCheckpoint));
}

}  // namespace
}  // namespace syncline
