// Goal: a backup is one moment of the state, whatever happens to its files
// while it is read; unpacked it is a state; damage to it is named. Method: a
// state with jobs and files, archives with a byte flipped.

#include "scheduler/service/state_backup.h"

#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/crc32c.h"
#include "common/system/file.h"
#include "common/system/tar.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "scheduler/service/state_check.h"
#include "tests/testing/temp_dir.h"

namespace syncline::scheduler {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class StateBackupTest : public ::testing::Test {
 protected:
  StateBackupTest() {
    EXPECT_TRUE(state_->PutEpoch(7).ok());
    Add("j-0001", SUCCEEDED, std::string(3'000'000, 'm'));
    Add("j-0002", RUNNING, "model");
  }

  void Add(const std::string& id, JobState state, const std::string& model) {
    auto upload = *artifacts_->BeginUpload(10 << 20);
    for (FileChunk chunk; !upload->whole();) {
      chunk.set_offset(upload->size_bytes());
      chunk.set_data(model.substr(chunk.offset(), kFileChunkBytesMax));
      chunk.set_last(chunk.offset() + chunk.data().size() == model.size());
      chunk.set_crc32c(ExtendCrc32c(upload->crc32c(), chunk.data()));
      ASSERT_TRUE(upload->Append(chunk).ok());
    }
    StoredJob job;
    job.status.set_job_id(id);
    job.status.set_state(state);
    *job.status.add_artifacts() =
        *artifacts_->Commit(upload.get(), id, "model.onnx");
    ASSERT_TRUE(state_->PutNew(job).ok());
    AttemptRecord attempt;
    attempt.mutable_assignment()->set_attempt(1);
    if (state == RUNNING) {
      ASSERT_TRUE(state_->Put({job.status, attempt}, true).ok());
    }
    jobs_.push_back(job.status);
  }
  std::string Archive(StateBackup* backup) {
    std::string archive;
    FileChunk chunk;
    do {
      const absl::Status made = backup->Next(&chunk);
      EXPECT_TRUE(made.ok()) << made;
      if (!made.ok()) break;
      EXPECT_LE(chunk.data().size(), kFileChunkBytesMax);
      EXPECT_EQ(chunk.offset(), archive.size());
      archive += chunk.data();
      EXPECT_EQ(chunk.crc32c(), Crc32c(archive));
    } while (!chunk.last());
    return archive;
  }
  std::string WriteArchive(const std::string& archive) {
    const std::string path = dir_.File("state.tar");
    std::ofstream(path, std::ios::binary | std::ios::trunc) << archive;
    return path;
  }
  std::unique_ptr<StateBackup> Take() {
    auto backup = StateBackup::Begin(*artifacts_, jobs_);
    EXPECT_TRUE(backup.ok()) << backup.status();
    TakeMoment(backup->get());
    return *std::move(backup);
  }
  void TakeMoment(StateBackup* backup) {
    const absl::Status taken =
        backup->TakeMoment(state_.get(), *artifacts_, jobs_);
    EXPECT_TRUE(taken.ok()) << taken;
  }
  static StateFindings Check(const std::string& path) {
    const auto found = CheckState(path);
    EXPECT_TRUE(found.ok()) << found.status();
    return found.value_or(StateFindings());
  }

  const TempDir dir_;
  const std::string folder_ = dir_.File("state");
  std::unique_ptr<StateStore> state_ = *StateStore::Open(folder_ + "/db");
  std::unique_ptr<ArtifactStore> artifacts_ = *ArtifactStore::Open(folder_);
  std::vector<JobStatus> jobs_;
};

TEST_F(StateBackupTest, ItIsOneMomentAndUnpackedItIsAState) {
  auto backup = Take();
  // Later changes are not in it.
  ASSERT_TRUE(artifacts_->DeleteJob("j-0001").ok());
  ASSERT_TRUE(state_->Delete("j-0001").ok());
  ASSERT_TRUE(state_->PutEpoch(99).ok());
  const std::string path = WriteArchive(Archive(backup.get()));
  const StateFindings found = Check(path);
  EXPECT_THAT(found.problems, IsEmpty());
  EXPECT_EQ(found.jobs, 2u);
  EXPECT_EQ(found.unfinished, 1u);
  EXPECT_EQ(found.files, 2u);
  EXPECT_EQ(found.file_bytes, 3'000'005u);
  EXPECT_EQ(found.epoch, 7u);
  // Its links are gone with it.
  backup.reset();
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
    EXPECT_THAT(entry.path().filename().string(),
                testing::Not(HasSubstr("backup-part")));
  }
  const std::string restored = dir_.File("restored");
  ASSERT_TRUE(MakeDirs(restored).ok());
  ASSERT_EQ(
      std::system(absl::StrCat("tar -xf ", path, " -C ", restored).c_str()), 0);
  EXPECT_THAT(Check(restored).problems, IsEmpty());
  const auto store = StateStore::Open(restored + "/db");
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_EQ(*(*store)->Epoch(), 7u);
  EXPECT_EQ((*store)->Load()->jobs.size(), 2u);
}

// Files are linked before the moment. Those that come, go and change in between
// are as the records of the moment have them.
TEST_F(StateBackupTest, WhatChangesBeforeTheMomentIsAsInTheMoment) {
  Add("j-0003", SUCCEEDED, "gone soon");
  auto begun = StateBackup::Begin(*artifacts_, jobs_);
  ASSERT_TRUE(begun.ok()) << begun.status();
  // One goes, one comes, one is replaced.
  ASSERT_TRUE(artifacts_->DeleteJob("j-0003").ok());
  ASSERT_TRUE(state_->Delete("j-0003").ok());
  jobs_.pop_back();
  Add("j-0004", RUNNING, "has come");
  ASSERT_TRUE(artifacts_->DeleteJob("j-0002").ok());
  ASSERT_TRUE(state_->Delete("j-0002").ok());
  jobs_.erase(jobs_.begin() + 1);
  Add("j-0002", RUNNING, "another model");
  TakeMoment(begun->get());
  const std::string archive = Archive(begun->get());
  const StateFindings found = Check(WriteArchive(archive));
  EXPECT_THAT(found.problems, IsEmpty());
  EXPECT_EQ(found.jobs, 3u);
  EXPECT_EQ(found.files, 3u);
  EXPECT_EQ(found.file_bytes,
            3'000'000u + sizeof("another model") - 1 + sizeof("has come") - 1);
  EXPECT_THAT(archive, testing::Not(HasSubstr("gone soon")));
  EXPECT_THAT(archive, testing::Not(HasSubstr("jobs/j-0003")));
}

// The records have the secrets of running jobs.
TEST_F(StateBackupTest, NobodyElseReadsItsFolder) {
  const auto backup = Take();
  int folders = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
    if (entry.path().filename().string().find("backup-") == std::string::npos) {
      continue;
    }
    ++folders;
    EXPECT_EQ(entry.status().permissions(), std::filesystem::perms::owner_all);
  }
  EXPECT_EQ(folders, 1);
}

TEST_F(StateBackupTest, DamageIsNamed) {
  const std::string archive = Archive(Take().get());
  std::string flipped = archive;
  flipped[archive.find("mmmm") + 1000] = 'n';
  EXPECT_THAT(Check(WriteArchive(flipped)).problems,
              ElementsAre(HasSubstr("jobs/j-0001/model.onnx is damaged"),
                          HasSubstr("jobs/j-0001/model.onnx has 3000000 bytes "
                                    "with checksum ")));
  const auto cut = CheckState(WriteArchive(archive.substr(0, 2'000'000)));
  EXPECT_EQ(cut.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_FALSE(CheckState(WriteArchive("nonsense")).ok());
  EXPECT_FALSE(CheckState(dir_.File("none")).ok());
}

TEST_F(StateBackupTest, AnArchiveEndsOnce) {
  const std::string archive = Archive(Take().get());
  for (const std::string& other :
       {archive + "x", archive + archive,
        archive.substr(0, archive.size() - TarEnd().size())}) {
    EXPECT_EQ(CheckState(WriteArchive(other)).status().code(),
              absl::StatusCode::kDataLoss);
  }
  EXPECT_THAT(Check(WriteArchive(archive + std::string(5000, '\0'))).problems,
              IsEmpty());
}

// Opening a pipe that nobody writes to would take for ever.
TEST_F(StateBackupTest, APipeAndADeviceAreNotOpened) {
  const std::string pipe = dir_.File("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  for (const std::string& path : {pipe, std::string("/dev/zero")}) {
    const auto found = CheckState(path);
    EXPECT_EQ(found.status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(found.status().message(),
              path + " is neither a file nor a folder");
  }
}

TEST_F(StateBackupTest, AFolderIsCheckedWhileASchedulerHasIt) {
  EXPECT_THAT(Check(folder_).problems, IsEmpty());
  std::filesystem::remove(artifacts_->PathOf("j-0002", "model.onnx"));
  std::ofstream(artifacts_->PathOf("j-0001", "model.onnx")) << "other";
  EXPECT_THAT(Check(folder_).problems,
              ElementsAre(HasSubstr("jobs/j-0001/model.onnx has 5 bytes"),
                          HasSubstr("jobs/j-0002/model.onnx is not there")));
  EXPECT_EQ(CheckState(dir_.path()).status().code(),
            absl::StatusCode::kNotFound);
}

TEST_F(StateBackupTest, AFolderWithALinkIsRefused) {
  const auto why = [&] {
    const auto found = CheckState(folder_);
    EXPECT_EQ(found.status().code(), absl::StatusCode::kFailedPrecondition);
    return std::string(found.status().message());
  };
  const std::string model = artifacts_->PathOf("j-0002", "model.onnx");
  // A backup that is being made is no trouble: its links are in the folder.
  {
    const auto backup = Take();
    EXPECT_THAT(Check(folder_).problems, IsEmpty());
  }
  std::filesystem::create_hard_link(model, dir_.File("outside"));
  EXPECT_THAT(why(), HasSubstr("has a hard link outside of the folder"));
  std::filesystem::remove(model);
  EXPECT_THAT(Check(folder_).problems,
              ElementsAre(HasSubstr("jobs/j-0002/model.onnx is not there")));
  std::filesystem::create_symlink(dir_.File("outside"), model);
  EXPECT_THAT(why(), HasSubstr(model + " is a symbolic link"));
  std::filesystem::remove(model);
  std::filesystem::create_directory_symlink(dir_.path(), folder_ + "/more");
  EXPECT_THAT(why(), HasSubstr("/more is a symbolic link"));
}

TEST_F(StateBackupTest, ANameOutOfTheFolderIsRefused) {
  JobStatus status = jobs_[0];
  status.mutable_artifacts(0)->set_name("../../../etc/passwd");
  ASSERT_TRUE(state_->Put({status, std::nullopt}, true).ok());
  for (const std::string& path :
       {folder_, WriteArchive(Archive(Take().get()))}) {
    const auto found = CheckState(path);
    EXPECT_EQ(found.status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(found.status().message(), HasSubstr("out of its folder"));
  }
}

TEST_F(StateBackupTest, AnArchiveWithANameTwiceIsRefused) {
  const std::string archive = Archive(Take().get());
  // Of two entries of one name `tar` keeps the later one.
  const std::string twice =
      archive.substr(0, archive.size() - TarEnd().size()) +
      TarHeader({.name = "MANIFEST", .bytes = 0}) + TarEnd();
  const auto found = CheckState(WriteArchive(twice));
  EXPECT_EQ(found.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(found.status().message(), HasSubstr("MANIFEST twice"));
}

TEST_F(StateBackupTest, ARunningJobWithoutItsMembersIsNamed) {
  ASSERT_TRUE(state_->Put({jobs_[1], std::nullopt}, true).ok());
  EXPECT_THAT(
      Check(folder_).problems,
      ElementsAre(HasSubstr("job j-0002 is RUNNING, and its record does "
                            "not name its members")));
}

TEST_F(StateBackupTest, AFileThatIsGoneIsLeftOut) {
  ASSERT_TRUE(artifacts_->DeleteJob("j-0001").ok());
  EXPECT_THAT(Check(WriteArchive(Archive(Take().get()))).problems,
              ElementsAre(HasSubstr("jobs/j-0001/model.onnx is not there")));
}

TEST_F(StateBackupTest, WhatAKilledSchedulerLeftIsRemoved) {
  ASSERT_TRUE(MakeDirs(folder_ + "/.backup-part-5-1/db").ok());
  StateBackup::RemoveLeftovers(folder_);
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/.backup-part-5-1"));
  EXPECT_THAT(Check(folder_).problems, IsEmpty());
}

TEST_F(StateBackupTest, WhatAPersonPutThereStays) {
  const std::vector<std::string> names = {"backup-5-1", ".backup-part-5",
                                          ".backup-part-5-", ".backup-part-5-x",
                                          ".backup-part-5-1-old"};
  for (const std::string& name : names) {
    ASSERT_TRUE(MakeDirs(absl::StrCat(folder_, "/", name)).ok());
  }
  std::ofstream(folder_ + "/backup-monday.tar") << "archive";
  std::ofstream(folder_ + "/.backup-part-6-1") << "a file";
  std::filesystem::create_directory_symlink(dir_.path(),
                                            folder_ + "/.backup-part-7-1");
  StateBackup::RemoveLeftovers(folder_);
  for (const std::string& name : names) {
    EXPECT_TRUE(std::filesystem::exists(absl::StrCat(folder_, "/", name)))
        << name;
  }
  for (const char* name :
       {"backup-monday.tar", ".backup-part-6-1", ".backup-part-7-1"}) {
    EXPECT_TRUE(std::filesystem::exists(absl::StrCat(folder_, "/", name)))
        << name;
  }
}

}  // namespace
}  // namespace syncline::scheduler
