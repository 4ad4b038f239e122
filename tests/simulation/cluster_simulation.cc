#include "tests/simulation/cluster_simulation.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "scheduler/core/describe.h"

namespace syncline {
namespace {

constexpr int kWorkers = 5;
constexpr int kPs = 3;
constexpr int kEvaluators = 2;
constexpr absl::Duration kChaos = absl::Seconds(90);
constexpr absl::Duration kPeace = absl::Minutes(10);
constexpr absl::Duration kTick = absl::Milliseconds(500);
constexpr absl::Duration kBeat = absl::Seconds(1);
// How long the connections of a scheduler live that does not answer.
constexpr absl::Duration kKeepAlive = absl::Seconds(10);
constexpr absl::Duration kKeepAliveTimeout = absl::Seconds(5);
// The part of a freeze that the core's clock counts (SlewedClock::kGapMax).
constexpr absl::Duration kCounted = absl::Seconds(1);
// Events that wait while it is frozen are handled within.
constexpr absl::Duration kCatchUp = absl::Milliseconds(200);
// A lease, the message that was under way, a tick, and a freeze before it.
constexpr absl::Duration kNoticedWithin = absl::Milliseconds(6800);

scheduler::ClusterCore::Options CoreOptions() {
  scheduler::ClusterCore::Options options;
  options.version = "0.1.0";
  options.prepare_timeout = absl::Seconds(20);
  options.confirms_addresses = true;
  return options;
}

}  // namespace

ClusterSimulation::ClusterSimulation(uint64_t seed)
    : random_(seed),
      core_(std::make_unique<scheduler::ClusterCore>(CoreOptions())) {
  for (uint32_t i = 0; i < kWorkers; ++i) {
    daemons_.push_back({i == 0 ? CHIEF : WORKER, i == 0 ? 0 : i - 1});
  }
  for (uint32_t i = 0; i < kPs; ++i) daemons_.push_back({PS, i});
  for (uint32_t i = 0; i < kEvaluators; ++i) {
    daemons_.push_back({EVALUATOR, i});
  }
}

void ClusterSimulation::Run() {
  const absl::Time chaos_end = now_ + kChaos;
  for (size_t i = 0; i < daemons_.size(); ++i) {
    After(Delay(absl::Seconds(10)), [=, this] { Start(i); });
  }
  for (absl::Time t = now_; t < chaos_end + kPeace; t += kTick) {
    At(t, [this] { Tick(); });
  }
  const int jobs = 6 + static_cast<int>(random_.Below(10));
  for (int i = 0; i < jobs; ++i) After(Delay(kChaos), [this] { Submit(); });
  const int misfortunes = static_cast<int>(random_.Below(40));
  for (int i = 0; i < misfortunes; ++i) {
    After(Delay(kChaos), [this] { Wreak(); });
  }
  RunUntil(chaos_end);
  chaos_ = false;
  for (size_t i = 0; i < daemons_.size(); ++i) Start(i);
  while (!IsQuiet() && now_ < chaos_end + kPeace) {
    RunUntil(now_ + absl::Seconds(10));
  }
  CheckEnd();
}

bool ClusterSimulation::IsQuiet() const {
  return core_->engaged_count() == 0 && core_->queue_length() == 0 &&
         std::all_of(daemons_.begin(), daemons_.end(), [&](const Daemon& d) {
           return core_->membership().Find(d.session) != nullptr;
         });
}

void ClusterSimulation::Tick() {
  if (frozen()) return;
  Feed([this](scheduler::ClusterActions* a) { core_->OnTick(CoreNow(), a); });
}

absl::Time ClusterSimulation::CoreNow() {
  core_now_ = std::max(core_now_, now_ - lag_);
  return core_now_;
}

// Its daemons find out that it does not answer, leave their streams, and
// register again as soon as they can: perhaps while it is frozen, so that it
// has the end of the old stream and the new one to handle, in any order.
void ClusterSimulation::Freeze() {
  CoreNow();  // stands here
  ++freezes_;
  const absl::Duration length = absl::Seconds(2) + Delay(absl::Seconds(28));
  awake_at_ = now_ + length;
  lag_ += std::max(length - kCounted, absl::ZeroDuration());
  if (length > kKeepAlive + kKeepAliveTimeout) {
    for (const auto& [id, seen] : seen_) {
      if (seen.state == RUNNING) was_frozen_.insert(id);
    }
  }
  for (size_t i = 0; i < daemons_.size(); ++i) {
    After(kKeepAliveTimeout + Delay(kKeepAlive),
          [=, this, session = daemons_[i].session] {
            if (frozen() && daemons_[i].session == session) BreakStream(i);
          });
  }
}

void ClusterSimulation::Arrive(scheduler::SessionId session,
                               std::function<void()> event) {
  absl::Time& handled = streams_[session].handled;
  handled = std::max(handled, frozen() ? awake_at_ + Delay(kCatchUp) : now_);
  At(handled, std::move(event));
}

void ClusterSimulation::Ask(const scheduler::ConfirmAddress& ask) {
  const auto answer = [=, this](const absl::Status& status) {
    Arrive(ask.session, [=, this] {
      Feed([&](scheduler::ClusterActions* a) {
        core_->OnAddressAnswer(ask.session, status, CoreNow(), a);
      });
    });
  };
  After(Delay(absl::Milliseconds(30)), [=, this] {
    const Daemon& daemon = daemons_[streams_[ask.session].daemon];
    if (chaos_ && Chance(0.05)) {
      return answer(absl::UnavailableError("socket closed"));
    }
    if (daemon.alive && daemon.incarnation == ask.incarnation) {
      return answer(absl::OkStatus());
    }
    if (daemon.alive) return answer(absl::FailedPreconditionError("another"));
    if (!daemon.machine_gone) return answer(absl::NotFoundError("refused"));
    After(absl::Seconds(3), [=] { answer(absl::DeadlineExceededError("")); });
  });
}

int ClusterSimulation::ended_in(JobState state) const {
  return static_cast<int>(std::count_if(
      seen_.begin(), seen_.end(),
      [=](const auto& job) { return job.second.state == state; }));
}

void ClusterSimulation::After(absl::Duration delay, std::function<void()> run) {
  At(now_ + delay, std::move(run));
}

void ClusterSimulation::At(absl::Time time, std::function<void()> run) {
  events_.push({time, next_order_++, std::move(run)});
}

void ClusterSimulation::RunUntil(absl::Time end) {
  while (!events_.empty() && events_.top().time <= end) {
    const Event event = events_.top();
    events_.pop();
    now_ = event.time;
    event.run();
  }
  now_ = end;
}

absl::Duration ClusterSimulation::Delay(absl::Duration most) {
  return random_.Uniform() * most;
}

bool ClusterSimulation::Chance(double probability) {
  return random_.Uniform() < probability;
}

void ClusterSimulation::Violation(const std::string& what) {
  violations_.push_back(
      absl::StrCat("at ", absl::FormatTime(now_), ": ", what));
}

void ClusterSimulation::Feed(
    const std::function<void(scheduler::ClusterActions*)>& event) {
  scheduler::ClusterActions actions;
  event(&actions);
  Check(actions);
  Execute(actions);
}

void ClusterSimulation::Execute(const scheduler::ClusterActions& actions) {
  for (const scheduler::ClusterAction& action : actions) {
    if (auto* send = std::get_if<scheduler::SendCommand>(&action)) {
      const auto stream = streams_.find(send->session);
      if (stream == streams_.end()) continue;
      absl::Time& last = stream->second.last_down;
      last = std::max(last, now_ + Delay(absl::Milliseconds(50)));
      At(last,
         [=, this, daemon = stream->second.daemon, session = send->session,
          message = send->message] { Hear(daemon, session, message); });
    } else if (auto* end = std::get_if<scheduler::EndSession>(&action)) {
      const scheduler::SessionId session = end->session;
      After(Delay(absl::Milliseconds(50)),
            [=, this] { OnStreamGone(session); });
    } else if (auto* ask = std::get_if<scheduler::ConfirmAddress>(&action)) {
      Ask(*ask);
    } else if (auto* persist = std::get_if<scheduler::PersistJob>(&action)) {
      // A write that is not synced may be lost with the machine.
      if (!persist->durable && Chance(0.5)) continue;
      const auto job = core_->FindJob(persist->job_id);
      if (job.ok()) {
        durable_[persist->job_id] = {(*job)->status(), (*job)->parameters(),
                                     (*job)->tables()};
      }
    }
  }
}

void ClusterSimulation::RestartScheduler() {
  ++restarts_;
  was_frozen_.clear();
  core_ = std::make_unique<scheduler::ClusterCore>(CoreOptions());
  for (auto& [session, stream] : streams_) {
    stream.open = false;
    After(Delay(absl::Seconds(1)),
          [this, session = session] { OnStreamGone(session); });
  }
  std::vector<scheduler::StoredJob> jobs;
  for (const auto& [id, job] : durable_) jobs.push_back(job);
  Feed([&](scheduler::ClusterActions* a) {
    core_->Restore(jobs, {}, CoreNow(), a);
  });
  for (const scheduler::StoredJob& job : jobs) {
    const JobStatus& before = job.status;
    if (before.state() != RUNNING) continue;
    const bool was_done =
        before.done_ranks_size() ==
        before.workers_size() + (before.has_evaluator() ? 1 : 0);
    const JobState after = (*core_->FindJob(before.job_id()))->status().state();
    if (after != (was_done ? SUCCEEDED : FAILED)) {
      Violation(absl::StrCat(before.job_id(), " is ", JobState_Name(after),
                             " after a restart"));
    }
  }
}

void ClusterSimulation::Submit() {
  if (frozen()) return At(awake_at_, [this] { Submit(); });
  JobSpec spec;
  spec.set_name("sim");
  spec.mutable_training()->set_epochs(1);
  spec.mutable_resources()->set_workers(
      1 + static_cast<uint32_t>(random_.Below(kWorkers)));
  spec.mutable_resources()->set_ps(1 +
                                   static_cast<uint32_t>(random_.Below(kPs)));
  if (Chance(0.7)) spec.mutable_data()->mutable_test()->mutable_digits();
  // Some workers never finish: the job must.
  spec.mutable_limits()->set_max_seconds(30);
  auto job = core_->Prepare(spec, {}, {}, core_->NextJobId(), CoreNow());
  if (!job.ok()) return Violation(job.status().ToString());
  const std::string id = job->status.job_id();
  durable_[id] = *job;
  seen_[id] = {QUEUED, 1};
  Feed(
      [&](scheduler::ClusterActions* a) { core_->Submit(*job, CoreNow(), a); });
}

void ClusterSimulation::CancelSomething() {
  if (frozen()) return;
  std::vector<std::string> open;
  for (const auto& [id, seen] : seen_) {
    if (!scheduler::IsFinal(seen.state)) open.push_back(id);
  }
  if (open.empty()) return;
  const std::string id = open[random_.Below(open.size())];
  Feed([&](scheduler::ClusterActions* a) {
    const absl::Status status = core_->Cancel(id, "", CoreNow(), a);
    if (!status.ok()) Violation(status.ToString());
  });
}

void ClusterSimulation::Check(const scheduler::ClusterActions& actions) {
  for (const scheduler::Job* job : core_->Jobs()) CheckJob(*job);
  // A job's start is on disk before any member or user is told of it.
  std::set<std::string> written;
  for (const scheduler::ClusterAction& action : actions) {
    if (auto* persist = std::get_if<scheduler::PersistJob>(&action)) {
      if (persist->durable) written.insert(persist->job_id);
    }
    auto* send = std::get_if<scheduler::SendCommand>(&action);
    if (send == nullptr || !send->message.has_prepare()) continue;
    const std::string& id = send->message.prepare().assignment().job_id();
    const bool is_repeated = durable_[id].status.state() != QUEUED;
    if (!is_repeated && !written.contains(id))
      Violation(absl::StrCat(id, " begins unwritten"));
  }
}

bool ClusterSimulation::FitsIntoTheCluster(const scheduler::Job& job) const {
  uint32_t workers = 0;
  uint32_t ps = 0;
  const ClusterStatus cluster = core_->Cluster(core_now_);
  for (const ClusterStatus::Entry& entry : cluster.members()) {
    const TaskType type = entry.member().task().type();
    if (type == EVALUATOR || absl::StartsWith(entry.job_id(), "(")) continue;
    ++(type == PS ? ps : workers);
  }
  const ResourcesSpec& need = job.status().spec().resources();
  return need.workers() <= workers && need.ps() <= ps;
}

// No member is blamed that lives and comes back in time.
void ClusterSimulation::CheckLoss(const std::string& reason) {
  for (const Daemon& daemon : daemons_) {
    if (!daemon.alive ||
        !absl::StartsWith(
            reason,
            absl::StrCat(scheduler::MemberTextWithIncarnation(MemberOf(daemon)),
                         " was lost"))) {
      continue;
    }
    const bool stayed_away =
        daemon.away_until != absl::InfinitePast() &&
        absl::StrContains(reason, "has not registered again");
    if (!stayed_away) Violation(absl::StrCat("wrong blame: ", reason));
  }
}

void ClusterSimulation::CheckJob(const scheduler::Job& job) {
  const JobStatus& status = job.status();
  Seen& seen = seen_[job.id()];
  if (status.state() != seen.state) {
    if (scheduler::IsFinal(seen.state) || status.state() < seen.state) {
      Violation(absl::StrCat(job.id(), " went from ", JobState_Name(seen.state),
                             " to ", JobState_Name(status.state())));
    }
    if (status.state() == FAILED) {
      CheckLoss(status.transitions().rbegin()->reason());
    }
    if (status.state() == SUCCEEDED && was_frozen_.contains(job.id())) {
      ++outlived_freezes_;
    }
    if (seen.state == QUEUED && status.state() == PREPARING) {
      for (const auto& [id, other] : seen_) {
        if (id < job.id() && other.state == QUEUED &&
            (*core_->FindJob(id))->status().state() == QUEUED &&
            FitsIntoTheCluster(**core_->FindJob(id))) {
          Violation(absl::StrCat(job.id(), " overtook ", id));
        }
      }
    }
  }
  if (status.transitions_size() < seen.transitions) {
    Violation(absl::StrCat(job.id(), " forgot a transition"));
  }
  seen = {status.state(), status.transitions_size()};
  if (job.stopping() || status.state() == QUEUED) return;
  // A job that goes on has all its members that are not done, and has them to
  // itself.
  const size_t needed = static_cast<size_t>(status.workers_size()) +
                        static_cast<size_t>(status.ps_size()) +
                        (status.has_evaluator() ? 1 : 0);
  const auto done = static_cast<size_t>(status.done_ranks_size());
  const size_t there = job.Participants().size();
  if (there > needed || there + done < needed) {
    Violation(absl::StrCat(job.id(), " goes on without a member"));
  }
  if (status.has_evaluator() && !status.spec().data().has_test()) {
    Violation(absl::StrCat(job.id(), " has nothing to evaluate"));
  }
  for (const scheduler::SessionId session : job.Participants()) {
    if (core_->membership().Find(session) == nullptr) {
      Violation(absl::StrCat(job.id(), " goes on with a lost member"));
    }
    if (CoreNow() - streams_[session].lost > kNoticedWithin) {
      Violation(absl::StrCat(job.id(), " does not notice a dead member"));
    }
  }
}

void ClusterSimulation::CheckEnd() {
  for (const auto& [id, seen] : seen_) {
    if (!scheduler::IsFinal(seen.state)) {
      Violation(absl::StrCat(id, " ends as ", JobState_Name(seen.state)));
    }
  }
  if (core_->membership().size() != daemons_.size()) {
    Violation(absl::StrCat(core_->membership().size(), " members at the end"));
  }
  if (core_->engaged_count() != 0) {
    Violation(absl::StrCat(core_->engaged_count(), " members are never freed"));
  }
  for (const Daemon& daemon : daemons_) {
    if (core_->membership().Find(daemon.session) == nullptr) {
      Violation(absl::StrCat(scheduler::TaskTypeName(daemon.type), daemon.index,
                             " is no member at the end"));
    }
    if (!daemon.job_id.empty()) {
      Violation(absl::StrCat(scheduler::TaskTypeName(daemon.type), daemon.index,
                             " still works for ", daemon.job_id));
    }
  }
}

void ClusterSimulation::Start(size_t i) {
  Daemon& daemon = daemons_[i];
  if (daemon.alive) return;
  daemon = {daemon.type, daemon.index, next_incarnation_++, /*alive=*/true};
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
    Feed([&](scheduler::ClusterActions* a) {
      core_->OnMessage(session, message, CoreNow(), a);
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
  if (message.has_run()) OnRun(i, message.run().job_id());
  if (message.has_stop()) OnStop(i, message.stop().job_id());
}

void ClusterSimulation::OnPrepare(size_t i, const JobAssignment& assignment) {
  Daemon& daemon = daemons_[i];
  const std::string job_id = assignment.job_id();
  if (!daemon.job_id.empty()) {
    Violation(absl::StrCat(scheduler::TaskTypeName(daemon.type), daemon.index,
                           " is told to prepare ", job_id, " while it has ",
                           daemon.job_id));
  }
  daemon.job_id = job_id;
  daemon.stopping = false;
  daemon.running = false;
  daemon.said.clear();
  if (chaos_ && Chance(0.02)) return;  // never answers
  const bool has_problem = chaos_ && Chance(0.05);
  After(Delay(absl::Seconds(2)), [=, this] {
    if (daemons_[i].job_id != job_id) return;
    DaemonMessage message;
    message.mutable_prepared()->set_job_id(job_id);
    if (has_problem) message.mutable_prepared()->add_problems("no data");
    Say(i, message);
  });
}

void ClusterSimulation::OnRun(size_t i, const std::string& job_id) {
  if (daemons_[i].job_id != job_id) return Violation("run of another job");
  if (std::exchange(daemons_[i].running, true)) return;  // repeated
  for (int report = 1; report <= 3; ++report) {
    After(report * absl::Milliseconds(500), [=, this] {
      if (daemons_[i].job_id != job_id) return;
      DaemonMessage message;
      message.mutable_report()->set_job_id(job_id);
      message.mutable_report()->mutable_progress()->set_clock(report);
      message.mutable_report()->mutable_progress()->set_clocks_total(3);
      message.mutable_report()->mutable_evaluation()->set_epoch(1);
      Say(i, message);
    });
  }
  if (chaos_ && Chance(0.03)) return;  // hangs
  const int code = !chaos_ || Chance(0.94) ? 0 : Chance(0.5) ? 14 : 3;
  After(absl::Seconds(2) + Delay(absl::Seconds(4)), [=, this] {
    if (daemons_[i].job_id != job_id || daemons_[i].stopping) return;
    DaemonMessage message;
    message.mutable_done()->set_job_id(job_id);
    message.mutable_done()->set_code(code);
    Say(i, message);
  });
}

void ClusterSimulation::OnStop(size_t i, const std::string& job_id) {
  daemons_[i].stopping = true;
  if (chaos_ && Chance(0.04)) return;  // not this time: it will be asked again
  After(Delay(absl::Seconds(1)), [=, this] {
    Daemon& daemon = daemons_[i];
    if (daemon.job_id == job_id) daemon.job_id.clear();
    DaemonMessage message;
    message.mutable_done()->set_job_id(job_id);
    message.mutable_done()->set_released(true);
    Say(i, message);
  });
}

void ClusterSimulation::Wreak() {
  const size_t i = random_.Below(daemons_.size());
  const double kind = random_.Uniform();
  if (kind < 0.35) {
    Kill(i);
  } else if (kind < 0.65) {
    BreakStream(i);
  } else if (kind < 0.82) {
    CancelSomething();
  } else if (frozen()) {
    return;
  } else if (kind < 0.92) {
    RestartScheduler();
  } else {
    Freeze();
  }
}

}  // namespace syncline
