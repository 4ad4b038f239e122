// Goal: each command of the scheduler is carried out once, in order, and
// answered; a ps that cannot open a job says why, and a stop need not wait for
// the opening. Method: a PsServer that
// records what it was asked, and the answers in a list.

#include "server/service/ps_commands.h"

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/notification.h"
#include "common/checkpoint/checkpoint_folder.h"
#include "common/checkpoint/manifest.h"
#include "common/job/checkpoint_trouble.h"
#include "common/job/orphaned_job.h"
#include "common/system/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/eventually.h"
#include "tests/testing/temp_dir.h"

namespace syncline::ps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint64_t kIncarnation = 77;

class RecordingServer final : public PsServer {
 public:
  void RegisterService(grpc::ServerBuilder*) override {}
  absl::Status OpenJob(const JobAssignment& assignment, uint32_t ps_rank,
                       const GoOnCheck& go_on) override {
    calls.push_back(absl::StrCat("open ", assignment.job_id(), " ", ps_rank));
    return while_opening == nullptr ? open_result : while_opening(go_on);
  }
  absl::Status RestoreJob(const JobAssignment&, uint32_t, const ShardStarts&,
                          const GoOnCheck&) override {
    return absl::UnimplementedError("restore");
  }
  absl::Status ChangeRouting(const JobAssignment&, uint32_t, uint64_t,
                             const ShardStarts&, const GoOnCheck&) override {
    return absl::UnimplementedError("routing");
  }
  absl::Status ExportState(const std::string&, uint32_t, uint64_t,
                           const ShardSelection&, ShardStateSink*) override {
    return absl::UnimplementedError("export");
  }
  absl::StatusOr<std::optional<WorkerTakenOut>> TakeWorkerOut(
      const RemoveWorker& command) override {
    calls.push_back(
        absl::StrCat("remove ", command.job_id(), " ", command.rank()));
    return taken_out;
  }
  absl::Status ReturnClocks(const ReturnLeases& command) override {
    calls.push_back(absl::StrCat("return ", command.job_id(), " ",
                                 command.rank(), " ",
                                 absl::StrJoin(command.clocks(), ",")));
    return absl::OkStatus();
  }
  std::optional<PsReport> CloseJob(const std::string& job_id,
                                   absl::string_view reason) override {
    calls.push_back(absl::StrCat("close ", job_id, " ", reason));
    return std::exchange(last_report, std::nullopt);
  }
  std::vector<PsReport> Reports() const override { return {}; }
  void Drain(absl::Time) override {}

  absl::Status open_result;
  absl::StatusOr<std::optional<WorkerTakenOut>> taken_out = std::nullopt;
  std::function<absl::Status(const GoOnCheck&)> while_opening;
  std::optional<PsReport> last_report;
  std::vector<std::string> calls;
};

SchedulerMessage PrepareOf(const std::string& job_id,
                           const std::vector<uint64_t>& incarnations) {
  SchedulerMessage message;
  JobAssignment* assignment = message.mutable_prepare()->mutable_assignment();
  assignment->set_job_id(job_id);
  for (const uint64_t incarnation : incarnations) {
    Participant* ps = assignment->add_ps();
    ps->set_rank(assignment->ps_size() - 1);
    ps->mutable_member()->set_incarnation(incarnation);
  }
  return message;
}

SchedulerMessage StopOf(const std::string& job_id) {
  SchedulerMessage message;
  message.mutable_stop()->set_job_id(job_id);
  message.mutable_stop()->set_reason("over");
  return message;
}

class PsCommandsTest : public ::testing::Test {
 protected:
  // Carries them all out before it returns.
  void Run(const std::vector<SchedulerMessage>& messages) {
    PsCommands commands(&server_, kIncarnation, [this](DaemonMessage answer) {
      answers_.push_back(std::move(answer));
    });
    for (const SchedulerMessage& message : messages) {
      commands.OnCommand(message);
    }
  }
  RecordingServer server_;
  std::vector<DaemonMessage> answers_;
};

TEST_F(PsCommandsTest, OpensAtItsRankAndClosesInOrder) {
  absl::Notification opened;
  {
    PsCommands commands(&server_, kIncarnation, [&](DaemonMessage answer) {
      answers_.push_back(std::move(answer));
      if (answers_.size() == 1) opened.Notify();
    });
    commands.OnCommand(PrepareOf("j-1", {5, kIncarnation}));
    // A stop that came before would end the opening.
    ASSERT_TRUE(opened.WaitForNotificationWithTimeout(absl::Seconds(60)));
    commands.OnCommand(StopOf("j-1"));
    commands.OnCommand(PrepareOf("j-2", {kIncarnation}));
  }
  EXPECT_THAT(server_.calls,
              ElementsAre("open j-1 1", "close j-1 over", "open j-2 0"));
  ASSERT_EQ(answers_.size(), 3u);
  EXPECT_EQ(answers_[0].prepared().job_id(), "j-1");
  EXPECT_EQ(answers_[0].prepared().problems_size(), 0);
  EXPECT_EQ(answers_[1].done().job_id(), "j-1");
  EXPECT_TRUE(answers_[1].done().released());
  EXPECT_EQ(answers_[1].done().code(), 0);
  EXPECT_EQ(answers_[2].prepared().job_id(), "j-2");
}

// The scheduler waits ten seconds for the release of a ps, and taking memory
// may last longer.
TEST_F(PsCommandsTest, AStopEndsTheOpeningOfItsJob) {
  absl::Notification opening;
  server_.while_opening = [&](const GoOnCheck& go_on) {
    EXPECT_TRUE(go_on().ok()) << "not stopped yet";
    opening.Notify();
    absl::Status status;
    EXPECT_TRUE(Eventually(absl::Seconds(60), [&] {
      status = go_on();
      return !status.ok();
    }));
    return status;
  };
  {
    PsCommands commands(&server_, kIncarnation, [&](DaemonMessage answer) {
      answers_.push_back(std::move(answer));
    });
    commands.OnCommand(PrepareOf("j-1", {kIncarnation}));
    ASSERT_TRUE(opening.WaitForNotificationWithTimeout(absl::Seconds(60)));
    commands.OnCommand(PrepareOf("j-2", {kIncarnation}));
    commands.OnCommand(StopOf("j-2"));
    commands.OnCommand(StopOf("j-1"));
  }
  // The second has not been begun.
  EXPECT_THAT(server_.calls,
              ElementsAre("open j-1 0", "close j-2 over", "close j-1 over"));
  ASSERT_EQ(answers_.size(), 4u);
  for (const int i : {0, 1}) {
    EXPECT_THAT(answers_[i].prepared().problems(),
                ElementsAre("stopped while its shard was opened"));
  }
  EXPECT_EQ(answers_[2].done().job_id(), "j-2");
  EXPECT_TRUE(answers_[2].done().released());
  EXPECT_EQ(answers_[3].done().job_id(), "j-1");
  EXPECT_TRUE(answers_[3].done().released());
}

TEST_F(PsCommandsTest, AJobThatWasStoppedMayComeAgain) {
  Run({StopOf("j-1"), PrepareOf("j-1", {kIncarnation})});
  EXPECT_THAT(server_.calls, ElementsAre("close j-1 over", "open j-1 0"));
}

TEST_F(PsCommandsTest, AJobThatCannotBeOpenedIsAProblem) {
  server_.open_result = absl::ResourceExhaustedError("12 GiB are not free");
  Run({PrepareOf("j-1", {kIncarnation})});
  ASSERT_EQ(answers_.size(), 1u);
  EXPECT_THAT(answers_[0].prepared().problems(),
              ElementsAre("12 GiB are not free"));
}

// The scheduler goes by these words: the checkpoint may be whole.
TEST_F(PsCommandsTest, ACheckpointThatIsNotThereIsUnseen) {
  SchedulerMessage prepare = PrepareOf("j-1", {kIncarnation});
  prepare.mutable_prepare()
      ->mutable_assignment()
      ->mutable_start_from()
      ->set_path("/is/not/mounted");
  Run({prepare});
  EXPECT_TRUE(server_.calls.empty());
  ASSERT_EQ(answers_.size(), 2u);
  EXPECT_EQ(answers_[0].report().job_id(), "j-1");
  EXPECT_EQ(answers_[0].report().activity(),
            "reading the checkpoint in /is/not/mounted");
  EXPECT_THAT(answers_[1].prepared().problems(),
              ElementsAre(HasSubstr(absl::StrCat(
                  ": checkpoint /is/not/mounted: ", kUnseenCheckpoint, ": "))));
}

// Of a job whose checkpoint was deleted, with another one in `dir`, of the path
// *instead.
SchedulerMessage PrepareWithoutStart(const TempDir& dir, std::string* instead) {
  SchedulerMessage prepare = PrepareOf("j-1", {kIncarnation});
  JobAssignment* const assignment =
      prepare.mutable_prepare()->mutable_assignment();
  assignment->set_attempt(2);
  assignment->mutable_spec()->mutable_checkpoint()->set_directory(dir.path());
  assignment->mutable_start_from()->set_path(
      absl::StrCat(dir.path(), "/j-1/", CheckpointName{5, 1}.ToString()));
  CheckpointParts parts;
  parts.cut_id = 2;
  parts.clocks = {7};
  parts.shards.resize(1);
  parts.shards[0].set_file(ShardFileName(0, 1));
  parts.shards[0].set_bytes(5);
  *instead = absl::StrCat(dir.path(), "/j-1/", CheckpointName{7, 2}.ToString());
  EXPECT_TRUE(MakeDirs(*instead).ok());
  EXPECT_TRUE(
      WriteManifest(*instead, *EncodeManifest(MakeManifest(*assignment, parts)))
          .ok());
  return prepare;
}

// Its place in the scheduler's record may be taken by them.
TEST_F(PsCommandsTest, WhatIsThereInsteadOfACheckpointIsTold) {
  const TempDir dir;
  std::string path;
  Run({PrepareWithoutStart(dir, &path)});
  ASSERT_EQ(answers_.size(), 2u);
  const JobPrepared& answer = answers_[1].prepared();
  EXPECT_THAT(answer.problems(), ElementsAre(HasSubstr(kDeletedCheckpoint)));
  ASSERT_EQ(answer.found_size(), 1);
  EXPECT_EQ(answer.found(0).checkpoint().path(), path);
}

// The disk that the stopped opening has left behind may hang still.
TEST_F(PsCommandsTest, BehindAStopNothingIsLookedFor) {
  const TempDir dir;
  std::string path;
  const SchedulerMessage prepare = PrepareWithoutStart(dir, &path);
  absl::Notification opening;
  absl::Notification stopped;
  server_.while_opening = [&](const GoOnCheck&) {
    opening.Notify();
    stopped.WaitForNotification();
    return absl::OkStatus();
  };
  {
    PsCommands commands(&server_, kIncarnation, [&](DaemonMessage answer) {
      answers_.push_back(std::move(answer));
    });
    commands.OnCommand(PrepareOf("j-0", {kIncarnation}));
    ASSERT_TRUE(opening.WaitForNotificationWithTimeout(absl::Seconds(60)));
    commands.OnCommand(prepare);
    commands.OnCommand(StopOf("j-1"));
    stopped.Notify();
  }
  ASSERT_EQ(answers_.size(), 3u);
  const JobPrepared& answer = answers_[1].prepared();
  EXPECT_EQ(answer.job_id(), "j-1");
  EXPECT_THAT(answer.problems(),
              ElementsAre("stopped while its shard was opened"));
  EXPECT_EQ(answer.found_size(), 0);
}

TEST_F(PsCommandsTest, AJobOfOthersIsNotOpened) {
  Run({PrepareOf("j-1", {5, 6})});
  EXPECT_TRUE(server_.calls.empty());
  ASSERT_EQ(answers_.size(), 1u);
  EXPECT_THAT(
      answers_[0].prepared().problems(),
      ElementsAre(HasSubstr("(incarnation 0x6258) is not among the ps")));
}

TEST_F(PsCommandsTest, ItsTablesAreReportedOnceMoreAtTheEnd) {
  server_.last_report.emplace().set_job_id("j-2");
  server_.last_report->add_tables()->set_name("users");
  Run({StopOf("j-2"), StopOf("j-2")});
  ASSERT_EQ(answers_.size(), 3u);
  EXPECT_EQ(answers_[0].ps_report().job_id(), "j-2");
  EXPECT_EQ(answers_[0].ps_report().tables(0).name(), "users");
  EXPECT_TRUE(answers_[1].done().released());
  EXPECT_TRUE(answers_[2].done().released());
}

TEST_F(PsCommandsTest, AStopForAnUnknownJobIsAnsweredToo) {
  Run({StopOf("j-9")});
  ASSERT_EQ(answers_.size(), 1u);
  EXPECT_TRUE(answers_[0].done().released());
}

TEST_F(PsCommandsTest, AStopForWantOfASchedulerSaysSo) {
  SchedulerMessage stop = StopOf("j-1");
  stop.mutable_stop()->set_reason(OrphanedText("h:9", absl::Seconds(3)));
  Run({StopOf("j-1"), stop});
  ASSERT_EQ(answers_.size(), 2u);
  EXPECT_EQ(answers_[0].done().message(), "");
  EXPECT_EQ(answers_[1].done().code(), 0);
  EXPECT_EQ(answers_[1].done().message(), stop.stop().reason());
}

TEST_F(PsCommandsTest, ALostWorkerIsTakenOutAtOnce) {
  SchedulerMessage message;
  message.mutable_remove_worker()->set_job_id("j-1");
  message.mutable_remove_worker()->set_rank(2);
  Run({message});
  EXPECT_THAT(server_.calls, ElementsAre("remove j-1 2"));
  EXPECT_TRUE(answers_.empty());
}

TEST_F(PsCommandsTest, WhatThePsHasOfALostWorkersLeasesIsAnswered) {
  SchedulerMessage remove;
  remove.mutable_remove_worker()->set_job_id("j-1");
  remove.mutable_remove_worker()->set_attempt(3);
  remove.mutable_remove_worker()->set_rank(2);
  WorkerTakenOut taken_out;
  taken_out.set_job_id("j-1");
  taken_out.add_shards()->set_begun_until(7);
  server_.taken_out = taken_out;
  Run({remove});
  ASSERT_EQ(answers_.size(), 1u);
  EXPECT_EQ(answers_[0].taken_out().shards(0).begun_until(), 7);

  SchedulerMessage leases;
  leases.mutable_return_leases()->set_job_id("j-1");
  leases.mutable_return_leases()->set_rank(2);
  leases.mutable_return_leases()->add_clocks(8);
  leases.mutable_return_leases()->add_clocks(11);
  Run({leases});
  EXPECT_THAT(server_.calls, ElementsAre("remove j-1 2", "return j-1 2 8,11"));
  EXPECT_EQ(answers_.size(), 1u);

  server_.taken_out = absl::FailedPreconditionError("not begun");
  Run({remove});
  ASSERT_EQ(answers_.size(), 2u);
  EXPECT_EQ(answers_[1].taken_out().job_id(), "j-1");
  EXPECT_EQ(answers_[1].taken_out().attempt(), 3u);
  EXPECT_EQ(answers_[1].taken_out().rank(), 2u);
  EXPECT_EQ(answers_[1].taken_out().refused(),
            "FAILED_PRECONDITION: not begun");
}

TEST_F(PsCommandsTest, OtherCommandsAreIgnored) {
  SchedulerMessage run;
  run.mutable_run()->set_job_id("j-1");
  Run({run});
  EXPECT_TRUE(server_.calls.empty());
  EXPECT_TRUE(answers_.empty());
}

}  // namespace
}  // namespace syncline::ps
