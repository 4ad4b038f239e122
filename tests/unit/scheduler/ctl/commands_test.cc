// Goal: a download takes the files it was asked for and stays in its folder,
// whatever the scheduler calls them. Method: job statuses as a scheduler could
// send them; no server has the client's address, so that any call would fail as
// Unavailable. The commands themselves: tests/cluster/commands_test.cc.

#include "scheduler/ctl/commands.h"

#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/temp_dir.h"

namespace syncline::ctl {
namespace {

using testing::HasSubstr;

class DownloadArtifactsTest : public testing::Test {
 protected:
  absl::Status Download(const std::vector<std::string>& names) {
    return DownloadArtifacts(&client_, job_, names, dir_.File("to"), console_,
                             &interrupts_);
  }

  const TempDir dir_;
  std::ostringstream out_;
  const Console console_{.out = out_, .err = out_};
  InterruptSignals interrupts_;
  JobsClient client_{"127.0.0.1:1"};
  JobStatus job_;
};

TEST_F(DownloadArtifactsTest, NamesThatLeadOutOfTheFolderAreRefused) {
  for (const char* name :
       {"../outside", "a/../../outside", "/etc/passwd", ""}) {
    job_.clear_artifacts();
    job_.add_artifacts()->set_name(name);
    const absl::Status status = Download({});
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << name << ": " << status;
  }
  EXPECT_FALSE(std::filesystem::exists(dir_.File("to")));
}

TEST_F(DownloadArtifactsTest, OrdinaryNamesAreAskedFor) {
  job_.add_artifacts()->set_name("logs/ps-0..log");
  const absl::Status status = Download({});
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("logs/ps-0..log"));
}

TEST_F(DownloadArtifactsTest, TheSubmittedModelComesOnlyByName) {
  job_.add_artifacts()->set_name("model.onnx");
  EXPECT_TRUE(Download({}).ok());
  EXPECT_TRUE(absl::IsUnavailable(Download({"model.onnx"})));
}

TEST_F(DownloadArtifactsTest, TwoJobsFilesAreNotMixed) {
  job_.set_job_id("j-0001");
  job_.add_transitions()->mutable_time()->set_seconds(1000);
  job_.add_artifacts()->set_name("trained.onnx");
  job_.add_artifacts()->set_name("metrics.json");
  const std::string to = dir_.File("results");
  EXPECT_EQ(*ChooseFolder(job_, {"trained.onnx"}, to), to);
  dir_.Write("results/trained.onnx", "first");
  // More of the same job, or the same again.
  EXPECT_EQ(*ChooseFolder(job_, {}, to), to);
  JobStatus other = job_;  // of another cluster
  other.mutable_transitions(0)->mutable_time()->set_seconds(2000);
  EXPECT_EQ(*ChooseFolder(other, {"metrics.json"}, to), to + "-2");
  EXPECT_EQ(*ChooseFolder(other, {}, to + "/"), to + "-2");
  // Files of unknown origin are not replaced. Others may be put beside them.
  dir_.Write("mine/notes.txt", "keep");
  EXPECT_EQ(*ChooseFolder(job_, {}, dir_.File("mine")), dir_.File("mine"));
  dir_.Write("old/metrics.json", "of 0.1.0");
  EXPECT_EQ(*ChooseFolder(job_, {}, dir_.File("old")), dir_.File("old-2"));
}

TEST(MakeNumberedDirTest, AFolderWithFilesIsLeftAlone) {
  const TempDir dir;
  const std::string out = dir.File("out");
  EXPECT_EQ(*MakeNumberedDir(out), out);
  EXPECT_EQ(*MakeNumberedDir(out), out) << "it is still empty";
  dir.Write("out/trained.onnx", "first");
  EXPECT_EQ(*MakeNumberedDir(out), out + "-2");
  dir.Write("out-2/trained.onnx", "second");
  EXPECT_EQ(*MakeNumberedDir(out), out + "-3");
}

TEST_F(DownloadArtifactsTest, AnUnknownNameIsAnsweredWithWhatThereIs) {
  job_.set_job_id("j-0001");
  job_.add_artifacts()->set_name("trained.onnx");
  job_.add_artifacts()->set_name("metrics.json");
  const absl::Status status = Download({"trained.onx"});
  EXPECT_TRUE(absl::IsNotFound(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("trained.onnx, metrics.json"));
}

}  // namespace
}  // namespace syncline::ctl
