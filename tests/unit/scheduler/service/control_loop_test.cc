// Goal: what cannot be written is not promised, and what has happened is
// written as soon as it can be. Method: the real loop over a store that fails
// on demand.

#include "scheduler/service/control_loop.h"

#include <atomic>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <thread>

#include "absl/synchronization/notification.h"
#include "common/base/crc32c.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/eventually.h"
#include "tests/testing/fakes/wait_log.h"
#include "tests/testing/temp_dir.h"

namespace syncline::scheduler {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class FailingStore final : public StateStore {
 public:
  absl::StatusOr<Loaded> Load() const override { return Loaded(); }
  absl::Status PutNew(const StoredJob& job) override {
    return Put(JobRecord{job.status}, true);
  }
  absl::Status Put(const JobRecord& job, bool) override {
    MutexLock lock(&mu_);
    if (full_) return absl::ResourceExhaustedError("disk full");
    written.Add(job.status);
    return absl::OkStatus();
  }
  absl::Status PutUse(const SetMemberUseRequest&) override {
    return absl::OkStatus();
  }
  absl::Status PutEvent(const std::string&, const StoredEvent&,
                        uint64_t) override {
    return absl::OkStatus();
  }
  absl::Status Delete(const std::string&) override { return absl::OkStatus(); }
  void SetFull(bool full) {
    MutexLock lock(&mu_);
    full_ = full;
  }

  WaitLog<JobStatus> written;

 private:
  Mutex mu_;
  bool full_ ABSL_GUARDED_BY(mu_) = false;
};

class NoteWatcher final : public ControlLoop::Watcher {
 public:
  void OnStatus(std::shared_ptr<const JobStatus> status) override {
    seen.Add(status->state());
  }
  void OnDrain() override {}
  WaitLog<JobState> seen;
};

constexpr absl::Duration kIdleLimit = absl::Seconds(2);

class ControlLoopTest : public ::testing::Test {
 protected:
  ControlLoopTest()
      : artifacts_(*ArtifactStore::Open(dir_)),
        loop_({.core = {.version = "0.1.0"}, .idle_limit = kIdleLimit}, {},
              &store_, artifacts_.get(), &metrics_) {}
  ~ControlLoopTest() override { loop_.Stop(); }

  absl::StatusOr<std::string> Submit(ControlLoop* loop = nullptr) {
    const auto submission = SubmitWithKey("", "model", 1, loop);
    if (!submission.ok()) return submission.status();
    return submission->job_id;
  }
  absl::StatusOr<ControlLoop::Submission> SubmitWithKey(
      const std::string& key, const std::string& content = "model",
      uint32_t epochs = 1, ControlLoop* loop = nullptr) {
    auto model = *artifacts_->BeginUpload(100);
    FileChunk chunk;
    chunk.set_data(content);
    chunk.set_last(true);
    chunk.set_crc32c(Crc32c(content));
    EXPECT_TRUE(model->Append(chunk).ok());
    CheckedJob job;
    job.spec.mutable_resources()->set_workers(1);
    job.spec.mutable_training()->set_epochs(epochs);
    job.client_key = key;
    WaitLog<absl::StatusOr<ControlLoop::Submission>> outcome;
    (loop == nullptr ? loop_ : *loop)
        .Submit(job, model.get(), /*weights=*/nullptr,
                [&](auto s) { outcome.Add(s); });
    const auto outcomes = outcome.Await(1);
    EXPECT_EQ(outcomes.size(), 1);
    return outcomes.at(0);
  }

  const TempDir temp_;
  const std::filesystem::path dir_ = temp_.path();
  FailingStore store_;
  SchedulerMetrics metrics_{nullptr};
  std::unique_ptr<ArtifactStore> artifacts_;
  ControlLoop loop_;
};

TEST_F(ControlLoopTest, AJobThatCannotBeWrittenIsNotAccepted) {
  store_.SetFull(true);
  const auto refused = Submit();
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  loop_.Read([](const ClusterCore& core, absl::Time) {
    EXPECT_TRUE(core.Jobs().empty());
  });
  EXPECT_TRUE(std::filesystem::is_empty(dir_ / "jobs"));
  store_.SetFull(false);
  EXPECT_TRUE(Submit().ok());
}

TEST_F(ControlLoopTest, AStateThatCouldNotBeWrittenIsWrittenLater) {
  const std::string job_id = *Submit();
  store_.SetFull(true);
  WaitLog<absl::Status> cancelled;
  loop_.Cancel(job_id, "", [&](const auto& s) { cancelled.Add(s.status()); });
  ASSERT_EQ(cancelled.Await(1).size(), 1);
  EXPECT_THAT(cancelled.Await(1)[0].message(),
              HasSubstr("is cancelled, but the scheduler could not write"));
  EXPECT_EQ(store_.written.Await(1).back().state(), QUEUED);
  const absl::Status full = loop_.Healthy();
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(full.message(), "job records are not written: disk full");
  store_.SetFull(false);
  const auto written = store_.written.Await(2);
  ASSERT_EQ(written.size(), 2);
  EXPECT_EQ(written[1].state(), CANCELLED);
  EXPECT_TRUE(Eventually(kPatience, [&] { return loop_.Healthy().ok(); }));
}

TEST_F(ControlLoopTest, ARepeatedSubmissionFindsTheFirstJob) {
  const auto first = SubmitWithKey("nightly");
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_FALSE(first->repeated);
  const auto again = SubmitWithKey("nightly");
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->job_id, first->job_id);
  EXPECT_TRUE(again->repeated);
  EXPECT_NE(SubmitWithKey("weekly")->job_id, first->job_id);
  EXPECT_FALSE(SubmitWithKey("")->repeated);
  EXPECT_FALSE(SubmitWithKey("")->repeated);
  loop_.Read([](const ClusterCore& core, absl::Time) {
    EXPECT_EQ(core.Jobs().size(), 4u);
  });
}

TEST_F(ControlLoopTest, AnotherJobUnderTheSameKeyIsRefusedByWhatDiffers) {
  const auto first = SubmitWithKey("nightly");
  ASSERT_TRUE(first.ok()) << first.status();
  const auto other_spec = SubmitWithKey("nightly", "model", /*epochs=*/2);
  EXPECT_EQ(other_spec.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(other_spec.status().message()),
              AllOf(HasSubstr("nightly"), HasSubstr(first->job_id),
                    HasSubstr("training.epochs: 1 -> 2")));
  const auto other_model = SubmitWithKey("nightly", "other");
  EXPECT_EQ(other_model.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(other_model.status().message()),
              HasSubstr("the model file"));
}

TEST_F(ControlLoopTest, ADrainedLoopTakesNoWatch) {
  const std::string job_id = *Submit();
  loop_.Drain();
  const absl::Status watched =
      loop_.Watch(job_id, std::make_shared<NoteWatcher>());
  EXPECT_EQ(watched.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(watched.message()), HasSubstr("is stopping"));
}

TEST_F(ControlLoopTest, AnArtifactIsStoredWhenItsRecordIs) {
  const std::string job_id = *Submit();
  Artifact artifact;
  artifact.set_name("trained.onnx");
  const auto add = [&] {
    WaitLog<absl::Status> added;
    loop_.AddArtifact(job_id, artifact, [&](const auto& s) { added.Add(s); });
    return added.Await(1).at(0);
  };
  store_.SetFull(true);
  EXPECT_EQ(add().code(), absl::StatusCode::kResourceExhausted);
  store_.SetFull(false);
  EXPECT_TRUE(add().ok());
}

class NoteSession final : public ControlLoop::Session {
 public:
  void Send(const SchedulerMessage&) override {}
  void End(const absl::Status& status) override { ended.Add(status); }
  WaitLog<absl::Status> ended;
};

TEST_F(ControlLoopTest, AStreamThatDoesNotRegisterEnds) {
  const auto silent = std::make_shared<NoteSession>();
  const auto member = std::make_shared<NoteSession>();
  loop_.AddSession(silent);
  DaemonMessage hello;
  Member* self = hello.mutable_register_()->mutable_member();
  self->mutable_task()->set_type(WORKER);
  self->set_address("h:1");
  self->set_incarnation(1);
  self->set_version("0.1.0");
  loop_.OnMessage(loop_.AddSession(member), hello, [] {});
  const auto ended = silent->ended.Await(1);
  ASSERT_EQ(ended.size(), 1);
  EXPECT_EQ(ended[0].code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(member->ended.Await(0).empty());
}

// Keeps the questions for the test to answer.
class NoteConfirmer final : public AddressConfirmer {
 public:
  void Confirm(const std::string&, uint64_t,
               std::function<void(absl::Status)> done) override {
    asked.Add(std::move(done));
  }
  WaitLog<std::function<void(absl::Status)>> asked;
};

DaemonMessage Hello() {
  DaemonMessage hello;
  Member* self = hello.mutable_register_()->mutable_member();
  self->mutable_task()->set_type(WORKER);
  self->set_address("h:1");
  self->set_incarnation(1);
  self->set_version("0.1.0");
  return hello;
}

// A scheduler and its members that are told to end at the same time: what runs
// is marked by the scheduler's successor.
TEST_F(ControlLoopTest, ADrainedLoopLosesNobody) {
  NoteConfirmer confirmer;
  ControlLoop loop({.core = {.version = "0.1.0", .confirms_addresses = true},
                    .idle_limit = kIdleLimit,
                    .confirmer = &confirmer},
                   {}, &store_, artifacts_.get(), &metrics_);
  const std::string job_id = *Submit(&loop);
  const SessionId session = loop.AddSession(std::make_shared<NoteSession>());
  loop.OnMessage(session, Hello(), [] {});
  const auto asked = confirmer.asked.Await(1);
  ASSERT_EQ(asked.size(), 1);
  asked[0](absl::OkStatus());
  ASSERT_TRUE(Eventually(
      kPatience, [&] { return loop.Get(job_id)->state() == PREPARING; }));
  loop.OnClosed(session);
  const auto asked_again = confirmer.asked.Await(2);
  ASSERT_EQ(asked_again.size(), 2);
  loop.Drain();
  asked_again[1](absl::NotFoundError("connection refused"));
  absl::Notification handled;
  loop.Cancel("none", "", [&](const auto&) { handled.Notify(); });
  ASSERT_TRUE(handled.WaitForNotificationWithTimeout(kPatience));
  EXPECT_EQ(loop.Get(job_id)->state(), PREPARING);
}

TEST_F(ControlLoopTest, AReplacedSchedulerPromisesNothing) {
  std::atomic<bool> replaced = false;
  WaitLog<absl::Status> answers;
  ControlLoop loop({.core = {.version = "0.1.0"},
                    .idle_limit = kIdleLimit,
                    .check_owner =
                        [&replaced] {
                          return replaced
                                     ? absl::FailedPreconditionError("newer")
                                     : absl::OkStatus();
                        }},
                   {}, &store_, artifacts_.get(), &metrics_);
  const std::string job_id = *Submit(&loop);
  replaced = true;
  loop.Cancel(job_id, "", [&](const auto& s) { answers.Add(s.status()); });
  Artifact artifact;
  artifact.set_name("trained.onnx");
  loop.AddArtifact(job_id, artifact, [&](const auto& s) { answers.Add(s); });
  ProfileRequest profile;
  profile.set_job_id(job_id);
  loop.Profile(profile, [&](const auto& s) { answers.Add(s.status()); });
  ChangeRegimeRequest regime;
  regime.set_job_id(job_id);
  loop.ChangeRegime(regime, [&](const auto& s) { answers.Add(s.status()); });
  loop.TakeCheckpoint(job_id, [&](const auto& s) { answers.Add(s.status()); });
  SetMemberUseRequest use;
  loop.SetMemberUse(use, [&](const auto& s) { answers.Add(s.status()); });
  const auto all = answers.Await(6);
  ASSERT_EQ(all.size(), 6);
  for (const absl::Status& answer : all) {
    EXPECT_EQ(answer.code(), absl::StatusCode::kUnavailable) << answer;
  }
  EXPECT_EQ(loop.Get(job_id)->state(), QUEUED);
  loop.Stop();
}

// A member is asked once until it answers: a lost answer would leave it without
// jobs for as long as it lives.
TEST_F(ControlLoopTest, AnAnswerThatFindsTheQueueFullIsNotLost) {
  NoteConfirmer confirmer;
  absl::Notification held_up;
  absl::Notification go_on;
  std::atomic<bool> is_full = false;
  ControlLoop loop({.core = {.version = "0.1.0", .confirms_addresses = true},
                    .idle_limit = kIdleLimit,
                    .confirmer = &confirmer},
                   {}, &store_, artifacts_.get(), &metrics_);
  loop.OnMessage(loop.AddSession(std::make_shared<NoteSession>()), Hello(),
                 [] {});
  const auto asked = confirmer.asked.Await(1);
  ASSERT_EQ(asked.size(), 1);
  loop.Cancel("none", "", [&](const auto&) {
    held_up.Notify();
    go_on.WaitForNotificationWithTimeout(kPatience);
  });
  ASSERT_TRUE(held_up.WaitForNotificationWithTimeout(kPatience));
  const auto test_thread = std::this_thread::get_id();
  for (int i = 0; i < 1'000'000 && !is_full; ++i) {
    // Answered here and now: it was not queued.
    loop.Cancel("none", "", [&is_full, test_thread](const auto&) {
      if (std::this_thread::get_id() == test_thread) is_full = true;
    });
  }
  ASSERT_TRUE(is_full);
  asked[0](absl::OkStatus());
  go_on.Notify();
  EXPECT_TRUE(Eventually(kPatience, [&] {
    bool is_free = false;
    loop.Read([&](const ClusterCore& core, absl::Time now) {
      is_free = core.Cluster(now).members(0).job_id().empty();
    });
    return is_free;
  }));
}

class NoteTransfer final : public ControlLoop::Transfer {
 public:
  void EndIfIdle(absl::Time since) override { asked.Add(since); }
  WaitLog<absl::Time> asked;
};

TEST_F(ControlLoopTest, TransfersAreAskedAsLongAsTheyLive) {
  auto transfer = std::make_shared<NoteTransfer>();
  const absl::Time before = loop_.Now();
  loop_.AddTransfer(transfer);
  const auto asked = transfer->asked.Await(2);
  ASSERT_GE(asked.size(), 2);
  EXPECT_GE(asked[0], before - kIdleLimit);
  EXPECT_GT(asked[1], asked[0]);
}

TEST_F(ControlLoopTest, WatchersSeeTheStatusAtOnceAndTheEnd) {
  const std::string job_id = *Submit();
  const auto watcher = std::make_shared<NoteWatcher>();
  ASSERT_TRUE(loop_.Watch(job_id, watcher).ok());
  EXPECT_EQ(watcher->seen.Await(1).at(0), QUEUED);
  loop_.Cancel(job_id, "", [](const auto&) {});
  const auto seen = watcher->seen.AwaitThat(
      [](const auto& states) { return states.back() == CANCELLED; });
  EXPECT_EQ(seen.back(), CANCELLED);
  // One that comes late sees the end alone.
  const auto late = std::make_shared<NoteWatcher>();
  ASSERT_TRUE(loop_.Watch(job_id, late).ok());
  EXPECT_EQ(late->seen.Await(1).at(0), CANCELLED);
  EXPECT_EQ(loop_.Watch("j-4711", late).code(), absl::StatusCode::kNotFound);
}

TEST_F(ControlLoopTest, AStoppedLoopAnswers) {
  const std::string job_id = *Submit();
  loop_.Stop();
  EXPECT_EQ(Submit().status().code(), absl::StatusCode::kUnavailable);
  WaitLog<absl::Status> cancelled;
  loop_.Cancel(job_id, "", [&](const auto& s) { cancelled.Add(s.status()); });
  EXPECT_EQ(cancelled.Await(1).at(0).code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(loop_.Get(job_id).ok());
  // A revocation that the loop does not take is answered with false.
  EXPECT_FALSE(loop_.OnRevoked(1, absl::UnauthenticatedError("it is revoked")));
}

}  // namespace
}  // namespace syncline::scheduler
