#include "scheduler/core/job.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/base/utf8.h"
#include "common/job/kept_results.h"
#include "common/job/profile_limits.h"
#include "scheduler/core/describe.h"
#include "scheduler/core/message_sizes.h"

namespace syncline::scheduler {
namespace {

constexpr int kExitPermanent = 1;
constexpr int kExitRetryable = 138;
constexpr int kEvaluationsMax = 4096;
// A daemon's problems are for people; more than this is not read.
constexpr size_t kReasonBytesMax = 16 << 10;
constexpr size_t kActivityBytesMax = 1 << 10;

// Cuts between characters: a record that is not UTF-8 cannot be read again.
std::string Shortened(absl::string_view text,
                      size_t bytes_max = kReasonBytesMax) {
  if (text.size() <= bytes_max) return std::string(text);
  return absl::StrCat(Utf8Prefix(text, bytes_max), " ...");
}

// kExitRetryable if a failure with this code may go away when the job is run
// again; else kExitPermanent.
int ExitCodeFor(int code) {
  switch (static_cast<absl::StatusCode>(code)) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kAborted:  // its process was told to stop
      return kExitRetryable;
    default:
      return kExitPermanent;
  }
}

absl::Duration StepTimeout(const JobSpec& spec) {
  const double seconds = spec.limits().step_timeout_seconds();
  return absl::Seconds(seconds > 0 ? seconds : 60);
}

// How long two members may be out of each other's reach. The loss of a host is
// noticed sooner, by its lease. The members themselves wait for one time-out,
// so a network that is back by then costs no job.
absl::Duration UnreachableMax(const JobSpec& spec) {
  return std::max(absl::Seconds(10), StepTimeout(spec));
}

// How long a member may work at one step. Other workers that wait for it give
// up after one time-out; this is for those that nobody waits for.
absl::Duration StandstillMax(const JobSpec& spec) {
  // Reports come every second or so.
  return std::max(absl::Seconds(10), 10 * StepTimeout(spec));
}

// True if an evaluation is not a repeat: a daemon that has registered again
// repeats the reports that may not have arrived.
bool IsNew(const Evaluation& evaluation, const JobStatus& status) {
  if (status.evaluations().empty()) return true;
  const Evaluation& last = *status.evaluations().rbegin();
  return std::tuple(last.epoch(), last.clock(), last.final()) <
         std::tuple(evaluation.epoch(), evaluation.clock(), evaluation.final());
}

// Drops every second one, not the first.
void ThinEvaluations(JobStatus* status) {
  auto* evaluations = status->mutable_evaluations();
  if (evaluations->size() < kEvaluationsMax) return;
  int kept = 0;
  for (int i = 0; i < evaluations->size(); i += 2) {
    evaluations->SwapElements(kept++, i);
  }
  evaluations->DeleteSubrange(kept, evaluations->size() - kept);
}

}  // namespace

Job::Job(StoredJob stored, Timing timing)
    : timing_(timing),
      parameters_(std::move(stored.parameters)),
      tables_(std::move(stored.tables)),
      status_(std::move(stored.status)) {
  // Records of earlier releases have them.
  for (auto* all : {status_.mutable_workers(), status_.mutable_ps()}) {
    for (Participant& participant : *all) {
      participant.mutable_member()->clear_incarnation();
    }
  }
  if (status_.has_evaluator()) {
    status_.mutable_evaluator()->mutable_member()->clear_incarnation();
  }
}

Job::Party* Job::Find(SessionId session) {
  for (Party& party : parties_) {
    if (party.session == session && party.stage != Stage::kGone) return &party;
  }
  return nullptr;
}

bool Job::All(Stage stage) const {
  return absl::c_all_of(parties_,
                        [&](const Party& p) { return p.stage == stage; });
}

void Job::AddDoneRank(uint32_t rank) {
  status_.add_done_ranks(rank);
  std::sort(status_.mutable_done_ranks()->begin(),
            status_.mutable_done_ranks()->end());
}

bool Job::Evaluates(const Party& party) const {
  if (status_.has_evaluator()) return party.role == Role::kEvaluator;
  return party.role == Role::kWorker && party.participant.rank() == 0;
}

bool Job::IsOver() const { return IsFinal(status_.state()); }

absl::Time Job::since() const {
  const int last = status_.transitions_size() - 1;
  return last < 0 ? absl::InfinitePast()
                  : FromTimestamp(status_.transitions(last).time());
}

absl::StatusOr<SessionId> Job::WorkerSession(uint32_t rank) const {
  uint32_t workers = 0;
  for (const Party& party : parties_) {
    if (party.role != Role::kWorker) continue;
    ++workers;
    if (party.participant.rank() != rank) continue;
    if (party.stage == Stage::kPrepared && !party.done) return party.session;
    return absl::FailedPreconditionError(
        absl::StrCat("worker ", rank, " of job ", id(), " has no step to do"));
  }
  const bool evaluates = status_.has_evaluator() && rank == workers;
  return absl::InvalidArgumentError(absl::StrCat(
      "job ", id(), " has no worker ", rank, "; it has ", workers,
      ", and their ranks begin at 0",
      evaluates ? absl::StrCat("; rank ", rank,
                               " is its evaluator, which does no steps")
                : ""));
}

std::vector<SessionId> Job::Participants() const {
  std::vector<SessionId> sessions;
  for (const Party& party : parties_) {
    if (party.stage != Stage::kGone) sessions.push_back(party.session);
  }
  return sessions;
}

absl::Span<const JobProgressTracker::CurvePoint> Job::curve() const {
  if (!progress_.has_value()) return {};
  return progress_->curve();
}

void Job::Transition(JobState state, absl::string_view reason, absl::Time now,
                     ClusterActions* actions) {
  SYNCLINE_CHECK(!IsOver() && state > status_.state());
  status_ = Status(now);  // keeps the progress as it was at the end of a state
  status_.set_state(state);
  status_.set_queue_position(0);
  status_.clear_waiting_for();
  JobTransition* transition = status_.add_transitions();
  transition->set_state(state);
  // A clock that is set back does not turn the history around.
  const int previous = status_.transitions_size() - 2;
  const absl::Time no_earlier =
      previous < 0 ? now : FromTimestamp(status_.transitions(previous).time());
  *transition->mutable_time() = ToTimestamp(std::max(now, no_earlier));
  transition->set_reason(Shortened(Utf8Text(reason)));
  actions->push_back(PersistJob{id()});
  actions->push_back(JobChanged{id(), /*transition=*/true});
}

void Job::Join(const Place& place, Role role, uint32_t rank, Participant* out) {
  *out->mutable_member() = place.member;
  out->set_rank(rank);
  parties_.push_back({place.session, *out, role});
  // Everybody may read the status; a member's incarnation is for those who work
  // with it.
  out->mutable_member()->clear_incarnation();
}

void Job::Start(absl::Span<const Place> workers, absl::Span<const Place> ps,
                const std::optional<Place>& evaluator, absl::Time now,
                ClusterActions* actions) {
  SYNCLINE_CHECK(status_.state() == QUEUED);
  uint32_t rank = 0;
  for (const Place& place : workers) {
    Join(place, Role::kWorker, rank++, status_.add_workers());
  }
  std::string where = absl::StrCat("on ", CountText(workers.size(), "worker"),
                                   " and ", CountText(ps.size(), "ps"));
  if (evaluator.has_value()) {
    Join(*evaluator, Role::kEvaluator, rank, status_.mutable_evaluator());
    absl::StrAppend(&where, ", evaluated by ",
                    TaskText(evaluator->member.task()));
  }
  rank = 0;
  for (const Place& place : ps) {
    Join(place, Role::kPs, rank++, status_.add_ps());
  }
  progress_.emplace(static_cast<uint32_t>(workers.size()),
                    status_.spec().training().epochs());
  started_ = now;
  Transition(PREPARING, where, now, actions);
  UpdateWaitingFor(actions);
  const SchedulerMessage prepare = PrepareMessage();
  for (const Party& party : parties_) {
    actions->push_back(SendCommand{party.session, prepare});
  }
}

Participant* Job::AddParticipant(Role role, JobAssignment* assignment) {
  switch (role) {
    case Role::kWorker:
      return assignment->add_workers();
    case Role::kEvaluator:
      return assignment->mutable_evaluator();
    case Role::kPs:
      break;
  }
  return assignment->add_ps();
}

SchedulerMessage Job::PrepareMessage() const {
  SchedulerMessage message;
  JobAssignment* assignment = message.mutable_prepare()->mutable_assignment();
  assignment->set_job_id(id());
  *assignment->mutable_spec() = status_.spec();
  for (const Party& party : parties_) {
    *AddParticipant(party.role, assignment) = party.participant;
  }
  for (const ParameterInfo& parameter : parameters_) {
    *assignment->add_parameters() = parameter;
  }
  for (const TableInfo& table : tables_) *assignment->add_tables() = table;
  assignment->set_routing_version(1);
  assignment->set_model_artifact("model.onnx");
  return message;
}

SchedulerMessage Job::RunMessage() const {
  SchedulerMessage message;
  message.mutable_run()->set_job_id(id());
  message.mutable_run()->set_clocks_per_epoch(clocks_per_epoch_);
  message.mutable_run()->set_clocks_total(clocks_total_);
  return message;
}

void Job::OnPrepared(SessionId session, const JobPrepared& prepared,
                     absl::Time now, ClusterActions* actions) {
  Party* party = Find(session);
  if (party == nullptr || party->stage != Stage::kPreparing || stopping()) {
    return;
  }
  party->stage = Stage::kPrepared;
  party->activity.clear();
  UpdateWaitingFor(actions);
  if (party->role == Role::kWorker && party->participant.rank() == 0) {
    clocks_per_epoch_ = prepared.clocks_per_epoch();
    clocks_total_ = prepared.clocks_total();
    for (const DataFingerprint::Source& source : prepared.data().sources()) {
      if (source.field() == "data.train") train_samples_ = source.samples();
    }
  }
  party->problems.assign(prepared.problems().begin(),
                         prepared.problems().end());
  for (std::string& problem :
       data_.Add(MemberText(party->participant.member()), prepared.data())) {
    party->problems.push_back(std::move(problem));
  }
  // With a problem the job is lost, but the others may have some to add.
  if (!party->problems.empty()) {
    refused_by_ = std::min(refused_by_, now + timing_.grace);
  }
  if (!All(Stage::kPrepared)) return;
  if (refused_by_ == absl::InfiniteFuture()) {
    BeginRun(now, actions);
  } else {
    FailUnprepared(now, actions);
  }
}

void Job::FailUnprepared(absl::Time now, ClusterActions* actions) {
  std::vector<std::string> problems;
  for (const Party& party : parties_) {
    const std::string who = MemberText(party.participant.member());
    for (const std::string& problem : party.problems) {
      problems.push_back(absl::StrCat(who, ": ", problem));
    }
  }
  Fail(absl::StrJoin(problems, "\n"), kExitPermanent, now, actions);
}

void Job::BeginRun(absl::Time now, ClusterActions* actions) {
  running_since_ = now;
  watchdog_.emplace(StandstillMax(status_.spec()));
  for (const Party& party : parties_) {
    if (party.role == Role::kPs) continue;
    watchdog_->Begin(party.participant.member(),
                     party.role == Role::kWorker ? clocks_total_ : 0, now);
  }
  data_ = {};
  Transition(RUNNING,
             absl::StrCat("all participants are prepared", StepWarning()), now,
             actions);
  const SchedulerMessage run = RunMessage();
  for (const Party& party : parties_) {
    if (party.role == Role::kPs) continue;
    actions->push_back(SendCommand{party.session, run});
  }
}

void Job::OnResumed(SessionId older, SessionId session, bool has_job,
                    ClusterActions* actions) {
  Party* const party = Find(older);
  SYNCLINE_CHECK(party != nullptr);
  party->session = session;
  if (party->stage == Stage::kPreparing && !has_job) {
    actions->push_back(SendCommand{session, PrepareMessage()});
  }
  if (status_.state() != RUNNING || party->role == Role::kPs || party->done) {
    return;
  }
  actions->push_back(SendCommand{session, RunMessage()});
  for (const Wish& wish : wishes_) {
    if (party->role != Role::kWorker ||
        wish.rank != party->participant.rank()) {
      continue;
    }
    SchedulerMessage message;
    *message.mutable_profile() = wish.steps;
    actions->push_back(SendCommand{session, std::move(message)});
  }
}

std::string Job::StepWarning() const {
  const uint64_t workers = status_.workers_size();
  const uint64_t batch = status_.spec().training().batch_size();
  if (train_samples_ == 0 || train_samples_ >= workers * batch) return "";
  return absl::StrCat("\nwarning: a step takes ", workers * batch, " samples (",
                      CountText(workers, "worker"), ", training.batch_size ",
                      batch, "), but data.train has ", train_samples_,
                      ": each pass over the data is one smaller step");
}

void Job::OnPsReport(SessionId session, const PsReport& report, absl::Time now,
                     ClusterActions* actions) {
  const Party* party = Find(session);
  if (party == nullptr || party->role != Role::kPs) return;
  ps_views_[party->participant.rank()] = {now, report};
  CountSkipped(actions);
}

void Job::CountSkipped(ClusterActions* actions) {
  uint64_t clocks = 0;
  uint64_t blocks = 0;
  for (const auto& [rank, view] : ps_views_) {
    clocks = std::max(clocks, view.report.skipped_clocks());
    blocks += view.report.dropped_blocks();
  }
  const JobProgress& known = status_.progress();
  if (known.skipped_clocks() == clocks && known.dropped_blocks() == blocks) {
    return;
  }
  status_.mutable_progress()->set_skipped_clocks(clocks);
  status_.mutable_progress()->set_dropped_blocks(blocks);
  actions->push_back(PersistJob{id(), /*durable=*/false});
  actions->push_back(JobChanged{id()});
}

absl::StatusOr<JobTableStatus> Job::TableStatus(absl::Time now) const {
  std::vector<const PsReport*> reports;
  for (const auto& [rank, view] : ps_views_) reports.push_back(&view.report);
  const absl::StatusOr<int> hot_keys = HotKeysThatFit(reports);
  if (!hot_keys.ok()) {
    return Annotate(hot_keys.status(), absl::StrCat("job ", id()));
  }
  JobTableStatus status;
  status.set_job_id(id());
  for (const auto& [rank, view] : ps_views_) {
    if (view.report.tables().empty()) continue;
    JobTableStatus::Ps* ps = status.add_ps();
    ps->set_rank(rank);
    ps->set_age_seconds(absl::ToDoubleSeconds(now - view.time));
    *ps->mutable_tables() = view.report.tables();
    for (ShardStatus::Table& table : *ps->mutable_tables()) {
      if (table.hot_keys_size() <= *hot_keys) continue;
      table.mutable_hot_keys()->DeleteSubrange(
          *hot_keys, table.hot_keys_size() - *hot_keys);
    }
  }
  return status;
}

void Job::OnUnreachable(SessionId session, const PeerUnreachable& report,
                        absl::Time now) {
  const Party* reporter = Find(session);
  if (reporter == nullptr || stopping()) return;
  for (const Party& peer : parties_) {
    const Member& member = peer.participant.member();
    if (member.incarnation() != report.peer().incarnation()) continue;
    unreachable_.OnReport(reporter->participant.member(), member, report, now);
  }
}

void Job::Watch(const Party& party, const WorkerReport& report,
                bool has_new_evaluation, absl::Time now) {
  if (!watchdog_.has_value()) return;
  const uint64_t incarnation = party.participant.member().incarnation();
  if (!report.has_evaluation() || has_new_evaluation) {
    return watchdog_->OnReport(incarnation, report, now);
  }
  WorkerReport others = report;
  others.clear_evaluation();
  watchdog_->OnReport(incarnation, others, now);
}

void Job::OnReport(SessionId session, const WorkerReport& report,
                   absl::Time now, ClusterActions* actions) {
  Party* party = Find(session);
  if (party == nullptr) return;
  // A party that is done waits for nothing: a late or repeated report.
  if (report.has_activity() && status_.state() <= RUNNING && !party->done) {
    // An evaluation is work and no wait; the watchdog has its text.
    party->activity = absl::StartsWith(report.activity(), "evaluating")
                          ? ""
                          : Shortened(report.activity(), kActivityBytesMax);
    UpdateWaitingFor(actions);
  }
  if (status_.state() != RUNNING) return;
  const bool is_new = report.has_evaluation() && Evaluates(*party) &&
                      IsNew(report.evaluation(), status_);
  Watch(*party, report, is_new, now);
  if (report.has_progress() && party->role == Role::kWorker) {
    progress_->OnReport(party->participant.rank(), report.progress());
  }
  if (is_new) {
    Evaluation evaluation = report.evaluation();
    if (!evaluation.has_time()) *evaluation.mutable_time() = ToTimestamp(now);
    ThinEvaluations(&status_);
    *status_.add_evaluations() = std::move(evaluation);
    // Not worth a disk sync: the job's end writes them through.
    actions->push_back(PersistJob{id(), /*durable=*/false});
  }
  actions->push_back(JobChanged{id()});
}

void Job::OnDone(SessionId session, const JobDone& done, absl::Time now,
                 ClusterActions* actions) {
  Party* party = Find(session);
  if (party == nullptr || party->done || stopping()) return;
  // Its first word is the cause. What comes later is the end of what is left of
  // the job there.
  if (party->failed || !party->problems.empty()) return;
  party->failed = done.code() != 0;
  if (done.code() == 0) {
    // A ps has nothing to finish, but nobody can go on without it.
    if (party->role == Role::kPs && done.released()) {
      return Fail(LossText(*party, "it released the job"), kExitRetryable, now,
                  actions);
    }
    // Nobody is done before it was told to run.
    if (party->role == Role::kPs || status_.state() != RUNNING) return;
    party->done = true;
    watchdog_->End(party->participant.member().incarnation());
    AddDoneRank(party->participant.rank());
    finishing_ = absl::c_all_of(
        parties_, [](const Party& p) { return p.done || p.role == Role::kPs; });
    if (finishing_) suspicion_.reset();
    // A party that is done is not asked again, by a later scheduler neither.
    actions->push_back(PersistJob{id()});
    party->activity.clear();
    UpdateWaitingFor(actions);
    return;
  }
  const std::string reason = absl::StrCat(
      MemberText(party->participant.member()), ": ", done.message());
  // The cause of an outage, or of a wait that ran out of time, may be the
  // network between two others, or a loss that is about to be noticed.
  const std::optional<std::string> apart =
      unreachable_.Longest(absl::ZeroDuration(), now);
  if (done.code() == static_cast<int>(absl::StatusCode::kUnavailable) ||
      (apart.has_value() && ExitCodeFor(done.code()) == kExitRetryable)) {
    if (!suspicion_.has_value()) {
      suspicion_ = Suspicion{
          apart.has_value() ? absl::StrCat(*apart, "; ", reason) : reason,
          now + timing_.grace};
    }
    return;
  }
  Fail(reason, ExitCodeFor(done.code()), now, actions);
}

bool Job::WorkersAreDone() const {
  return absl::c_all_of(parties_, [](const Party& party) {
    return party.role != Role::kWorker || party.done;
  });
}

void Job::AddWaitingFor(const Party& party, std::string* text) const {
  const bool unanswered =
      status_.state() == PREPARING && party.stage == Stage::kPreparing;
  const bool evaluates = status_.state() == RUNNING && !finishing_ &&
                         party.role == Role::kEvaluator && !party.done &&
                         WorkersAreDone();
  const bool is_there = party.stage != Stage::kGone;
  if (!unanswered && !evaluates && (party.activity.empty() || !is_there)) {
    return;
  }
  absl::StrAppend(text, text->empty() ? "" : "; ",
                  MemberText(party.participant.member()),
                  party.activity.empty() ? "" : ": ", party.activity);
}

void Job::UpdateWaitingFor(ClusterActions* actions) {
  std::string text;
  for (const Party& party : parties_) AddWaitingFor(party, &text);
  text = Shortened(text);
  if (text == status_.waiting_for()) return;
  status_.set_waiting_for(std::move(text));
  // For a scheduler that starts anew and must say where results are.
  if (status_.state() == RUNNING) {
    actions->push_back(PersistJob{id(), /*durable=*/false});
  }
  actions->push_back(JobChanged{id()});
}

std::string Job::WithWaitingFor(absl::string_view reason) const {
  if (status_.state() != RUNNING || status_.waiting_for().empty()) {
    return std::string(reason);
  }
  return absl::StrCat(reason, "; the job waited for ", status_.waiting_for());
}

std::string Job::LossText(const Party& party, absl::string_view lost) const {
  std::string text =
      absl::StrCat(MemberTextWithIncarnation(party.participant.member()),
                   " was lost: ", lost);
  if (status_.state() != RUNNING) {
    return absl::StrCat(text, "; it was preparing the job");
  }
  const int64_t clock = party.role == Role::kWorker
                            ? progress_->ClockOf(party.participant.rank())
                            : progress_->MinClock();
  return absl::StrCat(text, "; last clock ", clock);
}

void Job::OnGone(SessionId session, absl::string_view lost, absl::Time now,
                 ClusterActions* actions) {
  Party* party = Find(session);
  if (party == nullptr) return;
  // Nobody waits for one that is done: its results are stored.
  if (!stopping() && !party->done) {
    // Released without being asked counts as lost: it cannot serve the job.
    const std::string loss =
        LossText(*party, lost.empty() ? "it released the job" : lost);
    party->stage = Stage::kGone;
    Fail(WithWaitingFor(loss), kExitRetryable, now, actions);
  }
  party->stage = Stage::kGone;
  FinishIfAllGone(now, actions);
}

bool Job::HasWorker(const Member& member) const {
  const auto is_same = [&](const Participant& participant) {
    const Member& other = participant.member();
    return other.address() == member.address() &&
           other.hostname() == member.hostname() && other.pid() == member.pid();
  };
  return absl::c_any_of(status_.workers(), is_same) ||
         (status_.has_evaluator() && is_same(status_.evaluator()));
}

void Job::OnKeptResults(const Member& member, const std::string& activity,
                        ClusterActions* actions) {
  if ((status_.state() != FAILED && status_.state() != CANCELLED) ||
      !absl::StartsWith(activity, kNotStored) || !HasWorker(member)) {
    return;
  }
  const std::string text = Shortened(Utf8Text(activity), kActivityBytesMax);
  std::string* const reason =
      status_.mutable_transitions()->rbegin()->mutable_reason();
  // It says so again when it has registered again.
  if (absl::StrContains(*reason, text) ||
      reason->size() + text.size() > kReasonBytesMax) {
    return;
  }
  absl::StrAppend(reason, "\n", MemberText(member), ": ", text);
  actions->push_back(PersistJob{id()});
  actions->push_back(JobChanged{id()});
}

void Job::FinishIfAllGone(absl::Time now, ClusterActions* actions) {
  if (!finishing_ || IsOver() || !All(Stage::kGone)) {
    return;
  }
  Succeed(/*how=*/"", now, actions);
}

void Job::Succeed(absl::string_view how, absl::Time now,
                  ClusterActions* actions) {
  Transition(SUCCEEDED,
             absl::StrCat(status_.has_evaluator()
                              ? "all workers and the evaluator are done"
                              : "all workers are done",
                          how),
             now, actions);
  status_.mutable_progress()->set_seconds_left(0);
  status_.set_exit_code(0);
}

void Job::OnRestart(absl::Time now, ClusterActions* actions) {
  const int needed = status_.workers_size() + (status_.has_evaluator() ? 1 : 0);
  if (status_.state() == RUNNING && needed > 0 &&
      status_.done_ranks_size() == needed) {
    return Succeed("; the scheduler was restarted before they had released it",
                   now, actions);
  }
  Fail(WithWaitingFor("the scheduler was restarted while the job was running"),
       kExitRetryable, now, actions);
}

void Job::OnTick(absl::Time now, ClusterActions* actions) {
  if (stopping() || status_.state() == QUEUED) return;
  if (suspicion_.has_value() && now >= suspicion_->until) {
    return Fail(suspicion_->reason, kExitRetryable, now, actions);
  }
  if (const auto obstacle = Obstacle(now); obstacle.has_value()) {
    return Fail(*obstacle, kExitRetryable, now, actions);
  }
  if (now >= refused_by_) return FailUnprepared(now, actions);
  const double max_seconds = status_.spec().limits().max_seconds();
  if (max_seconds > 0 && now - started_ > absl::Seconds(max_seconds)) {
    return Fail(WithWaitingFor(absl::StrCat(
                    "limits.max_seconds: the job ran for longer than ",
                    max_seconds, " s")),
                kExitPermanent, now, actions);
  }
  if (status_.state() != PREPARING ||
      now - started_ <= timing_.prepare_timeout) {
    return;
  }
  std::vector<std::string> missing;
  for (const Party& party : parties_) {
    if (party.stage == Stage::kPreparing) {
      AddWaitingFor(party, &missing.emplace_back());
    }
  }
  Fail(absl::StrCat("not prepared within ",
                    absl::FormatDuration(timing_.prepare_timeout), ": ",
                    absl::StrJoin(missing, ", ")),
       kExitRetryable, now, actions);
}

std::optional<std::string> Job::Obstacle(absl::Time now) const {
  std::optional<std::string> apart =
      unreachable_.Longest(UnreachableMax(status_.spec()), now);
  if (apart.has_value() || !watchdog_.has_value()) return apart;
  return watchdog_->Check(now);
}

void Job::Cancel(absl::string_view reason, absl::Time now,
                 ClusterActions* actions) {
  Transition(CANCELLED, reason.empty() ? "cancelled by the user" : reason, now,
             actions);
  status_.set_exit_code(kExitPermanent);
}

void Job::Fail(absl::string_view reason, int exit_code, absl::Time now,
               ClusterActions* actions) {
  if (status_.state() == FAILED) return;
  Transition(FAILED, reason, now, actions);
  status_.set_exit_code(exit_code);
  has_just_failed_ = true;
}

bool Job::TakeFailure() { return std::exchange(has_just_failed_, false); }

void Job::MarkRepeated(const std::string& earlier) {
  SYNCLINE_CHECK(status_.state() == FAILED);
  status_.mutable_transitions()->rbegin()->mutable_reason()->append(
      absl::StrCat("\nthe same has happened to job ", earlier,
                   ", which had the same model and spec: it would happen "
                   "again"));
  status_.set_exit_code(kExitPermanent);
}

std::string Job::StopReason() const {
  if (!IsOver()) return "the job is done";
  const int last = status_.transitions_size() - 1;
  return absl::StrCat(JobState_Name(status_.state()), ": ",
                      status_.transitions(last).reason());
}

void Job::SetQueueState(uint32_t position, absl::string_view waiting_for,
                        ClusterActions* actions) {
  if (status_.queue_position() == position &&
      status_.waiting_for() == waiting_for) {
    return;
  }
  status_.set_queue_position(position);
  status_.set_waiting_for(std::string(waiting_for));
  actions->push_back(JobChanged{id()});
}

bool Job::HasProfile(absl::string_view prefix) const {
  return absl::c_any_of(status_.artifacts(),
                        [&](const Artifact& artifact) {
                          return absl::StartsWith(artifact.name(), prefix);
                        }) ||
         absl::c_any_of(wishes_, [&](const Wish& wish) {
           return absl::StartsWith(wish.steps.artifact(), prefix);
         });
}

absl::StatusOr<SchedulerMessage> Job::WishForProfile(uint32_t rank,
                                                     uint32_t steps) {
  const auto waiting = absl::c_count_if(
      wishes_, [&](const Wish& wish) { return wish.rank == rank; });
  if (static_cast<size_t>(waiting) == kProfilesPerWorkerMax) {
    return absl::ResourceExhaustedError(
        absl::StrCat("worker ", rank, " of job ", id(), " has ", waiting,
                     " profiles to record already; ask again when it has "
                     "stored one of them"));
  }
  for (int number = 1; number <= kProfilesPerJobMax; ++number) {
    const std::string prefix = absl::StrCat("profiles/", number, "-");
    if (HasProfile(prefix)) continue;
    SchedulerMessage message;
    message.mutable_profile()->set_job_id(id());
    message.mutable_profile()->set_steps(steps);
    message.mutable_profile()->set_artifact(
        absl::StrCat(prefix, "rank-", rank, ".pb"));
    wishes_.push_back({rank, message.profile()});
    return message;
  }
  return absl::ResourceExhaustedError(
      absl::StrCat("job ", id(), " has ", kProfilesPerJobMax,
                   " profiles already, and no more are kept of one job"));
}

void Job::ForgetWishesUpTo(const std::string& artifact) {
  const auto stored = absl::c_find_if(wishes_, [&](const Wish& wish) {
    return wish.steps.artifact() == artifact;
  });
  if (stored == wishes_.end()) return;
  const auto last = stored + 1;
  const auto kept = std::remove_if(
      wishes_.begin(), last,
      [rank = stored->rank](const Wish& wish) { return wish.rank == rank; });
  wishes_.erase(kept, last);
}

void Job::AddArtifact(const Artifact& artifact, ClusterActions* actions) {
  ForgetWishesUpTo(artifact.name());
  auto* artifacts = status_.mutable_artifacts();
  const auto same = std::find_if(
      artifacts->begin(), artifacts->end(),
      [&](const Artifact& a) { return a.name() == artifact.name(); });
  if (same != artifacts->end()) {
    *same = artifact;
  } else {
    *artifacts->Add() = artifact;
    std::sort(artifacts->begin(), artifacts->end(),
              [](const Artifact& a, const Artifact& b) {
                return a.name() < b.name();
              });
  }
  actions->push_back(PersistJob{id()});
  actions->push_back(JobChanged{id()});
}

void Job::ClearArtifacts(ClusterActions* actions) {
  status_.clear_artifacts();
  actions->push_back(PersistJob{id()});
}

JobStatus Job::Status(absl::Time now) const {
  JobStatus status = status_;
  if (progress_.has_value() && status_.state() == RUNNING) {
    JobProgress progress = progress_->Summary(now - running_since_);
    progress.set_skipped_clocks(status_.progress().skipped_clocks());
    progress.set_dropped_blocks(status_.progress().dropped_blocks());
    *status.mutable_progress() = std::move(progress);
  }
  return status;
}

}  // namespace syncline::scheduler
