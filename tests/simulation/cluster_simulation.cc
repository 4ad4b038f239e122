#include "tests/simulation/cluster_simulation.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/exit_codes.h"
#include "scheduler/core/describe.h"

namespace syncline {
namespace {

constexpr int kWorkers = 5;
constexpr int kPs = 3;
constexpr int kEvaluators = 2;
constexpr absl::Duration kChaos = absl::Seconds(90);
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
  options.retry = [max = attempts_max_](
                      const JobStatus& job, absl::string_view,
                      int exit_code) -> std::optional<int64_t> {
    if (exit_code != kExitRetryable || job.attempt() >= max) return {};
    return job.attempt();
  };
  return options;
}

ClusterSimulation::ClusterSimulation(uint64_t seed, uint32_t attempts_max)
    : attempts_max_(attempts_max),
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
    const JobState lost = before.attempt() < attempts_max_ ? QUEUED : FAILED;
    const bool begins_again = lost == QUEUED && after == PREPARING;
    if (after != (was_done ? SUCCEEDED : lost) && !begins_again) {
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
