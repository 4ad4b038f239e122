#include "worker/training/job_run.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "common/base/backoff.h"
#include "common/base/clock.h"
#include "common/base/random.h"
#include "common/base/status_macros.h"
#include "common/base/utf8.h"
#include "common/cluster/peer_unreachable.h"
#include "common/cluster/utf8_fields.h"
#include "common/model/weight_report.h"
#include "common/system/file.h"
#include "common/system/log.h"
#include "worker/export/file_growth.h"
#include "worker/export/job_results.h"
#include "worker/export/kept_results.h"
#include "worker/training/skipped_counts.h"

namespace syncline::worker {
namespace {

// gRPC lets go of a cancelled call's slices within milliseconds.
constexpr absl::Duration kSliceTimeout = absl::Seconds(10);
constexpr absl::Duration kLogUploadTimeout = absl::Seconds(5);
constexpr absl::Duration kProfileUploadTimeout = absl::Seconds(10);
constexpr absl::Duration kFetchTimeout = absl::Minutes(10);
// A scheduler that is out of reach for less costs no job.
constexpr absl::Duration kFetchPatience = absl::Minutes(1);
constexpr Backoff kFetchBackoff = {.initial = absl::Milliseconds(500),
                                   .max = absl::Seconds(4)};
constexpr absl::Duration kActivityPeriod = absl::Seconds(1);
// A small part of the shortest step timeout.
constexpr absl::Duration kGrowthPeriod = absl::Milliseconds(100);
// Results do not wait longer for a ps that does not say what it skipped.
constexpr absl::Duration kSkippedTimeout = absl::Seconds(5);
constexpr uint64_t kModelBytesMax = 8ull << 30;
constexpr char kBestModel[] = "best.onnx";
constexpr char kBestWeights[] = "best.safetensors";

// Rank of the process `incarnation`; -1 if it takes no part.
int FindRank(const JobAssignment& assignment, uint64_t incarnation) {
  for (const Participant& worker : assignment.workers()) {
    if (worker.member().incarnation() == incarnation) {
      return static_cast<int>(worker.rank());
    }
  }
  if (assignment.has_evaluator() &&
      assignment.evaluator().member().incarnation() == incarnation) {
    return assignment.workers_size();
  }
  return -1;
}

// This process, as the job knows it; null if it takes no part.
const Member* FindSelf(const JobAssignment& assignment, uint64_t incarnation) {
  const int rank = FindRank(assignment, incarnation);
  if (rank < 0) return nullptr;
  return rank < assignment.workers_size() ? &assignment.workers(rank).member()
                                          : &assignment.evaluator().member();
}

std::string HostOf(const JobAssignment& assignment, uint64_t incarnation) {
  const Member* const self = FindSelf(assignment, incarnation);
  return self == nullptr ? "" : self->hostname();
}

ResultUpload::Options ResultOptions(const JobAssignment& assignment,
                                    const JobRun::Options& options) {
  return {.job_id = assignment.job_id(),
          .hostname = HostOf(assignment, options.incarnation),
          .folder = absl::StrCat(options.work_dir, "/", assignment.job_id(),
                                 "/results"),
          .kept_folder = KeptResultsFolder(
              options.results_root.empty() ? options.work_dir
                                           : options.results_root,
              assignment.job_id(), options.incarnation),
          .limit = options.store_limit};
}

// "logs/worker-2.log"
std::string LogName(const PreparedJob& job) {
  return absl::StrCat(
      "logs/", absl::StrReplaceAll(job.task_name(), {{":", "-"}}), ".log");
}

}  // namespace

JobRun::JobRun(const JobAssignment& assignment, const Options& options,
               ArtifactTransfer* artifacts, WorkerMetrics* metrics,
               std::function<void(DaemonMessage)> send)
    : assignment_(assignment),
      options_(options),
      dir_(absl::StrCat(options.work_dir, "/", assignment.job_id())),
      artifacts_(artifacts),
      metrics_(metrics),
      send_(std::move(send)),
      results_(ResultOptions(assignment, options), artifacts,
               [this](const std::string& text) { SendActivity(text); }) {}

void JobRun::RequestRun(const RunJob& command) {
  MutexLock lock(&mu_);
  run_ = command;
  changed_.SignalAll();
}

void JobRun::RequestProfile(const ProfileSteps& wish) {
  MutexLock lock(&mu_);
  if (trainer_ != nullptr) return trainer_->RequestProfile(wish);
  if (!ended_) profiles_wanted_.push_back(wish);
}

bool JobRun::RequestStop(const std::string& reason) {
  LogInfo("job stopping").Job(job_id()).Field("reason", reason);
  MutexLock lock(&mu_);
  if (ended_) return false;
  if (!stop_) stop_reason_ = reason;
  stop_ = true;
  changed_.SignalAll();
  if (trainer_ != nullptr) trainer_->Stop();
  if (evaluation_ != nullptr) evaluation_->Stop();
  results_.Stop();
  cancellation_.Cancel();
  return true;
}

bool JobRun::stop_requested() const {
  MutexLock lock(&mu_);
  return stop_;
}

bool JobRun::ended() const {
  MutexLock lock(&mu_);
  return ended_;
}

void JobRun::Execute() {
  const JobLogCapture log(job_id());
  LogInfo("job preparing").Job(job_id());
  const std::vector<std::string> problems = Prepare();
  // A run that was stopped says so at its end. Its problems are those of the
  // stop, and would be taken for some of the job.
  const bool stopped = stop_requested();
  for (const std::string& problem : problems) {
    LogWarning(stopped ? "job stopped while it was prepared" : "job refused")
        .Job(job_id())
        .Field("problem", problem);
  }
  const std::string log_name = job_ != nullptr ? LogName(*job_) : "";
  if (!problems.empty()) ReleaseMemory();
  if (!stopped) SendPrepared(problems);

  if (problems.empty()) WarnOfLargeSteps();
  bool succeeded = false;
  if (problems.empty() && AwaitRun()) {
    const absl::Status status =
        job_->is_evaluator() ? EvaluateAndUpload() : TrainAndUpload();
    succeeded = status.ok();
    if (succeeded) {
      LogInfo("job done").Job(job_id());
    } else if (!stop_requested()) {
      LogWarning("job failed").Job(job_id()).Status(status);
      SendDone(status, /*released=*/false);
    }
  }
  TellKeptResults();
  ReleaseMemory();
  LogInfo("job released").Job(job_id());
  if (!log_name.empty()) {
    const absl::Status status =
        UploadText(log_name, log.text(), kLogUploadTimeout,
                   /*cancellation=*/nullptr);  // a stop does not end it
    if (!status.ok()) LogWarning("log not uploaded").Status(status);
  }
  const absl::Status removed = RemoveTree(dir_);
  if (!removed.ok()) LogWarning("work directory not removed").Status(removed);
  End(succeeded);
}

// To the scheduler too: a job that has ended names it in its reason.
void JobRun::TellKeptResults() {
  const absl::Status stored = results_.Finish();
  const std::string folder = results_.LeftFolder();
  if (stored.ok() || folder.empty()) return;
  LogError("results are on this host alone")
      .Job(job_id())
      .Field("host", HostOf(assignment_, options_.incarnation))
      .Field("folder", folder)
      .Field("what_to_do",
             absl::StrCat("copy the folder: the scheduler does not have these "
                          "files, and a worker that starts here removes them "
                          "when they are older than ",
                          absl::FormatDuration(kKeptResultsAge)))
      .Status(stored);
  SendActivity(std::string(stored.message()));
}

void JobRun::End(bool succeeded) {
  // A scheduler that has not asked for the stop, because it was out of reach,
  // must not take it for success.
  absl::Status outcome;
  {
    MutexLock lock(&mu_);
    ended_ = true;
    if (!succeeded && !stop_) return;
    if (!succeeded) {
      outcome = absl::AbortedError(absl::StrCat("stopped: ", stop_reason_));
    }
  }
  SendDone(outcome, /*released=*/true);
}

std::vector<std::string> JobRun::Prepare() {
  const int rank = FindRank(assignment_, options_.incarnation);
  if (rank < 0) return {"this process is not among the job's members"};
  std::string bytes;
  const absl::Status loaded = LoadModel(&bytes);
  if (!loaded.ok()) {
    return {absl::StrCat("model: not fetched: ", loaded.message())};
  }
  std::vector<std::string> problems;
  job_ = PrepareJob(
      assignment_, static_cast<uint32_t>(rank), std::move(bytes),
      {.data_root = options_.data_root,
       .work_dir = options_.work_dir,
       .threads = options_.threads,
       .shared_memory = options_.shared_memory,
       .on_read = [this](const std::string& path,
                         size_t bytes) { return OnRead(path, bytes); },
       .go_on =
           [this] {
             return stop_requested()
                        ? absl::CancelledError("stopped while taking memory")
                        : absl::OkStatus();
           }},
      &problems);
  WatchExecutor();
  return problems;
}

absl::Status JobRun::OnRead(const std::string& path, size_t bytes) {
  if (stop_requested()) return absl::CancelledError("stopped while loading");
  if (std::exchange(read_path_, path) != path) read_bytes_ = 0;
  read_bytes_ += bytes;
  const absl::Time now = MonotonicNow();
  if (now < read_told_at_ + kActivityPeriod) return absl::OkStatus();
  read_told_at_ = now;
  SendActivity(absl::StrCat("reading ", Utf8Text(path), ", ", read_bytes_ >> 20,
                            " MiB of it so far"));
  return absl::OkStatus();
}

absl::Status JobRun::LoadModel(std::string* bytes) {
  SYNCLINE_RETURN_IF_ERROR(MakeDirs(dir_));
  const std::string file = absl::StrCat(dir_, "/model.onnx");
  SYNCLINE_RETURN_IF_ERROR(FetchModel(file));
  SYNCLINE_ASSIGN_OR_RETURN(*bytes, ReadFile(file, kModelBytesMax));
  return absl::OkStatus();
}

absl::Status JobRun::FetchModel(const std::string& file) {
  const absl::Time deadline = MonotonicNow() + kFetchTimeout;
  absl::Time give_up_at = absl::InfiniteFuture();
  Random random(EntropySeed());
  for (int failures = 0;; ++failures) {
    const absl::Status fetched = artifacts_->Fetch(
        job_id(), assignment_.model_artifact(), file, deadline, &cancellation_);
    if (!absl::IsUnavailable(fetched)) return fetched;
    const absl::Time now = MonotonicNow();
    give_up_at = std::min(give_up_at, now + kFetchPatience);
    if (now >= give_up_at) return fetched;
    const absl::Time next =
        now + BackoffDelay(kFetchBackoff, failures, random.Uniform());
    MutexLock lock(&mu_);
    while (!stop_ && MonotonicNow() < next) changed_.WaitUntil(&mu_, next);
    if (stop_) return absl::CancelledError("stopped while loading");
  }
}

void JobRun::WarnOfLargeSteps() const {
  const int64_t step = int64_t{job_->spec().training().batch_size()} *
                       job_->assignment.workers_size();
  if (job_->train == nullptr || job_->train->size() >= step) return;
  LogWarning("a step takes more samples than data.train has")
      .Job(job_id())
      .Field("samples_per_step", step)
      .Field("samples", job_->train->size());
}

bool JobRun::AwaitRun() {
  MutexLock lock(&mu_);
  while (!run_.has_value() && !stop_) {
    changed_.WaitUntil(&mu_, MonotonicNow() + absl::Minutes(1));
  }
  return !stop_;
}

void JobRun::LogWeights() const {
  for (const WeightGroup& group : GroupWeights(job_->training)) {
    LogInfo(group.trained ? "weights are trained" : "weights are not trained")
        .Job(job_id())
        .Field("why", group.why)
        .Field("count", group.count)
        .Field("numbers", group.numbers)
        .Field("names", absl::StrJoin(group.names, ", "));
  }
  for (const std::string& warning : job_->training.warnings) {
    LogWarning("weights may not be what they seem")
        .Job(job_id())
        .Field("what", warning);
  }
}

absl::Status JobRun::TrainAndUpload() {
  LogInfo("job running").Job(job_id()).Field("task", job_->task_name());
  if (job_->is_chief()) LogWeights();
  Trainer trainer(
      *job_,
      {.incarnation = options_.incarnation,
       .shared_memory = options_.shared_memory,
       .metrics = metrics_,
       .on_progress = [this](const WorkerProgress& p) { SendProgress(p); },
       .on_evaluation = [this](const Evaluation& e,
                               const StoringProgress& s) { OnEvaluated(e, s); },
       .on_activity = [this](const std::string& what) { SendActivity(what); },
       .on_unreachable =
           [this](uint32_t shard, absl::Duration out_of_reach,
                  const absl::Status& error) {
             SendUnreachable(shard, out_of_reach, error);
           },
       .on_profile = [this](const std::string& name,
                            const StepProfile& p) { UploadProfile(name, p); }});
  {
    MutexLock lock(&mu_);
    if (stop_) return absl::CancelledError("stopped");
    trainer_ = &trainer;
    for (const ProfileSteps& wish : profiles_wanted_) {
      trainer.RequestProfile(wish);
    }
  }
  // A stop ends its calls, those of the export included.
  const absl::Cleanup forget = [this] {
    MutexLock lock(&mu_);
    trainer_ = nullptr;
  };
  metrics_->OnJobRunning(true);
  const absl::Status status = trainer.Run();
  metrics_->OnJobRunning(false);
  if (!status.ok() || !job_->is_chief()) return status;
  return UploadResults(&trainer);
}

absl::Status JobRun::EvaluateAndUpload() {
  LogInfo("job running").Job(job_id()).Field("task", job_->task_name());
  Epochs epochs;
  {
    MutexLock lock(&mu_);
    epochs = {run_->clocks_per_epoch(), run_->clocks_total()};
  }
  if (epochs.steps_per_epoch <= 0 || epochs.clocks_total <= 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "RunJob: ", epochs.steps_per_epoch, " clocks an epoch and ",
        epochs.clocks_total, " in all; are all daemons of one version?"));
  }
  EvaluationLoop evaluation(
      *job_, epochs,
      {.incarnation = options_.incarnation,
       .shared_memory = options_.shared_memory,
       .metrics = metrics_,
       .on_unreachable =
           [this](uint32_t shard, absl::Duration out_of_reach,
                  const absl::Status& error) {
             SendUnreachable(shard, out_of_reach, error);
           },
       .on_activity = [this](const std::string& what) { SendActivity(what); }},
      [this](const Evaluation& e, const StoringProgress& s) {
        OnEvaluated(e, s);
      });
  {
    MutexLock lock(&mu_);
    if (stop_) return absl::CancelledError("stopped");
    evaluation_ = &evaluation;
  }
  const absl::Cleanup forget = [this] {
    MutexLock lock(&mu_);
    evaluation_ = nullptr;
  };
  metrics_->OnJobRunning(true);
  const absl::Status status = evaluation.Run();
  metrics_->OnJobRunning(false);
  SYNCLINE_RETURN_IF_ERROR(status);
  SYNCLINE_RETURN_IF_ERROR(
      PutMetrics(evaluation.evaluations(), /*totals=*/nullptr));
  SYNCLINE_RETURN_IF_ERROR(PutBest());
  return results_.Finish();
}

// The model and the figures before the files of rows, which may be large.
absl::Status JobRun::UploadResults(Trainer* trainer) {
  SYNCLINE_ASSIGN_OR_RETURN(const DenseTables tables, ReadTables(trainer));
  SYNCLINE_RETURN_IF_ERROR(
      results_.Put("trained.onnx", [&](const std::string& path) {
        return ExportModel(*job_, tables, path);
      }));
  SYNCLINE_RETURN_IF_ERROR(
      results_.Put("trained.safetensors", [&](const std::string& path) {
        return WriteWeights(*job_, tables, path);
      }));
  SYNCLINE_RETURN_IF_ERROR(PutText("history.csv", trainer->HistoryCsv()));
  if (!job_->has_evaluator()) {
    const WorkerProgress totals = trainer->Totals();
    SYNCLINE_RETURN_IF_ERROR(PutMetrics(trainer->evaluations(), &totals));
  }
  SYNCLINE_RETURN_IF_ERROR(PutBest());
  for (size_t t = 0; t < tables.size(); ++t) {
    if (tables[t].has_value()) continue;
    SYNCLINE_RETURN_IF_ERROR(PutTable(trainer, t));
  }
  SYNCLINE_RETURN_IF_ERROR(results_.Finish());
  return tables.empty() ? absl::OkStatus() : trainer->EndTables();
}

void JobRun::WriteBest(const Evaluation& evaluation,
                       const StoringProgress& storing) {
  const std::string folder = absl::StrCat(dir_, "/best");
  storing(0);
  // Nothing of an earlier epoch passes for this one's.
  absl::Status written = RemoveTree(folder);
  if (written.ok()) written = MakeDirs(folder);
  const FileGrowth growth(folder, kGrowthPeriod, storing);
  if (written.ok()) {
    written = ExportModel(*job_, {}, absl::StrCat(folder, "/", kBestModel));
  }
  if (written.ok()) {
    written = WriteWeights(*job_, {}, absl::StrCat(folder, "/", kBestWeights));
  }
  if (written.ok()) return;
  RemoveTree(folder).IgnoreError();
  LogWarning("the best parameters so far could not be written and are lost")
      .Job(job_id())
      .Field("epoch", evaluation.epoch())
      .Field("clock", evaluation.clock())
      .Status(written);
}

absl::Status JobRun::PutBest() {
  for (const char* const name : {kBestModel, kBestWeights}) {
    const std::string file = absl::StrCat(dir_, "/best/", name);
    if (!FileSize(file).ok()) continue;
    SYNCLINE_RETURN_IF_ERROR(
        results_.Put(name, [&](const std::string& path) -> absl::Status {
          if (std::rename(file.c_str(), path.c_str()) == 0) {
            return absl::OkStatus();
          }
          return FileError(errno, "move", file);
        }));
  }
  return absl::OkStatus();
}

absl::Status JobRun::PutMetrics(absl::Span<const Evaluation> evaluations,
                                const WorkerProgress* totals) {
  absl::StatusOr<JobProgress> skipped =
      AskSkippedCounts(job_->assignment, MonotonicNow() + kSkippedTimeout);
  if (!skipped.ok()) {
    LogWarning("metrics.json does not say how many steps were skipped")
        .Job(job_id())
        .Status(skipped.status());
    skipped = JobProgress();
  }
  SYNCLINE_ASSIGN_OR_RETURN(
      const std::string metrics,
      MetricsJson(job_id(), evaluations, totals, *skipped));
  return PutText("metrics.json", metrics);
}

absl::Status JobRun::PutText(const std::string& name,
                             const std::string& content) {
  return results_.Put(name, [&](const std::string& path) {
    return WriteFileAtomically(path, content);
  });
}

absl::StatusOr<DenseTables> JobRun::ReadTables(Trainer* trainer) {
  DenseTables dense(job_->training.tables.size());
  uint64_t bytes_left = kDenseTableBytesMax;
  for (size_t t = 0; t < dense.size(); ++t) {
    const TrainingTable& table = job_->training.tables[t];
    absl::Time tell_at = MonotonicNow();
    const TableReader reader = Counted(
        trainer->ReaderOf(static_cast<uint32_t>(t)), [&](uint64_t rows) {
          if (MonotonicNow() < tell_at) return;
          tell_at = MonotonicNow() + kActivityPeriod;
          SendActivity(absl::StrCat("reading table ", table.name, ", ", rows,
                                    " rows so far"));
        });
    SYNCLINE_ASSIGN_OR_RETURN(
        dense[t], ReadDenseTable(table.rows, table.dim, bytes_left, reader));
    if (dense[t].has_value()) bytes_left -= dense[t]->size() * sizeof(float);
  }
  if (!dense.empty()) SendActivity("");
  return dense;
}

absl::Status JobRun::PutTable(Trainer* trainer, size_t index) {
  const TrainingTable& table = job_->training.tables[index];
  return results_.Put(
      TableArtifact(table.name, index), [&](const std::string& path) {
        return WriteTableRows(path, table.name, table.dim,
                              trainer->ReaderOf(static_cast<uint32_t>(index)));
      });
}

absl::Status JobRun::UploadText(const std::string& name,
                                const std::string& content,
                                absl::Duration timeout,
                                Cancellation* cancellation) {
  const std::string file = absl::StrCat(dir_, "/upload");
  SYNCLINE_RETURN_IF_ERROR(WriteFileAtomically(file, content));
  const absl::Status uploaded = artifacts_->Upload(
      job_id(), name, file, MonotonicNow() + timeout, cancellation);
  const absl::Status removed = RemoveTree(file);
  return Annotate(uploaded.ok() ? removed : uploaded,
                  absl::StrCat("uploading ", name));
}

void JobRun::WatchExecutor() {
  if (job_->executor == nullptr) return;
  executor_gone_ = std::make_shared<Gone>();
  std::shared_ptr<Executor> executor = std::move(job_->executor);
  Executor* const address = executor.get();
  job_->executor = std::shared_ptr<Executor>(
      address, [executor = std::move(executor),
                gone = executor_gone_](Executor*) mutable {
        executor.reset();
        MutexLock lock(&gone->mu);
        gone->gone = true;
        gone->changed.SignalAll();
      });
}

void JobRun::ReleaseMemory() {
  job_.reset();
  if (executor_gone_ == nullptr) return;
  const absl::Time deadline = MonotonicNow() + kSliceTimeout;
  MutexLock lock(&executor_gone_->mu);
  while (!executor_gone_->gone) {
    if (!executor_gone_->changed.WaitUntil(&executor_gone_->mu, deadline)) {
      LogWarning("memory still in use by the network").Job(job_id());
      return;
    }
  }
}

void JobRun::SendPrepared(const std::vector<std::string>& problems) {
  DaemonMessage message;
  message.mutable_prepared()->set_job_id(job_id());
  message.mutable_prepared()->mutable_problems()->Add(problems.begin(),
                                                      problems.end());
  if (problems.empty())
    *message.mutable_prepared()->mutable_data() = job_->data;
  if (problems.empty() && job_->is_chief()) {
    const Epochs epochs = EpochsOf(*job_);
    message.mutable_prepared()->set_clocks_per_epoch(epochs.steps_per_epoch);
    message.mutable_prepared()->set_clocks_total(epochs.clocks_total);
  }
  send_(std::move(message));
}

void JobRun::SendDone(const absl::Status& status, bool released) {
  DaemonMessage message;
  JobDone* done = message.mutable_done();
  done->set_job_id(job_id());
  done->set_code(static_cast<int>(status.code()));
  done->set_message(std::string(status.message()));
  done->set_released(released);
  send_(std::move(message));
}

void JobRun::SendProgress(const WorkerProgress& progress) {
  DaemonMessage message;
  message.mutable_report()->set_job_id(job_id());
  *message.mutable_report()->mutable_progress() = progress;
  send_(std::move(message));
}

void JobRun::OnEvaluated(const Evaluation& evaluation,
                         const StoringProgress& storing) {
  if (evaluation.best()) WriteBest(evaluation, storing);
  DaemonMessage message;
  message.mutable_report()->set_job_id(job_id());
  *message.mutable_report()->mutable_evaluation() = evaluation;
  send_(std::move(message));
}

void JobRun::SendActivity(const std::string& activity) {
  DaemonMessage message;
  message.mutable_report()->set_job_id(job_id());
  message.mutable_report()->set_activity(activity);
  send_(std::move(message));
}

void JobRun::SendUnreachable(uint32_t shard, absl::Duration out_of_reach,
                             const absl::Status& error) {
  DaemonMessage message;
  *message.mutable_unreachable() = MakePeerUnreachable(
      job_id(), assignment_.ps(static_cast<int>(shard)).member(), out_of_reach,
      error);
  send_(std::move(message));
}

// A failure costs the profile alone: the command that waits for it gives up in
// time, and the job goes on.
void JobRun::UploadProfile(const std::string& name,
                           const StepProfile& profile) {
  StepProfile readable = profile;
  MakeStringsUtf8(&readable);  // names of nodes are the model's
  const absl::Status status = UploadText(name, readable.SerializeAsString(),
                                         kProfileUploadTimeout, &cancellation_);
  if (!status.ok()) {
    LogWarning("profile not uploaded").Job(job_id()).Status(status);
  }
}

}  // namespace syncline::worker
