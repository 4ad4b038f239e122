#include "scheduler/core/job/job_event_log.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "common/base/utf8.h"
#include "common/job/auto_regime_rules.h"
#include "common/job/checkpoint_trouble.h"
#include "common/job/evaluate_validator.h"
#include "common/job/regime_rules.h"
#include "scheduler/core/describe.h"
#include "scheduler/core/job/job_checkpoints.h"
#include "scheduler/core/job/regime_history.h"

namespace syncline::scheduler {
namespace {

// A record that has had so many transitions loses an attempt's when it gets
// another one (Job::Transition).
constexpr int kTransitionsLeftOut = 3;

std::string MembersText(const JobStatus& job) {
  std::string text;
  const auto add = [&text](const Participant& participant) {
    absl::StrAppend(&text, text.empty() ? "" : ", ",
                    MemberText(participant.member()));
  };
  for (const Participant& worker : job.workers()) add(worker);
  for (const Participant& ps : job.ps()) add(ps);
  if (job.has_evaluator()) add(job.evaluator());
  return text;
}

std::string CheckpointText(const JobStatus& job,
                           const CheckpointInfo& checkpoint) {
  return absl::StrFormat(
      "at clock %d, %d bytes in %.1f s, in %s%s", checkpoint.clock(),
      checkpoint.bytes(), checkpoint.seconds(), checkpoint.path(),
      LacksResiduals(job, checkpoint)
          ? "; the chief has saved it by itself: residuals of compression "
            "begin anew, so the bits from there on are not those of a job that "
            "was not interrupted"
          : "");
}

// A job that trains nothing has no epochs.
std::string EvaluationText(const Evaluation& evaluation, const JobSpec& spec) {
  const std::string epoch =
      OnlyEvaluates(spec) ? "" : absl::StrCat(", epoch ", evaluation.epoch());
  return absl::StrFormat("at clock %d%s: test loss %.6g%s%s",
                         evaluation.clock(), epoch, evaluation.loss(),
                         evaluation.best() ? ", best" : "",
                         evaluation.final() ? ", the last" : "");
}

std::string ChangeText(const JobStatus& job, int entry) {
  const RegimeTransition& regime = job.regimes(entry);
  if (!regime.error().empty()) {
    return absl::StrCat("not changed: ", regime.error());
  }
  return absl::StrCat(IsStay(job.regimes(), entry) ? "stays: " : "changed: ",
                      RegimeText(regime.regime()),
                      regime.reason().empty() ? "" : "; ", regime.reason());
}

// When and why: no two entries of a record have both (TakeRegime).
std::string RegimeKey(const RegimeTransition& regime) {
  return absl::StrCat(regime.time().seconds(), ".", regime.time().nanos(), " ",
                      regime.reason());
}

std::vector<std::string> RegimeKeys(const JobStatus& job) {
  std::vector<std::string> keys;
  keys.reserve(static_cast<size_t>(job.regimes_size()));
  for (const RegimeTransition& regime : job.regimes()) {
    keys.push_back(RegimeKey(regime));
  }
  return keys;
}

}  // namespace

JobEventLog::JobEventLog(std::vector<StoredEvent> stored,
                         const JobStatus& job) {
  absl::Time last = absl::InfinitePast();
  // Numbers that are missing were not written; those before count as left out.
  for (StoredEvent& event : stored) {
    if (event.number != first_ + events_.size()) {
      events_.clear();
      first_ = event.number;
    }
    if (event.event.kind() == "state" || event.event.kind() == "attempt") {
      last = FromTimestamp(event.event.time());
    }
    events_.push_back(std::move(event.event));
  }
  taken_ = first_ + events_.size() - 1;
  forgotten_ = first_ - 1;
  while (transitions_ < job.transitions_size() &&
         FromTimestamp(job.transitions(transitions_).time()) <= last) {
    ++transitions_;
  }
  if (!job.evaluations().empty()) {
    evaluation_clock_ = job.evaluations().rbegin()->clock();
  }
  if (!job.checkpoints().empty()) {
    checkpoint_clock_ = job.checkpoints().rbegin()->clock();
    checkpoint_attempt_ = job.checkpoints().rbegin()->attempt();
  }
  lost_workers_ = job.lost_workers_size();
  lost_leases_.clear();
  for (const JobStatus::Lost& lost : job.lost_workers()) {
    lost_leases_.push_back(lost.leases());
  }
  regimes_ = RegimeKeys(job);
}

void JobEventLog::Push(absl::string_view kind, std::string text,
                       uint32_t attempt, int64_t clock, absl::Time time) {
  JobEvent& event = events_.emplace_back();
  // A clock that is set back does not turn the history around.
  if (events_.size() > 1) {
    time = std::max(time, FromTimestamp(events_[events_.size() - 2].time()));
  }
  *event.mutable_time() = ToTimestamp(time);
  event.set_kind(std::string(kind));
  text = absl::StrReplaceAll(Utf8Text(text), {{"\n", "; "}});
  event.set_text(std::string(Utf8Prefix(text, kTextBytesMax)));
  event.set_attempt(attempt);
  event.set_clock(std::max<int64_t>(0, clock));
  if (events_.size() <= kMax) return;
  events_.pop_front();
  ++first_;
}

void JobEventLog::Add(absl::string_view kind, absl::string_view text,
                      const JobStatus& job, int64_t clock, absl::Time now) {
  Push(kind, std::string(text), job.attempt(), clock, now);
}

void JobEventLog::ObserveTransitions(const JobStatus& job, int64_t clock) {
  const int count = job.transitions_size();
  if (count < transitions_) {
    transitions_ = std::max(0, transitions_ - kTransitionsLeftOut);
  }
  for (; transitions_ < count; ++transitions_) {
    const JobTransition& transition = job.transitions(transitions_);
    const absl::Time time = FromTimestamp(transition.time());
    if (transition.state() == PREPARING) {
      // The reason of a later attempt names it, too.
      const std::string reason = absl::StrReplaceAll(
          transition.reason(),
          {{absl::StrCat(", attempt ", job.attempt(), ", "), ", "}});
      Push("attempt",
           absl::StrCat("attempt ", job.attempt(), " is prepared ", reason,
                        ": ", MembersText(job)),
           job.attempt(), clock, time);
      continue;
    }
    const std::string state =
        absl::AsciiStrToLower(JobState_Name(transition.state()));
    Push("state",
         absl::StrCat(state, transition.reason().empty() ? "" : ": ",
                      transition.reason()),
         job.attempt(), clock, time);
  }
}

void JobEventLog::ObserveCheckpoints(const JobStatus& job, int64_t clock,
                                     absl::Time now) {
  if (!job.checkpoints().empty()) {
    const CheckpointInfo& last = *job.checkpoints().rbegin();
    if (last.attempt() > checkpoint_attempt_ ||
        (last.attempt() == checkpoint_attempt_ &&
         last.clock() > checkpoint_clock_)) {
      Push("checkpoint", CheckpointText(job, last), job.attempt(), last.clock(),
           now);
    }
    checkpoint_clock_ = last.clock();
    checkpoint_attempt_ = std::max(checkpoint_attempt_, last.attempt());
  }
  const size_t at = job.waiting_for().find(kCheckpointTrouble);
  std::string trouble =
      at == std::string::npos ? "" : job.waiting_for().substr(at);
  if (trouble == trouble_) return;
  trouble_ = std::move(trouble);
  if (!trouble_.empty()) {
    Push("checkpoint", trouble_, job.attempt(), clock, now);
  }
}

void JobEventLog::ObserveLosses(const JobStatus& job, int64_t clock,
                                absl::Time now) {
  // A later attempt has none at first.
  lost_workers_ = std::min(lost_workers_, job.lost_workers_size());
  for (; lost_workers_ < job.lost_workers_size(); ++lost_workers_) {
    Push("member", job.lost_workers(lost_workers_).reason(), job.attempt(),
         clock, now);
  }
  lost_leases_.resize(static_cast<size_t>(lost_workers_));
  for (int i = 0; i < lost_workers_; ++i) {
    const JobStatus::Lost& lost = job.lost_workers(i);
    if (lost.leases() == lost_leases_[i]) continue;
    lost_leases_[i] = lost.leases();
    Push("member",
         absl::StrCat("worker of rank ", lost.rank(), ": ", lost.leases()),
         job.attempt(), clock, now);
  }
}

void JobEventLog::ObserveRegimes(const JobStatus& job, int64_t clock,
                                 absl::Time now) {
  if (job.regimes().empty()) return regimes_.clear();
  // A new change is the last one of the record: mostly there is none.
  if (static_cast<size_t>(job.regimes_size()) == regimes_.size() &&
      RegimeKey(*job.regimes().rbegin()) == regimes_.back()) {
    return;
  }
  std::vector<std::string> keys = RegimeKeys(job);
  for (int i = 0; i < job.regimes_size(); ++i) {
    if (job.regimes(i).reason() == kAsSubmitted) continue;
    if (absl::c_linear_search(regimes_, keys[static_cast<size_t>(i)])) continue;
    Push("regime", ChangeText(job, i), job.attempt(), clock, now);
  }
  regimes_ = std::move(keys);
}

void JobEventLog::Observe(const JobStatus& job, int64_t clock, absl::Time now) {
  // The events that have led to a transition go before it.
  ObserveCheckpoints(job, clock, now);
  for (const Evaluation& evaluation : job.evaluations()) {
    if (evaluation.clock() <= evaluation_clock_) continue;
    Push("evaluation", EvaluationText(evaluation, job.spec()), job.attempt(),
         evaluation.clock(), now);
  }
  // An attempt that goes back forgets the later ones.
  evaluation_clock_ =
      job.evaluations().empty() ? -1 : job.evaluations().rbegin()->clock();
  ObserveRegimes(job, clock, now);
  ObserveLosses(job, clock, now);
  ObserveTransitions(job, clock);
}

std::vector<StoredEvent> JobEventLog::From(uint64_t number) const {
  std::vector<StoredEvent> from;
  for (size_t i = 0; i < events_.size(); ++i) {
    if (first_ + i >= number) from.push_back({first_ + i, events_[i]});
  }
  return from;
}

bool JobEventLog::TakeNew(StoredEvent* event, uint64_t* left_out) {
  taken_ = std::max(taken_, first_ - 1);
  if (taken_ + 1 >= first_ + events_.size()) return false;
  ++taken_;
  *event = {taken_, events_[taken_ - first_]};
  *left_out = 0;
  if (forgotten_ + 1 < first_) *left_out = ++forgotten_;
  return true;
}

}  // namespace syncline::scheduler
