#include "worker/training/checkpointer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/fault_points.h"
#include "common/base/status_macros.h"
#include "common/cuts/cut_id.h"
#include "common/job/checkpoint_trouble.h"
#include "common/job/lease_rules.h"
#include "common/job/step_limits.h"
#include "common/regime/gradient_compression.h"
#include "common/regime/job_regimes.h"
#include "common/system/log.h"

namespace syncline::worker {
namespace {

// The thread acts when it is told to.
constexpr absl::Duration kIdlePeriod = absl::Hours(1);
// A disk that is slower than a job asks for need not be named each time.
constexpr absl::Duration kLogPeriod = absl::Seconds(60);
constexpr char kNoStepLeft[] =
    "the job has made its last step, and writes its results";

}  // namespace

Checkpointer::Checkpointer(const PreparedJob& job, const Epochs& epochs,
                           ParameterExchange* parameters, Options options)
    : job_(job),
      epochs_(epochs),
      parameters_(parameters),
      options_(std::move(options)),
      policy_(job.spec().checkpoint(), MonotonicNow()) {
  if (job.spec().has_checkpoint()) {
    thread_.emplace("checkpoint", kIdlePeriod, [this] { WriteNext(); });
  }
}

Checkpointer::~Checkpointer() {
  Cancel();
  if (thread_.has_value()) thread_->Stop();
}

std::string Checkpointer::Name(int64_t clock) const {
  return absl::StrCat("at clock ", clock);
}

bool Checkpointer::IsBusy() const {
  MutexLock lock(&mu_);
  return written_ != nullptr;
}

// --- Requests ----------------------------------------------------------------

void Checkpointer::Request() {
  if (!thread_.has_value()) return Refuse("the job has no `checkpoint`");
  bool late = false;
  {
    MutexLock lock(&mu_);
    late = steps_ended_;
    if (!late) requested_ = true;
  }
  if (late) Refuse(kNoStepLeft);
}

void Checkpointer::EndSteps() {
  bool refused = false;
  {
    MutexLock lock(&mu_);
    steps_ended_ = true;
    refused = std::exchange(requested_, false);
  }
  // An announced cut that was not reached is given up.
  refused |= open_.has_value() && open_->requested;
  if (refused) Refuse(kNoStepLeft);
}

bool Checkpointer::IsRequested() const {
  MutexLock lock(&mu_);
  return requested_;
}

bool Checkpointer::TakeRequest() {
  MutexLock lock(&mu_);
  return std::exchange(requested_, false);
}

void Checkpointer::Refuse(const std::string& why) const {
  if (options_.on_refused != nullptr) options_.on_refused(why);
}

// --- The training thread's part ----------------------------------------------

absl::Status Checkpointer::BeforeStep(int64_t clock, int64_t next) {
  const bool is_final = IsResult(next);
  if (is_final && thread_.has_value()) AwaitWritten();
  const absl::Time now = MonotonicNow();
  if (!thread_.has_value() || !(policy_.IsDue(clock, next, now) || put_off_ ||
                                is_final || IsRequested())) {
    return absl::OkStatus();
  }
  const std::optional<int64_t> point = policy_.PointBetween(clock, next);
  if (!open_.has_value() && !IsBusy()) {
    return Begin(is_final ? next : point.value_or(clock + 1));
  }
  // By time it stays due, and begins when this one is whole.
  if (point.has_value() && now >= next_log_) {
    next_log_ = now + kLogPeriod;
    LogWarning("a checkpoint is left out: the one before is still written")
        .Job(job_.assignment.job_id())
        .Field("clock", *point);
  }
  return absl::OkStatus();
}

// By time it stays due, and a request stays.
void Checkpointer::PutOff(int64_t clock, int64_t next) {
  if (!thread_.has_value()) return;
  put_off_ |= policy_.PointBetween(clock, next).has_value();
}

std::vector<int64_t> Checkpointer::ClocksToAskFor(int64_t clock) const {
  const auto workers = static_cast<size_t>(job_.assignment.workers_size());
  // Ranks that run ahead of each other are cut where they are.
  const bool in_step =
      job_.regimes.At(clock - 1).in_step() || LeasesData(job_.spec());
  // The job's result is of its last clock, in every mode.
  const bool is_result = IsResult(clock);
  std::vector<int64_t> clocks(workers, in_step || is_result ? clock : 0);
  clocks[0] = clock;
  return clocks;
}

absl::Status Checkpointer::Begin(int64_t clock) {
  const absl::Time now = MonotonicNow();
  policy_.OnBegun(now);
  put_off_ = false;
  const bool requested = TakeRequest();
  if (const absl::Status fault = AtFaultPoint(FaultPoint::kCheckpointBegin);
      !fault.ok()) {
    Fail(clock, requested, fault);
    return absl::OkStatus();
  }
  const uint64_t id = MakeCutId(job_.assignment.attempt(), clock,
                                CutSeries::kChief, /*number=*/0);
  absl::StatusOr<std::vector<int64_t>> agreed = parameters_->BeginCut(
      {.id = id, .use = CutUse::kCheckpoint, .clocks = ClocksToAskFor(clock)});
  if (absl::IsCancelled(agreed.status())) return agreed.status();
  if (!agreed.ok()) {
    // Where the exchange itself has failed, its next call says so.
    Fail(clock, requested, agreed.status());
    return absl::OkStatus();
  }
  open_ = OpenCut{.id = id,
                  .clocks = *std::move(agreed),
                  .begun = now,
                  .requested = requested};
  return absl::OkStatus();
}

bool Checkpointer::IsBehind(int64_t clock) const {
  return open_.has_value() &&
         *std::max_element(open_->clocks.begin(), open_->clocks.end()) > clock;
}

absl::Status Checkpointer::Await(int64_t clock) {
  return parameters_->AwaitCut(open_->id, clock);
}

absl::Status Checkpointer::Write(int64_t clock,
                                 const std::optional<LossScale>& loss_scale) {
  OpenCut cut = *std::exchange(open_, std::nullopt);
  auto written = std::make_shared<Written>();
  written->writing = parameters_->OpenCheckpoint(cut.id);
  written->begun = cut.begun;
  written->requested = cut.requested;
  const absl::Status ended = parameters_->EndCut(cut.id, clock);
  if (absl::IsCancelled(ended)) return ended;
  const int64_t first = *std::min_element(cut.clocks.begin(), cut.clocks.end());
  if (!ended.ok() || written->writing == nullptr) {
    Fail(first, cut.requested,
         written->writing == nullptr
             ? absl::UnimplementedError("nothing here is written")
             : ended);
    return absl::OkStatus();
  }
  CheckpointParts& parts = written->parts;
  parts = PartsOf(*written->writing);
  if (loss_scale.has_value()) {
    parts.loss_scales.assign(cut.clocks.size(), *loss_scale);
  }
  parts.clocks = std::move(cut.clocks);
  {
    MutexLock lock(&mu_);
    if (cancelled_) return absl::CancelledError("stopped");
    written_ = std::move(written);
  }
  thread_->RunSoon();
  return absl::OkStatus();
}

CheckpointParts Checkpointer::PartsOf(const CheckpointWriting& writing) const {
  CheckpointParts parts;
  parts.cut_id = writing.cut_id();
  parts.block_shards = writing.block_shards();
  parts.total_clocks = epochs_.clocks_total;
  for (const TrainingRegime& regime : job_.regimes.regimes()) {
    parts.regimes.push_back(ToProto(regime));
  }
  parts.model_crc32c = options_.model_crc32c;
  return parts;
}

void Checkpointer::SaveAlone() {
  if (!thread_.has_value()) return;
  Cancel();
  thread_->Stop();
  const std::optional<int64_t> clock = parameters_->OwnClock();
  if (!clock.has_value() || *clock <= job_.assignment.start_clock()) return;
  const absl::Time begun = MonotonicNow();
  {
    MutexLock lock(&mu_);
    if (*clock <= whole_clock_ || saving_ended_) return;
  }
  LogInfo("saving the job without the other ranks")
      .Job(job_.assignment.job_id())
      .Field("clock", *clock);
  // 1-bit Adam keeps nothing of gradients that went whole.
  const GradientCompression& compression = job_.regimes.At(*clock).compression;
  if (compression.has_residuals() &&
      (compression.kind != GradientCompression::Kind::kOneBitAdam ||
       compression.SendsMoments(*clock - 1))) {
    LogWarning(
        "what workers keep of compressed gradients is not saved with it: it "
        "begins anew")
        .Job(job_.assignment.job_id())
        .Field("clock", *clock);
  }
  PeriodicTask watch("saving", kSayPeriod, [&] {
    if (MonotonicNow() - begun > kSaveMax) return EndSaving();
    if (options_.on_saving == nullptr) return;
    options_.on_saving(absl::StrCat(kSavesAlone, *clock));
  });
  auto written = std::make_shared<Written>();
  // Another folder than that of a checkpoint that was given up there. Without
  // the lock: state that is on a GPU comes from there, and a stop does not wait
  // for it.
  written->writing = parameters_->SaveAlone(MakeCutId(
      job_.assignment.attempt(), *clock, CutSeries::kChief, kSavedAloneCut));
  written->parts = PartsOf(*written->writing);
  written->parts.clocks.assign(
      static_cast<size_t>(job_.assignment.workers_size()), *clock);
  written->begun = begun;
  bool has_ended = false;
  {
    MutexLock lock(&mu_);
    alone_ = written;
    has_ended = saving_ended_;
  }
  if (has_ended) written->writing->Cancel();
  const absl::Status made = MakeWhole(written.get());
  if (made.ok()) return;
  const bool is_late = MonotonicNow() - begun > kSaveMax;
  Fail(*clock, /*requested=*/false,
       is_late ? absl::DeadlineExceededError(absl::StrCat(
                     "not written within ", absl::FormatDuration(kSaveMax)))
               : made);
}

void Checkpointer::EndSaving() {
  std::shared_ptr<Written> alone;
  {
    MutexLock lock(&mu_);
    saving_ended_ = true;
    alone = alone_;
  }
  if (alone != nullptr) alone->writing->Cancel();
}

void Checkpointer::AwaitWritten() {
  const absl::Time until =
      MonotonicNow() +
      absl::Seconds(job_.spec().limits().step_timeout_seconds()) / 2;
  MutexLock lock(&mu_);
  while (written_ != nullptr && !cancelled_ && MonotonicNow() < until) {
    idle_.WaitUntil(&mu_, until);
  }
}

void Checkpointer::Finish() {
  open_.reset();
  const absl::Duration limit = LastCheckpointWaitMax(
      absl::Seconds(job_.spec().limits().step_timeout_seconds()));
  std::shared_ptr<Written> left;
  {
    MutexLock lock(&mu_);
    const absl::Time give_up = MonotonicNow() + limit;
    while (written_ != nullptr && MonotonicNow() < give_up) {
      idle_.WaitUntil(&mu_, give_up);
    }
    left = written_;
  }
  if (left == nullptr) return;
  Fail(*std::min_element(left->parts.clocks.begin(), left->parts.clocks.end()),
       left->requested,
       absl::UnavailableError(absl::StrCat(
           "it was not written in ", absl::FormatDuration(limit),
           " after the job's last step: a disk hangs, or is too slow")));
  left->writing->Cancel();
  MutexLock lock(&mu_);
  while (written_ != nullptr) {
    idle_.WaitUntil(&mu_, MonotonicNow() + absl::Minutes(1));
  }
}

void Checkpointer::Cancel() {
  std::shared_ptr<Written> written;
  {
    MutexLock lock(&mu_);
    cancelled_ = true;
    idle_.SignalAll();
    written = written_;
  }
  if (written != nullptr) written->writing->Cancel();
}

// --- The thread's ------------------------------------------------------------

void Checkpointer::WriteNext() {
  std::shared_ptr<Written> written;
  {
    MutexLock lock(&mu_);
    written = written_;
  }
  if (written == nullptr) return;
  const int64_t clock = *std::min_element(written->parts.clocks.begin(),
                                          written->parts.clocks.end());
  const absl::Status made = MakeWhole(written.get());
  if (!made.ok() && !absl::IsCancelled(made)) {
    Fail(clock, written->requested, made);
  }
  MutexLock lock(&mu_);
  written_ = nullptr;
  idle_.SignalAll();
}

absl::Status Checkpointer::MakeWhole(Written* written) {
  CheckpointParts& parts = written->parts;
  SYNCLINE_ASSIGN_OR_RETURN(const auto of_shards,
                            written->writing->AwaitParts());
  for (const CheckpointWriting::Part& of_shard : of_shards) {
    AwaitCheckpointResponse& part = parts.shards.emplace_back();
    part.set_file(of_shard.file);
    part.set_bytes(of_shard.bytes);
    part.set_crc32c(of_shard.crc32c);
  }
  parts.time = absl::Now();
  parts.took = MonotonicNow() - written->begun;
  const CheckpointManifest manifest = MakeManifest(job_.assignment, parts);
  SYNCLINE_ASSIGN_OR_RETURN(const std::string encoded,
                            EncodeManifest(manifest));
  SYNCLINE_RETURN_IF_ERROR(AtFaultPoint(FaultPoint::kCheckpointCommit));
  SYNCLINE_ASSIGN_OR_RETURN(const CheckpointWriting::Whole committed,
                            written->writing->Commit(encoded));
  SYNCLINE_RETURN_IF_ERROR(AtFaultPoint(FaultPoint::kCheckpointCommitted));
  const CheckpointInfo whole =
      CheckpointInfoOf(manifest, committed.path, encoded);
  {
    MutexLock lock(&mu_);
    whole_clock_ = std::max(whole_clock_, whole.clock());
  }
  LogInfo("checkpoint")
      .Job(job_.assignment.job_id())
      .Field("clock", whole.clock())
      .Field("bytes", whole.bytes())
      .Field("seconds", whole.seconds())
      .Field("path", whole.path());
  options_.on_whole(whole, committed.deleted);
  return absl::OkStatus();
}

void Checkpointer::Fail(int64_t clock, bool requested,
                        const absl::Status& why) {
  LogWarning("no checkpoint")
      .Job(job_.assignment.job_id())
      .Field("clock", clock)
      .Status(why);
  const std::string text = absl::StrCat(Name(clock), ": ", why.message());
  options_.on_trouble(text);
  if (requested) Refuse(text);
}

}  // namespace syncline::worker
