#include "worker/training/checkpoint_evaluation.h"

#include <filesystem>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/checkpoint_marks.h"
#include "common/system/log.h"
#include "worker/job/checkpoint_values.h"

namespace syncline::worker {
namespace {

// How often it is said how much of a checkpoint is read.
constexpr absl::Duration kSayPeriod = absl::Seconds(1);
// Of a table, that are made at a time.
constexpr size_t kInitialRowsMax = 4096;

}  // namespace

CheckpointEvaluation::CheckpointEvaluation(const PreparedJob& job,
                                           const Epochs& epochs,
                                           Options options)
    : job_(job),
      epochs_(epochs),
      options_(std::move(options)),
      evaluator_(
          job, epochs, /*parameters=*/nullptr, options_.metrics,
          [this](const Evaluation& evaluation, const StoringProgress& storing) {
            OnEvaluated(evaluation, storing);
          },
          options_.on_activity, job.checkpoint_rows.get()) {}

CheckpointEvaluation::~CheckpointEvaluation() {
  if (!stop_reason().empty()) Unmark(evaluated_.path(), /*best=*/false);
}

void CheckpointEvaluation::Request(const EvaluateCheckpoint& command) {
  MutexLock lock(&mu_);
  if (!command.has_checkpoint()) {
    finish_ = true;
  } else if (command.checkpoint().path() != under_way_) {
    next_ = command.checkpoint();
  }
  changed_.SignalAll();
}

void CheckpointEvaluation::Stop() {
  stop_.store(true);
  MutexLock lock(&mu_);
  changed_.SignalAll();
}

absl::StatusOr<std::optional<CheckpointInfo>> CheckpointEvaluation::Await() {
  MutexLock lock(&mu_);
  under_way_.clear();
  while (!stop_.load() && !next_.has_value() && !finish_) {
    changed_.WaitUntil(&mu_, MonotonicNow() + absl::Minutes(1));
  }
  if (stop_.load()) return absl::CancelledError("stopped");
  if (!next_.has_value()) return std::nullopt;
  under_way_ = next_->path();
  return std::exchange(next_, std::nullopt);
}

absl::Status CheckpointEvaluation::Run() {
  while (true) {
    SYNCLINE_ASSIGN_OR_RETURN(const std::optional<CheckpointInfo> next,
                              Await());
    if (!next.has_value()) return absl::OkStatus();
    if (next->path() != answered_) {
      SYNCLINE_RETURN_IF_ERROR(EvaluateOrReport(*next));
    } else if (evaluation_.has_value()) {
      options_.on_evaluation(*evaluation_, [](uint64_t) {});
    } else {
      options_.on_failed(answered_, error_);
    }
    if (evaluation_.has_value() && evaluation_->final()) {
      return absl::OkStatus();
    }
  }
}

absl::Status CheckpointEvaluation::EvaluateOrReport(
    const CheckpointInfo& checkpoint) {
  const std::string& path = checkpoint.path();
  if (Marks(path) && !std::exchange(cleared_, true)) {
    ClearMarksOfJob(std::filesystem::path(path).parent_path().string());
  }
  Mark(path, /*best=*/false);
  if (!may_mark_ && job_.rows != nullptr && job_.spec().has_stop()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "stop: of a job with tables, the checkpoint that it ends with is read "
        "again for its result, so it must stay; the evaluator cannot write in ",
        path, ", where it would mark it"));
  }
  // Its rows may be read once more where the job ends with it.
  const absl::Cleanup unmark = [&] {
    if (stop_reason().empty()) Unmark(path, /*best=*/false);
  };
  evaluation_.reset();
  error_.clear();
  const size_t before = evaluator_.evaluations().size();
  const absl::Status status = Evaluate(checkpoint);
  if (stop_.load()) return absl::CancelledError("stopped");
  answered_ = path;
  if (evaluator_.evaluations().size() > before) return status;
  if (status.ok()) return status;
  // It could not be read. An evaluation that fails is the job's failure, and
  // has read its values.
  error_ = std::string(status.message());
  if (!read_) {
    LogWarning("a checkpoint could not be evaluated")
        .Job(job_.assignment.job_id())
        .Field("clock", checkpoint.clock())
        .Field("path", path)
        .Status(status);
    options_.on_failed(path, error_);
    return absl::OkStatus();
  }
  return status;
}

absl::Status CheckpointEvaluation::Evaluate(const CheckpointInfo& checkpoint) {
  read_ = false;
  const std::string what = absl::StrCat("evaluating clock ", checkpoint.clock(),
                                        ": reading its checkpoint");
  options_.on_activity(what);
  const absl::Cleanup over = [this] { options_.on_activity(""); };
  // An error of the data's keys is the job's failure.
  read_ = true;
  SYNCLINE_RETURN_IF_ERROR(PrepareRows(checkpoint.clock()));
  read_ = false;
  uint64_t read = 0;
  SYNCLINE_RETURN_IF_ERROR(
      ReadCheckpointValues(job_, checkpoint, Reading(what, &read), &read));
  read_ = true;
  evaluated_ = checkpoint;
  return evaluator_.Run({.id = 0, .clock = checkpoint.clock()}, stop_,
                        checkpoint.path());
}

GoOnCheck CheckpointEvaluation::Reading(std::string what,
                                        const uint64_t* read) {
  return [this, what = std::move(what), read,
          say_at = MonotonicNow() + kSayPeriod]() mutable {
    if (stop_.load()) return absl::CancelledError("stopped");
    if (const absl::Time now = MonotonicNow(); now >= say_at) {
      say_at = now + kSayPeriod;
      options_.on_activity(
          absl::StrCat(what, ", ", *read >> 20, " MiB so far"));
    }
    return absl::OkStatus();
  };
}

absl::Status CheckpointEvaluation::PrepareRows(int64_t clock) {
  if (job_.rows == nullptr || has_keys_) return absl::OkStatus();
  SYNCLINE_RETURN_IF_ERROR(evaluator_.CollectKeys(clock, stop_));
  SYNCLINE_RETURN_IF_ERROR(job_.checkpoint_rows->Begin());
  has_keys_ = true;
  LogInfo("the test data's rows of tables are read from checkpoints")
      .Job(job_.assignment.job_id())
      .Field("keys", job_.checkpoint_rows->keys());
  return absl::OkStatus();
}

TableReader CheckpointEvaluation::ReaderOf(uint32_t table) {
  const std::string what =
      absl::StrCat("reading table ", job_.training.tables[table].name, " of ",
                   evaluated_.path());
  return {.scan =
              [=, this](TableReader::Sink sink) {
                uint64_t read = 0;
                return ScanCheckpointTable(job_, evaluated_, table, sink,
                                           Reading(what, &read), &read);
              },
          .keys_max = kInitialRowsMax,
          // None of these is in the checkpoint.
          .read =
              [this, table](absl::Span<const int64_t> keys, float* values) {
                job_.checkpoint_rows->FillInitial(table, keys, values);
                return absl::OkStatus();
              }};
}

void CheckpointEvaluation::OnEvaluated(const Evaluation& evaluation,
                                       const StoringProgress& storing) {
  evaluation_ = evaluation;
  if (evaluation.best()) {
    Mark(evaluation.checkpoint(), /*best=*/true);
    if (!best_.empty()) Unmark(best_, /*best=*/true);
    best_ = evaluation.checkpoint();
  }
  options_.on_evaluation(evaluation, storing);
}

bool CheckpointEvaluation::Marks(const std::string& path) const {
  const std::filesystem::path own =
      std::filesystem::path(job_.spec().checkpoint().directory()) /
      job_.assignment.job_id();
  return options_.marks &&
         std::filesystem::path(path).parent_path().lexically_normal() ==
             own.lexically_normal();
}

void CheckpointEvaluation::Mark(const std::string& path, bool best) {
  if (!Marks(path) || !may_mark_) return;
  const absl::Status marked =
      SetMark(path, best ? CheckpointMark::kBest : CheckpointMark::kBeingRead);
  // One that is gone is named when it is read.
  if (marked.ok() || absl::IsNotFound(marked)) return;
  may_mark_ = false;
  LogWarning(
      "checkpoints cannot be marked: retention may delete one while it is "
      "evaluated, and the best one")
      .Job(job_.assignment.job_id())
      .Status(marked);
}

void CheckpointEvaluation::Unmark(const std::string& path, bool best) {
  if (!Marks(path)) return;
  const absl::Status cleared = ClearMark(
      path, best ? CheckpointMark::kBest : CheckpointMark::kBeingRead);
  if (cleared.ok()) return;
  LogWarning("a checkpoint stays marked")
      .Job(job_.assignment.job_id())
      .Status(cleared);
}

}  // namespace syncline::worker
