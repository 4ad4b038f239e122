#include <algorithm>
#include <limits>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/available_memory.h"
#include "common/base/log.h"
#include "common/base/periodic_task.h"
#include "common/base/status_macros.h"
#include "server/in_flight_budget.h"
#include "server/job_table.h"
#include "server/lanes.h"
#include "server/metrics.h"
#include "server/parameter_service.h"
#include "server/server.h"

namespace syncline {
namespace {

// How late a parked call may learn that its time is over.
constexpr absl::Duration kTickPeriod = absl::Milliseconds(50);
constexpr int kTicksPerSample = 20;
constexpr int kLanesMax = 1024;
// As much as one worker can have unsent.
constexpr size_t kIdleBufferBytes = JobShard::kUnsentBytesMax;

// Clocks between the fastest and the slowest worker that has not finished.
int64_t ClockSpread(const ShardStatus::Job& job) {
  int64_t least = std::numeric_limits<int64_t>::max();
  int64_t most = 0;
  for (const ShardStatus::Worker& worker : job.workers()) {
    if (worker.finished()) continue;
    least = std::min<int64_t>(least, worker.closed_clocks());
    most = std::max<int64_t>(most, worker.closed_clocks());
  }
  return std::max<int64_t>(most - least, 0);
}

class PsServerImpl final : public PsServer {
 public:
  explicit PsServerImpl(const Options& options, int lanes)
      : metrics_(options.metrics),
        budget_(std::make_shared<InFlightBudget>(options.in_flight_bytes)),
        buffers_(std::make_shared<BufferPool>(kIdleBufferBytes)),
        lanes_(lanes),
        service_(MakeParameterService(&jobs_, budget_.get(), &metrics_)),
        ticks_("ps-ticks", kTickPeriod, [this] { Tick(); }) {}

  ~PsServerImpl() override {
    for (const auto& job : jobs_.All()) {
      CloseJob(job->config.job_id, "the ps ended");
    }
    ticks_.Stop();
  }

  void RegisterService(grpc::ServerBuilder* builder) override {
    builder->RegisterService(service_.get());
  }
  absl::Status OpenJob(const JobAssignment& assignment,
                       uint32_t ps_rank) override;
  void CloseJob(const std::string& job_id, absl::string_view reason) override;
  void Drain(absl::Time deadline) override;

 private:
  absl::Status CheckMemory(const JobConfig& config) const;
  void Tick();
  void SampleMetrics();
  void CountEvents(JobShard* shard);

  PsMetrics metrics_;
  const std::shared_ptr<InFlightBudget> budget_;
  const std::shared_ptr<BufferPool> buffers_;
  JobTable jobs_;
  Lanes lanes_;
  const std::unique_ptr<grpc::Service> service_;
  int ticks_since_sample_ = 0;  // the ticks' alone
  PeriodicTask ticks_;          // last: it uses the rest
};

absl::Status PsServerImpl::CheckMemory(const JobConfig& config) const {
  const ShardLayout layout(config.map, config.ps_rank);
  const uint64_t needed =
      DenseShard::MemoryBytes(config.shard.optimizer.kind, layout.counts());
  const uint64_t available = AvailableMemoryBytes();
  if (needed <= available) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      config.label, ": parameters and optimizer state need ", needed >> 20,
      " MiB, ", available >> 20, " MiB are available"));
}

absl::Status PsServerImpl::OpenJob(const JobAssignment& assignment,
                                   uint32_t ps_rank) {
  SYNCLINE_ASSIGN_OR_RETURN(JobConfig config,
                            ReadJobConfig(assignment, ps_rank));
  SYNCLINE_RETURN_IF_ERROR(jobs_.CheckNew(config.job_id));
  SYNCLINE_RETURN_IF_ERROR(CheckMemory(config));
  auto job = std::make_shared<JobEntry>();
  job->norms = std::make_shared<NormExchange>(assignment, config.map, ps_rank,
                                              config.label, config.wait_max);
  if (config.controller.block_count > 0) {
    job->shard = std::make_shared<JobShard>(
        config, JobShard::Resources{&lanes_, budget_.get(), buffers_.get()},
        [norms = job->norms](int64_t clock, std::vector<double> squared_norms,
                             std::function<void(absl::StatusOr<double>)> done) {
          norms->Exchange(clock, std::move(squared_norms), std::move(done));
        });
  }
  job->config = std::move(config);
  SYNCLINE_RETURN_IF_ERROR(jobs_.Add(job));
  LogInfo("shard opened")
      .Job(assignment.job_id())
      .Field("rank", ps_rank)
      .Field("blocks", job->config.controller.block_count)
      .Field("of_blocks", job->config.map.blocks().size())
      .Field("workers", job->config.controller.workers.size());
  return absl::OkStatus();
}

void PsServerImpl::CloseJob(const std::string& job_id,
                            absl::string_view reason) {
  std::shared_ptr<const JobEntry> job = jobs_.Remove(job_id);
  if (job == nullptr) return;
  const absl::Status closed = absl::CancelledError(
      absl::StrCat(job->config.label, " was closed: ", reason));
  job->norms->Close(closed);
  if (job->shard != nullptr) {
    job->shard->Close(closed);
    lanes_.Drain();
    CountEvents(job->shard.get());
  }
  LogInfo("shard closed").Job(job_id).Field("reason", reason);
}

void PsServerImpl::Drain(absl::Time deadline) {
  jobs_.StartDraining();
  const absl::Status draining = absl::UnavailableError("this ps is draining");
  for (const auto& job : jobs_.All()) {
    if (absl::Now() > deadline) return;
    job->norms->Close(draining);
    if (job->shard != nullptr) job->shard->Close(draining);
  }
}

void PsServerImpl::CountEvents(JobShard* shard) {
  metrics_.Duplicates(shard->NewDuplicateBlocks());
  metrics_.AbandonedCuts(shard->NewAbandonedCuts());
}

void PsServerImpl::Tick() {
  const absl::Time now = absl::Now();
  for (const auto& job : jobs_.All()) {
    job->norms->Tick(now);
    if (job->shard != nullptr) job->shard->Tick(now);
  }
  if (++ticks_since_sample_ < kTicksPerSample) return;
  ticks_since_sample_ = 0;
  SampleMetrics();
}

void PsServerImpl::SampleMetrics() {
  PsMetrics::Sample sample;
  sample.in_flight_bytes = static_cast<double>(budget_->used_bytes());
  sample.in_flight_limit_bytes = static_cast<double>(budget_->limit_bytes());
  for (const auto& job : jobs_.All()) {
    sample.jobs += 1;
    if (job->shard == nullptr) continue;
    CountEvents(job->shard.get());
    const ShardStatus::Job status = job->shard->Status();
    sample.parked_pushes += status.parked_pushes();
    sample.parked_pulls += status.parked_pulls();
    sample.parameter_bytes += static_cast<double>(status.value_bytes());
    sample.slot_bytes += static_cast<double>(status.slot_bytes());
    sample.fold_bytes += static_cast<double>(status.fold_bytes());
    sample.clock_spread =
        std::max(sample.clock_spread, static_cast<double>(ClockSpread(status)));
  }
  metrics_.Set(sample);
}

}  // namespace

absl::StatusOr<std::unique_ptr<PsServer>> PsServer::Create(
    const Options& options) {
  const int cores =
      std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const int lanes = options.lanes == 0 ? cores : options.lanes;
  if (lanes < 1 || lanes > kLanesMax) {
    return absl::InvalidArgumentError(absl::StrCat("lanes is ", options.lanes,
                                                   ", must be 1 to ", kLanesMax,
                                                   ", or 0 for one per core"));
  }
  if (options.in_flight_bytes < (uint64_t{8} << 20)) {
    return absl::InvalidArgumentError(
        absl::StrCat("in_flight_bytes is ", options.in_flight_bytes,
                     ", must be at least 8 MiB, a message each way"));
  }
  return std::make_unique<PsServerImpl>(options, lanes);
}

}  // namespace syncline
