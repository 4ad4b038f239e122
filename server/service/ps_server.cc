#include "server/service/ps_server.h"

#include <algorithm>
#include <limits>
#include <thread>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/checkpoint_start.h"
#include "common/system/free_disk.h"
#include "common/system/log.h"
#include "common/system/memory_claim.h"
#include "common/system/periodic_task.h"
#include "common/update/reduction_root.h"
#include "common/wire/routing_table.h"
#include "common/wire/routing_version.h"
#include "server/checkpoint/restore.h"
#include "server/checkpoint/shard_checkpoints.h"
#include "server/lanes/lanes.h"
#include "server/memory/in_flight_budget.h"
#include "server/memory/shared_regions.h"
#include "server/service/job_metrics.h"
#include "server/service/metrics.h"
#include "server/service/parameter_service.h"
#include "server/service/quorum_service.h"
#include "server/service/state_service.h"
#include "server/service/tick_gap.h"
#include "server/shard/job_access.h"
#include "server/shard/job_registry.h"
#include "server/shard/ps_plan.h"
#include "server/shard/shard_exporter.h"
#include "server/shard/shard_importer.h"
#include "server/shard/shard_transfer.h"
#include "server/spill/row_spill.h"
#include "server/tables/table_budget.h"

namespace syncline::ps {
namespace {

// A disk may be busy for so long.
constexpr absl::Duration kDiskStallMin = absl::Milliseconds(250);

// How late a parked call may learn that its time is over.
constexpr absl::Duration kTickPeriod = absl::Milliseconds(50);
constexpr int kTicksPerSample = 20;
constexpr int kLanesMax = 1024;
// A call that was answered ends at once, unless gRPC hangs.
constexpr absl::Duration kFreeMax = absl::Seconds(5);
// Every table that has disk may spill: the least memory has some to spare.
static_assert(TableBudget::kLeastBytes >= 16 * RowSpill::kMemoryMin &&
              TableBudget::kLeastBytes >= RowSpill::kDiskMin);
// As much as one worker can have unsent.
constexpr size_t kIdleBufferBytes = AnswerWindow::kUnsentBytesMax;

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

// Frees closed shards: what they take goes with the last call that looks at
// them, which has been answered and is about to end. Others may want the memory
// as soon as this returns.
void Free(JobRegistry::Shards shards) {
  std::vector<std::weak_ptr<const JobShard>> left;
  std::string job_id;
  for (const auto& shard : shards) {
    job_id = shard->config.job_id;
    left.emplace_back(shard->shard);
  }
  shards.clear();
  const absl::Time until = MonotonicNow() + kFreeMax;
  const auto is_freed = [&] {
    return std::all_of(left.begin(), left.end(),
                       [](const auto& shard) { return shard.expired(); });
  };
  Mutex mu;
  CondVar nobody;
  MutexLock lock(&mu);
  while (!is_freed() && MonotonicNow() < until) {
    nobody.WaitUntil(&mu, MonotonicNow() + absl::Milliseconds(1));
  }
  if (!is_freed()) LogWarning("calls still hold a closed shard").Job(job_id);
}

// True if the scheduler gets reports on the job, see PsReport. A job may come
// to SYNC while it runs.
bool IsReported(const JobConfig& config, const JobShard& shard) {
  return !config.tables.empty() ||
         config.update.on_non_finite != OnNonFinite::kFailJob ||
         (config.shard == kRootShard && shard.HasBlame());
}

// Adds a shard of the job to its report, but not the shard's tables. All shards
// skip the same clocks.
void AddToReport(const JobConfig& config, const JobShard& shard,
                 PsReport* report) {
  report->set_job_id(config.job_id);
  report->set_attempt(config.pass.attempt);
  report->set_skipped_clocks(
      std::max(report->skipped_clocks(), shard.SkippedClocks()));
  report->set_dropped_blocks(report->dropped_blocks() + shard.DroppedBlocks());
  // It has all barriers.
  if (config.shard == kRootShard) shard.AddBlame(MonotonicNow(), report);
}

std::vector<StatisticsReducer::Worker> StatisticsWorkers(
    const JobConfig& config) {
  std::vector<StatisticsReducer::Worker> workers;
  for (const auto& worker : config.controller.workers) {
    workers.push_back({worker.incarnation, worker.name});
  }
  return workers;
}

class PsServerImpl final : public PsServer {
 public:
  PsServerImpl(const Options& options, int lanes,
               std::unique_ptr<SpillDirectory> spill)
      : registry_(options.metrics),
        metrics_(options.metrics),
        budget_(std::make_shared<InFlightBudget>(options.in_flight_bytes)),
        table_budget_(std::make_shared<TableBudget>(options.table_memory_bytes,
                                                    options.table_disk_bytes)),
        spill_(std::move(spill)),
        buffers_(std::make_shared<BufferPool>(kIdleBufferBytes)),
        shared_(
            {.enabled = options.shared_memory,
             .bytes_max = options.shared_memory_bytes,
             .boot_id = options.boot_id.empty() ? BootId() : options.boot_id}),
        checkpoint_dir_(options.checkpoint_dir),
        checkpoint_wait_max_(options.checkpoint_wait_max),
        on_unreachable_(options.on_unreachable),
        snapshot_taker_(options.snapshot_taker),
        spill_dir_(options.table_disk_bytes > 0 ? options.spill_dir : ""),
        lanes_(lanes),
        service_(
            MakeParameterService(&jobs_, budget_.get(), &shared_, &metrics_)),
        state_service_(MakeStateService(&jobs_, budget_.get())),
        quorum_service_(MakeQuorumService(&jobs_, &metrics_)),
        ticks_("ps-ticks", kTickPeriod, [this] { Tick(); }) {
    if (registry_ == nullptr) return;
    collecting_ = registry_->AddCollector(
        [this](MetricSamples* samples) { Collect(samples); });
  }

  ~PsServerImpl() override {
    collecting_.reset();
    for (const std::string& job_id : jobs_.JobIds()) {
      CloseJob(job_id, "the ps ended");
    }
    ticks_.Stop();
  }

  void RegisterService(grpc::ServerBuilder* builder) override {
    builder->RegisterService(service_.get());
    builder->RegisterService(state_service_.get());
    builder->RegisterService(quorum_service_.get());
  }
  absl::Status OpenJob(const JobAssignment& assignment, uint32_t ps_rank,
                       const GoOnCheck& go_on) override;
  absl::Status RestoreJob(const JobAssignment& assignment, uint32_t ps_rank,
                          const ShardStarts& starts,
                          const GoOnCheck& go_on) override;
  absl::Status ChangeRouting(const JobAssignment& assignment, uint32_t ps_rank,
                             uint64_t cut_id, const ShardStarts& starts,
                             const GoOnCheck& go_on) override;
  absl::Status ExportState(const std::string& job_id, uint32_t shard,
                           uint64_t cut_id, const ShardSelection& selection,
                           ShardStateSink* sink) override;
  absl::StatusOr<std::optional<WorkerTakenOut>> TakeWorkerOut(
      const RemoveWorker& command) override;
  absl::Status ReturnClocks(const ReturnLeases& command) override;
  std::optional<PsReport> CloseJob(const std::string& job_id,
                                   absl::string_view reason) override;
  std::vector<PsReport> Reports() const override;
  void Drain(absl::Time deadline) override;

 private:
  // How the shards of one job on this ps begin.
  struct Opening {
    const JobAssignment* assignment = nullptr;
    ShardStarts starts = nullptr;  // null: without values
    GoOnCheck go_on = nullptr;
    // Of the shard's predecessor on this ps; may be null.
    std::shared_ptr<PendingStatistics> statistics = nullptr;
  };
  // The job's shards here. Errors: FailedPrecondition: none is of the attempt.
  absl::StatusOr<JobRegistry::Shards> ShardsOf(const std::string& job_id,
                                               uint32_t attempt) const;
  // The shards of the ps of this rank, which no call can reach yet.
  absl::StatusOr<JobRegistry::Shards> MakeShards(const Opening& opening,
                                                 uint32_t ps_rank);
  // The shard that has `others_to_come` of its job behind it, and `here` of
  // it, itself included, on this ps.
  absl::StatusOr<std::shared_ptr<const JobEntry>> MakeShard(
      const Opening& opening, const RoutingTable& routing, uint32_t shard,
      uint32_t here, uint32_t others_to_come);
  absl::Status AddJob(const Opening& opening, uint32_t ps_rank);
  // The second half of ChangeRouting: the later shards.
  absl::Status OpenRouting(const Opening& opening, uint32_t ps_rank,
                           const JobAccess& access);
  // CloseJob of what the registry has let go.
  std::optional<PsReport> CloseRemoved(
      std::optional<JobRegistry::Shards> shards, const std::string& job_id,
      absl::string_view reason);
  // Ends the calls of the shards, which no new call reaches, and their work.
  void CloseShards(const JobRegistry::Shards& shards,
                   const std::function<absl::Status(const JobConfig&)>& reason,
                   bool with_statistics);
  // CloseShards of those that are held at the cut and go to the routing of
  // `later`. Errors: FailedPrecondition: one is not held; all are closed.
  absl::Status CloseAtCut(const JobRegistry::Shards& shards, uint64_t cut_id,
                          const JobAccess& later);
  absl::Status CheckMemory(const JobConfig& config) const;
  // Null: the job makes no checkpoints.
  absl::StatusOr<std::shared_ptr<ShardCheckpoints>> OpenCheckpoints(
      const std::shared_ptr<JobShard>& shard, const GoOnCheck& go_on);
  // Sets memory and disk aside for the shard's tables and opens them; `here`,
  // `others_to_come`: MakeShard's.
  absl::StatusOr<std::unique_ptr<EmbeddingTables>> OpenTables(
      JobConfig* config, uint32_t here, uint32_t others_to_come);
  // Null: the table's rows stay in memory. Else part of its memory is the
  // store's.
  absl::StatusOr<std::unique_ptr<ColdStore>> OpenSpill(JobConfig* config,
                                                       uint32_t table);
  // Adds the samples that are read when metrics are asked for.
  void Collect(MetricSamples* samples);
  void Tick();
  void SampleMetrics();
  void CountEvents(const JobEntry& job);
  void CountCheckpoints(ShardCheckpoints* checkpoints);

  MetricsRegistry* const registry_;  // may be null
  PsMetrics metrics_;
  const std::shared_ptr<InFlightBudget> budget_;
  const std::shared_ptr<TableBudget> table_budget_;
  const std::unique_ptr<SpillDirectory> spill_;  // null: rows stay in memory
  const std::shared_ptr<BufferPool> buffers_;
  SharedRegions shared_;
  const std::string checkpoint_dir_;
  const absl::Duration checkpoint_wait_max_;
  const NormAllReduce::OnUnreachable on_unreachable_;
  const std::function<std::shared_ptr<SnapshotTaker>(const std::string& job_id)>
      snapshot_taker_;
  JobRegistry jobs_;
  const std::string spill_dir_;  // empty: none
  Lanes lanes_;
  const std::unique_ptr<grpc::Service> service_;
  const std::unique_ptr<grpc::Service> state_service_;
  const std::unique_ptr<grpc::Service> quorum_service_;
  int ticks_since_sample_ = 0;                     // the ticks' alone
  TickGap tick_gap_{kTickPeriod, MonotonicNow()};  // likewise
  PeriodicTask ticks_;                             // it uses the rest
  // Last, likewise.
  std::unique_ptr<MetricsRegistry::Collecting> collecting_;
};

absl::Status PsServerImpl::CheckMemory(const JobConfig& config) const {
  PsPlan plan = PlanShard(
      config.update.optimizer, config.controller, LayoutOf(config).counts(),
      static_cast<uint32_t>(config.controller.workers.size()),
      !config.tables.empty());
  plan.copy_bytes = static_cast<int64_t>(CopyBytes(
      config.update.optimizer, LayoutOf(config).counts(), config.checkpoint));
  const absl::Status fits = CheckMemoryFor(
      plan.copy_bytes > 0
          ? "parameters, optimizer state, waiting gradients, messages and "
            "copies for checkpoints (checkpoint.copy_bytes)"
          : "parameters, optimizer state, waiting gradients and messages",
      static_cast<uint64_t>(plan.memory_bytes()));
  if (fits.ok()) return fits;
  return Annotate(
      fits, absl::StrCat(config.label, ": of ", config.map.shard_count(),
                         " ps in all (more resources.ps make shares smaller)"));
}

absl::StatusOr<std::unique_ptr<EmbeddingTables>> PsServerImpl::OpenTables(
    JobConfig* config, uint32_t here, uint32_t others_to_come) {
  std::vector<TableBudget::Share> asked;
  // A job asks for memory and disk by ps; the `here` shards share them.
  for (const JobConfig::Table& table : config->tables) {
    asked.push_back(
        {table.options.memory_bytes / here, table.disk_bytes / here});
  }
  auto reserved = table_budget_->Reserve(asked, 1 + others_to_come);
  if (!reserved.ok()) return Annotate(reserved.status(), config->label);
  EmbeddingTables::ColdStores cold;
  for (size_t i = 0; i < config->tables.size(); ++i) {
    const TableBudget::Share& share = reserved->shares()[i];
    config->tables[i].options.memory_bytes = share.memory_bytes;
    config->tables[i].disk_bytes = share.disk_bytes;
    SYNCLINE_ASSIGN_OR_RETURN(auto store,
                              OpenSpill(config, static_cast<uint32_t>(i)));
    cold.push_back(std::move(store));
  }
  return EmbeddingTables::Create(*config, lanes_.count(), std::move(cold),
                                 *std::move(reserved));
}

absl::StatusOr<std::unique_ptr<ColdStore>> PsServerImpl::OpenSpill(
    JobConfig* config, uint32_t index) {
  JobConfig::Table& table = config->tables[index];
  const uint64_t memory = table.options.memory_bytes;
  if (spill_ == nullptr || table.disk_bytes == 0) {
    return std::unique_ptr<ColdStore>();
  }
  RowSpill::Options options;
  options.folder = spill_->PathFor(config->job_id, config->shard, index);
  options.row_bytes = TableShard::SpilledRowBytes(table.options);
  // Each partition has at least one slot.
  options.partitions = table.layout.map.SlotCount(config->shard);
  options.lanes = lanes_.count();
  options.memory_bytes = RowSpill::MemoryFor(memory, table.disk_bytes);
  options.disk_bytes = table.disk_bytes;
  table.options.memory_bytes -= options.memory_bytes;
  absl::StatusOr<std::unique_ptr<ColdStore>> store = RowSpill::Open(options);
  if (store.ok()) return store;
  return Annotate(store.status(), absl::StrCat(config->label, ": table '",
                                               table.options.name, "'"));
}

absl::Status PsServerImpl::OpenJob(const JobAssignment& assignment,
                                   uint32_t ps_rank, const GoOnCheck& go_on) {
  return AddJob({.assignment = &assignment, .go_on = go_on}, ps_rank);
}

absl::Status PsServerImpl::RestoreJob(const JobAssignment& assignment,
                                      uint32_t ps_rank,
                                      const ShardStarts& starts,
                                      const GoOnCheck& go_on) {
  return AddJob({.assignment = &assignment, .starts = starts, .go_on = go_on},
                ps_rank);
}

absl::Status PsServerImpl::AddJob(const Opening& opening, uint32_t ps_rank) {
  SYNCLINE_ASSIGN_OR_RETURN(JobAccess access,
                            ReadJobAccess(*opening.assignment, ps_rank));
  SYNCLINE_RETURN_IF_ERROR(jobs_.CheckNew(access.job_id));
  SYNCLINE_ASSIGN_OR_RETURN(JobRegistry::Shards shards,
                            MakeShards(opening, ps_rank));
  return jobs_.Add(std::make_shared<const JobAccess>(std::move(access)),
                   std::move(shards));
}

absl::Status PsServerImpl::ChangeRouting(const JobAssignment& assignment,
                                         uint32_t ps_rank, uint64_t cut_id,
                                         const ShardStarts& starts,
                                         const GoOnCheck& go_on) {
  SYNCLINE_ASSIGN_OR_RETURN(JobAccess read, ReadJobAccess(assignment, ps_rank));
  const auto access = std::make_shared<const JobAccess>(std::move(read));
  SYNCLINE_ASSIGN_OR_RETURN(JobRegistry::Shards former,
                            jobs_.AllOf(access->job_id));
  Opening opening{.assignment = &assignment, .starts = starts, .go_on = go_on};
  for (const auto& shard : former) {
    if (shard->statistics != nullptr) opening.statistics = shard->statistics;
    if (shard->shard == nullptr) continue;
    SYNCLINE_RETURN_IF_ERROR(shard->shard->CheckHeldCut(cut_id));
  }
  if (opening.statistics != nullptr &&
      ReductionRootOf(assignment).rank != ps_rank) {
    return absl::FailedPreconditionError(absl::StrCat(
        access->label, ": routing version ", access->routing_version,
        " puts shard 0 on another ps, but this one reduces the statistics of ",
        "batches (training.sync_batch_statistics)"));
  }
  SYNCLINE_ASSIGN_OR_RETURN(former, jobs_.BeginRouting(access));
  absl::Status status = CloseAtCut(former, cut_id, *access);
  // Its memory and files make room for those of the new shards.
  Free(std::move(former));
  if (status.ok()) status = OpenRouting(opening, ps_rank, *access);
  if (status.ok()) return status;
  // Not what was opened under this name meanwhile.
  CloseRemoved(jobs_.Remove(*access), access->job_id, status.message());
  if (opening.statistics != nullptr) opening.statistics->Close(status);
  return status;
}

absl::Status PsServerImpl::OpenRouting(const Opening& opening, uint32_t ps_rank,
                                       const JobAccess& access) {
  SYNCLINE_ASSIGN_OR_RETURN(JobRegistry::Shards shards,
                            MakeShards(opening, ps_rank));
  return jobs_.EndRouting(access, std::move(shards));
}

absl::Status PsServerImpl::CloseAtCut(const JobRegistry::Shards& shards,
                                      uint64_t cut_id, const JobAccess& later) {
  const auto moved = [&](const JobConfig& config) {
    return WithRoutingVersion(
        absl::AbortedError(absl::StrCat(config.label,
                                        ": the job goes to routing version ",
                                        later.routing_version)),
        later.routing_version);
  };
  absl::Status held;
  for (const auto& job : shards) {
    if (job->shard == nullptr || !held.ok()) continue;
    held = job->shard->CloseAtCut(cut_id, moved(job->config));
  }
  CloseShards(
      shards,
      [&](const JobConfig& config) { return held.ok() ? moved(config) : held; },
      /*with_statistics=*/false);
  return held;
}

absl::Status PsServerImpl::ExportState(const std::string& job_id,
                                       uint32_t shard, uint64_t cut_id,
                                       const ShardSelection& selection,
                                       ShardStateSink* sink) {
  SYNCLINE_ASSIGN_OR_RETURN(const auto job, jobs_.Find(job_id, shard));
  return job->shard->Export(cut_id, selection, sink);
}

absl::StatusOr<JobRegistry::Shards> PsServerImpl::MakeShards(
    const Opening& opening, uint32_t ps_rank) {
  SYNCLINE_ASSIGN_OR_RETURN(const RoutingTable routing,
                            RoutingTable::Create(*opening.assignment));
  const std::vector<uint32_t> numbers = routing.ShardsOf(ps_rank);
  const auto here = static_cast<uint32_t>(numbers.size());
  JobRegistry::Shards shards;
  for (uint32_t i = 0; i < here; ++i) {
    SYNCLINE_ASSIGN_OR_RETURN(
        auto shard,
        MakeShard(opening, routing, numbers[i], here, here - 1 - i));
    shards.push_back(std::move(shard));
  }
  return shards;
}

absl::StatusOr<std::shared_ptr<const JobEntry>> PsServerImpl::MakeShard(
    const Opening& opening, const RoutingTable& routing, uint32_t shard,
    uint32_t here, uint32_t others_to_come) {
  SYNCLINE_ASSIGN_OR_RETURN(JobConfig config,
                            ReadJobConfig(*opening.assignment, shard));
  SYNCLINE_RETURN_IF_ERROR(CheckMemory(config));
  SYNCLINE_ASSIGN_OR_RETURN(auto tables,
                            OpenTables(&config, here, others_to_come));
  auto job = std::make_shared<JobEntry>();
  job->norms = std::make_shared<NormAllReduce>(
      *opening.assignment, routing, shard, config.label, config.wait_max,
      on_unreachable_);
  if (config.folds_statistics && shard == kRootShard) {
    job->statistics = opening.statistics != nullptr
                          ? opening.statistics
                          : std::make_shared<PendingStatistics>(
                                StatisticsWorkers(config), config.label);
  }
  if (config.controller.quorum.has_value()) {
    job->quorum = std::make_shared<QuorumAgreement>(
        *opening.assignment, routing, config, on_unreachable_);
  }
  if (config.controller.block_count > 0) {
    job->shard = std::make_shared<JobShard>(
        config, JobShard::Resources{&lanes_, budget_.get(), buffers_.get()},
        [norms = job->norms](const ReductionRound& round,
                             std::vector<double> squared_norms,
                             NormAllReduce::Done done) {
          norms->AllReduce(round, std::move(squared_norms), std::move(done));
        },
        std::move(tables));
    job->transfer = std::make_shared<ShardTransfer>(job->shard);
    job->shard->UseQuorum(job->quorum);
    if (const auto there = job->shard->MakeResident(opening.go_on);
        !there.ok()) {
      return Annotate(there, config.label);
    }
    SYNCLINE_ASSIGN_OR_RETURN(job->checkpoints,
                              OpenCheckpoints(job->shard, opening.go_on));
    if (job->checkpoints != nullptr) {
      job->shard->UseSnapshotTaker(job->checkpoints);
    } else if (snapshot_taker_ != nullptr) {
      job->shard->UseSnapshotTaker(snapshot_taker_(config.job_id));
    }
    if (opening.starts != nullptr) {
      SYNCLINE_ASSIGN_OR_RETURN(const ShardStart start, opening.starts(shard));
      if (const auto taken = job->shard->Import(start); !taken.ok()) {
        const bool names_shard =
            absl::StrContains(taken.message(), config.label);
        const absl::Status named =
            names_shard ? taken : Annotate(taken, config.label);
        return opening.assignment->has_start_from()
                   ? WithStartTrouble(named, *opening.assignment)
                   : named;
      }
    }
  }
  LogInfo("shard opened")
      .Job(config.job_id)
      .Field("shard", config.shard)
      .Field("blocks", config.controller.block_count)
      .Field("of_blocks", config.map.blocks().size())
      .Field("tables", config.tables.size())
      .Field("workers", config.controller.workers.size());
  job->config = std::move(config);
  return job;
}

absl::StatusOr<std::shared_ptr<ShardCheckpoints>> PsServerImpl::OpenCheckpoints(
    const std::shared_ptr<JobShard>& shard, const GoOnCheck& go_on) {
  const JobConfig& config = shard->config();
  if (!config.checkpoint.has_value()) return nullptr;
  const CheckpointSpec& spec = *config.checkpoint;
  const bool is_shared = !spec.directory().empty();
  const std::string& folder = is_shared ? spec.directory() : checkpoint_dir_;
  if (folder.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        config.label, ": checkpoint.directory is empty, and this ps has no ",
        "--checkpoint-dir"));
  }
  ShardCheckpoints::Options options;
  options.folder = absl::StrCat(folder, "/", config.job_id);
  options.is_shared = is_shared;
  options.shards = config.checkpoint_files;
  options.start_clock = config.start_clock;
  options.keep_last = std::max<uint32_t>(spec.keep_last(), 1);
  options.keep_every = spec.keep_every();
  options.full_tables_every = std::max<uint32_t>(spec.full_tables_every(), 1);
  options.copy_bytes = CopyLimit(spec);
  // Workers wait for pushes and lanes no longer than a step timeout.
  options.push_wait_max = std::min(
      checkpoint_wait_max_, std::max(config.wait_max / 3, kDiskStallMin));
  if (const auto free = FreeDiskBytes(folder); !free.ok()) {
    return absl::UnavailableError(
        absl::StrCat(config.label, ": ",
                     is_shared ? "checkpoint.directory" : "--checkpoint-dir",
                     ": ", free.status().message()));
  }
  auto checkpoints = std::make_shared<ShardCheckpoints>(
      options,
      ShardCheckpoints::Shard{&shard->config(), &shard->layout(),
                              shard->executor(), &lanes_},
      [shard = std::weak_ptr<JobShard>(shard)](uint64_t cut_id) {
        const auto open = shard.lock();
        return open != nullptr ? open->CheckAnnounced(cut_id)
                               : absl::CancelledError("the shard was closed");
      });
  SYNCLINE_RETURN_IF_ERROR(
      Annotate(checkpoints->MakeResident(go_on), config.label));
  return checkpoints;
}

void PsServerImpl::CloseShards(
    const JobRegistry::Shards& shards,
    const std::function<absl::Status(const JobConfig&)>& reason,
    bool with_statistics) {
  // All disks are waited for at the same time.
  for (const auto& job : shards) {
    if (job->checkpoints == nullptr) continue;
    job->checkpoints->BeginClose(reason(job->config));
  }
  for (const auto& job : shards) {
    const absl::Status closed = reason(job->config);
    job->norms->Close(closed);
    if (with_statistics && job->statistics != nullptr) {
      job->statistics->Close(closed);
    }
    if (job->shard != nullptr) job->shard->Close(closed);
    // Lanes may wait for it.
    if (job->checkpoints != nullptr) job->checkpoints->Close(closed);
  }
  lanes_.Drain();
  for (const auto& job : shards) {
    if (job->shard != nullptr) CountEvents(*job);
  }
}

absl::StatusOr<JobRegistry::Shards> PsServerImpl::ShardsOf(
    const std::string& job_id, uint32_t attempt) const {
  JobRegistry::Shards shards;
  for (const auto& job : jobs_.All()) {
    if (job->config.job_id == job_id && job->config.pass.attempt == attempt) {
      shards.push_back(job);
    }
  }
  if (!shards.empty()) return shards;
  return absl::FailedPreconditionError(absl::StrCat(
      "job ", job_id, ": no shard of attempt ", attempt, " is open here"));
}

absl::StatusOr<std::optional<WorkerTakenOut>> PsServerImpl::TakeWorkerOut(
    const RemoveWorker& command) {
  SYNCLINE_ASSIGN_OR_RETURN(const JobRegistry::Shards shards,
                            ShardsOf(command.job_id(), command.attempt()));
  if (!shards[0]->config.controller.leases) {
    SYNCLINE_ASSIGN_OR_RETURN(const auto root,
                              jobs_.Find(command.job_id(), kRootShard));
    if (root->quorum == nullptr) {
      return absl::FailedPreconditionError(absl::StrCat(
          root->config.label, ": the job waits for all its workers"));
    }
    SYNCLINE_RETURN_IF_ERROR(
        root->quorum->Remove(command.attempt(), command.rank()));
    return std::nullopt;
  }
  WorkerTakenOut taken_out;
  taken_out.set_job_id(command.job_id());
  taken_out.set_attempt(command.attempt());
  taken_out.set_rank(command.rank());
  for (const auto& job : shards) {
    if (job->shard == nullptr) continue;
    SYNCLINE_ASSIGN_OR_RETURN(const ConsistencyController::LostLeases leases,
                              job->shard->LoseWorker(command.rank()));
    WorkerTakenOut::Shard* const shard = taken_out.add_shards();
    shard->set_begun_until(leases.begun_until);
    shard->set_whole_until(leases.whole_until);
    shard->mutable_leased()->Add(leases.leased.begin(), leases.leased.end());
    if (!leases.returned.has_value()) continue;
    shard->set_settled(true);
    shard->mutable_returned()->Add(leases.returned->begin(),
                                   leases.returned->end());
  }
  return taken_out;
}

absl::Status PsServerImpl::ReturnClocks(const ReturnLeases& command) {
  SYNCLINE_ASSIGN_OR_RETURN(const JobRegistry::Shards shards,
                            ShardsOf(command.job_id(), command.attempt()));
  for (const auto& job : shards) {
    if (job->shard == nullptr) continue;
    SYNCLINE_RETURN_IF_ERROR(
        job->shard->ReturnLeases(command.rank(), command.clocks()));
  }
  return absl::OkStatus();
}

std::optional<PsReport> PsServerImpl::CloseJob(const std::string& job_id,
                                               absl::string_view reason) {
  return CloseRemoved(jobs_.Remove(job_id, reason), job_id, reason);
}

std::optional<PsReport> PsServerImpl::CloseRemoved(
    std::optional<JobRegistry::Shards> shards, const std::string& job_id,
    absl::string_view reason) {
  if (!shards.has_value()) return std::nullopt;
  CloseShards(
      *shards,
      [&](const JobConfig& config) {
        return absl::CancelledError(
            absl::StrCat(config.label, " was closed: ", reason));
      },
      /*with_statistics=*/true);
  std::optional<PsReport> last;
  for (const auto& job : *shards) {
    if (job->shard == nullptr || !IsReported(job->config, *job->shard)) {
      continue;
    }
    if (!last.has_value()) last.emplace();
    AddToReport(job->config, *job->shard, &*last);
    for (ShardStatus::Table& table : job->shard->FinalTables()) {
      *last->add_tables() = std::move(table);
    }
  }
  Free(*std::move(shards));
  LogInfo("job closed").Job(job_id).Field("reason", reason);
  return last;
}

std::vector<PsReport> PsServerImpl::Reports() const {
  std::vector<PsReport> reports;
  // The shards of a job are neighbours.
  for (const auto& job : jobs_.All()) {
    if (job->shard == nullptr || !IsReported(job->config, *job->shard)) {
      continue;
    }
    if (reports.empty() || reports.back().job_id() != job->config.job_id) {
      reports.emplace_back();
    }
    AddToReport(job->config, *job->shard, &reports.back());
    const ShardStatus::Job status = job->shard->Status();
    reports.back().mutable_tables()->Add(status.tables().begin(),
                                         status.tables().end());
  }
  return reports;
}

void PsServerImpl::Drain(absl::Time deadline) {
  jobs_.StartDraining();
  const absl::Status draining = absl::UnavailableError("this ps is draining");
  for (const auto& job : jobs_.All()) {
    if (MonotonicNow() > deadline) return;
    job->norms->Close(draining);
    if (job->statistics != nullptr) job->statistics->Close(draining);
    if (job->shard != nullptr) job->shard->Close(draining);
  }
}

void PsServerImpl::CountEvents(const JobEntry& job) {
  JobShard* const shard = job.shard.get();
  metrics_.Duplicates(shard->NewDuplicateBlocks());
  metrics_.AbandonedCuts(shard->NewAbandonedCuts());
  metrics_.SkippedClocks(shard->NewSkippedClocks());
  if (job.checkpoints != nullptr) CountCheckpoints(job.checkpoints.get());
}

void PsServerImpl::CountCheckpoints(ShardCheckpoints* checkpoints) {
  const ShardCheckpoints::Counts counts = checkpoints->TakeNewCounts();
  metrics_.Checkpoints({.written = counts.written,
                        .failed = counts.failed,
                        .bytes = counts.bytes,
                        .took = counts.took,
                        .copies = counts.blocks.copies,
                        .waits = counts.blocks.waits,
                        .block_waits = counts.blocks.waited,
                        .table_waits = counts.table_waits});
}

void PsServerImpl::Tick() {
  const absl::Time now = MonotonicNow();
  const absl::Duration frozen = tick_gap_.OnBegin(now);
  const absl::Cleanup end_tick = [this] { tick_gap_.OnEnd(MonotonicNow()); };
  if (frozen > absl::ZeroDuration()) {
    LogWarning("this process did not run for a while")
        .Field("seconds", absl::ToDoubleSeconds(frozen));
  }
  for (const auto& job : jobs_.All()) {
    job->norms->Tick(now, frozen);
    if (job->statistics != nullptr) job->statistics->Tick(now, frozen);
    if (job->shard != nullptr) job->shard->Tick(now, frozen);
    if (job->checkpoints != nullptr) job->checkpoints->Tick(now);
  }
  if (++ticks_since_sample_ < kTicksPerSample) return;
  ticks_since_sample_ = 0;
  for (const auto& job : jobs_.All()) {
    if (job->shard != nullptr) job->shard->MaintainTables(now);
  }
  shared_.Tick(now);
  SampleMetrics();
}

void PsServerImpl::Collect(MetricSamples* samples) {
  CollectJobMetrics(jobs_.All(), MonotonicNow(), samples);
  samples->Add("syncline_ps_lanes", {}, lanes_.count());
  samples->Add("syncline_ps_queued_steps", {},
               static_cast<double>(lanes_.queued()));
  // Another user's full disk is no concern of a ps that puts nothing there.
  const JobRegistry::Shards shards = jobs_.All();
  const bool spills =
      absl::c_any_of(shards, [](const std::shared_ptr<const JobEntry>& job) {
        return absl::c_any_of(job->config.tables, [](const auto& table) {
          return table.disk_bytes > 0;
        });
      });
  if (spill_dir_.empty() || !spills) return;
  const auto free = FreeDiskBytes(spill_dir_);
  if (!free.ok()) return;
  samples->Add("syncline_ps_spill_disk_free_bytes", {},
               static_cast<double>(*free));
}

void PsServerImpl::SampleMetrics() {
  PsMetrics::Sample sample;
  sample.in_flight_bytes = static_cast<double>(budget_->used_bytes());
  sample.shared_memory_bytes = static_cast<double>(shared_.mapped_bytes());
  sample.shared_memory_limit_bytes = static_cast<double>(shared_.bytes_max());
  sample.in_flight_limit_bytes = static_cast<double>(budget_->limit_bytes());
  sample.jobs = static_cast<double>(jobs_.JobIds().size());
  for (const auto& job : jobs_.All()) {
    if (job->shard == nullptr) continue;
    CountEvents(*job);
    const ShardStatus::Job status = job->shard->Status();
    sample.parked_pushes += status.parked_pushes();
    sample.parked_pulls += status.parked_pulls();
    if (job->statistics != nullptr) {
      sample.parked_statistics +=
          static_cast<double>(job->statistics->parked_count());
    }
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
  std::unique_ptr<SpillDirectory> spill;
  if (options.table_disk_bytes > 0) {
    SYNCLINE_ASSIGN_OR_RETURN(spill, SpillDirectory::Open(options.spill_dir));
  }
  return std::make_unique<PsServerImpl>(options, lanes, std::move(spill));
}

}  // namespace syncline::ps
