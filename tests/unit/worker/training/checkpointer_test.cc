// Goal: a checkpoint is announced before any rank can be past it, is let go as
// soon as all have reached it, is made whole on another thread, and costs the
// job nothing where it fails. Method: an exchange that writes its calls down,
// whose disk takes as long as a test says.

#include "worker/training/checkpointer.h"

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/base/clock.h"
#include "common/regime/job_regimes.h"
#include "common/system/log.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/assigned_job.h"
#include "tests/testing/fakes/idle_exchange.h"
#include "tests/testing/job_builder.h"
#include "tests/testing/status_matchers.h"

namespace syncline::worker {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using LossScale = Checkpointer::LossScale;

// The disks, and what came of it.
struct Disks {
  void AwaitReady() {
    MutexLock lock(&mu);
    ++waiting;
    while (!ready && !cancelled) {
      changed.WaitUntil(&mu, MonotonicNow() + absl::Seconds(1));
    }
  }
  void Finish() {
    MutexLock lock(&mu);
    ready = true;
    changed.SignalAll();
  }
  Mutex mu;
  CondVar changed;
  bool ready = true;
  int waiting = 0;  // calls of AwaitReady so far
  bool cancelled = false;
  absl::Status error;  // of writing
  std::vector<std::string> manifests;
};

class FakeWriting final : public CheckpointWriting {
 public:
  FakeWriting(uint64_t cut_id, Disks* disks)
      : cut_id_(cut_id), disks_(*disks) {}

  uint64_t cut_id() const override { return cut_id_; }
  absl::StatusOr<std::vector<Part>> AwaitParts() override {
    disks_.AwaitReady();
    MutexLock lock(&disks_.mu);
    if (disks_.cancelled) return absl::CancelledError("stopped");
    if (!disks_.error.ok()) return disks_.error;
    return std::vector<Part>{
        {.file = "shard-00000-of-00001.state", .bytes = 1000}};
  }
  absl::StatusOr<Whole> Commit(const std::string& manifest) override {
    MutexLock lock(&disks_.mu);
    disks_.manifests.push_back(manifest);
    return Whole{.path = "/c/new", .deleted = {"/c/old"}};
  }
  void Cancel() override {
    MutexLock lock(&disks_.mu);
    disks_.cancelled = true;
    disks_.changed.SignalAll();
  }

 private:
  const uint64_t cut_id_;
  Disks& disks_;
};

class FakeExchange final : public IdleExchange {
 public:
  explicit FakeExchange(Disks* disks) : disks_(disks) {}

  absl::StatusOr<std::vector<int64_t>> BeginCut(const Cut& cut) override {
    EXPECT_EQ(cut.use, CutUse::kCheckpoint);
    EXPECT_NE(cut.id, 0u);
    log.push_back(absl::StrCat("begin ", absl::StrJoin(cut.clocks, ",")));
    if (!refusal.ok()) return refusal;
    return raised.empty() ? cut.clocks : raised;
  }
  absl::Status EndCut(uint64_t, int64_t clock) override {
    log.push_back(absl::StrCat("end ", clock));
    return end;
  }
  absl::Status AwaitCut(uint64_t, int64_t clock) override {
    log.push_back(absl::StrCat("await ", clock));
    return absl::OkStatus();
  }
  std::unique_ptr<CheckpointWriting> OpenCheckpoint(uint64_t cut_id) override {
    return std::make_unique<FakeWriting>(cut_id, disks_);
  }

  std::optional<int64_t> OwnClock() const override { return own_clock; }
  std::unique_ptr<CheckpointWriting> SaveAlone(uint64_t cut_id) override {
    log.push_back("save alone");
    if (on_save_alone != nullptr) on_save_alone();
    return std::make_unique<FakeWriting>(cut_id, disks_);
  }

  std::vector<std::string> log;
  std::optional<int64_t> own_clock;
  std::function<void()> on_save_alone;
  absl::Status refusal;
  absl::Status end;
  std::vector<int64_t> raised;

 private:
  Disks* const disks_;
};

class CheckpointerTest : public ::testing::Test {
 protected:
  void Open(ConsistencySpec::Mode mode = ConsistencySpec::SYNC) {
    JobSpec spec = DigitsJob();
    spec.mutable_checkpoint()->set_every_clocks(4);
    spec.mutable_consistency()->set_mode(mode);
    AssignedJob assigned = AssignToOne(spec, MlpModel(784, 8, 10));
    job_.assignment = assigned.assignment;
    // A second worker, which the model needs not know.
    *job_.assignment.add_workers() = job_.assignment.workers(0);
    job_.assignment.mutable_workers(1)->set_rank(1);
    auto regimes = ReadRegimes(job_.assignment);
    ASSERT_OK(regimes.status());
    job_.regimes = *std::move(regimes);
    checkpointer_.emplace(
        job_, Epochs{.steps_per_epoch = 10, .clocks_total = 20}, &exchange_,
        Checkpointer::Options{
            .model_crc32c = 9,
            .on_whole =
                [this](const CheckpointInfo& whole,
                       const std::vector<std::string>& deleted) {
                  whole_.push_back(whole);
                  deleted_ = deleted;
                },
            .on_trouble =
                [this](const std::string& why) { trouble_.push_back(why); },
            .on_refused =
                [this](const std::string& why) { refused_.push_back(why); },
            .on_saving =
                [this](const std::string&) {
                  if (!said_.HasBeenNotified()) said_.Notify();
                }});
  }
  // Makes the steps from `first` to before `end`.
  void Steps(int64_t first, int64_t end) {
    for (int64_t clock = first; clock < end; ++clock) {
      ASSERT_OK(checkpointer_->BeforeStep(clock, clock + 1));
      if (!checkpointer_->IsAtCut(clock + 1)) continue;
      ASSERT_OK(checkpointer_->Await(clock + 1));
      ASSERT_OK(checkpointer_->Write(clock + 1, loss_scale_));
    }
  }

  Disks disks_;
  FakeExchange exchange_{&disks_};
  PreparedJob job_;
  std::optional<LossScale> loss_scale_;
  // From the thread; read after Finish.
  std::vector<CheckpointInfo> whole_;
  std::vector<std::string> deleted_;
  std::vector<std::string> trouble_;
  std::vector<std::string> refused_;
  absl::Notification said_;  // that the chief saves the job alone
  std::optional<Checkpointer> checkpointer_;  // last
};

TEST_F(CheckpointerTest, ACutIsAnnouncedBeforeTheStepAndEndedAfterIt) {
  Open();
  Steps(0, 3);
  EXPECT_THAT(exchange_.log, IsEmpty());
  ASSERT_OK(checkpointer_->BeforeStep(3, 4));
  EXPECT_THAT(exchange_.log, ElementsAre("begin 4,4"));
  EXPECT_FALSE(checkpointer_->IsAtCut(3));
  ASSERT_TRUE(checkpointer_->IsAtCut(4));
  EXPECT_FALSE(checkpointer_->IsBehind(4));
  ASSERT_OK(checkpointer_->Await(4));
  ASSERT_OK(checkpointer_->Write(4, std::nullopt));
  EXPECT_THAT(exchange_.log, ElementsAre("begin 4,4", "await 4", "end 4"));
  checkpointer_->Finish();
  ASSERT_EQ(whole_.size(), 1u);
  EXPECT_EQ(whole_[0].clock(), 4);
  EXPECT_EQ(whole_[0].path(), "/c/new");
  EXPECT_EQ(whole_[0].bytes(), 1000u);
  EXPECT_THAT(deleted_, ElementsAre("/c/old"));
  EXPECT_THAT(trouble_, IsEmpty());
}

TEST_F(CheckpointerTest, TheManifestHasWhatTheRanksGoOnWith) {
  Open();
  loss_scale_.emplace();
  loss_scale_->set_scale(1024);
  loss_scale_->set_good_steps(3);
  Steps(0, 4);
  checkpointer_->Finish();
  ASSERT_EQ(disks_.manifests.size(), 1u);
  const auto manifest = DecodeManifest("test", disks_.manifests[0]);
  ASSERT_OK(manifest.status());
  EXPECT_EQ(manifest->clock(), 4);
  EXPECT_EQ(manifest->total_clocks(), 20);
  EXPECT_EQ(manifest->model_crc32c(), 9u);
  ASSERT_EQ(manifest->workers_size(), 2);
  EXPECT_EQ(manifest->workers(1).clock(), 4);
  EXPECT_EQ(manifest->workers(1).loss_scale().scale(), 1024);
  EXPECT_EQ(manifest->workers(1).loss_scale().good_steps(), 3u);
}

TEST_F(CheckpointerTest, TrainingDoesNotWaitForTheDisk) {
  Open();
  disks_.ready = false;
  // The next points are left out while it is written.
  Steps(0, 13);
  EXPECT_THAT(exchange_.log, ElementsAre("begin 4,4", "await 4", "end 4"));
  disks_.Finish();
  checkpointer_->Finish();
  ASSERT_EQ(whole_.size(), 1u);
  Steps(13, 16);
  checkpointer_->Finish();
  ASSERT_EQ(whole_.size(), 2u);
  EXPECT_EQ(whole_[1].clock(), 16);
}

TEST_F(CheckpointerTest, AFullDiskIsToldAndTheNextIsTried) {
  Open();
  disks_.error = absl::ResourceExhaustedError("ps:0 at h:1: disk full");
  Steps(0, 4);
  checkpointer_->Finish();
  EXPECT_THAT(trouble_, ElementsAre("at clock 4: ps:0 at h:1: disk full"));
  EXPECT_THAT(disks_.manifests, IsEmpty());
  disks_.error = absl::OkStatus();
  Steps(4, 8);
  checkpointer_->Finish();
  ASSERT_EQ(whole_.size(), 1u);
  EXPECT_EQ(whole_[0].clock(), 8);
}

TEST_F(CheckpointerTest, ACutThatIsNotToBeHadCostsNoJob) {
  Open();
  exchange_.refusal = absl::DeadlineExceededError("not agreed upon");
  Steps(0, 4);
  EXPECT_THAT(trouble_, ElementsAre("at clock 4: not agreed upon"));
  exchange_.refusal = absl::OkStatus();
  exchange_.end = absl::FailedPreconditionError("it was held for too long");
  Steps(4, 8);
  checkpointer_->Finish();
  EXPECT_THAT(trouble_, ElementsAre(HasSubstr("at clock 4"),
                                    HasSubstr("held for too long")));
  EXPECT_THAT(whole_, IsEmpty());
}

TEST_F(CheckpointerTest, InAsyncRanksAreCutWhereTheyAre) {
  Open(ConsistencySpec::ASYNC);
  exchange_.raised = {6, 9};
  ASSERT_OK(checkpointer_->BeforeStep(3, 4));
  EXPECT_THAT(exchange_.log, ElementsAre("begin 4,0"));
  EXPECT_FALSE(checkpointer_->IsAtCut(5));
  EXPECT_TRUE(checkpointer_->IsAtCut(6));
  EXPECT_TRUE(checkpointer_->IsBehind(6));
  EXPECT_FALSE(checkpointer_->IsBehind(9));
  ASSERT_OK(checkpointer_->Await(6));
  ASSERT_OK(checkpointer_->Write(6, std::nullopt));
  checkpointer_->Finish();
  ASSERT_EQ(whole_.size(), 1u);
  EXPECT_EQ(whole_[0].clock(), 6) << "the smallest of the cut";
}

// The chief makes clocks 2 and 5, and the cut between them is everyone's.
TEST_F(CheckpointerTest, LeasedClocksAreCutAtOneClockOfAllWorkers) {
  Open(ConsistencySpec::ASYNC);
  job_.assignment.mutable_spec()->mutable_data()->set_sharing(DataSpec::LEASED);
  ASSERT_OK(checkpointer_->BeforeStep(2, 5));
  EXPECT_THAT(exchange_.log, ElementsAre("begin 4,4"));
  EXPECT_FALSE(checkpointer_->IsAtCut(3));
  EXPECT_TRUE(checkpointer_->IsAtCut(4));
}

// As while the regime of a job changes.
TEST_F(CheckpointerTest, APointThatAnotherCutIsInTheWayOfIsMadeUpForOnce) {
  Open();
  for (int64_t clock = 2; clock < 6; ++clock) {
    checkpointer_->PutOff(clock, clock + 1);
  }
  Steps(6, 7);
  checkpointer_->Finish();
  Steps(7, 11);
  checkpointer_->Finish();
  EXPECT_THAT(exchange_.log, ElementsAre("begin 7,7", "await 7", "end 7",
                                         "begin 8,8", "await 8", "end 8"));
  EXPECT_THAT(trouble_, IsEmpty());
}

TEST_F(CheckpointerTest, ARequestIsMetAtTheNextStep) {
  Open();
  Steps(0, 2);
  checkpointer_->Request();
  checkpointer_->Request();  // the same one
  Steps(2, 3);
  EXPECT_THAT(exchange_.log, ElementsAre("begin 3,3", "await 3", "end 3"));
  checkpointer_->Finish();
  ASSERT_EQ(whole_.size(), 1u);
  EXPECT_EQ(whole_[0].clock(), 3);
  // The job's own points stay where they are.
  Steps(3, 7);
  checkpointer_->Finish();
  ASSERT_EQ(whole_.size(), 2u);
  EXPECT_EQ(whole_[1].clock(), 4);
  EXPECT_THAT(refused_, IsEmpty());
}

TEST_F(CheckpointerTest, ARequestWaitsForTheCheckpointThatIsBeingWritten) {
  Open();
  disks_.ready = false;
  Steps(0, 4);
  checkpointer_->Request();
  Steps(4, 6);
  EXPECT_EQ(exchange_.log.size(), 3u);
  disks_.Finish();
  checkpointer_->Finish();
  Steps(6, 7);
  checkpointer_->Finish();
  ASSERT_EQ(whole_.size(), 2u);
  EXPECT_EQ(whole_[1].clock(), 7);
}

TEST_F(CheckpointerTest, ARequestThatCannotBeMetIsRefusedWithTheReason) {
  Open();
  disks_.error = absl::ResourceExhaustedError("ps:0 at h:1: disk full");
  checkpointer_->Request();
  Steps(0, 1);
  checkpointer_->Finish();
  EXPECT_THAT(refused_, ElementsAre("at clock 1: ps:0 at h:1: disk full"));
  // One that was not asked for is no answer.
  Steps(1, 4);
  checkpointer_->Finish();
  EXPECT_EQ(trouble_.size(), 2u);
  EXPECT_EQ(refused_.size(), 1u);
  checkpointer_->Request();
  checkpointer_->EndSteps();
  checkpointer_->Request();
  EXPECT_THAT(refused_,
              ElementsAre(HasSubstr("disk full"), HasSubstr("last step"),
                          HasSubstr("last step")));
}

TEST_F(CheckpointerTest, AJobThatHasEndedWaitsForADiskForSomeStepTimeouts) {
  Open();
  job_.assignment.mutable_spec()->mutable_limits()->set_step_timeout_seconds(
      0.1);
  disks_.ready = false;
  Steps(0, 4);
  checkpointer_->Finish();
  EXPECT_THAT(whole_, IsEmpty());
  EXPECT_THAT(trouble_, ElementsAre(HasSubstr("at clock 4: it was not written "
                                              "in 8s after the job's last "
                                              "step: a disk hangs")));
}

TEST_F(CheckpointerTest, AJobThatIsStoppedWaitsForNoDisk) {
  Open();
  disks_.ready = false;
  Steps(0, 4);
  checkpointer_->Cancel();
  checkpointer_->Finish();
  EXPECT_THAT(whole_, IsEmpty());
  EXPECT_THAT(trouble_, IsEmpty());
}

TEST_F(CheckpointerTest, WhatThisRankHasIsSavedWithoutTheOthers) {
  Open();
  Steps(0, 6);
  checkpointer_->Finish();
  ASSERT_EQ(whole_.size(), 1u);
  exchange_.log.clear();
  exchange_.own_clock = 6;
  // As when the job is stopped, which gives up what is written.
  checkpointer_->Cancel();
  {
    MutexLock lock(&disks_.mu);
    disks_.cancelled = false;
  }
  checkpointer_->SaveAlone();
  EXPECT_THAT(exchange_.log, ElementsAre("save alone"));
  ASSERT_EQ(whole_.size(), 2u);
  EXPECT_EQ(whole_[1].clock(), 6);
  EXPECT_THAT(trouble_, IsEmpty());
  const auto manifest = DecodeManifest("test", disks_.manifests.back());
  ASSERT_OK(manifest.status());
  EXPECT_EQ(manifest->total_clocks(), 20);
  EXPECT_EQ(manifest->model_crc32c(), 9u);
  ASSERT_EQ(manifest->workers_size(), 2);
  EXPECT_EQ(manifest->workers(1).clock(), 6);
}

// The scheduler stops the attempt because of the same loss, a moment later.
TEST_F(CheckpointerTest, AStopOfTheAttemptDoesNotEndTheSaving) {
  for (const bool ends : {false, true}) {
    Open();
    whole_.clear();
    exchange_.log.clear();
    exchange_.own_clock = 6;
    disks_.ready = false;
    disks_.waiting = 0;
    std::thread saving([&] { checkpointer_->SaveAlone(); });
    // Until it waits for the disk.
    const auto waits = [&] {
      MutexLock lock(&disks_.mu);
      return disks_.waiting > 0;
    };
    while (!waits()) absl::SleepFor(absl::Milliseconds(1));
    checkpointer_->Cancel();
    if (ends) checkpointer_->EndSaving();  // a user's cancel does
    disks_.Finish();
    saving.join();
    EXPECT_EQ(whole_.size(), ends ? 0u : 1u);
  }
}

// State that comes from a GPU is long in coming.
TEST_F(CheckpointerTest, AStopDoesNotWaitForStateOfAGpu) {
  Open();
  exchange_.own_clock = 6;
  exchange_.on_save_alone = [this] {
    std::thread stop([this] {
      checkpointer_->Cancel();
      checkpointer_->EndSaving();
    });
    stop.join();
  };
  checkpointer_->SaveAlone();
  EXPECT_THAT(exchange_.log, Contains("save alone"));
  EXPECT_THAT(whole_, IsEmpty());
}

TEST_F(CheckpointerTest, TheSchedulerHearsOfASavingWhileStateComesFromAGpu) {
  Open();
  exchange_.own_clock = 6;
  exchange_.on_save_alone = [this] { said_.WaitForNotification(); };
  checkpointer_->SaveAlone();
  EXPECT_EQ(whole_.size(), 1u);
}

TEST_F(CheckpointerTest, ResidualsAreMissedWhereThereWereSome) {
  using Kind = GradientCompression::Kind;
  const auto log_of = [this](Kind kind, uint64_t warmup_clocks) {
    Open();
    TrainingRegime regime;
    regime.compression = {.kind = kind, .warmup_clocks = warmup_clocks};
    job_.regimes = RegimeSchedule(regime);
    exchange_.own_clock = 6;
    const JobLogCapture log(job_.assignment.job_id());
    checkpointer_->SaveAlone();
    return log.text();
  };
  const auto is_missed = HasSubstr("it begins anew");
  EXPECT_THAT(log_of(Kind::kNone, 0), Not(is_missed));
  EXPECT_THAT(log_of(Kind::kTopK, 0), is_missed);
  EXPECT_THAT(log_of(Kind::kDgc, 6), is_missed);
  EXPECT_THAT(log_of(Kind::kOneBitAdam, 6), Not(is_missed));
  EXPECT_THAT(log_of(Kind::kOneBitAdam, 5), is_missed);
}

TEST_F(CheckpointerTest, WhatACheckpointHasIsNotSavedAgain) {
  Open();
  exchange_.own_clock = 0;  // the job's start
  Steps(0, 4);
  checkpointer_->Finish();
  checkpointer_->SaveAlone();
  exchange_.own_clock = 4;
  checkpointer_->SaveAlone();
  exchange_.own_clock.reset();
  checkpointer_->SaveAlone();
  EXPECT_THAT(exchange_.log, Not(Contains("save alone")));
  // A disk that fails is told, and nothing else.
  exchange_.own_clock = 5;
  disks_.error = absl::ResourceExhaustedError("disk full");
  checkpointer_->SaveAlone();
  EXPECT_THAT(trouble_, ElementsAre("at clock 5: disk full"));
  EXPECT_EQ(whole_.size(), 1u);
}

TEST_F(CheckpointerTest, AJobWithoutCheckpointsHasNone) {
  JobSpec spec = DigitsJob();
  job_.assignment = AssignToOne(spec, MlpModel(784, 8, 10)).assignment;
  checkpointer_.emplace(job_, Epochs{10, 20}, &exchange_,
                        Checkpointer::Options{});
  Steps(0, 20);
  checkpointer_->Finish();
  EXPECT_THAT(exchange_.log, IsEmpty());
}

}  // namespace
}  // namespace syncline::worker
