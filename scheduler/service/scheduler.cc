#include "scheduler/service/scheduler.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/clock.h"
#include "common/base/crc32c.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/base/version.h"
#include "common/system/log.h"
#include "google/protobuf/struct.pb.h"
#include "google/protobuf/util/json_util.h"
#include "scheduler/core/cluster/status_page.h"
#include "scheduler/core/describe.h"
#include "scheduler/core/stopping.h"
#include "scheduler/service/control_loop.h"
#include "scheduler/service/daemons_service.h"
#include "scheduler/service/job_intake.h"
#include "scheduler/service/jobs_service.h"
#include "scheduler/service/metrics.h"
#include "scheduler/service/state_store.h"

namespace syncline::scheduler {
namespace {

constexpr int kFileThreads = 2;
constexpr size_t kPageJobsMax = 50;
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

// A list has only the names of specs. The other fields of a spec would show
// zeros that the user did not write.
void KeepNamesOfSpecs(google::protobuf::Struct* page) {
  auto* const jobs = (*page->mutable_fields())["jobs"].mutable_list_value();
  for (auto& job : *jobs->mutable_values()) {
    auto* const fields = job.mutable_struct_value()->mutable_fields();
    auto* const spec = (*fields)["spec"].mutable_struct_value();
    google::protobuf::Value name = (*spec->mutable_fields())["name"];
    spec->clear_fields();
    (*spec->mutable_fields())["name"] = std::move(name);
  }
}

class SchedulerImpl final : public Scheduler {
 public:
  SchedulerImpl(const Options& options, std::unique_ptr<StateStore> state,
                std::unique_ptr<ArtifactStore> artifacts,
                StateStore::Loaded jobs)
      : options_(options),
        state_(std::move(state)),
        artifacts_(std::move(artifacts)),
        metrics_(options.metrics),
        confirmer_(options.confirmer != nullptr ? options.confirmer
                                                : AddressConfirmer::OverGrpc()),
        loop_({.core = {.version = kVersion,
                        .lease = options.lease,
                        .heartbeat = options.heartbeat,
                        .prepare_timeout = options.prepare_timeout,
                        .keep = options.keep,
                        .expects_evaluator = options.expects_evaluator,
                        .ends_with_scheduler = options.single_job,
                        .queue_max = options.queue_max,
                        .confirms_addresses = true},
               .idle_limit = options.idle_limit,
               .confirmer = confirmer_.get()},
              std::move(jobs), state_.get(), artifacts_.get(), &metrics_),
        files_("scheduler-file", kFileThreads),
        intake_("scheduler-intake", 1),
        jobs_service_(Context()),
        daemons_service_(Context()) {}

  ~SchedulerImpl() override {
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
    builder->RegisterService(&jobs_service_);
    builder->RegisterService(&daemons_service_);
  }

  void SetAddress(const std::string& address) override {
    jobs_service_.SetAddress(address);
    MutexLock lock(&mu_);
    address_ = address;
  }

  absl::Status Ready() const override {
    SYNCLINE_RETURN_IF_ERROR(loop_.Healthy());
    return artifacts_->CheckRoom(/*bytes=*/0);
  }

  std::map<std::string, HttpServer::Handler> Pages() override {
    return {{"/", [this](absl::string_view) { return HtmlPage(); }},
            {"/jobs.json",
             [this](absl::string_view query) { return JsonPage(query); }}};
  }

  absl::StatusOr<Submission> Submit(const JobSpec& spec,
                                    absl::string_view model,
                                    const std::string& client_key) override {
    SYNCLINE_RETURN_IF_ERROR(loop_.CheckAccepting(client_key));
    SYNCLINE_RETURN_IF_ERROR(artifacts_->CheckRoom(model.size()));
    SYNCLINE_ASSIGN_OR_RETURN(CheckedJob job, CheckJob(spec, model));
    job.client_key = client_key;
    SYNCLINE_ASSIGN_OR_RETURN(
        auto upload, artifacts_->BeginUpload(options_.model_bytes_max));
    SYNCLINE_RETURN_IF_ERROR(WriteAll(model, upload.get()));
    using Answer = absl::StatusOr<ControlLoop::Submission>;
    auto accepted = std::make_shared<Slot<Answer>>();
    loop_.Submit(std::move(job), upload.get(), [accepted](Answer answer) {
      accepted->Set(std::move(answer));
    });
    const auto answer = accepted->Await(MonotonicNow() + kEnqueueTimeout);
    if (!answer.has_value()) {
      return absl::DeadlineExceededError("the state could not be written");
    }
    SYNCLINE_RETURN_IF_ERROR(answer->status());
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
            .model_bytes_max = options_.model_bytes_max};
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

  HttpServer::Response HtmlPage() {
    StatusPageData data;
    loop_.Read([&](const ClusterCore& core, absl::Time now) {
      data.now = now;
      data.cluster = core.Cluster(now);
      for (const Job* job : core.Jobs()) {
        if (data.jobs.size() == kPageJobsMax) break;
        data.jobs.push_back(
            {job->Status(now), {job->curve().begin(), job->curve().end()}});
      }
    });
    data.cluster.set_version(kVersion);
    {
      MutexLock lock(&mu_);
      data.cluster.set_scheduler_address(address_);
    }
    return {.content_type = "text/html; charset=utf-8",
            .body = RenderStatusPage(data)};
  }

  // A page of jobs; "page_token=" in the query asks for a later one.
  HttpServer::Response JsonPage(absl::string_view query) {
    ListRequest request;
    if (absl::ConsumePrefix(&query, "page_token=")) {
      request.set_page_token(std::string(query));
    }
    const auto page = ListJobs(loop_, request);
    HttpServer::Response response;
    if (!page.ok()) {
      response.code = 400;
      response.body = absl::StrCat(page.status().message(), "\n");
      return response;
    }
    google::protobuf::util::JsonPrintOptions json;
    json.preserve_proto_field_names = true;
    json.always_print_primitive_fields = true;
    response.content_type = "application/json";
    std::string text;
    google::protobuf::Struct object;
    const bool printed =
        google::protobuf::util::MessageToJsonString(*page, &text, json).ok() &&
        google::protobuf::util::JsonStringToMessage(text, &object).ok();
    KeepNamesOfSpecs(&object);
    if (!printed ||
        !google::protobuf::util::MessageToJsonString(object, &response.body)
             .ok()) {
      response.code = 500;
    }
    return response;
  }

  const Options options_;
  const std::unique_ptr<StateStore> state_;
  const std::unique_ptr<ArtifactStore> artifacts_;
  SchedulerMetrics metrics_;
  std::shared_ptr<AddressConfirmer> confirmer_;
  ControlLoop loop_;
  ThreadPool files_;
  ThreadPool intake_;
  TransferGate gate_{TransferQueue::Options()};
  JobsService jobs_service_;
  DaemonsService daemons_service_;
  Mutex mu_;
  std::string address_ ABSL_GUARDED_BY(mu_);
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
  SYNCLINE_ASSIGN_OR_RETURN(StateStore::Loaded loaded, state->Load());
  SYNCLINE_ASSIGN_OR_RETURN(auto artifacts,
                            ArtifactStore::Open(options.state_dir));
  SYNCLINE_RETURN_IF_ERROR(MatchFiles(artifacts.get(), &loaded));
  LogInfo("scheduler state read")
      .Field("directory", options.state_dir)
      .Field("jobs", loaded.jobs.size())
      .Field("unreadable", loaded.unreadable.size())
      .Field("without_record", loaded.without_record.size());
  return std::make_unique<SchedulerImpl>(
      options, std::move(state), std::move(artifacts), std::move(loaded));
}

}  // namespace syncline::scheduler
