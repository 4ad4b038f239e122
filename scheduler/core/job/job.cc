#include "scheduler/core/job/job.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "common/base/check.h"
#include "common/base/exit_codes.h"
#include "common/base/status_macros.h"
#include "common/base/utf8.h"
#include "common/job/checkpoint_trouble.h"
#include "common/job/evaluate_validator.h"
#include "common/job/kept_results.h"
#include "common/job/orphaned_job.h"
#include "common/job/quorum_validator.h"
#include "common/job/restart_validator.h"
#include "common/job/stop_reasons.h"
#include "common/job/strategy_rules.h"
#include "common/job/worker_groups.h"
#include "scheduler/core/describe.h"
#include "scheduler/core/job/evaluation_history.h"
#include "scheduler/core/job/job_blame.h"
#include "scheduler/core/job/job_commands.h"
#include "scheduler/core/job/regime_history.h"
#include "scheduler/core/job/worker_range.h"
#include "scheduler/core/repeated_fault.h"

namespace syncline::scheduler {
namespace {

using Role = JobMember::Role;
using Stage = JobMember::Stage;

// A daemon's problems are for people; more than this is not read. Texts are cut
// between characters: a record that is not UTF-8 cannot be read again.
constexpr size_t kReasonBytesMax = 16 << 10;
constexpr size_t kActivityBytesMax = 1 << 10;
// Of the reason of a restart: there may be many.
constexpr size_t kRestartBytesMax = 1 << 10;
// Those of a record: about 100 attempts.
constexpr int kTransitionsMax = 300;
// An attempt has up to three, and DecideRestart counts attempts in them: when
// it does, those of two are gone or not all there, and the submission is one.
static_assert(3 * (kRestartsMax + 2) + 1 < kTransitionsMax);

// As a job's record has them: without their incarnations.
bool IsSameProcess(const Member& a, const Member& b) {
  return a.address() == b.address() && a.hostname() == b.hostname() &&
         a.pid() == b.pid();
}

// kExitRetryable if a failure with this code may go away when the job is run
// again; else kExitFailed.
int ExitCodeFor(int code) {
  switch (static_cast<absl::StatusCode>(code)) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kAborted:    // its process was told to stop
    case absl::StatusCode::kCancelled:  // a peer that stopped ended a call
    // A member's certificate was revoked or has ended; another member has one.
    case absl::StatusCode::kUnauthenticated:
      return kExitRetryable;
    default:
      return kExitFailed;
  }
}

}  // namespace

Job::Job(StoredJob stored, Options options)
    : options_(std::move(options)),
      parameters_(std::move(stored.parameters)),
      tables_(std::move(stored.tables)),
      status_(std::move(stored.status)),
      stored_attempt_(std::move(stored.attempt)),
      attempt_(std::in_place, status_.spec(), options_.grace) {
  // Those that members have found may be of attempts that the record lacks.
  for (const CheckpointInfo& checkpoint : status_.checkpoints()) {
    RaiseAttempt(checkpoint.attempt());
  }
  for (const JobTransition& transition : status_.transitions()) {
    if (transition.state() != PREPARING) continue;
    started_ = FromTimestamp(transition.time());
    break;
  }
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

void Job::AddDoneRank(uint32_t rank) {
  status_.add_done_ranks(rank);
  std::sort(status_.mutable_done_ranks()->begin(),
            status_.mutable_done_ranks()->end());
}

bool Job::IsOver() const { return IsFinal(status_.state()); }

absl::Time Job::since() const {
  const int last = status_.transitions_size() - 1;
  return last < 0 ? absl::InfinitePast()
                  : FromTimestamp(status_.transitions(last).time());
}

absl::Span<const JobProgressTracker::CurvePoint> Job::curve() const {
  if (!attempt_->progress.has_value()) return {};
  return attempt_->progress->curve();
}

void Job::Transition(JobState state, absl::string_view reason, absl::Time now,
                     ClusterActions* actions) {
  SYNCLINE_CHECK(!IsOver() && (state > status_.state() || attempt_->abandoned));
  status_ = Status(now);  // keeps the progress as it was at the end of a state
  status_.set_state(state);
  status_.set_queue_position(0);
  status_.clear_waiting_for();
  // Where there are more, those after the submission go, an attempt at a time.
  if (status_.transitions_size() >= kTransitionsMax) {
    status_.mutable_transitions()->DeleteSubrange(1, 3);
  }
  JobTransition* transition = status_.add_transitions();
  transition->set_state(state);
  // A clock that is set back does not turn the history around.
  const int previous = status_.transitions_size() - 2;
  const absl::Time no_earlier =
      previous < 0 ? now : FromTimestamp(status_.transitions(previous).time());
  *transition->mutable_time() = ToTimestamp(std::max(now, no_earlier));
  transition->set_reason(Utf8Shortened(Utf8Text(reason), kReasonBytesMax));
  actions->push_back(PersistJob{id()});
  actions->push_back(JobChanged{id(), /*transition=*/true});
  AnswerCheckpoints(checkpoint_requests_.TakeAll(),
                    absl::FailedPreconditionError(absl::StrCat(
                        "no checkpoint was made: job ", id(), " is ",
                        JobState_Name(state), ": ", transition->reason())),
                    now, actions);
}

void Job::Join(const Place& place, Role role, uint32_t rank, Participant* out) {
  *out->mutable_member() = place.member;
  out->set_rank(rank);
  attempt_->members.Add(place.session, role, *out);
  // Every user may read the status; a member's incarnation is for the members
  // that work with it.
  out->mutable_member()->clear_incarnation();
}

void Job::Start(absl::Span<const Place> workers, absl::Span<const Place> ps,
                const std::optional<Place>& evaluator, std::string secret,
                absl::Time now, ClusterActions* actions) {
  SYNCLINE_CHECK(IsWaiting());
  if (!status_.workers().empty()) {
    earlier_ = {.attempt = status_.attempt(),
                .chief = status_.workers(0).member()};
  }
  status_.set_attempt(std::max(status_.attempt(), attempt_floor_) + 1);
  status_.clear_workers();
  status_.clear_lost_workers();
  status_.clear_ps();
  status_.clear_evaluator();
  attempt_->pass = {.attempt = status_.attempt(), .secret = std::move(secret)};
  uint32_t rank = 0;
  for (const Place& place : workers) {
    Join(place, Role::kWorker, rank++, status_.add_workers());
  }
  std::string where = absl::StrCat("on ", CountText(workers.size(), "worker"));
  if (const auto groups = WorkerGroups::Of(status_);
      groups.ok() && HasGroups(status_.spec())) {
    absl::StrAppend(&where, " in ", CountText(groups->count(), "group"));
  }
  if (const uint32_t wanted = RangeOf(status_).wanted;
      wanted > 0 && wanted != workers.size()) {
    absl::StrAppend(&where, " instead of ", wanted);
  }
  if (OnlyEvaluates(status_.spec())) {
    where = "to evaluate a checkpoint";
  } else if (IsWithoutPs(status_.spec()) && ps.empty()) {
    absl::StrAppend(&where, ", without ps");
  } else {
    absl::StrAppend(&where, " and ", CountText(ps.size(), "ps"));
  }
  if (evaluator.has_value()) {
    Join(*evaluator, Role::kEvaluator, rank, status_.mutable_evaluator());
    absl::StrAppend(&where, ", evaluated by ",
                    TaskText(evaluator->member.task()));
  }
  rank = 0;
  for (const Place& place : ps) {
    Join(place, Role::kPs, rank++, status_.add_ps());
  }
  attempt_->start = NextStart(status_);
  if (status_.attempt() > 1) {
    absl::StrAppend(&where, ", attempt ", status_.attempt());
  }
  if (status_.attempt() > 1 || attempt_->start.from.has_value()) {
    absl::StrAppend(&where, ", ", StartText(status_));
  }
  BeginRegimes(attempt_->start.clock, now, &status_);
  attempt_->regime_policy.emplace(
      status_.spec(), static_cast<uint32_t>(workers.size()), status_);
  attempt_->progress.emplace(static_cast<uint32_t>(workers.size()),
                             status_.spec().training().epochs(),
                             attempt_->start.clock);
  attempt_->started = now;
  started_ = std::min(started_, now);
  Transition(PREPARING, where, now, actions);
  UpdateWaitingFor(actions);
  const SchedulerMessage prepare = Prepare();
  for (const JobMember& member : attempt_->members.all()) {
    actions->push_back(SendCommand{member.session, prepare});
  }
}

SchedulerMessage Job::Prepare() const {
  return PrepareCommand(status_, attempt_->members, parameters_, tables_,
                        attempt_->pass, attempt_->start);
}

void Job::OnPrepared(SessionId session, const JobPrepared& prepared,
                     absl::Time now, ClusterActions* actions) {
  JobMember* member = attempt_->members.Find(session);
  if (member == nullptr || member->stage != Stage::kPreparing || stopping()) {
    return;
  }
  member->stage = Stage::kPrepared;
  member->activity.clear();
  UpdateWaitingFor(actions);
  if (member->IsChief()) {
    attempt_->clocks_per_epoch = prepared.clocks_per_epoch();
    attempt_->clocks_total = prepared.clocks_total();
    for (const DataFingerprint::Source& source : prepared.data().sources()) {
      if (source.field() == "data.train")
        attempt_->train_samples = source.samples();
      attempt_->sources.push_back(source);
      attempt_->sources.back().clear_files();
    }
  }
  member->problems.assign(prepared.problems().begin(),
                          prepared.problems().end());
  for (std::string& problem :
       attempt_->data.Add(MemberText(member->member()), prepared.data())) {
    member->problems.push_back(std::move(problem));
  }
  if (!prepared.found().empty()) {
    attempt_->found.emplace_back(prepared.found().begin(),
                                 prepared.found().end());
  }
  // With a problem the job is lost, but the others may have some to add.
  if (!member->problems.empty()) {
    attempt_->refused_by = std::min(attempt_->refused_by, now + options_.grace);
  }
  if (!attempt_->members.AllAre(Stage::kPrepared)) return;
  if (attempt_->refused_by == absl::InfiniteFuture()) {
    BeginRun(now, actions);
  } else {
    FailUnprepared(now, actions);
  }
}

void Job::FailUnprepared(absl::Time now, ClusterActions* actions) {
  const std::string problems = attempt_->members.ProblemsText();
  const std::vector<std::string> each = attempt_->members.Problems();
  if (DropDamaged(each, &status_)) {
    return Abandon(DamageText(attempt_->start.from->path(), problems),
                   "the checkpoint before it", now, actions);
  }
  if (TakeFoundCheckpoints(now, actions) &&
      IsUnseen(each, attempt_->start, status_)) {
    return Abandon(
        absl::StrCat("warning: the checkpoint in ",
                     attempt_->start.from->path(),
                     " is gone, and later ones are there: ", problems),
        "the last one there", now, actions);
  }
  const bool is_of_orphans =
      !each.empty() && absl::c_all_of(each, IsOfOrphanedJob);
  if (!is_of_orphans && GoBackToWorkersThatRan(problems, now, actions)) return;
  // A lost worker may come back: with as many as before it has worked.
  const bool has_fewer =
      static_cast<uint32_t>(status_.workers_size()) < ran_with_;
  const bool is_retryable =
      has_fewer || is_of_orphans || IsUnseen(each, attempt_->start, status_);
  Fail(problems, is_retryable ? kExitRetryable : kExitFailed, now, actions);
}

bool Job::TakeFoundCheckpoints(absl::Time now, ClusterActions* actions) {
  // With folders of their own all ps must have it; one folder is the same for
  // all that see it.
  if (status_.spec().checkpoint().directory().empty() &&
      attempt_->found.size() < static_cast<size_t>(status_.ps_size())) {
    return false;
  }
  if (!TakeFound(FoundByAll(attempt_->found), attempt_->start, now, &status_)) {
    return false;
  }
  // The record may be older than the attempt that has made them.
  RaiseAttempt(NextStart(status_).from->attempt());
  actions->push_back(PersistJob{id()});
  return true;
}

std::string Job::OtherDataWarning() const {
  std::string text;
  for (const DataFingerprint::Source& now : attempt_->sources) {
    for (const DataFingerprint::Source& before : ran_on_) {
      if (before.field() != now.field() ||
          (before.crc32c() == now.crc32c() &&
           before.samples() == now.samples())) {
        continue;
      }
      absl::StrAppend(
          &text, "\nwarning: ", now.field(),
          " has other contents than in the attempt before: ",
          CountText(now.samples(), "sample"), " in ",
          CountText(now.file_count(), "file"), " in place of ",
          CountText(before.samples(), "sample"), " in ",
          CountText(before.file_count(), "file"),
          now.field() == "data.train"
              ? ": the job goes on at its clock, and clocks stand for other "
                "samples"
              : ": evaluations do not compare with those before");
    }
  }
  return text;
}

void Job::BeginRun(absl::Time now, ClusterActions* actions) {
  attempt_->running_since = now;
  ran_with_ = static_cast<uint32_t>(status_.workers_size());
  attempt_->health.BeginRun(attempt_->members, attempt_->clocks_total, now);
  attempt_->data = {};
  Transition(RUNNING,
             absl::StrCat("all participants are prepared",
                          StepWarning(status_, attempt_->train_samples),
                          DeviceWarning(status_), OtherDataWarning()),
             now, actions);
  ran_on_ = attempt_->sources;
  const SchedulerMessage run =
      RunCommand(id(), attempt_->pass.attempt, attempt_->clocks_per_epoch,
                 attempt_->clocks_total);
  for (const JobMember& member : attempt_->members.all()) {
    if (member.role == Role::kPs) continue;
    actions->push_back(SendCommand{member.session, run});
  }
  BeginEvaluations(actions);
}

void Job::OnPsReport(SessionId session, const PsReport& report, absl::Time now,
                     ClusterActions* actions) {
  const JobMember* member = attempt_->members.Find(session);
  if (member == nullptr || attempt_->abandoned) return;
  // Without ps all ranks skip the same, and the chief says so.
  const bool reports =
      TrainsWithoutPs() ? member->role == Role::kWorker && member->rank() == 0
                        : member->role == Role::kPs;
  if (!reports) return;
  attempt_->ps_reports.OnReport(member->rank(), report, now);
  if (TakeBlame(report, WorkerGroups::Of(status_).value_or(WorkerGroups()),
                status_.mutable_progress())) {
    actions->push_back(JobChanged{id()});
  }
  CountSkipped(actions);
}

void Job::CountSkipped(ClusterActions* actions) {
  const uint64_t clocks = attempt_->ps_reports.SkippedClocks();
  const uint64_t blocks = attempt_->ps_reports.DroppedBlocks();
  const JobProgress& known = status_.progress();
  if (known.skipped_clocks() == clocks && known.dropped_blocks() == blocks) {
    return;
  }
  status_.mutable_progress()->set_skipped_clocks(clocks);
  status_.mutable_progress()->set_dropped_blocks(blocks);
  actions->push_back(PersistJob{id(), /*durable=*/false});
  actions->push_back(JobChanged{id()});
}

void Job::OnUnreachable(SessionId session, const PeerUnreachable& report,
                        absl::Time now) {
  const JobMember* reporter = attempt_->members.Find(session);
  if (reporter == nullptr || stopping()) return;
  for (const JobMember& peer : attempt_->members.all()) {
    const Member& member = peer.member();
    if (member.incarnation() != report.peer().incarnation()) continue;
    attempt_->health.OnUnreachable(reporter->member(), member, report, now);
  }
}

void Job::OnReport(SessionId session, const WorkerReport& report,
                   absl::Time now, ClusterActions* actions) {
  JobMember* member = attempt_->members.Find(session);
  if (member == nullptr || attempt_->abandoned) return;
  const bool is_of_checkpoint =
      member->IsChief() && TakeCheckpointReport(report, actions);
  if (member->IsChief()) AnswerCheckpointReport(report, now, actions);
  if (attempt_->abandoned) return;
  // A member that is done waits for nothing: a late or repeated report.
  if (report.has_activity() && !is_of_checkpoint &&
      status_.state() <= RUNNING && !member->done) {
    // An evaluation is work and no wait; the watchdog has its text.
    member->activity =
        absl::StartsWith(report.activity(), "evaluating")
            ? ""
            : Utf8Shortened(report.activity(), kActivityBytesMax);
    UpdateWaitingFor(actions);
  }
  if (status_.state() != RUNNING) return;
  if (report.has_regime() && member->IsChief()) {
    TakeRegimeReport(report.regime(), now, actions);
  }
  const bool is_new = report.has_evaluation() &&
                      attempt_->members.Evaluates(*member) &&
                      IsNewEvaluation(report.evaluation(), status_);
  attempt_->health.OnReport(member->member(), report, is_new, now);
  if (report.has_progress() && member->role == Role::kWorker) {
    attempt_->progress->OnReport(member->rank(), report.progress());
  }
  if (is_new) {
    Evaluation evaluation = report.evaluation();
    if (!evaluation.has_time()) *evaluation.mutable_time() = ToTimestamp(now);
    AddEvaluation(std::move(evaluation), &status_);
    // Not worth a disk sync: the job's end writes them through.
    actions->push_back(PersistJob{id(), /*durable=*/false});
    if (EndsEarly(*member, report)) LetWorkersGo(actions);
  }
  ApplyRegimeRules(report, is_new, *member, now, actions);
  TakeEvaluationReport(*member, report, actions);
  actions->push_back(JobChanged{id()});
}

void Job::OnDone(SessionId session, const JobDone& done, absl::Time now,
                 ClusterActions* actions) {
  JobMember* member = attempt_->members.Find(session);
  if (member == nullptr || member->done || stopping()) return;
  // The member's first failure is the cause. Later ones come from the end of
  // the rest of the job there.
  if (member->failed || !member->problems.empty()) return;
  member->failed = done.code() != 0;
  if (done.code() == 0) {
    // A ps has nothing to finish, but no worker can go on without it.
    if (member->role == Role::kPs && done.released()) {
      std::string lost = "it released the job";
      if (!done.message().empty()) {
        absl::StrAppend(
            &lost, ": ",
            Utf8Shortened(Utf8Text(done.message()), kReasonBytesMax));
      }
      return Fail(LossText(*member, lost), kExitRetryable, now, actions);
    }
    // No member is done before it was told to run.
    if (member->role == Role::kPs || status_.state() != RUNNING) return;
    if (StoredElsewhere(*member)) {
      return Fail(
          absl::StrCat(
              MemberText(member->member()),
              " made its part before it came back, and its results are not "
              "here: they were stored in a state that an older one has "
              "replaced"),
          kExitRetryable, now, actions);
    }
    member->done = true;
    attempt_->health.OnDone(member->member());
    AddDoneRank(member->rank());
    if (DecidesEnd(*member) && status_.spec().has_stop() &&
        !done.message().empty()) {
      attempt_->early_end =
          Utf8Shortened(Utf8Text(done.message()), kReasonBytesMax);
      LetWorkersGo(actions);
    } else if (member->IsChief() &&
               LeavesBehind(status_.spec().consistency().mode())) {
      LetWorkersGo(actions);
    }
    FinishIfDone(actions);
    // A member that is done is not asked again, nor by a later scheduler.
    actions->push_back(PersistJob{id()});
    member->activity.clear();
    UpdateWaitingFor(actions);
    return;
  }
  const std::string reason =
      absl::StrCat(MemberText(member->member()), ": ", done.message());
  // Another member stopped first, and says why; or it is a new process, whose
  // loss is about to be noticed.
  if (IsOfOrphanedJob(done.message()) || IsOfLostPs(done.message())) {
    return Fail(reason, kExitRetryable, now, actions);
  }
  // Its process was told to end, and takes its time for that.
  if (done.code() == static_cast<int>(absl::StatusCode::kAborted) &&
      MayGoOnWithout(*member)) {
    GoOnWithout(member, LossText(*member, done.message()), now, actions);
    if (!done.released()) attempt_->leavers.push_back(session);
    return;
  }
  // The cause may be the network between two others, or a loss that is about to
  // be noticed.
  const int exit_code = ExitCodeFor(done.code());
  if (attempt_->health.OnFailure(member->member(), done.code(),
                                 exit_code == kExitRetryable, reason, now)) {
    return;
  }
  Fail(reason, exit_code, now, actions);
}

void Job::FinishIfDone(ClusterActions* actions) {
  if (attempt_->evaluations.has_value() && attempt_->members.WorkersAreDone()) {
    EndCheckpoints();
    SendNextEvaluation(actions);
  }
  attempt_->finishing = attempt_->members.WorkIsDone();
  if (attempt_->finishing) attempt_->health.OnAllDone();
}

void Job::UpdateWaitingFor(ClusterActions* actions) {
  std::string text = Utf8Shortened(
      attempt_->members.WaitingText(status_.state()), kReasonBytesMax);
  if (status_.state() == RUNNING && !attempt_->checkpoint_trouble.empty()) {
    absl::StrAppend(&text, text.empty() ? "" : "; ",
                    attempt_->checkpoint_trouble);
  }
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
  // Nothing waits for a checkpoint.
  absl::string_view waiting_for = status_.waiting_for();
  waiting_for = waiting_for.substr(0, waiting_for.find(kCheckpointTrouble));
  absl::ConsumeSuffix(&waiting_for, "; ");
  if (waiting_for.empty()) return std::string(reason);
  return absl::StrCat(reason, "; the job waited for ", waiting_for);
}

bool Job::TakeCheckpointReport(const WorkerReport& report,
                               ClusterActions* actions) {
  if (status_.state() != RUNNING) return false;
  if (report.has_checkpoint() &&
      TakeCheckpoint(report, attempt_->start.clock, &status_)) {
    attempt_->reached_clock =
        std::max(attempt_->reached_clock, report.checkpoint().clock());
    attempt_->checkpoint_trouble.clear();
    UpdateWaitingFor(actions);
    // A later attempt starts from it, also if the scheduler is another one.
    actions->push_back(PersistJob{id()});
    actions->push_back(JobChanged{id()});
  }
  if (!absl::StartsWith(report.activity(), kCheckpointTrouble)) return false;
  attempt_->checkpoint_trouble =
      Utf8Shortened(report.activity(), kActivityBytesMax);
  UpdateWaitingFor(actions);
  return true;
}

std::string Job::LossText(const JobMember& member,
                          absl::string_view lost) const {
  std::string text = absl::StrCat(MemberTextWithIncarnation(member.member()),
                                  " was lost: ", lost);
  if (status_.state() != RUNNING) {
    return absl::StrCat(text, "; it was preparing the job");
  }
  const JobProgressTracker& progress = *attempt_->progress;
  const bool is_worker = member.role == Role::kWorker;
  int64_t clock =
      is_worker ? progress.ClockOf(member.rank()) : progress.MinClock();
  if (!LeavesBehind(status_.spec().consistency().mode())) {
    clock = std::max(clock, attempt_->reached_clock);
  } else if (!is_worker) {
    // The job's, as Status has it: some workers may be far behind.
    clock = std::max(progress.MaxClock(), attempt_->reached_clock);
  }
  return absl::StrCat(text, "; last clock ", clock);
}

void Job::OnGone(SessionId session, absl::string_view lost, absl::Time now,
                 ClusterActions* actions) {
  JobMember* member = attempt_->members.Find(session);
  if (member == nullptr) return;
  // No member waits for one that is done: its results are stored.
  if (!stopping() && !member->done) {
    // Released without being asked counts as lost: it cannot serve the job.
    const std::string loss =
        LossText(*member, lost.empty() ? "it released the job" : lost);
    const bool goes_on = MayGoOnWithout(*member);
    member->stage = Stage::kGone;
    if (goes_on) {
      GoOnWithout(member, loss, now, actions);
    } else {
      Fail(WithWaitingFor(loss), kExitRetryable, now, actions);
    }
  }
  member->stage = Stage::kGone;
  EndIfAllGone(now, actions);
}

bool Job::HasWorker(const Member& member) const {
  const auto is_same = [&](const Participant& participant) {
    return IsSameProcess(participant.member(), member);
  };
  return absl::c_any_of(status_.workers(), is_same) ||
         (status_.has_evaluator() && is_same(status_.evaluator()));
}

void Job::OnLateReport(const Member& member, const WorkerReport& report,
                       absl::Time now, ClusterActions* actions) {
  if (!report.has_checkpoint() && !report.has_regime() &&
      !report.has_evaluation()) {
    return;
  }
  const bool is_queued = status_.state() == QUEUED;
  const bool is_over =
      status_.state() == FAILED || status_.state() == CANCELLED;
  const bool is_of_last = (is_queued || is_over) &&
                          report.attempt() == status_.attempt() &&
                          !status_.workers().empty() &&
                          IsSameProcess(status_.workers(0).member(), member);
  // A member that registers is given the next attempt at once, before it can
  // repeat what it has reported in the last one.
  const bool is_of_earlier = status_.state() == PREPARING &&
                             report.attempt() == earlier_.attempt &&
                             IsSameProcess(earlier_.chief, member);
  if (!is_of_last && !is_of_earlier) return;
  if (is_of_last && is_queued && report.has_evaluation()) {
    TakeLateEvaluation(report.evaluation(), now);
  }
  if (report.has_regime() && report.regime().error().empty() &&
      !IsKnownChange(report.regime(), status_)) {
    late_regime_of_ = report.attempt();
  }
  // With a change that the record does not have, the checkpoint would be gone
  // on from by another regime than it was made in. If those before it are
  // deleted, it is found on the disk, and its manifest has the regimes
  // (TakeFound).
  const bool is_of_record = late_regime_of_ != report.attempt() &&
                            (is_of_last || !HasLostChanges(status_));
  if (!report.has_checkpoint() || !is_of_record) return;
  const std::string was_to_start = StartText(status_);
  if (!TakeCheckpoint(report, /*first_clock=*/0, &status_, report.attempt())) {
    return;
  }
  if (is_queued) GoOnFromLater(was_to_start);
  actions->push_back(PersistJob{id()});
  actions->push_back(JobChanged{id()});
}

// A late evaluation counts if the chief saves a checkpoint behind it.
void Job::TakeLateEvaluation(Evaluation evaluation, absl::Time now) {
  if (!abandoned_evaluations_.has_value()) return;
  JobStatus of_attempt;
  *of_attempt.mutable_evaluations() = *abandoned_evaluations_;
  if (!IsNewEvaluation(evaluation, of_attempt)) return;
  if (!evaluation.has_time()) *evaluation.mutable_time() = ToTimestamp(now);
  AddEvaluation(std::move(evaluation), &of_attempt);
  abandoned_evaluations_ = of_attempt.evaluations();
}

void Job::GoOnFromLater(const std::string& was_to_start) {
  const int64_t start_clock = NextStart(status_).clock;
  status_.mutable_progress()->set_clock(start_clock);
  std::string* const reason =
      status_.mutable_transitions()->rbegin()->mutable_reason();
  *reason = absl::StrReplaceAll(
      *reason, {{absl::StrCat(" goes on ", was_to_start, " ("),
                 absl::StrCat(" goes on ", StartText(status_), " (")}});
  // Evaluations up to there are not made again.
  if (!abandoned_evaluations_.has_value()) return;
  *status_.mutable_evaluations() = *abandoned_evaluations_;
  ForgetEvaluations(start_clock, &status_);
  ForgetBest(&status_);
}

void Job::OnKeptResults(const Member& member, const std::string& activity,
                        ClusterActions* actions) {
  if ((status_.state() != FAILED && status_.state() != CANCELLED) ||
      !absl::StartsWith(activity, kNotStored) || !HasWorker(member)) {
    return;
  }
  const std::string text = Utf8Shortened(Utf8Text(activity), kActivityBytesMax);
  std::string* const reason =
      status_.mutable_transitions()->rbegin()->mutable_reason();
  // A worker repeats this report after it has registered again.
  if (absl::StrContains(*reason, text) ||
      reason->size() + text.size() > kReasonBytesMax) {
    return;
  }
  absl::StrAppend(reason, "\n", MemberText(member), ": ", text);
  actions->push_back(PersistJob{id()});
  actions->push_back(JobChanged{id()});
}

void Job::EndIfAllGone(absl::Time now, ClusterActions* actions) {
  if (IsOver() || !attempt_->members.AllAre(Stage::kGone)) return;
  if (attempt_->finishing) {
    const std::string& early = attempt_->early_end;
    return Succeed(
        early.empty() ? "" : absl::StrCat("; it ended early: ", early), now,
        actions);
  }
  if (!attempt_->abandoned) return;
  attempt_.emplace(status_.spec(), options_.grace);
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

void Job::OnTick(absl::Time now, ClusterActions* actions) {
  AnswerOverdueCheckpoints(now, actions);
  if (stopping() || status_.state() == QUEUED) return;
  if (const auto obstacle = attempt_->health.Check(now); obstacle.has_value()) {
    return Fail(*obstacle, kExitRetryable, now, actions);
  }
  for (const JobMember& member : attempt_->members.all()) {
    if (now < member.says_done_by || member.done ||
        member.stage == JobMember::Stage::kGone) {
      continue;
    }
    return Fail(
        WithWaitingFor(absl::StrCat(
            MemberText(member.member()), " came back without job ", id(),
            " and does not say that it has made its part: the scheduler's "
            "state is older than what its members have done since")),
        kExitRetryable, now, actions);
  }
  if (now >= attempt_->refused_by) return FailUnprepared(now, actions);
  const double max_seconds = status_.spec().limits().max_seconds();
  if (max_seconds > 0 && now - started_ > absl::Seconds(max_seconds)) {
    return Fail(WithWaitingFor(absl::StrCat(
                    "limits.max_seconds: the job ran for longer than ",
                    max_seconds, " s")),
                kExitFailed, now, actions);
  }
  if (status_.state() != PREPARING ||
      now - attempt_->started <= options_.prepare_timeout) {
    return;
  }
  Fail(absl::StrCat("not prepared within ",
                    absl::FormatDuration(options_.prepare_timeout), ": ",
                    attempt_->members.UnpreparedText()),
       kExitRetryable, now, actions);
}

void Job::Cancel(absl::string_view reason, absl::Time now,
                 ClusterActions* actions) {
  Transition(CANCELLED, reason.empty() ? "cancelled by the user" : reason, now,
             actions);
  status_.set_exit_code(kExitFailed);
}

void Job::Fail(absl::string_view reason, int exit_code, absl::Time now,
               ClusterActions* actions) {
  if (status_.state() == FAILED) return;
  RestartDecision restart;
  if (!stopping() && !IsWaiting()) {
    restart = DecideRestart(status_, reason, exit_code, now);
    if (restart.restarts) return Abandon(reason, restart.text, now, actions);
    // One that its newcomers end again and again has run without them.
    if (status_.state() == PREPARING &&
        GoBackToWorkersThatRan(reason, now, actions)) {
      return;
    }
  }
  Transition(FAILED, absl::StrCat(reason, restart.text), now, actions);
  status_.set_exit_code(restart.repeated ? kExitFailed : exit_code);
  has_just_failed_ = true;
}

void Job::Abandon(absl::string_view reason, absl::string_view which,
                  absl::Time now, ClusterActions* actions) {
  attempt_->abandoned = true;
  const std::string losses = LossesText();
  const int64_t start_clock = NextStart(status_).clock;
  abandoned_evaluations_ = status_.evaluations();
  ForgetEvaluations(start_clock, &status_);
  Transition(QUEUED,
             absl::StrCat(
                 Utf8Shortened(reason, kRestartBytesMax), kNextAttempt,
                 std::max(status_.attempt(), attempt_floor_) + 1, " goes on ",
                 StartText(status_), " (", which, ")", losses,
                 ForgetBest(&status_)
                     ? "\nwarning: best.onnx will be the best from there on: "
                       "the parameters of evaluations before it were with the "
                       "members of this attempt"
                     : ""),
             now, actions);
  status_.clear_done_ranks();
  status_.clear_progress();
  status_.mutable_progress()->set_clock(start_clock);
  status_.set_waiting_for(absl::StrCat("the members of attempt ",
                                       status_.attempt(), " to release it"));
}

bool Job::TakeFailure() { return std::exchange(has_just_failed_, false); }

void Job::MarkRepeated(const std::string& earlier) {
  SYNCLINE_CHECK(status_.state() == FAILED);
  status_.mutable_transitions()->rbegin()->mutable_reason()->append(
      absl::StrCat("\nthe same has happened to job ", earlier,
                   ", which had the same model and spec: it would happen "
                   "again"));
  status_.set_exit_code(kExitFailed);
}

std::string Job::StopReason() const {
  if (!IsOver() && !attempt_->abandoned) return "the job is done";
  const int last = status_.transitions_size() - 1;
  const std::string& reason = status_.transitions(last).reason();
  if (status_.state() == QUEUED) return absl::StrCat(kJobGoesBack, reason);
  return absl::StrCat(JobState_Name(status_.state()), ": ", reason);
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

absl::StatusOr<SchedulerMessage> Job::RequestProfile(uint32_t rank,
                                                     uint32_t steps) {
  SchedulerMessage message;
  SYNCLINE_ASSIGN_OR_RETURN(*message.mutable_profile(),
                            attempt_->profiles.Add(rank, steps, status_));
  return message;
}

bool Job::StoredElsewhere(const JobMember& member) const {
  return member.IsChief() && member.says_done_by != absl::InfiniteFuture() &&
         absl::c_none_of(status_.artifacts(), [](const Artifact& artifact) {
           return artifact.name() == "history.csv";
         });
}

void Job::AddArtifact(const Artifact& artifact, ClusterActions* actions) {
  attempt_->profiles.OnStored(artifact.name());
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
  if (attempt_->progress.has_value() && status_.state() == RUNNING) {
    JobProgress progress =
        attempt_->progress->Summary(now - attempt_->running_since);
    progress.set_skipped_clocks(status_.progress().skipped_clocks());
    progress.set_dropped_blocks(status_.progress().dropped_blocks());
    *progress.mutable_blame() = status_.progress().blame();
    if (LeavesBehind(status_.spec().consistency().mode())) {
      FollowTheForemost(attempt_->start.clock, attempt_->progress->ends_early(),
                        now - attempt_->running_since, &progress);
    }
    *status.mutable_progress() = std::move(progress);
  }
  return status;
}

}  // namespace syncline::scheduler
