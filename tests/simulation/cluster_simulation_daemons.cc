// The simulated daemons: their streams, their part in jobs, and their ends.

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/job/checkpoint_trouble.h"
#include "scheduler/core/describe.h"
#include "tests/simulation/cluster_simulation.h"

namespace syncline {
namespace {

constexpr absl::Duration kBeat = absl::Seconds(1);

}  // namespace

void ClusterSimulation::Start(size_t i) {
  Daemon& daemon = daemons_[i];
  if (daemon.alive) return;
  daemon = {daemon.type, daemon.index, next_incarnation_++, /*alive=*/true};
  processes_[daemon.incarnation] = i;
  Connect(i);
}

void ClusterSimulation::Connect(size_t i) {
  Daemon& daemon = daemons_[i];
  if (!daemon.alive || daemon.session != 0) return;
  if (now_ < daemon.away_until) {
    return At(daemon.away_until, [=, this] { Connect(i); });
  }
  const scheduler::SessionId session = next_session_++;
  daemon.session = session;
  streams_[session] = {
      .daemon = i, .last_up = now_, .last_down = now_, .handled = now_};
  DaemonMessage hello;
  Register* reg = hello.mutable_register_();
  *reg->mutable_member() = MemberOf(daemon);
  reg->set_job_id(daemon.job_id);
  if (!daemon.job_id.empty()) {
    reg->mutable_held()->set_attempt(daemon.attempt);
    reg->mutable_held()->set_stage(daemon.running ? HeldJob::RUNS
                                                  : HeldJob::LOADING);
  }
  reg->set_attempt(daemon.attempt);
  Say(i, hello);
  Beat(i, session);
}

Member ClusterSimulation::MemberOf(const Daemon& daemon) {
  Member member;
  member.mutable_task()->set_type(daemon.type);
  member.mutable_task()->set_index(daemon.index);
  member.set_address("a:1");
  member.set_incarnation(daemon.incarnation);
  member.set_version("0.1.0");
  return member;
}

void ClusterSimulation::Beat(size_t i, scheduler::SessionId session) {
  if (daemons_[i].session != session || !daemons_[i].alive) return;
  DaemonMessage heartbeat;
  heartbeat.mutable_heartbeat();
  Say(i, heartbeat);
  After(kBeat, [=, this] { Beat(i, session); });
}

void ClusterSimulation::Kill(size_t i) {
  Daemon& daemon = daemons_[i];
  if (!daemon.alive) return;
  ++losses_;
  daemon.alive = false;
  const scheduler::SessionId session = std::exchange(daemon.session, 0);
  const absl::Time known = frozen() ? awake_at_ + kCatchUp : now_;
  for (auto& [id, stream] : streams_) {
    if (stream.daemon == i) stream.lost = std::min(stream.lost, known - lag_);
  }
  // The scheduler sees the connection break; or, where the machine went with
  // the process, nothing until the lease ends.
  daemon.machine_gone = Chance(0.3);
  if (session != 0 && (!daemon.machine_gone || Chance(0.3))) {
    After(Delay(absl::Milliseconds(50)), [=, this] { OnStreamGone(session); });
  }
  After(Delay(absl::Seconds(12)), [=, this] { Start(i); });
}

void ClusterSimulation::BreakStream(size_t i) {
  const scheduler::SessionId session = std::exchange(daemons_[i].session, 0);
  if (session == 0) return;
  ++losses_;
  if (chaos_ && Chance(0.1)) {
    daemons_[i].away_until = now_ + Delay(absl::Seconds(20));
  }
  // Messages that are under way may still arrive after the end.
  After(Delay(absl::Milliseconds(20)), [=, this] { OnStreamGone(session); });
  After(Delay(absl::Seconds(8)), [=, this] { Connect(i); });
}

void ClusterSimulation::OnStreamGone(scheduler::SessionId session) {
  Stream& stream = streams_[session];
  if (std::exchange(stream.open, false)) {
    Arrive(session, [=, this] {
      Feed([&](scheduler::ClusterActions* a) {
        core_->OnStreamClosed(session, CoreNow(), a);
      });
    });
  }
  Daemon& daemon = daemons_[stream.daemon];
  if (daemon.session == session) daemon.session = 0;
  if (daemon.alive) {
    After(Delay(absl::Seconds(2)), [this, i = stream.daemon] { Connect(i); });
  }
}

void ClusterSimulation::Say(size_t i, DaemonMessage message) {
  const scheduler::SessionId session = daemons_[i].session;
  if (!daemons_[i].alive) return;
  if (message.has_prepared() || message.has_done()) {
    daemons_[i].said.push_back(message);
  }
  Send(i, session, std::move(message));
}

void ClusterSimulation::Send(size_t i, scheduler::SessionId session,
                             const DaemonMessage& message) {
  if (session == 0 || !daemons_[i].alive) return;
  Stream& stream = streams_[session];
  stream.last_up =
      std::max(stream.last_up, now_ + Delay(absl::Milliseconds(30)));
  const bool twice = chaos_ && !message.has_register_() && Chance(0.1);
  repeated_ += twice ? 1 : 0;
  for (int copy = 0; copy < (twice ? 2 : 1); ++copy) {
    At(stream.last_up,
       [=, this] { Arrive(session, [=, this] { Take(session, message); }); });
  }
}

void ClusterSimulation::Take(scheduler::SessionId session,
                             const DaemonMessage& message) {
  // A message of a stream that has ended meanwhile must change nothing; one
  // that registers cannot come after its own end.
  if (message.has_register_()) {
    if (!streams_[session].open) return;
    Feed([&](scheduler::ClusterActions* a) {
      core_->OnRegister(session, message.register_(), CoreNow(), a);
    });
  } else {
    CheckLate(message, [&] {
      Feed([&](scheduler::ClusterActions* a) {
        core_->OnMessage(session, message, CoreNow(), a);
      });
    });
  }
}

void ClusterSimulation::Hear(size_t i, scheduler::SessionId session,
                             const SchedulerMessage& message) {
  const Daemon& daemon = daemons_[i];
  if (!daemon.alive || daemon.session != session) return;
  if (message.has_registered()) {
    for (const DaemonMessage& said : daemon.said) Send(i, session, said);
  }
  if (message.has_prepare()) OnPrepare(i, message.prepare().assignment());
  if (message.has_run()) OnRun(i, message.run());
  if (message.has_evaluate()) OnEvaluate(i, message.evaluate());
  if (message.has_stop()) OnStop(i, message.stop());
  if (message.has_write_checkpoint()) {
    OnWriteCheckpoint(i, message.write_checkpoint());
  }
}

void ClusterSimulation::OnPrepare(size_t i, const JobAssignment& assignment) {
  Daemon& daemon = daemons_[i];
  const std::string job_id = assignment.job_id();
  if (!daemon.job_id.empty()) {
    Violation(absl::StrCat(scheduler::TaskTypeName(daemon.type), daemon.index,
                           " is told to prepare ", job_id, " while it has ",
                           daemon.job_id));
  }
  const uint32_t attempt = assignment.attempt();
  CheckStart(assignment);
  if (elastic_) CheckSamples(assignment);
  daemon.job_id = job_id;
  daemon.attempt = attempt;
  daemon.start_clock = assignment.start_clock();
  daemon.clock = daemon.start_clock;
  daemon.is_chief =
      assignment.workers(0).member().incarnation() == daemon.incarnation;
  daemon.evaluates_checkpoints =
      assignment.spec().evaluate().checkpoints() && daemon.type == EVALUATOR;
  daemon.stopping = false;
  daemon.running = false;
  daemon.said.clear();
  if (chaos_ && Chance(0.02)) return;  // never answers
  const bool has_problem = chaos_ && Chance(0.05);
  const bool is_torn =
      chaos_ && daemon.type == PS && assignment.has_start_from() && Chance(0.3);
  const std::string torn = absl::StrCat(
      "checkpoint ", assignment.start_from().path(), ": ", kDamagedCheckpoint);
  After(Delay(absl::Seconds(2)), [=, this] {
    if (!WorksFor(i, job_id, attempt)) return;
    DaemonMessage message;
    message.mutable_prepared()->set_job_id(job_id);
    message.mutable_prepared()->set_attempt(attempt);
    if (has_problem) message.mutable_prepared()->add_problems("no data");
    if (is_torn) message.mutable_prepared()->add_problems(torn);
    Say(i, message);
  });
}

void ClusterSimulation::OnRun(size_t i, const RunJob& run) {
  const std::string& job_id = run.job_id();
  const uint32_t attempt = run.attempt();
  if (!WorksFor(i, job_id, attempt)) return Violation("run of another job");
  if (std::exchange(daemons_[i].running, true)) return;  // repeated
  if (daemons_[i].evaluates_checkpoints) return;         // as it is told
  for (int report = 1; report <= 3; ++report) {
    After(report * absl::Milliseconds(500), [=, this] {
      if (!WorksFor(i, job_id, attempt)) return;
      DaemonMessage message;
      message.mutable_report()->set_job_id(job_id);
      message.mutable_report()->set_attempt(attempt);
      const int64_t clock = ++daemons_[i].clock;
      message.mutable_report()->mutable_progress()->set_clock(clock);
      message.mutable_report()->mutable_progress()->set_clocks_total(clock + 3);
      message.mutable_report()->mutable_evaluation()->set_epoch(1);
      Say(i, message);
      if (attempts_max_ > 1 && daemons_[i].is_chief) SayCheckpoint(i, clock);
    });
  }
  if (chaos_ && Chance(0.03)) return;  // hangs
  const int code = !chaos_ || Chance(0.94) ? 0 : Chance(0.5) ? 14 : 3;
  // Longer where a job is to be moved.
  After(absl::Seconds(2) + Delay(absl::Seconds(elastic_ ? 20 : 4)), [=, this] {
    if (!WorksFor(i, job_id, attempt) || daemons_[i].stopping) return;
    // A scheduler that is down takes no file.
    if (daemons_[i].is_chief && code == 0 && !frozen()) {
      Artifact history;
      history.set_name("history.csv");
      Feed([&](scheduler::ClusterActions* a) {
        core_->AddArtifact(job_id, history, a).IgnoreError();
      });
    }
    DaemonMessage message;
    message.mutable_done()->set_job_id(job_id);
    message.mutable_done()->set_attempt(attempt);
    message.mutable_done()->set_code(code);
    Say(i, message);
  });
}

void ClusterSimulation::SayCheckpoint(size_t i, int64_t clock) {
  DaemonMessage message;
  WorkerReport* const report = message.mutable_report();
  report->set_job_id(daemons_[i].job_id);
  report->set_attempt(daemons_[i].attempt);
  if (Chance(0.3)) {
    report->set_activity("no checkpoint: disk full");
    report->set_checkpoint_error("disk full");
  } else {
    const auto path = [&](int64_t at) { return absl::StrCat("/c/", at); };
    report->mutable_checkpoint()->set_clock(clock);
    report->mutable_checkpoint()->set_path(path(clock));
    if (clock > 2) report->add_deleted_checkpoints(path(clock - 2));
  }
  Say(i, message);
}

void ClusterSimulation::OnWriteCheckpoint(size_t i,
                                          const WriteCheckpoint& write) {
  const std::string& job_id = write.job_id();
  const uint32_t attempt = write.attempt();
  if (!WorksFor(i, job_id, attempt) || !daemons_[i].is_chief) {
    return Violation("a checkpoint is asked of another member");
  }
  After(Delay(absl::Seconds(1)), [=, this] {
    if (!WorksFor(i, job_id, attempt) || daemons_[i].stopping) return;
    SayCheckpoint(i, ++daemons_[i].clock);
  });
}

void ClusterSimulation::OnEvaluate(size_t i,
                                   const EvaluateCheckpoint& command) {
  const std::string& job_id = command.job_id();
  const uint32_t attempt = command.attempt();
  if (!WorksFor(i, job_id, attempt)) return;  // it was stopped meanwhile
  if (!daemons_[i].evaluates_checkpoints) {
    return Violation("evaluate, to a member that does not");
  }
  if (chaos_ && Chance(0.02)) return;  // hangs
  // Slower than checkpoints come.
  After(Delay(absl::Seconds(2)), [=, this] {
    if (!WorksFor(i, job_id, attempt) || daemons_[i].stopping) return;
    DaemonMessage message;
    if (!command.has_checkpoint()) {
      message.mutable_done()->set_job_id(job_id);
      message.mutable_done()->set_attempt(attempt);
      return Say(i, message);
    }
    WorkerReport* const report = message.mutable_report();
    report->set_job_id(job_id);
    report->set_attempt(attempt);
    const CheckpointInfo& checkpoint = command.checkpoint();
    if (Chance(0.2)) {
      ++not_scored_;
      report->set_failed_checkpoint(checkpoint.path());
      report->set_evaluation_error("it is gone");
    } else {
      ++scored_;
      Evaluation* const evaluation = report->mutable_evaluation();
      evaluation->set_epoch(1);
      evaluation->set_clock(checkpoint.clock());
      evaluation->set_checkpoint(checkpoint.path());
    }
    answered_[job_id].insert(checkpoint.path());
    Say(i, message);
  });
}

void ClusterSimulation::OnStop(size_t i, const StopJob& stop) {
  const std::string& job_id = stop.job_id();
  const uint32_t attempt = stop.attempt();
  if (attempt != 0 && !daemons_[i].job_id.empty() &&
      !WorksFor(i, job_id, attempt)) {
    return Violation("stop of another attempt");
  }
  daemons_[i].stopping = true;
  if (chaos_ && Chance(0.04)) return;  // not this time: it will be asked again
  After(Delay(absl::Seconds(1)), [=, this] {
    Daemon& daemon = daemons_[i];
    if (daemon.job_id == job_id) daemon.job_id.clear();
    DaemonMessage message;
    message.mutable_done()->set_job_id(job_id);
    message.mutable_done()->set_attempt(attempt);
    message.mutable_done()->set_released(true);
    Say(i, message);
  });
}

}  // namespace syncline
