#include "worker/training/job_run.h"

#include <algorithm>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "common/base/backoff.h"
#include "common/base/clock.h"
#include "common/base/crc32c.h"
#include "common/base/random.h"
#include "common/base/status_macros.h"
#include "common/base/utf8.h"
#include "common/cluster/utf8_fields.h"
#include "common/job/kept_results.h"
#include "common/job/step_shares.h"
#include "common/job/stop_reasons.h"
#include "common/model/weight_report.h"
#include "common/system/file.h"
#include "common/system/job_logs.h"
#include "common/system/log.h"
#include "worker/export/kept_results.h"
#include "worker/job/compression_options.h"
#include "worker/job/start_values.h"
#include "worker/training/regime_trials.h"
#include "worker/training/result_export.h"

namespace syncline::worker {
namespace {

// gRPC frees a cancelled call's slices within milliseconds.
constexpr absl::Duration kSliceTimeout = absl::Seconds(10);
constexpr absl::Duration kLogUploadTimeout = absl::Seconds(5);
constexpr absl::Duration kLogRetryMax = absl::Seconds(3);
constexpr absl::Duration kLogRetryPeriod = absl::Milliseconds(200);
constexpr absl::Duration kProfileUploadTimeout = absl::Seconds(10);
constexpr absl::Duration kProductsUploadTimeout = absl::Minutes(1);
constexpr absl::Duration kFetchTimeout = absl::Minutes(10);
// A scheduler that is out of reach for less costs no job.
constexpr absl::Duration kFetchPatience = absl::Minutes(10);
constexpr Backoff kFetchBackoff = {.initial = absl::Milliseconds(500),
                                   .max = absl::Seconds(4)};
constexpr absl::Duration kActivityPeriod = absl::Seconds(1);
constexpr uint64_t kModelBytesMax = 8ull << 30;

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
          .pass = PassOf(assignment),
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

// With what earlier attempts and processes of this task have left. A disk that
// is full kept less than the memory.
std::string WholeLog(const JobLogCapture& log, const std::string& job_id) {
  std::string captured = log.text();
  std::string kept = KeptJobLog(job_id);
  const bool was_rotated = kept.size() > JobLogs::kRotateBytes;
  return kept.size() >= captured.size() || was_rotated ? kept : captured;
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
      reporter_(assignment_, std::move(send)),
      results_(
          ResultOptions(assignment, options), artifacts,
          [this](const std::string& text) { reporter_.SendActivity(text); }),
      products_(options.gpu, assignment.job_id(), options.product_tuning) {}

void JobRun::RequestRun(const RunJob& command) {
  MutexLock lock(&mu_);
  run_ = command;
  changed_.SignalAll();
}

void JobRun::RequestProfile(const ProfileSteps& request) {
  MutexLock lock(&mu_);
  if (trainer_ != nullptr) return trainer_->RequestProfile(request);
  if (!ended_) profiles_wanted_.push_back(request);
}

void JobRun::RequestRegime(const ChangeRegime& request) {
  MutexLock lock(&mu_);
  if (trainer_ != nullptr) {
    return trainer_->RequestRegime(request.change(), request.reason());
  }
  if (!ended_) regime_wanted_ = request;
}

void JobRun::RequestCheckpoint() {
  MutexLock lock(&mu_);
  if (trainer_ != nullptr) return trainer_->RequestCheckpoint();
  // One that has trained answers with its end.
  checkpoint_wanted_ = !ended_;
}

void JobRun::RequestEvaluation(const EvaluateCheckpoint& request) {
  MutexLock lock(&mu_);
  if (checkpoint_evaluation_ != nullptr) {
    return checkpoint_evaluation_->Request(request);
  }
  // One that has evaluated its last one has nothing to add.
  if (!ended_) evaluation_wanted_ = request;
}

bool JobRun::RequestStop(const std::string& reason) {
  LogInfo("job stopping").Job(job_id()).Field("reason", reason);
  MutexLock lock(&mu_);
  if (ended_) return false;
  if (!stop_) stop_reason_ = reason;
  stop_ = true;
  changed_.SignalAll();
  if (trainer_ != nullptr) trainer_->Stop();
  if (trainer_ != nullptr && !IsBackAfterLoss(reason)) trainer_->EndSaving();
  if (evaluation_ != nullptr) evaluation_->Stop();
  if (checkpoint_evaluation_ != nullptr) checkpoint_evaluation_->Stop();
  if (reason == kJobEndsEarly) {
    results_.Drop();
  } else {
    results_.Stop();
  }
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
  std::vector<FoundCheckpoint> found;
  if (job_ != nullptr) found = std::move(job_->found);
  if (!problems.empty()) ReleaseMemory();
  if (!stopped && !problems.empty()) Refuse(problems, found);
  if (!stopped && problems.empty()) reporter_.SendPrepared(*job_);

  if (problems.empty()) WarnOfLargeSteps();
  bool succeeded = false;
  if (problems.empty() && AwaitRun()) {
    absl::Status status = FollowStored();
    if (status.ok()) {
      status = job_->trains() ? TrainAndUpload() : EvaluateAndUpload();
    }
    status = WithLostGpu(status);
    succeeded = status.ok();
    if (succeeded) {
      LogInfo("job done").Job(job_id());
    } else if (!stop_requested()) {
      LogWarning("job failed").Job(job_id()).Status(status);
      reporter_.SendDone(status, /*released=*/false);
      if (options_.on_failed) options_.on_failed();
    }
  }
  TellKeptResults();
  ReleaseMemory();
  LogInfo("job released").Job(job_id());
  if (!log_name.empty()) {
    const absl::Status status = UploadLog(log_name, WholeLog(log, job_id()));
    if (!status.ok()) {
      LogWarning("log not uploaded").Job(job_id()).Status(status);
    }
  }
  const absl::Status removed = RemoveTree(dir_);
  if (!removed.ok()) {
    LogWarning("work directory not removed").Job(job_id()).Status(removed);
  }
  End(succeeded);
}

void JobRun::Refuse(const std::vector<std::string>& problems,
                    const std::vector<FoundCheckpoint>& found) {
  const absl::Status lost =
      WithLostGpu(absl::InternalError(absl::StrJoin(problems, "; ")));
  // A GPU that had failed before is a refusal as any other.
  if (!absl::IsAborted(lost)) return reporter_.SendRefused(problems, found);
  reporter_.SendDone(lost, /*released=*/false);
  if (options_.on_failed) options_.on_failed();
}

absl::Status JobRun::WithLostGpu(const absl::Status& why) const {
  if (why.ok() || !is_on_gpu_) return why;
  const absl::Status health = options_.gpu->health();
  if (health.ok()) return why;
  std::string text = absl::StrCat("the GPU has failed: ", why.message());
  if (!absl::StrContains(why.message(), health.message())) {
    absl::StrAppend(&text, "; ", health.message());
  }
  return absl::AbortedError(text);
}

void JobRun::TellGpuWorked() const {
  if (is_on_gpu_ && options_.on_gpu_worked) options_.on_gpu_worked();
}

// A process whose stream has just ended may upload once it has registered
// again.
absl::Status JobRun::UploadLog(const std::string& name,
                               const std::string& text) {
  const absl::Time give_up = MonotonicNow() + kLogRetryMax;
  while (true) {
    const absl::Status status =
        UploadText(name, text, kLogUploadTimeout,
                   /*cancellation=*/nullptr);  // a stop does not end it
    if (!absl::IsUnavailable(status) || MonotonicNow() >= give_up) {
      return status;
    }
    const absl::Time next = MonotonicNow() + kLogRetryPeriod;
    MutexLock lock(&mu_);
    while (MonotonicNow() < next) changed_.WaitUntil(&mu_, next);
  }
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
  reporter_.SendActivity(std::string(stored.message()));
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
  if (succeeded && options_.kept_data != nullptr) {
    options_.kept_data->Forget(job_id());
  }
  reporter_.SendDone(outcome, /*released=*/true, early_end_);
}

std::vector<std::string> JobRun::Prepare() {
  const int rank = FindRank(assignment_, options_.incarnation);
  if (rank < 0) return {"this process is not among the job's members"};
  if (options_.kept_data != nullptr) options_.kept_data->Begin(job_id());
  std::string bytes;
  const absl::Status loaded = LoadModel(&bytes);
  if (!loaded.ok()) {
    return {absl::StrCat("model: not fetched: ", loaded.message())};
  }
  const auto data_root =
      RootForTenant(options_.data_root, assignment_.tenant());
  if (!data_root.ok()) {
    return {absl::StrCat("data: ", data_root.status().message())};
  }
  const absl::Status products = BeginProducts();
  if (!products.ok()) {
    return {absl::StrCat("matrix products: ", products.message())};
  }
  std::vector<std::string> problems;
  job_ = PrepareJob(
      assignment_, static_cast<uint32_t>(rank), std::move(bytes),
      {.data_root = *data_root,
       .work_dir = options_.work_dir,
       .threads = options_.threads,
       .gpu = options_.gpu,
       .why_no_gpu = options_.why_no_gpu,
       .shared_memory = options_.shared_memory,
       .kept_data = options_.kept_data,
       .on_read = [this](const std::string& path,
                         size_t bytes) { return OnRead(path, bytes); },
       .go_on =
           [this] {
             return stop_requested()
                        ? absl::CancelledError("stopped while taking memory")
                        : absl::OkStatus();
           }},
      &problems);
  is_on_gpu_ = job_->is_on_gpu;
  WatchExecutor();
  if (problems.empty() && job_->is_chief() && job_->trains()) {
    std::string problem = TrialProblem(*job_, EpochsOf(*job_));
    if (!problem.empty()) problems.push_back(std::move(problem));
    const std::string warning =
        WarmupWarning(job_->spec(), EpochsOf(*job_).clocks_total);
    if (!warning.empty()) {
      LogWarning(warning).Job(assignment_.job_id());
    }
  }
  // The chief gives all ranks their initial values.
  if (problems.empty() && job_->is_chief() &&
      !assignment_.weights_artifact().empty()) {
    ReadStartWeights(&problems);
  }
  if (problems.empty() && job_->is_chief()) {
    const absl::Status chosen = ChooseProducts();
    if (!chosen.ok()) {
      problems.push_back(absl::StrCat("matrix products: ", chosen.message()));
    }
  }
  return problems;
}

absl::Status JobRun::BeginProducts() {
  // Whoever computes on processors has no products of a GPU.
  if (assignment_.spec().resources().device() == ResourcesSpec::CPU) {
    return absl::OkStatus();
  }
  SYNCLINE_RETURN_IF_ERROR(products_.Begin());
  if (!products_.exists() || !is_chief() || assignment_.attempt() <= 1) {
    return absl::OkStatus();
  }
  SYNCLINE_ASSIGN_OR_RETURN(kept_products_, FetchProducts());
  return FollowProducts(kept_products_);
}

absl::Status JobRun::ChooseProducts() {
  if (!is_on_gpu_ || !products_.exists()) return absl::OkStatus();
  reporter_.SendActivity("choosing algorithms of matrix products");
  SYNCLINE_ASSIGN_OR_RETURN(const std::string text, products_.Measure([this] {
    return stop_requested()
               ? absl::CancelledError("stopped while measuring them")
               : absl::OkStatus();
  }));
  if (text == kept_products_) return absl::OkStatus();
  const absl::Status stored = WhileUnreachable([&] {
    return UploadText(kProductsArtifact, text, kProductsUploadTimeout,
                      &cancellation_);
  });
  if (stored.ok() || absl::IsCancelled(stored)) return stored;
  // A call that has failed may have arrived: the chief follows what the job
  // has once it runs, as the others do.
  follows_stored_products_ = true;
  LogWarning("algorithms of matrix products were measured, and are not used")
      .Job(job_id())
      .Status(stored);
  SYNCLINE_RETURN_IF_ERROR(products_.Begin());
  return FollowProducts(kept_products_);
}

absl::Status JobRun::FollowStored() {
  if ((job_->is_chief() && !follows_stored_products_) || !is_on_gpu_ ||
      !products_.exists()) {
    return absl::OkStatus();
  }
  SYNCLINE_ASSIGN_OR_RETURN(const std::string text, FetchProducts());
  return FollowProducts(text);
}

absl::Status JobRun::FollowProducts(const std::string& text) {
  return text.empty() ? absl::OkStatus() : products_.Follow(text, is_chief());
}

bool JobRun::is_chief() const {
  return FindRank(assignment_, options_.incarnation) == 0;
}

absl::StatusOr<std::string> JobRun::FetchProducts() {
  const std::string file = absl::StrCat(dir_, "/products");
  absl::Status fetched = FetchFile(kProductsArtifact, file);
  if (absl::IsNotFound(fetched)) return std::string();
  if (absl::IsCancelled(fetched) || stop_requested()) {
    return absl::CancelledError("stopped while fetching it");
  }
  absl::StatusOr<std::string> text =
      fetched.ok() ? ReadFile(file, ProductTable::kTextBytesMax)
                   : absl::StatusOr<std::string>(fetched);
  RemoveTree(file).IgnoreError();
  if (text.ok()) return text;
  LogWarning("the job's algorithms of matrix products are not to be had")
      .Job(job_id())
      .Field("artifact", kProductsArtifact)
      .Field("what_follows",
             "a chief measures them again; another worker's products are "
             "chosen by its own library, and may end with other last bits")
      .Status(text.status());
  return std::string();
}

absl::Status JobRun::OnRead(const std::string& path, size_t bytes) {
  if (stop_requested()) return absl::CancelledError("stopped while loading");
  if (std::exchange(read_path_, path) != path) read_bytes_ = 0;
  read_bytes_ += bytes;
  const absl::Time now = MonotonicNow();
  if (now < read_told_at_ + kActivityPeriod) return absl::OkStatus();
  read_told_at_ = now;
  reporter_.SendActivity(absl::StrCat("reading ", Utf8Text(path), ", ",
                                      read_bytes_ >> 20, " MiB of it so far"));
  return absl::OkStatus();
}

absl::Status JobRun::LoadModel(std::string* bytes) {
  SYNCLINE_RETURN_IF_ERROR(MakeDirs(dir_));
  const std::string file = absl::StrCat(dir_, "/model.onnx");
  SYNCLINE_RETURN_IF_ERROR(FetchFile(assignment_.model_artifact(), file));
  SYNCLINE_ASSIGN_OR_RETURN(*bytes, ReadFile(file, kModelBytesMax));
  model_crc32c_ = Crc32c(*bytes);
  return absl::OkStatus();
}

void JobRun::ReadStartWeights(std::vector<std::string>* problems) {
  const std::string file = absl::StrCat(dir_, "/start.safetensors");
  const absl::Status fetched = FetchFile(assignment_.weights_artifact(), file);
  if (!fetched.ok()) {
    problems->push_back(
        absl::StrCat("start.weights: not fetched: ", fetched.message()));
    return;
  }
  FillFromWeights(file, job_.get(), problems);
  RemoveTree(file).IgnoreError();
}

absl::Status JobRun::FetchFile(const std::string& artifact,
                               const std::string& file) {
  const absl::Time deadline = MonotonicNow() + kFetchTimeout;
  return WhileUnreachable([&] {
    return artifacts_->Fetch(job_id(), PassOf(assignment_), artifact, file,
                             deadline, &cancellation_);
  });
}

absl::Status JobRun::WhileUnreachable(
    absl::FunctionRef<absl::Status()> transfer) {
  absl::Time give_up_at = absl::InfiniteFuture();
  Random random(EntropySeed());
  for (int failures = 0;; ++failures) {
    const absl::Status done = transfer();
    if (!absl::IsUnavailable(done)) return done;
    const absl::Time now = MonotonicNow();
    give_up_at = std::min(give_up_at, now + kFetchPatience);
    if (now >= give_up_at) return done;
    const absl::Time next =
        now + BackoffDelay(kFetchBackoff, failures, random.Uniform());
    MutexLock lock(&mu_);
    while (!stop_ && MonotonicNow() < next) changed_.WaitUntil(&mu_, next);
    if (stop_) return absl::CancelledError("stopped while loading");
  }
}

void JobRun::WarnOfLargeSteps() const {
  if (!job_->trains()) return;
  const int64_t step =
      SharesOf(job_->spec(),
               static_cast<uint32_t>(job_->assignment.workers_size()))
          .samples;
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
        .Field("names", NamesText(group));
  }
  for (const std::string& warning : job_->training.warnings) {
    LogWarning("weights may not be what they seem")
        .Job(job_id())
        .Field("what", warning);
  }
}

absl::Status JobRun::TrainAndUpload() {
  LogInfo("job running")
      .Job(job_id())
      .Field("task", job_->task_name())
      .Field("device", job_->device_text);
  if (job_->is_chief()) LogWeights();
  ResultExport exported(*job_, dir_, &results_, &reporter_);
  SYNCLINE_ASSIGN_OR_RETURN(JobExchange exchange, MakeExchange());
  Trainer trainer(
      *job_, std::move(exchange),
      {.metrics = metrics_,
       .on_progress =
           [this](const WorkerProgress& p) {
             metrics_->OnProgress(p);
             if (p.samples() > 0) TellGpuWorked();
             reporter_.SendProgress(p);
           },
       .on_left_out =
           [this](const ParameterExchange::LeftOut& left_out) {
             reporter_.SendLeftOut(left_out);
           },
       .on_evaluation =
           [&](const Evaluation& evaluation, const StoringProgress& storing) {
             TellGpuWorked();
             if (evaluation.best()) exported.WriteBest(evaluation, storing);
             reporter_.SendEvaluation(evaluation);
           },
       .on_activity =
           [this](const std::string& what) { reporter_.SendActivity(what); },
       .checkpoints = {.model_crc32c = model_crc32c_,
                       .on_whole =
                           [this](const CheckpointInfo& whole,
                                  const std::vector<std::string>& deleted) {
                             reporter_.SendCheckpoint(whole, deleted);
                           },
                       .on_trouble =
                           [this](const std::string& why) {
                             reporter_.SendCheckpointTrouble(why);
                           },
                       .on_refused =
                           [this](const std::string& why) {
                             reporter_.SendCheckpointRefused(why);
                           },
                       .on_saving =
                           [this](const std::string& what) {
                             reporter_.SendActivity(what);
                           }},
       .on_regimes =
           [this](const RegimeSchedule& regimes) { job_->regimes = regimes; },
       .on_regime_change =
           [this](const RegimeTransition& transition) {
             reporter_.SendRegime(transition);
           },
       .on_profile = [this](const std::string& name,
                            const StepProfile& p) { UploadProfile(name, p); }});
  {
    MutexLock lock(&mu_);
    if (stop_) return absl::CancelledError("stopped");
    trainer_ = &trainer;
    for (const ProfileSteps& request : profiles_wanted_) {
      trainer.RequestProfile(request);
    }
    if (regime_wanted_.has_value()) {
      trainer.RequestRegime(regime_wanted_->change(), regime_wanted_->reason());
    }
    if (checkpoint_wanted_) trainer.RequestCheckpoint();
  }
  // A stop ends its calls, those of the export included.
  const absl::Cleanup forget = [this] {
    MutexLock lock(&mu_);
    trainer_ = nullptr;
  };
  metrics_->OnJobBegins(MetricsJob());
  const absl::Status status = trainer.Run();
  metrics_->OnJobEnds();
  if (!status.ok() && job_->is_chief() && GoesBack(status)) trainer.SaveAlone();
  if (!status.ok() || !job_->is_chief()) return status;
  early_end_ = trainer.early_end();
  SYNCLINE_RETURN_IF_ERROR(exported.PutChiefResults(&trainer));
  // The ps let the job go when the chief is done.
  trainer.FinishCheckpoint();
  return absl::OkStatus();
}

bool JobRun::GoesBack(const absl::Status& error) const {
  if (!job_->spec().has_restart()) return false;
  MutexLock lock(&mu_);
  if (stop_) return IsBackAfterLoss(stop_reason_);
  return absl::IsUnavailable(error) || absl::IsDeadlineExceeded(error);
}

WorkerMetrics::Job JobRun::MetricsJob() const {
  return {.id = job_id(),
          .rank = job_->rank,
          .memory_bytes = job_->executor->memory_bytes(),
          .arena_bytes = job_->executor->arena_bytes()};
}

absl::StatusOr<JobExchange> JobRun::MakeExchange() const {
  return MakeJobExchange(
      *job_, {.incarnation = options_.incarnation,
              .shared_memory = options_.shared_memory,
              .metrics = metrics_,
              .join_peers = options_.join_peers,
              .go_on =
                  [this] {
                    return stop_requested() ? absl::CancelledError("stopped")
                                            : absl::OkStatus();
                  },
              .on_unreachable =
                  [this](const Member& peer, absl::Duration out_of_reach,
                         const absl::Status& error) {
                    reporter_.SendUnreachable(peer, out_of_reach, error);
                  }});
}

absl::Status JobRun::UploadText(const std::string& name,
                                const std::string& content,
                                absl::Duration timeout,
                                Cancellation* cancellation) {
  const std::string file = absl::StrCat(dir_, "/upload");
  SYNCLINE_RETURN_IF_ERROR(WriteFileAtomically(file, content));
  const absl::Status uploaded =
      artifacts_->Upload(job_id(), PassOf(assignment_), name, file,
                         MonotonicNow() + timeout, cancellation);
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
