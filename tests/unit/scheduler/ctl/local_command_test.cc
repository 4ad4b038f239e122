// Goal: `synctl local` refuses before it starts a process what it cannot do.
// Method: specs as data, and folders of checkpoints. tests/cluster has whole
// runs.

#include "scheduler/ctl/local_command.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/checkpoint_folder.h"
#include "common/checkpoint/manifest.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline::ctl {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A folder of its own, empty.
std::string Folder(const std::string& name) {
  const std::string path =
      absl::StrCat(::testing::TempDir(), "/local_command_", name);
  std::filesystem::remove_all(path);
  std::filesystem::create_directories(path);
  return path;
}

JobSpec SpecWithFolder(const std::string& directory) {
  JobSpec spec;
  spec.mutable_checkpoint()->set_every_clocks(10);
  spec.mutable_checkpoint()->set_directory(directory);
  return spec;
}

std::string Refusal(JobSpec spec) {
  std::vector<std::string> notes;
  return std::string(
      PrepareLocalJob({}, /*model_file=*/"", &spec, &notes).message());
}

TEST(LocalCommandTest, AFolderWithAnotherRunsCheckpointsIsRefused) {
  const std::string directory = Folder("other_run");
  EXPECT_EQ(Refusal(SpecWithFolder(directory)), "");
  std::filesystem::create_directories(directory + "/j-0001");
  EXPECT_EQ(Refusal(SpecWithFolder(directory)), "") << "it is empty";
  std::ofstream(directory + "/j-0001/000000000050") << "x";
  EXPECT_THAT(Refusal(SpecWithFolder(directory)),
              AllOf(HasSubstr("checkpoint.directory: "), HasSubstr("/j-0001"),
                    HasSubstr("start { checkpoint: ")));
}

TEST(LocalCommandTest, ARunGoesOnFromTheLastCheckpointOfItsFolder) {
  const std::string directory = Folder("goes_on");
  const auto make = [&](int64_t clock, uint64_t cut_id) {
    const std::string path = absl::StrCat(
        directory, "/j-0001/", CheckpointName{clock, cut_id}.ToString());
    std::filesystem::create_directories(path);
    JobAssignment assignment;
    assignment.set_job_id("j-0001");
    CheckpointParts parts;
    parts.cut_id = cut_id;
    parts.clocks = {clock};
    parts.shards.resize(1);
    parts.shards[0].set_file(ShardFileName(0, 1));
    parts.shards[0].set_bytes(1);
    EXPECT_TRUE(
        WriteManifest(path, *EncodeManifest(MakeManifest(assignment, parts)))
            .ok());
    return path;
  };
  const std::string first = make(10, 5);
  const std::string last = make(20, 6);
  JobSpec spec = SpecWithFolder(directory);
  spec.mutable_start()->set_checkpoint(last);
  EXPECT_EQ(Refusal(spec), "");
  spec.mutable_start()->set_checkpoint(first);
  EXPECT_THAT(Refusal(spec), AllOf(HasSubstr(last + " is later than clock 10"),
                                   HasSubstr("synctl checkpoints delete")));
}

TEST(LocalCommandTest, CheckpointsNeedAFolder) {
  EXPECT_THAT(Refusal(SpecWithFolder("")),
              HasSubstr("checkpoint.directory: is required"));
}

TEST(LocalCommandTest, EvaluationsOfCheckpointsNeedTheFlag) {
  JobSpec spec;
  spec.mutable_evaluate()->set_checkpoints(true);
  EXPECT_THAT(Refusal(spec), HasSubstr("start one with --evaluator"));
}

TEST(LocalCommandTest, ACheckpointThatIsNotThereIsRefused) {
  JobSpec spec;
  spec.mutable_start()->set_checkpoint(Folder("no_manifest"));
  EXPECT_THAT(Refusal(spec), HasSubstr("start.checkpoint: "));
}

TEST(LocalCommandTest, RestartIsWarnedOf) {
  JobSpec spec;
  std::vector<std::string> notes;
  EXPECT_TRUE(PrepareLocalJob({}, /*model_file=*/"", &spec, &notes).ok());
  EXPECT_THAT(notes, IsEmpty());
  spec.mutable_restart();
  EXPECT_TRUE(PrepareLocalJob({}, /*model_file=*/"", &spec, &notes).ok());
  EXPECT_THAT(notes,
              ElementsAre(HasSubstr("again; when one is lost, it ends")));
}

TEST(LocalCommandTest, TheWarningKnowsOfJobsThatOutliveWorkers) {
  JobSpec spec;
  spec.mutable_restart();
  spec.mutable_resources()->set_workers(3);
  spec.mutable_resources()->set_min_workers(2);
  std::vector<std::string> notes;
  EXPECT_TRUE(PrepareLocalJob({}, /*model_file=*/"", &spec, &notes).ok());
  EXPECT_THAT(notes, ElementsAre(HasSubstr("a lost worker is left out")));
}

}  // namespace
}  // namespace syncline::ctl
