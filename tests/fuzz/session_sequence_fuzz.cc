// Goal: no sequence of messages from daemons and calls from people, in whatever
// order, crashes the scheduler or breaks what its decisions hold on to. Method:
// the bytes are read as events for a real ClusterCore; after each event the
// members and jobs are checked. tests/simulation has daemons that behave.

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_format.h"
#include "absl/types/span.h"
#include "common/base/check.h"
#include "proto/scheduler.pb.h"
#include "scheduler/core/cluster/cluster_core.h"
#include "scheduler/core/describe.h"

namespace syncline::scheduler {
namespace {

// Small numbers, so that events meet.
constexpr SessionId kSessionsMax = 24;
constexpr int kEventsMax = 300;

class Sequence {
 public:
  explicit Sequence(absl::Span<const uint8_t> input)
      : input_(input), core_(OptionsOf(Byte())) {
    core_.Restore({}, {}, now_, &actions_);
  }

  void Run() {
    for (int i = 0; i < kEventsMax && !input_.empty(); ++i) {
      actions_.clear();
      Event();
      core_.RecordEvents(now_, &actions_);
      Check();
    }
  }

 private:
  static ClusterCore::Options OptionsOf(uint8_t bits) {
    ClusterCore::Options options;
    options.version = "0.1.0";
    options.new_secret = [] { return std::string("0123456789abcdef"); };
    options.queue_max = 3;
    options.keep = absl::Minutes(1);
    options.confirms_addresses = (bits & 1) != 0;
    options.expects_evaluator = (bits & 2) != 0;
    options.ends_with_scheduler = (bits & 4) != 0;
    return options;
  }

  // 0 at the end of the input.
  uint8_t Byte() {
    if (input_.empty()) return 0;
    const uint8_t byte = input_.front();
    input_.remove_prefix(1);
    return byte;
  }
  SessionId Session() { return 1 + Byte() % kSessionsMax; }
  // "j-0001" to "j-0004".
  std::string JobId() { return absl::StrFormat("j-%04d", 1 + Byte() % 4); }

  void Event() {
    switch (Byte() % 16) {
      case 0:
      case 1:
        return Join();
      case 2:
      case 3:
        return Prepared();
      case 4:
        return Done();
      case 5:
        return Say(
            [](DaemonMessage* message) { message->mutable_heartbeat(); });
      case 6:
        return Raw();
      case 7:
        return core_.OnStreamClosed(Session(), now_, &actions_);
      case 8: {
        const SessionId session = Session();
        const absl::Status answer(static_cast<absl::StatusCode>(Byte() % 17),
                                  "an answer");
        return core_.OnAddressAnswer(session, answer, now_, &actions_);
      }
      case 9:
        now_ += absl::Milliseconds(100) * Byte();
        return core_.OnTick(now_, &actions_);
      case 10:
        return Submit();
      case 11:
        return People();
      case 12:
        return Use();
      case 13:
        return core_.OnRevoked(Session(), absl::UnauthenticatedError("revoked"),
                               now_, &actions_);
      case 14:
        return Unreachable();
      default:
        // Once in a while, or nothing else would happen.
        if (Byte() == 255) core_.Shutdown(1, "over", &actions_);
        return;
    }
  }

  void Join() {
    // The shell gives each stream a number of its own.
    if (next_session_ > kSessionsMax) return;
    const SessionId session = next_session_++;
    Register request;
    const uint8_t who = Byte();
    Member* const member = request.mutable_member();
    member->mutable_task()->set_type(static_cast<TaskType>(who % 5));
    member->mutable_task()->set_index(who / 5 % 3);
    member->set_address(absl::StrFormat("h%d:1", who % 15));
    member->set_incarnation(1 + Byte() % 12);
    member->set_version("0.1.0");
    const uint8_t more = Byte();
    request.set_auto_index((more & 1) != 0);
    if ((more & 2) != 0) {
      request.set_job_id(JobId());
      request.mutable_held()->set_attempt(Byte() % 4);
      request.mutable_held()->set_stage(
          static_cast<HeldJob::Stage>(Byte() % 5));
      request.mutable_held()->set_clock(Byte());
    }
    if ((more & 4) != 0) {
      request.set_scheduler_epoch(Byte() % 4);
      request.set_attempt(Byte() % 4);
      request.set_job_number(Byte() % 8);
    }
    core_.OnRegister(session, request, now_, &actions_);
  }

  template <typename Fill>
  void Say(const Fill& fill) {
    const SessionId session = Session();
    DaemonMessage message;
    fill(&message);
    core_.OnMessage(session, message, now_, &actions_);
  }
  void Prepared() {
    Say([&](DaemonMessage* message) {
      JobPrepared* const prepared = message->mutable_prepared();
      prepared->set_job_id(JobId());
      const uint8_t more = Byte();
      prepared->set_attempt(more % 4);
      if (more > 240) prepared->add_problems("a problem");
      prepared->set_clocks_per_epoch(10);
      prepared->set_clocks_total(100);
    });
  }
  void Done() {
    Say([&](DaemonMessage* message) {
      JobDone* const done = message->mutable_done();
      done->set_job_id(JobId());
      const uint8_t more = Byte();
      done->set_attempt(more % 4);
      done->set_released((more & 4) != 0);
      done->set_code(more >> 3 & 15);
      done->set_message("a message");
    });
  }
  void Unreachable() {
    Say([&](DaemonMessage* message) {
      PeerUnreachable* const peer = message->mutable_unreachable();
      peer->set_job_id(JobId());
      peer->set_attempt(Byte() % 4);
      peer->mutable_peer()->set_incarnation(1 + Byte() % 12);
      peer->set_seconds(Byte());
    });
  }
  // Whatever protobuf takes.
  void Raw() {
    const SessionId session = Session();
    const size_t wanted = Byte();
    const size_t bytes = std::min(wanted, input_.size());
    DaemonMessage message;
    const bool parsed =
        message.ParseFromArray(input_.data(), static_cast<int>(bytes));
    input_.remove_prefix(bytes);
    // The shell hands a Register of a stream on as a registration.
    if (!parsed || message.has_register_()) return;
    core_.OnMessage(session, message, now_, &actions_);
  }

  void Submit() {
    const uint8_t more = Byte();
    JobSpec spec;
    spec.mutable_resources()->set_workers(1 + more % 2);
    spec.mutable_resources()->set_ps(1 + (more >> 1) % 2);
    if ((more & 4) != 0) spec.mutable_data()->mutable_test();
    if ((more & 8) != 0) spec.mutable_restart()->set_max(2);
    auto job = core_.Prepare(spec, {}, {}, core_.NextJobId(), now_);
    if (job.ok()) core_.Submit(*std::move(job), now_, &actions_);
  }
  void People() {
    const uint8_t what = Byte();
    const std::string job_id = JobId();
    switch (what % 4) {
      case 0:
        (void)core_.Cancel(job_id, "a reason", now_, &actions_);
        return;
      case 1:
        (void)core_.TakeCheckpoint(job_id, now_, &actions_);
        return;
      case 2: {
        ProfileRequest request;
        request.set_job_id(job_id);
        request.set_rank(what / 4 % 3);
        request.set_steps(what);
        (void)core_.Profile(request, &actions_);
        return;
      }
      default: {
        ChangeRegimeRequest request;
        request.set_job_id(job_id);
        request.mutable_change()->set_mode(
            static_cast<ConsistencySpec::Mode>(what / 4 % 5));
        (void)core_.ChangeRegime(request, &actions_);
        return;
      }
    }
  }
  void Use() {
    const uint8_t who = Byte();
    SetMemberUseRequest request;
    request.mutable_task()->set_type(static_cast<TaskType>(who % 5));
    request.mutable_task()->set_index(who / 5 % 3);
    request.set_use(static_cast<SetMemberUseRequest::Use>(who / 15 % 4));
    if (!core_.CheckMemberUse(request, now_).ok()) return;
    core_.SetMemberUse(request, now_, &actions_);
  }

  void Check() {
    std::set<std::pair<int, uint32_t>> tasks;
    std::set<uint64_t> incarnations;
    for (const Membership::Entry* entry : core_.membership().All()) {
      const Task& task = entry->member.task();
      SYNCLINE_CHECK(tasks.emplace(task.type(), task.index()).second);
      SYNCLINE_CHECK(incarnations.insert(entry->member.incarnation()).second);
      SYNCLINE_CHECK(core_.membership().Find(entry->session) == entry);
    }
    size_t queued = 0;
    for (const Job* job : core_.Jobs()) {
      queued += job->status().state() == QUEUED ? 1 : 0;
    }
    SYNCLINE_CHECK(core_.queue_length() <= queued);
    std::map<std::string, size_t> members_of;
    const ClusterStatus cluster = core_.Cluster(now_);
    for (const auto& entry : cluster.members()) {
      // "(...)": why it is given no job.
      if (!entry.job_id().empty() && entry.job_id()[0] == 'j') {
        ++members_of[entry.job_id()];
      }
    }
    for (const Job* job : core_.Jobs()) CheckJob(*job, members_of);
    for (const ClusterAction& action : actions_) {
      const auto* send = std::get_if<SendCommand>(&action);
      if (send == nullptr) continue;
      SYNCLINE_CHECK(send->session != 0 && send->session < next_session_);
      SYNCLINE_CHECK(!send->message.SerializeAsString().empty());
    }
  }

  void CheckJob(const Job& job,
                const std::map<std::string, size_t>& members_of) {
    const JobStatus& status = job.status();
    const auto [seen, is_new] =
        seen_.emplace(status.job_id(), std::pair(status.state(), uint32_t{0}));
    // A job that is over stays as it is.
    if (IsFinal(seen->second.first)) {
      SYNCLINE_CHECK(status.state() == seen->second.first);
    }
    SYNCLINE_CHECK(status.attempt() >= seen->second.second);
    seen->second = {status.state(), status.attempt()};
    if (status.state() != RUNNING || job.stopping()) return;
    // It has a member for each of its tasks.
    const auto members = members_of.find(status.job_id());
    SYNCLINE_CHECK(members != members_of.end());
    SYNCLINE_CHECK(members->second >= status.spec().resources().ps());
  }

  absl::Span<const uint8_t> input_;
  absl::Time now_ = absl::UnixEpoch() + absl::Hours(1);
  ClusterActions actions_;
  ClusterCore core_;
  SessionId next_session_ = 1;
  // State and attempt.
  std::map<std::string, std::pair<JobState, uint32_t>> seen_;
};

}  // namespace
}  // namespace syncline::scheduler

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  syncline::scheduler::Sequence({data, size}).Run();
  return 0;
}
