#ifndef SYNCLINE_TESTS_UNIT_SCHEDULER_CORE_JOB_JOB_FIXTURE_H_
#define SYNCLINE_TESTS_UNIT_SCHEDULER_CORE_JOB_JOB_FIXTURE_H_

// The parts of job_test share one job of a chief, a worker and a ps, which is
// fed with one event at a time, at invented times.

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "scheduler/core/job/job.h"

namespace syncline::scheduler {

inline constexpr SessionId kChief = 1;
inline constexpr SessionId kWorker = 2;
inline constexpr SessionId kPs = 3;
inline constexpr int kUnavailable = 14;
inline constexpr int kDeadlineExceeded = 4;

class JobTest : public ::testing::Test {
 protected:
  // `restart`: the job's, if it has one.
  explicit JobTest(const std::optional<RestartSpec>& restart = std::nullopt)
      : job_(Stored(restart), Options()) {}

  static Job::Options Options() {
    return {.prepare_timeout = absl::Seconds(60), .grace = absl::Seconds(2)};
  }
  static StoredJob Stored(
      const std::optional<RestartSpec>& restart = std::nullopt) {
    StoredJob stored;
    stored.status.set_job_id("j-0001");
    stored.status.set_state(QUEUED);
    stored.status.add_transitions()->set_state(QUEUED);
    stored.status.mutable_spec()->mutable_limits()->set_max_seconds(100);
    stored.status.mutable_spec()->mutable_training()->set_epochs(1);
    if (restart.has_value()) {
      *stored.status.mutable_spec()->mutable_restart() = *restart;
    }
    return stored;
  }
  static Job::Place At(SessionId session, TaskType type, uint32_t index) {
    Job::Place place{session, {}};
    place.member.mutable_task()->set_type(type);
    place.member.mutable_task()->set_index(index);
    place.member.set_address("h:1");
    place.member.set_incarnation(session);
    return place;
  }

  void Start() {
    job_.Start({At(kChief, CHIEF, 0), At(kWorker, WORKER, 4)}, {At(kPs, PS, 7)},
               std::nullopt, "secret", now_, &actions_);
  }
  void Prepare(SessionId session, std::vector<std::string> problems = {}) {
    JobPrepared prepared;
    for (const auto& problem : problems) prepared.add_problems(problem);
    job_.OnPrepared(session, prepared, now_, &actions_);
  }
  void StartAndRun() {
    Start();
    for (const SessionId session : {kChief, kWorker, kPs}) Prepare(session);
  }
  void Report(SessionId session, int64_t clock) {
    WorkerReport report;
    report.mutable_progress()->set_clock(clock);
    report.mutable_progress()->set_clocks_total(1000);
    job_.OnReport(session, report, now_, &actions_);
  }
  void Done(SessionId session, int code = 0, const std::string& message = "") {
    JobDone done;
    done.set_code(code);
    done.set_message(message);
    job_.OnDone(session, done, now_, &actions_);
  }
  void Gone(SessionId session, const std::string& lost = "") {
    job_.OnGone(session, lost, now_, &actions_);
  }
  void Tick(absl::Duration later) {
    now_ += later;
    job_.OnTick(now_, &actions_);
  }
  JobState state() const { return job_.status().state(); }
  std::string reason() const {
    const JobStatus& status = job_.status();
    return status.transitions(status.transitions_size() - 1).reason();
  }
  // The members to which a command of this kind was sent.
  std::vector<SessionId> Told(SchedulerMessage::CommandCase command) const {
    std::vector<SessionId> sessions;
    for (const ClusterAction& action : actions_) {
      auto* send = std::get_if<SendCommand>(&action);
      if (send != nullptr && send->message.command_case() == command) {
        sessions.push_back(send->session);
      }
    }
    return sessions;
  }

  Job job_;
  absl::Time now_ = absl::UnixEpoch() + absl::Hours(1);
  ClusterActions actions_;
};

}  // namespace syncline::scheduler

#endif  // SYNCLINE_TESTS_UNIT_SCHEDULER_CORE_JOB_JOB_FIXTURE_H_
