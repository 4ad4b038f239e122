// Goal: a daemon registers, comes back after a broken stream, waits out a
// predecessor's lease, gives up when it must, and does not work for a scheduler
// that is gone. Method: events with invented times; the actions are the result.

#include "common/cluster/session_core.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr absl::Time kStart = absl::UnixEpoch();

Member Self() {
  Member member;
  member.mutable_task()->set_type(WORKER);
  member.mutable_task()->set_index(2);
  member.set_address("127.0.0.1:1000");
  member.set_incarnation(7);
  return member;
}

// One word per action: what a shell would do.
std::vector<std::string> Words(const SessionActions& actions) {
  std::vector<std::string> words;
  for (const SessionAction& action : actions) {
    if (std::holds_alternative<OpenStream>(action)) words.push_back("open");
    if (std::holds_alternative<CloseStream>(action)) words.push_back("close");
    if (auto* write = std::get_if<WriteEvent>(&action)) {
      const DaemonMessage& event = write->event;
      if (event.has_register_()) words.push_back("register");
      if (event.has_heartbeat()) words.push_back("heartbeat");
      if (event.has_prepared()) words.push_back("prepared");
      if (event.has_report()) words.push_back("report");
      if (event.has_done()) words.push_back("done");
    }
    if (auto* deliver = std::get_if<DeliverCommand>(&action)) {
      words.push_back(deliver->command.has_stop() ? "stop" : "command");
    }
    if (std::holds_alternative<DeliverRegistered>(action)) {
      words.push_back("registered");
    }
    if (std::holds_alternative<DeliverRejected>(action)) {
      words.push_back("rejected");
    }
    if (std::holds_alternative<AnnounceLoss>(action)) words.push_back("lost");
  }
  return words;
}

class SessionCoreTest : public ::testing::Test {
 protected:
  explicit SessionCoreTest(bool auto_index = false)
      : core_({.scheduler_address = "sched:1",
               .self = Self(),
               .auto_index = auto_index,
               .connect_timeout = absl::Seconds(30),
               .task_taken_timeout = absl::Seconds(8),
               .orphan_timeout = absl::Seconds(60)}) {}

  std::vector<std::string> Start() {
    return Run([&](SessionActions* a) { core_.Start(now_, a); });
  }
  std::vector<std::string> Accept(uint32_t index = 2,
                                  bool ends_with_scheduler = false) {
    SchedulerMessage message;
    Registered* registered = message.mutable_registered();
    registered->mutable_task()->set_type(WORKER);
    registered->mutable_task()->set_index(index);
    registered->set_heartbeat_seconds(1);
    registered->set_lease_seconds(5);
    registered->set_ends_with_scheduler(ends_with_scheduler);
    return Run([&](SessionActions* a) { core_.OnMessage(message, now_, a); });
  }
  std::vector<std::string> End(const absl::Status& why) {
    return Run([&](SessionActions* a) { core_.OnStreamEnded(why, now_, a); });
  }
  std::vector<std::string> Send(const DaemonMessage& message) {
    return Run([&](SessionActions* a) { core_.Send(message, a); });
  }
  void Prepare(const std::string& job_id) {
    SchedulerMessage message;
    message.mutable_prepare()->mutable_assignment()->set_job_id(job_id);
    EXPECT_THAT(Run([&](auto* a) { core_.OnMessage(message, now_, a); }),
                ElementsAre("command"));
  }
  std::vector<std::string> Tick(absl::Duration later) {
    now_ += later;
    return Run([&](SessionActions* a) { core_.OnTick(now_, a); });
  }
  // Ticks until something happens, for at most `limit`.
  std::vector<std::string> TickUntilAction(absl::Duration limit) {
    for (const absl::Time end = now_ + limit; now_ < end;) {
      std::vector<std::string> words = Tick(absl::Milliseconds(100));
      if (!words.empty()) return words;
    }
    return {};
  }

  template <typename F>
  std::vector<std::string> Run(F event) {
    actions_.clear();
    event(&actions_);
    return Words(actions_);
  }
  const Register& LastRegister() {
    for (const SessionAction& action : actions_) {
      auto* write = std::get_if<WriteEvent>(&action);
      if (write != nullptr && write->event.has_register_()) {
        return write->event.register_();
      }
    }
    ADD_FAILURE() << "no Register was written";
    return Register::default_instance();
  }
  absl::Status Rejection() {
    for (const SessionAction& action : actions_) {
      auto* rejected = std::get_if<DeliverRejected>(&action);
      if (rejected != nullptr) return rejected->status;
    }
    return absl::OkStatus();
  }

  SessionCore core_;
  absl::Time now_ = kStart;
  SessionActions actions_;
};

class AutoIndexTest : public SessionCoreTest {
 protected:
  AutoIndexTest() : SessionCoreTest(/*auto_index=*/true) {}
};

DaemonMessage Done(const std::string& job_id) {
  DaemonMessage message;
  message.mutable_done()->set_job_id(job_id);
  message.mutable_done()->set_released(true);
  return message;
}

DaemonMessage Prepared(const std::string& job_id) {
  DaemonMessage message;
  message.mutable_prepared()->set_job_id(job_id);
  return message;
}

DaemonMessage PsHasReported() {
  DaemonMessage message;
  message.mutable_ps_report()->set_job_id("j-0001");
  return message;
}

absl::Status Refused() { return absl::UnavailableError("refused"); }

DaemonMessage Report() {
  DaemonMessage message;
  message.mutable_report()->set_job_id("j-0001");
  return message;
}

TEST_F(SessionCoreTest, RegistersAndBeatsOncePerPeriod) {
  EXPECT_THAT(Start(), ElementsAre("open", "register"));
  EXPECT_EQ(LastRegister().member().task().index(), 2);
  EXPECT_THAT(Accept(), ElementsAre("registered"));
  EXPECT_THAT(Tick(absl::Milliseconds(900)), IsEmpty());
  EXPECT_THAT(Tick(absl::Milliseconds(100)), ElementsAre("heartbeat"));
  EXPECT_THAT(Tick(absl::Milliseconds(900)), IsEmpty());
  EXPECT_THAT(Tick(absl::Milliseconds(100)), ElementsAre("heartbeat"));
}

TEST_F(SessionCoreTest, CommandsBeforeRegistrationAreIgnored) {
  Start();
  SchedulerMessage run;
  run.mutable_run()->set_job_id("j-0001");
  EXPECT_THAT(Run([&](auto* a) { core_.OnMessage(run, now_, a); }), IsEmpty());
  Accept();
  EXPECT_THAT(Run([&](auto* a) { core_.OnMessage(run, now_, a); }),
              ElementsAre("command"));
}

TEST_F(SessionCoreTest, ComesBackAfterABrokenStreamAndNamesItsJob) {
  Start();
  Accept();
  core_.SetRunningJob("j-0003");
  EXPECT_THAT(End(absl::UnavailableError("reset")), IsEmpty());
  EXPECT_THAT(TickUntilAction(absl::Seconds(1)),
              ElementsAre("open", "register"));
  EXPECT_EQ(LastRegister().job_id(), "j-0003");
  EXPECT_THAT(Accept(), ElementsAre("registered"));
}

TEST_F(SessionCoreTest, KeepsWhatTheSchedulerWouldMissWhileDisconnected) {
  Start();
  Accept();
  End(absl::UnavailableError("reset"));
  EXPECT_THAT(Send(Prepared("j-0001")), IsEmpty());
  EXPECT_THAT(Send(Report()), IsEmpty());
  EXPECT_THAT(Send(PsHasReported()), IsEmpty());
  EXPECT_THAT(Send(Done("j-0001")), IsEmpty());
  TickUntilAction(absl::Seconds(1));
  EXPECT_THAT(Accept(),
              ElementsAre("registered", "prepared", "report", "done"));
  EXPECT_THAT(Send(Report()), ElementsAre("report"));
}

// A message that left just before the stream broke may not have arrived.
TEST_F(SessionCoreTest, RepeatsItselfAfterEachRegistration) {
  Start();
  Accept();
  Prepare("j-0001");
  EXPECT_THAT(Send(Prepared("j-0001")), ElementsAre("prepared"));
  for (int i = 1; i <= 3; ++i) {
    DaemonMessage progress = Report();
    progress.mutable_report()->mutable_progress()->set_clock(i);
    DaemonMessage activity = Report();
    activity.mutable_report()->set_activity("reading");
    DaemonMessage evaluation = Report();
    evaluation.mutable_report()->mutable_evaluation()->set_clock(i);
    for (const auto& message : {progress, activity, evaluation}) Send(message);
  }
  Send(Done("j-0001"));
  for (int i = 0; i < 2; ++i) {
    End(absl::UnavailableError("reset"));
    ASSERT_THAT(TickUntilAction(absl::Seconds(1)),
                ElementsAre("open", "register"));
    // Three evaluations and the last progress. It waits for nothing any more.
    EXPECT_THAT(Accept(), ElementsAre("registered", "prepared", "report",
                                      "report", "report", "report", "done"));
  }
  Prepare("j-0002");
  End(absl::UnavailableError("reset"));
  TickUntilAction(absl::Seconds(1));
  EXPECT_EQ(LastRegister().job_id(), "j-0002");
  EXPECT_THAT(Accept(), ElementsAre("registered"));
}

DaemonMessage Activity(const std::string& text) {
  DaemonMessage message = Report();
  message.mutable_report()->set_activity(text);
  return message;
}

// The scheduler would take it for what the job waits for now.
TEST_F(SessionCoreTest, AWaitThatIsOverIsNotRepeated) {
  Start();
  Accept();
  Prepare("j-0001");
  Send(Activity("reading a.csv"));
  const auto after_a_break = [&] {
    End(absl::UnavailableError("reset"));
    TickUntilAction(absl::Seconds(1));
    return Accept();
  };
  EXPECT_THAT(after_a_break(), ElementsAre("registered", "report"));
  Send(Prepared("j-0001"));
  EXPECT_THAT(after_a_break(), ElementsAre("registered", "prepared"));
  Send(Activity("storing trained.onnx"));
  EXPECT_THAT(after_a_break(), ElementsAre("registered", "prepared", "report"));
  Send(Done("j-0001"));
  EXPECT_THAT(after_a_break(), ElementsAre("registered", "prepared", "done"));
}

// Where results are that were not stored stays true when the job has ended.
TEST_F(SessionCoreTest, ResultsThatWereKeptAreNamedAgain) {
  Start();
  Accept();
  Prepare("j-0001");
  Send(Activity("not stored: trained.onnx; kept on host-a in /w/r"));
  Send(Done("j-0001"));
  End(absl::UnavailableError("reset"));
  TickUntilAction(absl::Seconds(1));
  EXPECT_THAT(Accept(), ElementsAre("registered", "report", "done"));
}

// Its answers would be taken for those of the other job.
TEST_F(SessionCoreTest, AnotherJobOfTheSameIdIsNotAnsweredByTheFirst) {
  Start();
  Accept();
  Prepare("j-0001");
  Send(Prepared("j-0001"));
  Send(Done("j-0001"));
  core_.SetRunningJob("");
  Prepare("j-0001");
  End(absl::UnavailableError("reset"));
  TickUntilAction(absl::Seconds(1));
  EXPECT_EQ(LastRegister().job_id(), "j-0001");
  EXPECT_THAT(Accept(), ElementsAre("registered"));
  // The command may come again for the job that it prepares.
  Send(Prepared("j-0001"));
  Prepare("j-0001");
  End(absl::UnavailableError("reset"));
  TickUntilAction(absl::Seconds(1));
  EXPECT_THAT(Accept(), ElementsAre("registered", "prepared"));
}

TEST_F(SessionCoreTest, AnswersAreKeptBeforeReports) {
  Start();
  Accept();
  Prepare("j-0001");
  Send(Prepared("j-0001"));
  for (int i = 1; i <= 300; ++i) {
    DaemonMessage evaluation = Report();
    evaluation.mutable_report()->mutable_evaluation()->set_clock(i);
    Send(evaluation);
  }
  Send(Done("j-0001"));
  End(absl::UnavailableError("reset"));
  TickUntilAction(absl::Seconds(1));
  const std::vector<std::string> words = Accept();
  EXPECT_EQ(words.size(), 1 + 256);
  EXPECT_EQ(words[1], "prepared");
  EXPECT_EQ(words.back(), "done");
}

TEST_F(SessionCoreTest, KeepsABoundedNumberOfMessages) {
  Start();
  for (int i = 0; i < 300; ++i) Send(Done("j-0001"));
  EXPECT_EQ(Accept().size(), 1 + 256);
}

// A job that goes on for minutes without its scheduler.
TEST_F(SessionCoreTest, ManyReportsLoseNeitherDeletionsNorRegimes) {
  Start();
  Accept();
  Prepare("j-0001");
  End(absl::UnavailableError("reset"));
  DaemonMessage regime = Report();
  regime.mutable_report()->mutable_regime()->set_reason("r");
  Send(regime);
  for (int i = 1; i <= 200; ++i) {
    DaemonMessage checkpoint = Report();
    checkpoint.mutable_report()->mutable_checkpoint()->set_clock(i);
    checkpoint.mutable_report()->add_deleted_checkpoints(
        absl::StrCat("/c/", i - 1));
    Send(checkpoint);
    DaemonMessage evaluation = Report();
    evaluation.mutable_report()->mutable_evaluation()->set_clock(i);
    Send(evaluation);
  }
  TickUntilAction(absl::Seconds(1));
  EXPECT_EQ(Accept().size(), 1 + 256);
  int regimes = 0;
  int evaluations = 0;
  std::vector<std::string> deleted;
  for (const SessionAction& action : actions_) {
    const auto* write = std::get_if<WriteEvent>(&action);
    if (write == nullptr) continue;
    const WorkerReport& report = write->event.report();
    regimes += report.has_regime() ? 1 : 0;
    evaluations += report.has_evaluation() ? 1 : 0;
    deleted.insert(deleted.end(), report.deleted_checkpoints().begin(),
                   report.deleted_checkpoints().end());
  }
  EXPECT_EQ(regimes, 1);
  EXPECT_GT(evaluations, 100);
  ASSERT_EQ(deleted.size(), 200u);
  EXPECT_EQ(deleted.front(), "/c/0");
  EXPECT_EQ(deleted.back(), "/c/199");
}

TEST_F(SessionCoreTest, WaitsOutThePredecessorsLease) {
  Start();
  int attempts = 1;
  while (now_ < kStart + absl::Seconds(7)) {
    EXPECT_THAT(End(absl::AlreadyExistsError("held")), IsEmpty());
    ASSERT_THAT(TickUntilAction(absl::Seconds(1)),
                ElementsAre("open", "register"));
    ++attempts;
  }
  EXPECT_GT(attempts, 10);
  EXPECT_THAT(Accept(), ElementsAre("registered"));
}

TEST_F(SessionCoreTest, GivesUpATaskThatStaysTaken) {
  Start();
  const absl::Status held = absl::AlreadyExistsError("held by 10.0.0.1:5");
  while (End(held).empty() && now_ < kStart + absl::Minutes(1)) {
    TickUntilAction(absl::Seconds(1));
  }
  EXPECT_EQ(Rejection(), held);
  EXPECT_GE(now_ - kStart, absl::Seconds(8));
  EXPECT_LE(now_ - kStart, absl::Seconds(10));
  EXPECT_TRUE(core_.closed());
  EXPECT_THAT(Tick(absl::Seconds(1)), IsEmpty());
}

TEST_F(SessionCoreTest, RefusalsForGoodEndTheSessionAtOnce) {
  Start();
  EXPECT_THAT(End(absl::InvalidArgumentError("version 0.2.0")),
              ElementsAre("rejected"));
  EXPECT_THAT(Rejection().message(), HasSubstr("version 0.2.0"));
}

TEST_F(SessionCoreTest, AReplacedProcessEnds) {
  Start();
  Accept();
  End(absl::UnavailableError("reset"));
  TickUntilAction(absl::Seconds(1));
  EXPECT_THAT(End(absl::FailedPreconditionError("replaced")),
              ElementsAre("rejected"));
}

TEST_F(SessionCoreTest, ASchedulerThatIsNeverFoundIsNamed) {
  Start();
  while (End(absl::UnavailableError("connection refused")).empty() &&
         now_ < kStart + absl::Minutes(5)) {
    TickUntilAction(absl::Seconds(3));
  }
  EXPECT_GE(now_ - kStart, absl::Seconds(30));
  EXPECT_LE(now_ - kStart, absl::Seconds(33));
  EXPECT_THAT(Rejection().message(), HasSubstr("sched:1"));
  EXPECT_THAT(Rejection().message(), HasSubstr("connection refused"));
}

TEST_F(SessionCoreTest, OnceRegisteredItTriesForEver) {
  Start();
  Accept();
  for (int i = 0; i < 1000; ++i) {
    End(absl::UnavailableError("refused"));
    std::vector<std::string> words = TickUntilAction(absl::Seconds(3));
    if (words == std::vector<std::string>{"lost"}) {
      words = TickUntilAction(absl::Seconds(3));
    }
    ASSERT_THAT(words, ElementsAre("open", "register"));
  }
  EXPECT_GT(now_ - kStart, absl::Minutes(10));
}

TEST_F(SessionCoreTest, AnUnansweredRegisterIsGivenUp) {
  Start();
  EXPECT_THAT(Tick(absl::Milliseconds(9900)), IsEmpty());
  EXPECT_THAT(Tick(absl::Milliseconds(100)), ElementsAre("close"));
  EXPECT_THAT(Tick(absl::Seconds(1)), IsEmpty());  // asked once
  EXPECT_THAT(End(absl::CancelledError("by us")), IsEmpty());
  EXPECT_THAT(TickUntilAction(absl::Seconds(1)),
              ElementsAre("open", "register"));
}

TEST_F(SessionCoreTest, AnOrphanStopsItsJobOnce) {
  Start();
  Accept();
  core_.SetRunningJob("j-0001");
  Tick(absl::Minutes(10));
  End(absl::UnavailableError("reset"));
  const absl::Time lost = now_;
  int stops = 0;
  while (now_ < lost + absl::Minutes(3)) {
    for (const std::string& word : Tick(absl::Milliseconds(100))) {
      if (word == "open") End(absl::UnavailableError("refused"));
      if (word != "stop") continue;
      ++stops;
      EXPECT_GE(now_ - lost, absl::Seconds(60));
      EXPECT_LE(now_ - lost, absl::Seconds(61));
    }
  }
  EXPECT_EQ(stops, 1);
}

TEST_F(SessionCoreTest, ALossIsAnnouncedWithWhatFollows) {
  Start();
  Accept();
  core_.SetRunningJob("j-0001");
  End(absl::UnavailableError("reset"));
  const absl::Time lost = now_;
  int losses = 0;
  while (now_ < lost + absl::Seconds(30)) {
    for (const std::string& word : Tick(absl::Milliseconds(100))) {
      // Attempts to come back that fail are not losses.
      if (word == "open") core_.OnStreamEnded(Refused(), now_, &actions_);
    }
    for (const SessionAction& action : actions_) {
      auto* const loss = std::get_if<AnnounceLoss>(&action);
      if (loss == nullptr) continue;
      ++losses;
      EXPECT_GE(now_ - lost, absl::Seconds(2));
      EXPECT_LE(now_ - lost, absl::Seconds(3));
      EXPECT_EQ(loss->job_id, "j-0001");
      EXPECT_EQ(loss->wait, absl::Seconds(60));
      EXPECT_THAT(loss->then, HasSubstr("the job goes on until then"));
      EXPECT_EQ(loss->why.message(), "reset");
    }
  }
  EXPECT_EQ(losses, 1);
}

// As TLS connections are, now and then.
TEST_F(SessionCoreTest, ASessionThatIsRenewedIsNoLoss) {
  Start();
  Accept();
  for (int i = 0; i < 3; ++i) {
    End(absl::UnavailableError("max_age"));
    EXPECT_THAT(TickUntilAction(absl::Seconds(1)),
                ElementsAre("open", "register"));
    EXPECT_THAT(Accept(), ElementsAre("registered"));
    for (int tick = 0; tick < 50; ++tick) {
      EXPECT_THAT(Tick(absl::Milliseconds(100)),
                  testing::Not(testing::Contains("lost")));
    }
  }
}

// It says how far it is in its job, for a scheduler that starts anew.
TEST_F(SessionCoreTest, ItNamesTheStageOfItsJobWhenItComesBack) {
  Start();
  Accept();
  Register last;
  const auto back = [&]() -> HeldJob {
    End(absl::UnavailableError("reset"));
    TickUntilAction(absl::Seconds(1));
    last = LastRegister();
    Accept();
    return last.held();
  };
  EXPECT_EQ(back().stage(), HeldJob::STAGE_UNSPECIFIED);
  SchedulerMessage prepare;
  prepare.mutable_prepare()->mutable_assignment()->set_job_id("j-0007");
  prepare.mutable_prepare()->mutable_assignment()->set_attempt(3);
  prepare.mutable_prepare()->mutable_assignment()->set_start_clock(40);
  core_.OnMessage(prepare, now_, &actions_);
  HeldJob held = back();
  EXPECT_EQ(held.stage(), HeldJob::LOADING);
  EXPECT_EQ(held.attempt(), 3u);
  EXPECT_EQ(held.clock(), 40);
  Send(Prepared("j-0007"));
  held = back();
  EXPECT_EQ(held.stage(), HeldJob::PREPARED);
  EXPECT_EQ(held.prepared().job_id(), "j-0007");
  core_.OnMessage(prepare, now_, &actions_);  // repeated
  EXPECT_EQ(back().stage(), HeldJob::PREPARED);
  SchedulerMessage run;
  run.mutable_run()->set_job_id("j-0007");
  core_.OnMessage(run, now_, &actions_);
  DaemonMessage progress;
  progress.mutable_report()->set_job_id("j-0007");
  progress.mutable_report()->mutable_progress()->set_clock(55);
  Send(progress);
  held = back();
  EXPECT_EQ(held.stage(), HeldJob::RUNS);
  EXPECT_EQ(held.clock(), 55);
  Send(Done("j-0007"));
  held = back();
  EXPECT_EQ(held.stage(), HeldJob::DONE);
  EXPECT_TRUE(held.done().released());
  // Released, it has none; the largest numbers stay.
  core_.SetRunningJob("");
  EXPECT_EQ(back().stage(), HeldJob::STAGE_UNSPECIFIED);
  EXPECT_EQ(last.attempt(), 3u);
  EXPECT_EQ(last.job_number(), 7u);
}

// A scheduler that was frozen, and has been replaced, changes nothing.
TEST_F(SessionCoreTest, AnOlderSchedulerIsIgnored) {
  const auto registered = [&](uint64_t epoch) {
    SchedulerMessage message;
    message.set_scheduler_epoch(epoch);
    message.mutable_registered()->mutable_task()->set_type(WORKER);
    return Run([&](SessionActions* a) { core_.OnMessage(message, now_, a); });
  };
  const auto stop = [&](uint64_t epoch) {
    SchedulerMessage message;
    message.set_scheduler_epoch(epoch);
    message.mutable_stop()->set_job_id("j-0001");
    return Run([&](SessionActions* a) { core_.OnMessage(message, now_, a); });
  };
  Start();
  EXPECT_EQ(LastRegister().scheduler_epoch(), 0u);
  EXPECT_THAT(registered(8), ElementsAre("registered"));
  EXPECT_THAT(stop(7), IsEmpty());
  EXPECT_THAT(stop(8), ElementsAre("stop"));
  EXPECT_THAT(stop(9), ElementsAre("stop")) << "it has raised its epoch";
  End(absl::UnavailableError("reset"));
  TickUntilAction(absl::Seconds(1));
  EXPECT_EQ(LastRegister().scheduler_epoch(), 9u);
  EXPECT_THAT(registered(7), ElementsAre("close"));
  EXPECT_THAT(registered(7), IsEmpty());
  EXPECT_THAT(stop(7), IsEmpty());
  EXPECT_FALSE(core_.registered());
  EXPECT_THAT(End(absl::CancelledError("by us")), IsEmpty());
  ASSERT_THAT(TickUntilAction(absl::Seconds(2)),
              ElementsAre("open", "register"));
  EXPECT_THAT(registered(10), ElementsAre("registered"));
}

TEST_F(SessionCoreTest, WhoIsStillStoppingAnOrphanNamesItAgain) {
  Start();
  Accept();
  core_.SetRunningJob("j-0001");
  End(absl::UnavailableError("reset"));
  std::vector<std::string> words;
  for (int i = 0; i < 700; ++i) {
    for (const std::string& word : Tick(absl::Milliseconds(100))) {
      words.push_back(word);
      if (word == "open") End(absl::UnavailableError("refused"));
    }
  }
  ASSERT_THAT(words, testing::Contains("stop"));
  TickUntilAction(absl::Seconds(3));
  EXPECT_EQ(LastRegister().job_id(), "j-0001");
  // The next time it is lost it is stopped again.
  Accept();
  End(absl::UnavailableError("reset"));
  EXPECT_THAT(Tick(absl::Seconds(61)), testing::Contains("stop"));
}

TEST_F(SessionCoreTest, WhoEndsWithItsSchedulerDoesSoAfterTheOrphanTimeout) {
  Start();
  Accept(/*index=*/2, /*ends_with_scheduler=*/true);
  core_.SetRunningJob("j-0001");
  EXPECT_THAT(End(absl::UnavailableError("reset")), IsEmpty());
  std::vector<std::string> words;
  const absl::Time lost = now_;
  while (!core_.closed() && now_ < lost + absl::Minutes(5)) {
    for (const std::string& word : Tick(absl::Milliseconds(100))) {
      if (word == "open") End(absl::UnavailableError("refused"));
      if (word == "stop" || word == "rejected") words.push_back(word);
    }
  }
  EXPECT_THAT(words, ElementsAre("stop", "rejected"));
  EXPECT_LE(now_ - lost, absl::Seconds(61));
}

TEST_F(SessionCoreTest, WhoEndsWithItsSchedulerForgivesAShortLoss) {
  Start();
  Accept(/*index=*/2, /*ends_with_scheduler=*/true);
  for (int i = 0; i < 10; ++i) {
    End(absl::UnavailableError("reset"));
    now_ += absl::Seconds(30);
    TickUntilAction(absl::Seconds(1));
    EXPECT_THAT(Accept(2, true), testing::Contains("registered"));
  }
  EXPECT_FALSE(core_.closed());
}

TEST_F(SessionCoreTest, NoStopWithoutAJob) {
  Start();
  Accept();
  core_.SetRunningJob("j-0001");
  core_.SetRunningJob("");
  End(absl::UnavailableError("reset"));
  EXPECT_THAT(Tick(absl::Minutes(2)), ElementsAre("open", "register", "lost"));
}

TEST_F(AutoIndexTest, KeepsItsIndexAndTakesAnotherIfItIsGone) {
  Start();
  EXPECT_TRUE(LastRegister().auto_index());
  Accept(/*index=*/5);
  End(absl::UnavailableError("reset"));
  TickUntilAction(absl::Seconds(1));
  EXPECT_FALSE(LastRegister().auto_index());
  EXPECT_EQ(LastRegister().member().task().index(), 5);
  EXPECT_THAT(End(absl::AlreadyExistsError("held")), IsEmpty());
  TickUntilAction(absl::Seconds(1));
  EXPECT_TRUE(LastRegister().auto_index());
  EXPECT_THAT(Accept(/*index=*/6), ElementsAre("registered"));
}

TEST_F(SessionCoreTest, ASchedulerThatEndsTheClusterIsNotLost) {
  Start();
  Accept();
  SchedulerMessage message;
  message.mutable_shutdown()->set_exit_code(0);
  Run([&](SessionActions* a) { core_.OnMessage(message, now_, a); });
  End(absl::UnavailableError("the scheduler is stopping"));
  for (const SessionAction& action : actions_) {
    EXPECT_FALSE(std::holds_alternative<AnnounceLoss>(action));
  }
}

TEST_F(SessionCoreTest, AnEndOfTheRunningJobIsOfItsAttempt) {
  Start();
  Accept();
  SchedulerMessage prepare;
  JobAssignment* const assignment =
      prepare.mutable_prepare()->mutable_assignment();
  assignment->set_job_id("j-0001");
  assignment->set_attempt(3);
  Run([&](SessionActions* a) { core_.OnMessage(prepare, now_, a); });
  const auto attempt_of = [&](const std::string& job_id) {
    DaemonMessage message;
    message.mutable_done()->set_job_id(job_id);
    message.mutable_done()->set_message("it was told to stop (SIGTERM)");
    EXPECT_THAT(Send(message), ElementsAre("done"));
    return std::get<WriteEvent>(actions_[0]).event.done().attempt();
  };
  EXPECT_EQ(attempt_of("j-0001"), 3u);
  EXPECT_EQ(attempt_of("j-0000"), 0u);
}

}  // namespace
}  // namespace syncline
