#ifndef SYNCLINE_TESTS_UNIT_SCHEDULER_CORE_CLUSTER_CLUSTER_CORE_FIXTURE_H_
#define SYNCLINE_TESTS_UNIT_SCHEDULER_CORE_CLUSTER_CLUSTER_CORE_FIXTURE_H_

// The parts of cluster_core_test share a core that is fed with one event at a
// time, at invented times, and the actions that it answered with.

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "scheduler/core/cluster/cluster_core.h"

namespace syncline::scheduler {

inline ClusterCore::Options CoreOptions() {
  ClusterCore::Options options;
  options.new_secret = [] { return std::string("0123456789abcdef"); };
  options.version = "0.1.0";
  options.queue_max = 4;
  options.keep = absl::Hours(1);
  return options;
}

// How the process of this incarnation begins to store a file of its job.
inline UploadBegin UploadOf(const std::string& job_id, uint64_t incarnation) {
  UploadBegin begin;
  begin.set_job_id(job_id);
  begin.set_incarnation(incarnation);
  begin.set_attempt(1);
  begin.set_job_secret("0123456789abcdef");
  return begin;
}

class ClusterCoreTest : public ::testing::Test {
 protected:
  explicit ClusterCoreTest(const ClusterCore::Options& options = CoreOptions())
      : core_(options) {
    core_.Restore({}, {}, now_, &actions_);
  }

  void Join(SessionId session, TaskType type, uint32_t index,
            uint64_t incarnation, const std::string& job_id = "") {
    Register request;
    Member* member = request.mutable_member();
    member->mutable_task()->set_type(type);
    member->mutable_task()->set_index(index);
    member->set_address("h:1");
    member->set_incarnation(incarnation);
    member->set_version("0.1.0");
    request.set_job_id(job_id);
    actions_.clear();
    core_.OnRegister(session, request, now_, &actions_);
  }
  std::string Submit(uint32_t workers, uint32_t ps, bool with_test = false) {
    JobSpec spec;
    if (with_test) spec.mutable_data()->mutable_test();
    spec.mutable_resources()->set_workers(workers);
    spec.mutable_resources()->set_ps(ps);
    auto job = core_.Prepare(spec, {}, {}, core_.NextJobId(), now_);
    EXPECT_TRUE(job.ok()) << job.status();
    const std::string id = job->status.job_id();
    actions_.clear();
    core_.Submit(*job, now_, &actions_);
    return id;
  }
  void Prepared(SessionId session, const std::string& job_id) {
    DaemonMessage message;
    message.mutable_prepared()->set_job_id(job_id);
    actions_.clear();
    core_.OnMessage(session, message, now_, &actions_);
  }
  void Released(SessionId session, const std::string& job_id) {
    DaemonMessage message;
    message.mutable_done()->set_job_id(job_id);
    message.mutable_done()->set_released(true);
    actions_.clear();
    core_.OnMessage(session, message, now_, &actions_);
  }
  void Beat(SessionId session) {
    DaemonMessage message;
    message.mutable_heartbeat();
    core_.OnMessage(session, message, now_, &actions_);
  }
  void Tick(absl::Duration later) {
    now_ += later;
    actions_.clear();
    core_.OnTick(now_, &actions_);
  }
  // While these are heard of.
  void Pass(absl::Duration time, std::vector<SessionId> sessions) {
    for (const absl::Time end = now_ + time; now_ < end;) {
      for (const SessionId session : sessions) Beat(session);
      Tick(absl::Seconds(1));
    }
  }
  void Cancel(const std::string& job_id) {
    actions_.clear();
    EXPECT_TRUE(core_.Cancel(job_id, "", now_, &actions_).ok());
  }
  JobState State(const std::string& job_id) const {
    return (*core_.FindJob(job_id))->status().state();
  }
  std::string WaitingFor(const std::string& job_id) const {
    return (*core_.FindJob(job_id))->status().waiting_for();
  }
  // "1 registered" ...: the commands of the last event.
  std::vector<std::string> Commands() const {
    static constexpr const char* kNames[] = {
        "",        "registered",    "prepare",
        "run",     "stop",          "shutdown",
        "profile", "change regime", "write checkpoint"};
    std::vector<std::string> commands;
    for (const ClusterAction& action : actions_) {
      if (auto* send = std::get_if<SendCommand>(&action)) {
        commands.push_back(absl::StrCat(send->session, " ",
                                        kNames[send->message.command_case()]));
      }
    }
    return commands;
  }
  // The sessions that the last event ended, and why.
  std::vector<std::string> Ended() const {
    std::vector<std::string> ended;
    for (const ClusterAction& action : actions_) {
      if (auto* end = std::get_if<EndSession>(&action)) {
        ended.push_back(absl::StrCat(end->session, " ", end->status.message()));
      }
    }
    return ended;
  }

  absl::Time now_ = absl::UnixEpoch() + absl::Hours(1);
  ClusterActions actions_;
  ClusterCore core_;
};

// A core that asks members at their addresses; answers by hand.
class ClusterCoreAddressTest : public ClusterCoreTest {
 protected:
  ClusterCoreAddressTest() : ClusterCoreTest(Options()) {}
  static ClusterCore::Options Options() {
    ClusterCore::Options options = CoreOptions();
    options.confirms_addresses = true;
    return options;
  }
  std::vector<SessionId> Asked() const {
    std::vector<SessionId> asked;
    for (const ClusterAction& action : actions_) {
      if (auto* confirm = std::get_if<ConfirmAddress>(&action)) {
        EXPECT_EQ(confirm->address, "h:1");
        EXPECT_EQ(
            confirm->incarnation,
            core_.membership().Find(confirm->session)->member.incarnation());
        asked.push_back(confirm->session);
      }
    }
    return asked;
  }
  // How many lines the log gets.
  int Answer(SessionId session, const absl::Status& answer) {
    actions_.clear();
    core_.OnAddressAnswer(session, answer, now_, &actions_);
    int doubts = 0;
    for (const ClusterAction& action : actions_) {
      doubts += std::holds_alternative<AddressDoubted>(action) ? 1 : 0;
    }
    return doubts;
  }
  std::string JobOf(SessionId session) const {
    const Task& task = core_.membership().Find(session)->member.task();
    const ClusterStatus cluster = core_.Cluster(now_);
    for (const auto& entry : cluster.members()) {
      if (entry.member().task().type() == task.type() &&
          entry.member().task().index() == task.index()) {
        return entry.job_id();
      }
    }
    return "no member";
  }
};

}  // namespace syncline::scheduler

#endif  // SYNCLINE_TESTS_UNIT_SCHEDULER_CORE_CLUSTER_CLUSTER_CORE_FIXTURE_H_
