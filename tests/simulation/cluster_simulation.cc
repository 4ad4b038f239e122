#include "tests/simulation/cluster_simulation.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/core/describe.h"

namespace syncline {
namespace {

constexpr int kWorkers = 5;
constexpr int kPs = 3;
constexpr int kEvaluators = 2;
constexpr absl::Duration kChaos = absl::Seconds(90);
// Of the many histories in which the scheduler dies often.
constexpr absl::Duration kShortChaos = absl::Seconds(30);
constexpr absl::Duration kPeace = absl::Minutes(10);
constexpr absl::Duration kTick = absl::Milliseconds(500);
// How long the connections of a scheduler live that does not answer.
constexpr absl::Duration kKeepAlive = absl::Seconds(10);
constexpr absl::Duration kKeepAliveTimeout = absl::Seconds(5);
// The part of a freeze that the core's clock counts (SlewedClock::kGapMax).
constexpr absl::Duration kCounted = absl::Seconds(1);

}  // namespace

scheduler::ClusterCore::Options ClusterSimulation::CoreOptions() const {
  scheduler::ClusterCore::Options options;
  options.new_secret = [] { return std::string("0123456789abcdef"); };
  options.version = "0.1.0";
  options.prepare_timeout = absl::Seconds(20);
  options.confirms_addresses = true;
  options.grow_pause = absl::Seconds(4);
  return options;
}

ClusterSimulation::ClusterSimulation(uint64_t seed, uint32_t attempts_max,
                                     bool restarts_often, bool elastic)
    : attempts_max_(attempts_max),
      restarts_often_(restarts_often),
      elastic_(elastic),
      random_(seed),
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
  const absl::Duration chaos = restarts_often_ ? kShortChaos : kChaos;
  const absl::Time chaos_end = now_ + chaos;
  for (size_t i = 0; i < daemons_.size(); ++i) {
    After(Delay(absl::Seconds(10)), [=, this] { Start(i); });
  }
  for (absl::Time t = now_; t < chaos_end + kPeace; t += kTick) {
    At(t, [this] { Tick(); });
  }
  const int jobs = restarts_often_ ? 2 + static_cast<int>(random_.Below(3))
                                   : 6 + static_cast<int>(random_.Below(10));
  for (int i = 0; i < jobs; ++i) After(Delay(chaos), [this] { Submit(); });
  const int misfortunes =
      static_cast<int>(random_.Below(restarts_often_ ? 10 : 40));
  for (int i = 0; i < misfortunes; ++i) {
    After(Delay(chaos), [this] { Wreak(); });
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
  // Of the scheduler that asks; it may be killed meanwhile.
  const auto answer = [=, this,
                       scheduler = restarts_](const absl::Status& status) {
    const auto take = [=, this] {
      if (scheduler != restarts_) return;
      Feed([&](scheduler::ClusterActions* a) {
        core_->OnAddressAnswer(ask.session, status, CoreNow(), a);
      });
    };
    if (!scheduler::IsAbsent(ask.session)) return Arrive(ask.session, take);
    At(frozen() ? awake_at_ + Delay(kCatchUp) : now_, take);
  };
  After(Delay(absl::Milliseconds(30)), [=, this] {
    const Daemon& daemon = daemons_[processes_.at(ask.incarnation)];
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
        scheduler::JobRecord record = (*job)->Record(CoreNow());
        durable_[persist->job_id] = {.status = std::move(record.status),
                                     .parameters = (*job)->parameters(),
                                     .tables = (*job)->tables(),
                                     .attempt = std::move(record.attempt)};
      }
    }
  }
}

// Until it starts again nothing is handled, as if it were frozen. Its daemons
// work on, and register with the next one; some stay away for longer than that
// waits for them.
void ClusterSimulation::KillScheduler() {
  ++restarts_;
  was_frozen_.clear();
  was_left_.clear();
  for (const auto& [id, seen] : seen_) {
    if (seen.state == PREPARING || seen.state == RUNNING) {
      was_left_[id] = seen.attempt;
    }
  }
  for (auto& [session, stream] : streams_) {
    stream.open = false;
    After(Delay(absl::Seconds(1)),
          [this, session = session] { OnStreamGone(session); });
  }
  awake_at_ =
      now_ + (Chance(0.3) ? absl::ZeroDuration() : Delay(absl::Seconds(20)));
  for (Daemon& daemon : daemons_) {
    if (chaos_ && Chance(0.03)) {
      daemon.away_until = awake_at_ + Delay(absl::Seconds(60));
    }
  }
  At(awake_at_, [this] { StartScheduler(); });
}

void ClusterSimulation::StartScheduler() {
  core_ = std::make_unique<scheduler::ClusterCore>(CoreOptions());
  std::vector<scheduler::StoredJob> jobs;
  for (const auto& [id, job] : durable_) jobs.push_back(job);
  Feed([&](scheduler::ClusterActions* a) {
    core_->Restore(jobs, {}, CoreNow(), a);
  });
  for (const scheduler::StoredJob& job : jobs) {
    const JobStatus& before = job.status;
    if (before.state() != PREPARING && before.state() != RUNNING) continue;
    const bool was_done =
        before.state() == RUNNING &&
        before.done_ranks_size() ==
            before.workers_size() + (before.has_evaluator() ? 1 : 0);
    const JobState after = (*core_->FindJob(before.job_id()))->status().state();
    if (after != (was_done ? SUCCEEDED : before.state())) {
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
  spec.mutable_evaluate()->set_checkpoints(spec.data().has_test() &&
                                           Chance(0.4));
  if (attempts_max_ > 1) {
    RestartSpec* const restart = spec.mutable_restart();
    restart->set_max(attempts_max_ - 1);
    restart->set_backoff_seconds(Chance(0.5) ? 0 : 0.5);
  }
  // Some workers never finish: the job must.
  spec.mutable_limits()->set_max_seconds(30);
  if (elastic_) MakeElastic(&spec);
  auto job = core_->Prepare(spec, {}, {}, core_->NextJobId(), CoreNow());
  if (absl::IsFailedPrecondition(job.status()) &&
      spec.evaluate().checkpoints() && !HasEvaluator()) {
    spec.clear_evaluate();
    job = core_->Prepare(spec, {}, {}, core_->NextJobId(), CoreNow());
  }
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

void ClusterSimulation::Wreak() {
  const size_t i = random_.Below(daemons_.size());
  const double kind = random_.Uniform();
  if (restarts_often_ && !frozen() && Chance(0.5)) return KillScheduler();
  if (elastic_ && Chance(0.5)) return ScaleSomething();
  if (kind < 0.35) {
    Kill(i);
  } else if (kind < 0.65) {
    BreakStream(i);
  } else if (kind < 0.82) {
    CancelSomething();
  } else if (frozen()) {
    return;
  } else if (kind < 0.92) {
    KillScheduler();
  } else {
    Freeze();
  }
}

}  // namespace syncline
