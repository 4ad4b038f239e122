#include "scheduler/service/scheduler.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/clock.h"
#include "common/base/crc32c.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/base/version.h"
#include "common/rpc/user_calls.h"
#include "common/system/log.h"
#include "common/system/periodic_task.h"
#include "scheduler/core/cluster/state_age.h"
#include "scheduler/core/describe.h"
#include "scheduler/core/stopping.h"
#include "scheduler/service/audit_log.h"
#include "scheduler/service/control_loop.h"
#include "scheduler/service/daemons_service.h"
#include "scheduler/service/job_intake.h"
#include "scheduler/service/jobs_service.h"
#include "scheduler/service/log_relay.h"
#include "scheduler/service/metrics.h"
#include "scheduler/service/quota_file.h"
#include "scheduler/service/refusal_limit.h"
#include "scheduler/service/restored_state.h"
#include "scheduler/service/rpc_counter.h"
#include "scheduler/service/state_owner.h"
#include "scheduler/service/state_store.h"
#include "scheduler/service/status_pages.h"
#include "scheduler/service/user_gate.h"

namespace syncline::scheduler {
namespace {

constexpr int kFileThreads = 2;
// Bytes that a connection may have sent and that are not read yet; a chunk.
constexpr int kReceiveWindowBytes = 1 << 20;
// A job that is checked and on disk is queued within moments.
constexpr absl::Duration kEnqueueTimeout = absl::Minutes(1);

// One value that another thread delivers. Thread-safe.
template <typename T>
class Slot {
 public:
  void Set(T value) {
    MutexLock lock(&mu_);
    if (!value_.has_value()) value_.emplace(std::move(value));
    set_.SignalAll();
  }
  // Empty if there is none at `deadline`.
  std::optional<T> Await(absl::Time deadline) {
    MutexLock lock(&mu_);
    while (!value_.has_value()) {
      if (!set_.WaitUntil(&mu_, deadline)) break;
    }
    return value_;
  }

 private:
  Mutex mu_;
  CondVar set_;
  std::optional<T> value_ ABSL_GUARDED_BY(mu_);
};

// Follows one job until it is final. Thread-safe.
class FinalStateWatcher final : public ControlLoop::Watcher {
 public:
  void OnStatus(std::shared_ptr<const JobStatus> status) override {
    MutexLock lock(&mu_);
    ended_ = ended_ || IsFinal(status->state());
    latest_ = *status;
    changed_.SignalAll();
  }
  void OnDrain() override {
    MutexLock lock(&mu_);
    ended_ = true;
    latest_ = SchedulerStopping();
    changed_.SignalAll();
  }
  // The final status, or the latest one at `deadline`.
  absl::StatusOr<JobStatus> Await(absl::Time deadline) {
    MutexLock lock(&mu_);
    while (!ended_) {
      if (!changed_.WaitUntil(&mu_, deadline)) break;
    }
    return latest_;
  }

 private:
  Mutex mu_;
  CondVar changed_;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  absl::StatusOr<JobStatus> latest_ ABSL_GUARDED_BY(mu_) =
      absl::DeadlineExceededError("no status of the job came in time");
};

// Of this scheduler, and of the last one on its state.
struct Epochs {
  uint64_t own = 0;
  uint64_t previous = 0;
};

// A daemon is back within 5 s of the scheduler's start, and a busy host may
// take longer.
absl::Duration ReattachWindow(absl::Duration lease) {
  return std::max(absl::Seconds(30), 6 * lease);
}

ControlLoop::Options LoopOptions(const Scheduler::Options& options,
                                 const Epochs& epochs, StateOwner* owner,
                                 AddressConfirmer* confirmer) {
  ControlLoop::Options loop;
  loop.core.version = kVersion;
  loop.core.lease = options.lease;
  loop.core.grow_pause = options.grow_pause;
  loop.core.heartbeat = options.heartbeat;
  loop.core.prepare_timeout = options.prepare_timeout;
  loop.core.keep = options.keep;
  loop.core.expects_evaluator = options.expects_evaluator;
  loop.core.ends_with_scheduler = options.single_job;
  loop.core.queue_max = options.queue_max;
  loop.core.confirms_addresses = true;
  loop.core.reattach_window = ReattachWindow(options.lease);
  loop.core.epoch = epochs.own;
  loop.core.previous_epoch = epochs.previous;
  loop.idle_limit = options.idle_limit;
  loop.confirmer = confirmer;
  loop.check_owner = [owner] { return owner->Check(); };
  loop.on_superseded = options.on_superseded;
  return loop;
}

class SchedulerImpl final : public Scheduler {
 public:
  SchedulerImpl(const Options& options, std::unique_ptr<StateStore> state,
                Epochs epochs, std::unique_ptr<StateOwner> owner,
                std::unique_ptr<ArtifactStore> artifacts,
                StateStore::Loaded jobs, std::unique_ptr<AuditLog> audit,
                std::unique_ptr<QuotaFile> quotas)
      : options_(options),
        state_(std::move(state)),
        owner_(std::move(owner)),
        artifacts_(std::move(artifacts)),
        audit_(std::move(audit)),
        metrics_(options.metrics),
        confirmer_(options.confirmer != nullptr ? options.confirmer
                                                : AddressConfirmer::OverGrpc()),
        loop_(LoopOptions(options, epochs, owner_.get(), confirmer_.get()),
              std::move(jobs), state_.get(), artifacts_.get(), &metrics_),
        files_("scheduler-file", kFileThreads),
        intake_("scheduler-intake", 1),
        gate_of_users_(
            [this](const std::string& job_id) {
              return loop_.TenantOf(job_id);
            },
            [this](const grpc::ServerContextBase& call, absl::string_view path,
                   const std::string& job_id, const absl::Status& why) {
              const auto context = call.auth_context();
              audit_->AddRefused(
                  {.who = CallerOf(call.client_metadata(), context.get()),
                   .peer = call.peer(),
                   .action = std::string(path),
                   .job_id = job_id,
                   .outcome = why},
                  absl::Now());
            }),
        jobs_service_(Context()),
        daemons_service_(Context()),
        pages_(Context()) {
    telling_refusals_.emplace("audit-refusals", RefusalLimit::kPeriod,
                              [this] { audit_->EndRefusals(absl::Now()); });
    if (quotas != nullptr) {
      quotas->Start([this](TenantQuotas read) { loop_.SetQuotas(read); });
      quotas_ = std::move(quotas);
    }
    if (options.metrics == nullptr) return;
    collecting_ = options.metrics->AddCollector(
        [this](MetricSamples* samples) { Collect(samples); });
  }

  ~SchedulerImpl() override {
    collecting_.reset();
    quotas_.reset();
    telling_refusals_.reset();
    SetUserGate(nullptr);
    SetOnRefused(nullptr);
    logs_.Stop();
    intake_.Stop();
    files_.Stop();
    loop_.Stop();
    // Its last answers find a loop that has stopped.
    confirmer_.reset();
  }

  void RegisterServices(grpc::ServerBuilder* builder) override {
    // Of an upload that comes faster than the disk takes it, gRPC would buffer
    // as much as the line delivers within a round trip and more, tens of
    // megabytes each.
    builder->AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
    builder->AddChannelArgument(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES,
                                kReceiveWindowBytes);
    SetOnRefused([this](absl::string_view who, absl::string_view path,
                        const absl::Status& why) {
      audit_->AddRefused({.who = std::string(who),
                          .action = std::string(path),
                          .outcome = why},
                         absl::Now());
    });
    builder->RegisterService(&jobs_service_);
    builder->RegisterService(&daemons_service_);
    std::vector<
        std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>>
        interceptors;
    interceptors.push_back(gate_of_users_.MakeInterceptors());
    SetUserGate(&GateChecksTokens);
    if (options_.metrics != nullptr) {
      interceptors.push_back(MakeRpcCounter(options_.metrics));
    }
    builder->experimental().SetInterceptorCreators(std::move(interceptors));
  }

  void SetAddress(const std::string& address,
                  const std::string& http_address) override {
    jobs_service_.SetAddress(address);
    pages_.SetAddress(address, http_address);
  }

  absl::Status Ready() const override {
    SYNCLINE_RETURN_IF_ERROR(loop_.Healthy());
    return artifacts_->CheckRoom(/*bytes=*/0);
  }

  HttpServer::Pages Pages() override { return pages_.Pages(); }

  absl::StatusOr<Submission> Submit(const JobSpec& spec,
                                    absl::string_view model,
                                    const std::string& client_key,
                                    const std::string& weights_file) override {
    SYNCLINE_RETURN_IF_ERROR(loop_.CheckAccepting(client_key));
    SYNCLINE_RETURN_IF_ERROR(artifacts_->CheckRoom(model.size()));
    SYNCLINE_ASSIGN_OR_RETURN(CheckedJob job,
                              CheckJob(spec, model, weights_file));
    job.client_key = client_key;
    SYNCLINE_ASSIGN_OR_RETURN(
        auto upload, artifacts_->BeginUpload(options_.model_bytes_max));
    SYNCLINE_RETURN_IF_ERROR(WriteAll(model, upload.get()));
    std::unique_ptr<FileChunkWriter> weights;
    if (!weights_file.empty()) {
      SYNCLINE_ASSIGN_OR_RETURN(weights, CopyOf(weights_file));
    }
    using Answer = absl::StatusOr<ControlLoop::Submission>;
    auto accepted = std::make_shared<Slot<Answer>>();
    loop_.Submit(
        std::move(job), upload.get(), weights.get(),
        [accepted](Answer answer) { accepted->Set(std::move(answer)); });
    const auto answer = accepted->Await(MonotonicNow() + kEnqueueTimeout);
    if (!answer.has_value()) {
      return absl::DeadlineExceededError("the state could not be written");
    }
    SYNCLINE_RETURN_IF_ERROR(answer->status());
    if (!(*answer)->repeated) loop_.CountSubmit(/*accepted=*/true);
    return Submission{(*answer)->job_id, (*answer)->repeated};
  }

  absl::StatusOr<JobStatus> WaitFor(const std::string& job_id,
                                    absl::Time deadline) override {
    const auto watcher = std::make_shared<FinalStateWatcher>();
    SYNCLINE_RETURN_IF_ERROR(loop_.Watch(job_id, watcher));
    auto status = watcher->Await(deadline);
    loop_.Unwatch(job_id, watcher.get());
    return status;
  }

  std::string FilesOf(const std::string& job_id) const override {
    return artifacts_->FolderOf(job_id);
  }

  void ShutdownCluster(int exit_code, absl::string_view reason, int members,
                       absl::Time deadline) override {
    loop_.Shutdown(exit_code, std::string(reason));
    if (!loop_.AwaitNoSessions(deadline, members)) {
      LogWarning("some members have not come or not left");
    }
  }

  void Drain(absl::Time deadline) override {
    loop_.Drain();
    if (!loop_.AwaitNoSessions(deadline)) {
      LogWarning("some sessions have not ended");
    }
  }

 private:
  ServiceContext Context() {
    return {.loop = &loop_,
            .artifacts = artifacts_.get(),
            .files = &files_,
            .intake = &intake_,
            .gate = &gate_,
            .user_gate = &gate_of_users_,
            .model_bytes_max = options_.model_bytes_max,
            .audit = audit_.get(),
            .logs = &logs_,
            .tenant_checkpoints = options_.tenant_checkpoints};
  }

  absl::StatusOr<std::unique_ptr<FileChunkWriter>> CopyOf(
      const std::string& file) {
    SYNCLINE_ASSIGN_OR_RETURN(const auto from, FileChunkReader::Open(file));
    SYNCLINE_RETURN_IF_ERROR(artifacts_->CheckRoom(from->size_bytes()));
    SYNCLINE_ASSIGN_OR_RETURN(
        auto copy, artifacts_->BeginUpload(options_.model_bytes_max));
    for (FileChunk chunk; !copy->whole();) {
      SYNCLINE_RETURN_IF_ERROR(from->Next(&chunk));
      SYNCLINE_RETURN_IF_ERROR(copy->Append(chunk));
    }
    return copy;
  }

  static absl::Status WriteAll(absl::string_view content,
                               FileChunkWriter* upload) {
    for (FileChunk chunk; !upload->whole();) {
      chunk.set_offset(upload->size_bytes());
      chunk.set_data(std::string(content.substr(0, kFileChunkBytesMax)));
      content.remove_prefix(chunk.data().size());
      chunk.set_last(content.empty());
      chunk.set_crc32c(ExtendCrc32c(upload->crc32c(), chunk.data()));
      SYNCLINE_RETURN_IF_ERROR(upload->Append(chunk));
    }
    return absl::OkStatus();
  }

  void Collect(MetricSamples* samples) {
    loop_.Read([&](const ClusterCore& core, absl::Time now) {
      metrics_.Collect(core, now, samples);
    });
    if (quotas_ != nullptr) {
      samples->Add("syncline_unusable_files", {{"file", "quotas"}},
                   quotas_->is_usable() ? 0 : 1);
    }
    const auto disk = artifacts_->DiskSpace();
    if (!disk.ok()) return;
    samples->Add("syncline_scheduler_disk_bytes", {},
                 static_cast<double>(disk->bytes));
    samples->Add("syncline_scheduler_disk_free_bytes", {},
                 static_cast<double>(disk->free_bytes));
  }

  const Options options_;
  const std::unique_ptr<StateStore> state_;
  const std::unique_ptr<StateOwner> owner_;
  const std::unique_ptr<ArtifactStore> artifacts_;
  const std::unique_ptr<AuditLog> audit_;
  SchedulerMetrics metrics_;
  std::shared_ptr<AddressConfirmer> confirmer_;
  ControlLoop loop_;
  ThreadPool files_;
  ThreadPool intake_;
  TransferGate gate_{TransferQueue::Options()};
  LogRelays logs_;
  UserGate gate_of_users_;
  JobsService jobs_service_;
  DaemonsService daemons_service_;
  StatusPages pages_;
  std::unique_ptr<QuotaFile> quotas_;
  // Tells what the audit log has left out, where no other refusal does.
  std::optional<PeriodicTask> telling_refusals_;
  std::unique_ptr<MetricsRegistry::Collecting> collecting_;
};

// Deletes the files of jobs whose record says that they have expired, and only
// those: a record that is missing may have been lost.
absl::Status MatchFiles(ArtifactStore* artifacts, StateStore::Loaded* loaded) {
  std::set<std::string> known;
  for (const auto& record : loaded->unreadable) known.insert(record.job_id);
  for (const StoredJob& job : loaded->jobs) {
    known.insert(job.status.job_id());
    if (!job.status.artifacts().empty()) continue;
    SYNCLINE_RETURN_IF_ERROR(artifacts->DeleteJob(job.status.job_id()));
  }
  SYNCLINE_ASSIGN_OR_RETURN(const auto folders, artifacts->ListJobs());
  for (const std::string& job_id : folders) {
    if (known.contains(job_id)) continue;
    loaded->without_record.push_back(job_id);
    LogWarning("files of a job without a record are kept; delete them by hand")
        .Job(job_id)
        .Field("folder", artifacts->FolderOf(job_id));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Scheduler>> Scheduler::Create(
    const Options& options) {
  // The lock on the database guards the files too: it is taken first.
  SYNCLINE_ASSIGN_OR_RETURN(
      auto state, StateStore::Open(absl::StrCat(options.state_dir, "/db")));
  Epochs epochs;
  SYNCLINE_ASSIGN_OR_RETURN(epochs.previous, state->Epoch());
  epochs.own = NextEpoch(epochs.previous, absl::Now());
  // First, so that of two that start at a time only one goes on.
  SYNCLINE_ASSIGN_OR_RETURN(auto owner,
                            StateOwner::Claim(options.state_dir, epochs.own));
  SYNCLINE_RETURN_IF_ERROR(state->PutEpoch(epochs.own));
  SYNCLINE_ASSIGN_OR_RETURN(StateStore::Loaded loaded, state->Load());
  SYNCLINE_ASSIGN_OR_RETURN(auto artifacts,
                            ArtifactStore::Open(options.state_dir));
  StateBackup::RemoveLeftovers(options.state_dir);
  SYNCLINE_RETURN_IF_ERROR(MatchFiles(artifacts.get(), &loaded));
  LogInfo("scheduler state read")
      .Field("directory", options.state_dir)
      .Field("epoch", epochs.own)
      .Field("jobs", loaded.jobs.size())
      .Field("unreadable", loaded.unreadable.size())
      .Field("without_record", loaded.without_record.size());
  SYNCLINE_RETURN_IF_ERROR(
      SkipJobNumbers(options.state_dir, state.get(), &loaded));
  SYNCLINE_ASSIGN_OR_RETURN(auto audit, AuditLog::Open(options.state_dir));
  std::unique_ptr<QuotaFile> quotas;
  if (!options.quota_file.empty()) {
    SYNCLINE_ASSIGN_OR_RETURN(quotas, QuotaFile::Open(options.quota_file));
  }
  return std::make_unique<SchedulerImpl>(
      options, std::move(state), epochs, std::move(owner), std::move(artifacts),
      std::move(loaded), std::move(audit), std::move(quotas));
}

}  // namespace syncline::scheduler
