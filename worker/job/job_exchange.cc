#include "worker/job/job_exchange.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/cuts/cut_id.h"
#include "common/cuts/cut_use.h"
#include "common/job/compression_rules.h"
#include "common/job/elastic_validator.h"
#include "common/job/lease_rules.h"
#include "common/job/local_rules.h"
#include "common/job/quorum_validator.h"
#include "common/job/step_limits.h"
#include "common/job/strategy_change.h"
#include "common/job/worker_groups.h"
#include "common/regime/job_regimes.h"
#include "common/system/log.h"
#include "common/update/update_spec.h"
#include "worker/client/current_routing.h"
#include "worker/client/ps_client.h"
#include "worker/client/routed_exchange.h"
#include "worker/client/state_client.h"
#include "worker/client/statistics_client.h"
#include "worker/exchange/hybrid_exchange.h"
#include "worker/job/compression_options.h"
#include "worker/job/job_residuals.h"
#include "worker/job/switching_exchange.h"
#include "worker/job/update_place.h"
#include "worker/peers/block_owners.h"
#include "worker/peers/evaluator_exchange.h"
#include "worker/peers/group_exchange.h"
#include "worker/peers/peer_checkpoints.h"
#include "worker/peers/peer_exchange.h"
#include "worker/peers/peer_folds.h"
#include "worker/peers/peer_link.h"
#include "worker/peers/start_files.h"

namespace syncline::worker {
namespace {

// A cut under which rows are read, batch by batch for an evaluation or all for
// the export, that an evaluator has still to come to, or whose evaluation
// decides whether the job ends there, is held for as long as that takes: who
// hangs is noticed by its silence.
constexpr absl::Duration kLongHold = absl::Hours(24);

// By parameter: its position in the order in which forward reads them.
std::vector<uint32_t> FirstUse(const TrainingGraph& training,
                               const Graph& graph) {
  std::vector<uint32_t> position(graph.values.size(), 0);
  uint32_t next = 0;
  for (const Node& node : graph.nodes) {
    for (const ValueId input : node.inputs) {
      if (input != kNoValue && position[input] == 0) position[input] = ++next;
    }
  }
  std::vector<uint32_t> first_use;
  for (const auto& parameter : training.parameters) {
    first_use.push_back(position[parameter.value]);
  }
  return first_use;
}

// Each worker for itself where the job has none.
WorkerGroups GroupsOf(const PreparedJob& job) {
  const auto groups = WorkerGroups::Of(job.assignment);
  SYNCLINE_CHECK(groups.ok());  // PrepareJob has made them
  return *groups;
}

// The members of this rank's group reduce gradients among themselves.
bool IsInGroup(const PreparedJob& job, const WorkerGroups& groups) {
  return groups.size() > 1 && !job.is_evaluator();
}

// The name that the ps have for this rank, or for the group that it leads.
uint32_t RankAtPs(const PreparedJob& job) {
  const WorkerGroups groups = GroupsOf(job);
  return job.is_evaluator() ? groups.count() : groups.GroupOf(job.rank);
}

absl::Duration StepTimeout(const PreparedJob& job) {
  return absl::Seconds(job.spec().limits().step_timeout_seconds());
}

// Of what a rank does where the strategy changes. The ranks that are done wait
// for the step timeout by the strategy before: who waits in vain here has to
// say so before that is over, or the job fails and not the change.
absl::Duration ChangeTimeout(const PreparedJob& job) {
  return StepTimeout(job) / 2;
}

std::shared_ptr<CurrentRouting> MakeRouting(const PreparedJob& job,
                                            const JobProcess& process) {
  Caller caller;
  caller.set_job_id(job.assignment.job_id());
  caller.set_rank(RankAtPs(job));
  caller.set_incarnation(process.incarnation);
  caller.set_attempt(job.assignment.attempt());
  caller.set_job_secret(job.assignment.job_secret());
  auto routing =
      CurrentRouting::Create(job.assignment, caller, StepTimeout(job));
  SYNCLINE_CHECK(routing.ok());  // PrepareJob has read it
  return *std::move(routing);
}

GoOnCheck GoOnOf(const JobProcess& process) {
  if (process.go_on != nullptr) return process.go_on;
  return [] { return absl::OkStatus(); };
}

// All but what the routing says. `goes_on`: the rank has trained without this
// client before.
PsClient::Options ClientOptionsOf(const PreparedJob& job,
                                  const JobProcess& process,
                                  const RegimeSchedule& regimes, bool goes_on) {
  PsClient::Options options;
  options.job_id = job.assignment.job_id();
  options.rank = RankAtPs(job);
  if (HasGroups(job.spec())) options.groups = GroupsOf(job);
  options.incarnation = process.incarnation;
  options.pass = PassOf(job.assignment);
  options.step_timeout = StepTimeout(job);
  options.cut_series =
      job.is_evaluator() ? CutSeries::kEvaluator : CutSeries::kChief;
  options.regimes = regimes;
  options.clip_norm = OwnersOptimizer(job.spec()).clip_norm() > 0 &&
                      !WorkersHaveMomentum(job.spec());
  options.trust_ratio =
      OwnersOptimizer(job.spec()).kind() == OptimizerSpec::LAMB;
  options.leaves_behind =
      LeavesBehind(job.spec().consistency().mode()) ||
      (OutlivesWorkers(job.spec()) && !LeasesData(job.spec()));
  options.leases = LeasesData(job.spec());
  options.has_tables = job.rows != nullptr;
  options.on_non_finite = GradientPolicyOf(job.spec());
  // In HYBRID the ps have no dense tensor.
  if (!job.is_evaluator() && job.spec().strategy() != HYBRID) {
    options.compressor =
        CompressorOptionsOf(job.spec(), job.regimes, job.training, job.rank);
    options.compressor.workers =
        static_cast<uint32_t>(job.assignment.workers_size());
    options.clip_before_compression = ClipBeforeCompression(job.spec());
    options.residuals = MakeResidualWriter(job);
  }
  options.counts = job.counts.get();
  options.telemetry = process.metrics->client();
  options.shared_memory = process.shared_memory;
  options.carry_over = std::make_shared<CarryOver>();
  options.own_checkpoint_folders = job.spec().checkpoint().directory().empty();
  if (goes_on || job.assignment.start_clock() > 0) {
    options.carry_over->non_finite.reset();
  }
  if (!goes_on && job.spec().strategy() != HYBRID) {
    options.compressor.start = job.kept;
  }
  return options;
}

std::unique_ptr<ParameterExchange> MakeClient(
    PsClient::Options options, const JobProcess& process, DenseTensors tensors,
    const std::shared_ptr<const RoutedJob>& routed) {
  options.routing_version = routed->table.version();
  options.ps = routed->Peers();
  if (process.on_unreachable != nullptr) {
    options.on_unreachable = [tell = process.on_unreachable, routed](
                                 uint32_t shard, absl::Duration out_of_reach,
                                 const absl::Status& error) {
      tell(routed->shards[shard].member(), out_of_reach, error);
    };
  }
  return std::make_unique<PsClient>(options, routed->table.blocks(),
                                    std::move(tensors));
}

// `tensors`: those that are on the ps.
std::unique_ptr<ParameterExchange> MakeParameters(
    const PreparedJob& job, const JobProcess& process, DenseTensors tensors,
    std::shared_ptr<CurrentRouting> routing, const RegimeSchedule& regimes,
    bool goes_on) {
  RoutedExchange::Options options;
  options.routing = std::move(routing);
  options.make_client =
      [options = ClientOptionsOf(job, process, regimes, goes_on), process,
       tensors = std::move(tensors)](const auto& routed) {
        return MakeClient(options, process, tensors, routed);
      };
  if (job.rows != nullptr) {
    options.on_routing = [rows = job.rows](const RoutingTable& table) {
      rows->UseRouting(table);
    };
  }
  return std::make_unique<RoutedExchange>(options);
}

// Null: each batch has its own statistics.
std::unique_ptr<StatisticsClient> MakeStatistics(
    const PreparedJob& job, const JobProcess& process,
    std::shared_ptr<CurrentRouting> routing) {
  if (!FoldsStatistics(job.spec()) || job.is_evaluator()) return nullptr;
  StatisticsClient::Options options;
  options.routing = std::move(routing);
  options.step_timeout = StepTimeout(job);
  options.telemetry = process.metrics->client();
  options.on_unreachable = process.on_unreachable;
  return std::make_unique<StatisticsClient>(options);
}

// Of the ps; PrepareJob has read the routing.
uint32_t ShardCountOf(const JobAssignment& assignment) {
  return static_cast<uint32_t>(assignment.routing().shard_ps().empty()
                                   ? assignment.ps_size()
                                   : assignment.routing().shard_ps_size());
}

PeerCheckpoints::Options CheckpointOptionsOf(const PreparedJob& job) {
  constexpr absl::Duration kPushWaitMax = absl::Seconds(60);
  const CheckpointSpec& spec = job.spec().checkpoint();
  PeerCheckpoints::Options options;
  options.job_id = job.assignment.job_id();
  options.folder = absl::StrCat(spec.directory(), "/", options.job_id);
  // Behind those of the ps. Ps that are reserved for a change of the strategy
  // write none.
  if (job.spec().strategy() == HYBRID) {
    options.first_part = ShardCountOf(job.assignment);
  }
  options.start_clock = job.assignment.start_clock();
  options.keep_last = std::max<uint32_t>(spec.keep_last(), 1);
  options.keep_every = spec.keep_every();
  if (spec.has_copy_bytes()) options.copy_bytes = spec.copy_bytes();
  // The other ranks must not give this one up meanwhile.
  options.push_wait_max = std::min(kPushWaitMax, StepTimeout(job) / 2);
  options.last_part_wait_max = LastCheckpointWaitMax(StepTimeout(job));
  return options;
}

// The group of an attempt's first clock has the attempt as its epoch; one from
// a later clock on has a later epoch.
absl::StatusOr<std::shared_ptr<PeerLink>> JoinGroup(const PreparedJob& job,
                                                    const JobProcess& process,
                                                    int64_t clock) {
  constexpr int kAttemptBits = 24;
  PeerGroup group = PeerGroupOf(job);
  absl::Duration patience = StepTimeout(job);
  if (clock > job.assignment.start_clock()) {
    group.epoch += static_cast<uint64_t>(clock) << kAttemptBits;
    patience = ChangeTimeout(job);
  }
  const GoOnCheck go_on = GoOnOf(process);
  const WorkerGroups groups = GroupsOf(job);
  const bool is_in_group = IsInGroup(job, groups);
  const uint32_t ranks = is_in_group ? groups.size() : groups.workers();
  // A leader names a member that is missing before the ps, which wait for the
  // leader, name that.
  const absl::Duration step_timeout =
      is_in_group ? StepTimeout(job) * 7 / 8 : StepTimeout(job);
  SYNCLINE_ASSIGN_OR_RETURN(
      std::unique_ptr<PeerTransport> transport,
      process.join_peers(job.assignment, group, patience, go_on));
  return std::make_shared<PeerLink>(
      PeerLink::Options{.label = absl::StrCat("job ", group.job, " on ",
                                              group.NameOf(group.rank)),
                        .step_timeout = step_timeout,
                        .ranks = ranks},
      std::move(transport));
}

absl::StatusOr<BlockMap> OwnedBlocksOf(const PreparedJob& job) {
  return OwnedBlocks(TensorSizesOf(job.training),
                     static_cast<uint32_t>(job.assignment.workers_size()));
}

absl::StatusOr<JobExchange> MakeEvaluatorExchange(const PreparedJob& job,
                                                  const JobProcess& process) {
  SYNCLINE_ASSIGN_OR_RETURN(BlockMap blocks, OwnedBlocksOf(job));
  SYNCLINE_ASSIGN_OR_RETURN(
      std::shared_ptr<PeerLink> link,
      JoinGroup(job, process, job.assignment.start_clock()));
  JobExchange exchange;
  exchange.parameters = std::make_unique<EvaluatorExchange>(
      std::move(blocks), BucketSizes(), DenseTensorsOf(job), std::move(link));
  return exchange;
}

// Has the GPU that computes gradients make the updates. Where the processors of
// a worker with a GPU do it, it says why.
void UpdateOnGpu(const PreparedJob& job, const TrainingRegime& regime,
                 PeerExchange::Options* options) {
  Executor& executor = *job.executor;
  const Executor::OnDevice on_device = executor.on_device();
  if (on_device.stream == nullptr) return;
  Device& device = on_device.stream->device();
  const std::string why = WhyOnProcessors(
      job.spec(),
      {.strategy = ToProto(regime).strategy(),
       .wire_type = options->wire_type,
       .compresses = options->compression.compressor.compression.any(),
       .optimizer = options->update.optimizer.kind},
      device);
  if (!why.empty()) {
    LogWarning("updates are made on the processors, which is slower")
        .Job(job.assignment.job_id())
        .Field("device", device.name())
        .Field("why", why);
    return;
  }
  if (!options->replicates) {
    options->owner_device = &device;
    return;
  }
  DeviceTensors tensors = {.stream = on_device.stream,
                           .values = on_device.values,
                           .gradients = on_device.gradients,
                           .sums = {},
                           .take_values = [&executor](bool takes) {
                             executor.TakeValuesOnDevice(takes);
                           }};
  for (size_t i = 0; i < job.training.parameters.size(); ++i) {
    tensors.sums.push_back(executor.gradient(static_cast<int>(i)));
  }
  options->on_device = std::move(tensors);
}

// The exchange of this rank in the group, by the last of the regimes.
absl::StatusOr<std::unique_ptr<PeerExchange>> MakePeers(
    const PreparedJob& job, const JobProcess& process,
    const RegimeSchedule& regimes, std::shared_ptr<const StartFiles> start,
    std::shared_ptr<PeerLink> link) {
  PeerExchange::Options options;
  options.replicates =
      regimes.regimes().back().strategy != TrainingRegime::Strategy::kSharded;
  options.applies_together = options.replicates && job.spec().has_restart();
  options.wire_type = regimes.regimes().back().wire_type;
  options.frees_gradients = FreesGradients(job.spec());
  options.frees_values = FreesValues(job.spec());
  options.compression = {.compressor = CompressorOptionsOf(
                             job.spec(), regimes, job.training, job.rank),
                         .clip_norm = ClipBeforeCompression(job.spec()),
                         .on_non_finite = GradientPolicyOf(job.spec())};
  if (start != nullptr) options.compression.compressor.start = job.kept;
  options.residuals = MakeResidualWriter(job);
  options.counts = job.counts.get();
  SYNCLINE_ASSIGN_OR_RETURN(options.update, ReadUpdate(job.spec(), regimes));
  options.needs_total_clocks =
      EndsWithTheJob(options.update.rule.learning_rate.schedule) &&
      options.update.rule.learning_rate.total_clocks == 0;
  for (const auto& parameter : job.training.parameters) {
    options.momenta.push_back(parameter.momentum);
  }
  options.telemetry = process.metrics->client();
  SYNCLINE_ASSIGN_OR_RETURN(BlockMap blocks, OwnedBlocksOf(job));
  if (job.spec().has_checkpoint()) {
    options.checkpoints = CheckpointOptionsOf(job);
  }
  options.start = std::move(start);
  options.go_on = GoOnOf(process);
  UpdateOnGpu(job, regimes.regimes().back(), &options);
  return PeerExchange::Create(std::move(options), std::move(blocks),
                              DenseTensorsOf(job), std::move(link));
}

// Its strategy may change while it runs. One whose evaluator takes part keeps
// it.
bool MaySwitch(const PreparedJob& job, const JobProcess& process) {
  if (job.has_evaluator() || process.join_peers == nullptr) return false;
  // Its wire type may.
  if (job.spec().strategy() == ALL_REDUCE && CheckStateMoves(job.spec()).ok()) {
    return true;
  }
  for (const Strategy strategy : {PARAMETER_SERVER, ALL_REDUCE, SHARDED}) {
    if (strategy == job.spec().strategy()) continue;
    if (CheckTrainsBy(job.spec(), strategy).ok()) return true;
  }
  return false;
}

// In front of `first`, where the strategy may change. `peers`: the same, or
// null. `routing`: null where there are no ps.
std::unique_ptr<ParameterExchange> MakeSwitching(
    const PreparedJob& job, const JobProcess& process,
    std::unique_ptr<ParameterExchange> first, PeerExchange* peers,
    std::shared_ptr<CurrentRouting> routing) {
  SwitchingExchange::Options options;
  options.label =
      absl::StrCat("job ", job.assignment.job_id(), " on ", job.task_name());
  options.rank = job.rank;
  options.step_timeout = StepTimeout(job);
  options.regimes = job.regimes;
  const auto update = ReadUpdate(job.spec(), job.regimes);
  SYNCLINE_CHECK(update.ok());  // PrepareJob has read it
  options.arrays = 1 + static_cast<uint32_t>(OptimizerSlots(update->optimizer));
  if (routing != nullptr) {
    options.state = std::make_unique<StateClient>(
        StateClient::Options{.job_id = job.assignment.job_id(),
                             .routing = routing,
                             .timeout = ChangeTimeout(job)});
    options.make_ps = [&job, process, routing](const RegimeSchedule& regimes) {
      return MakeParameters(job, process, DenseTensorsOf(job), routing, regimes,
                            /*goes_on=*/true);
    };
  }
  options.join = [&job, process](int64_t clock) {
    return JoinGroup(job, process, clock);
  };
  options.make_peers = [&job, process](const RegimeSchedule& regimes,
                                       std::shared_ptr<PeerLink> link) {
    return MakePeers(job, process, regimes, /*start=*/nullptr, std::move(link));
  };
  return std::make_unique<SwitchingExchange>(std::move(options),
                                             std::move(first), peers);
}

absl::StatusOr<JobExchange> MakePeerExchange(const PreparedJob& job,
                                             const JobProcess& process) {
  if (process.join_peers == nullptr) {
    return absl::UnimplementedError(
        absl::StrCat(job.task_name(), " of job ", job.assignment.job_id(),
                     ": this process has no way to the other workers"));
  }
  if (job.is_evaluator()) return MakeEvaluatorExchange(job, process);
  std::shared_ptr<const StartFiles> start;
  if (job.assignment.has_start_from()) {
    SYNCLINE_ASSIGN_OR_RETURN(
        start, StartFiles::Open(job.assignment,
                                absl::StrCat("job ", job.assignment.job_id(),
                                             ", ", job.task_name()),
                                GoOnOf(process)));
  }
  SYNCLINE_ASSIGN_OR_RETURN(
      std::shared_ptr<PeerLink> link,
      JoinGroup(job, process, job.assignment.start_clock()));
  SYNCLINE_ASSIGN_OR_RETURN(
      std::unique_ptr<PeerExchange> peers,
      MakePeers(job, process, job.regimes, std::move(start), link));
  JobExchange exchange;
  PeerExchange* const first = peers.get();
  exchange.parameters = std::move(peers);
  if (FoldsStatistics(job.spec())) {
    exchange.folds = std::make_unique<PeerFolds>(link);
  }
  if (!MaySwitch(job, process)) return exchange;
  exchange.parameters = MakeSwitching(
      job, process, std::move(exchange.parameters), first,
      job.assignment.ps_size() > 0 ? MakeRouting(job, process) : nullptr);
  return exchange;
}

// The dense part as without ps, and the rows by a client that has no tensor.
absl::StatusOr<JobExchange> MakeHybridExchange(const PreparedJob& job,
                                               const JobProcess& process) {
  SYNCLINE_ASSIGN_OR_RETURN(JobExchange exchange,
                            MakePeerExchange(job, process));
  DenseTensors none;
  none.owner = job.memory();  // of the rows
  exchange.parameters = std::make_unique<HybridExchange>(
      std::move(exchange.parameters),
      MakeParameters(job, process, std::move(none), MakeRouting(job, process),
                     job.regimes, /*goes_on=*/false));
  return exchange;
}

// A group is one worker to the ps; the routing and the client are its leader's.
absl::StatusOr<JobExchange> MakeGroupExchange(const PreparedJob& job,
                                              const JobProcess& process) {
  if (process.join_peers == nullptr) {
    return absl::UnimplementedError(
        absl::StrCat(job.task_name(), " of job ", job.assignment.job_id(),
                     ": this process has no way to the other workers"));
  }
  SYNCLINE_ASSIGN_OR_RETURN(
      BlockMap blocks,
      OwnedBlocks(TensorSizesOf(job.training), GroupsOf(job).size()));
  SYNCLINE_ASSIGN_OR_RETURN(
      std::shared_ptr<PeerLink> link,
      JoinGroup(job, process, job.assignment.start_clock()));
  GroupExchange::Options options;
  options.on_non_finite = GradientPolicyOf(job.spec());
  options.telemetry = process.metrics->client();
  JobExchange exchange;
  SYNCLINE_ASSIGN_OR_RETURN(
      exchange.parameters,
      GroupExchange::Create(options, std::move(blocks), DenseTensorsOf(job),
                            std::move(link), [&](DenseTensors sums) {
                              return MakeParameters(
                                  job, process, std::move(sums),
                                  MakeRouting(job, process), job.regimes,
                                  /*goes_on=*/false);
                            }));
  return exchange;
}

// The evaluator reads a cut that this rank, the chief, announces: it knows the
// cut by its clock. So does the chief know the evaluator's last one.
bool IsForTheEvaluator(const PreparedJob& job) {
  return job.evaluator_reads_cuts() && !job.is_evaluator();
}

// Workers were past an epoch's end: an earlier cut was not to be had, or was
// given up while they were to be held.
absl::StatusOr<std::optional<EpochCut>> RaisedCut(
    const PreparedJob& job, const Epochs& epochs, int64_t clock,
    const std::vector<int64_t>& agreed) {
  const std::string clocks = absl::StrJoin(agreed, ",");
  if (IsForTheEvaluator(job)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "job ", job.assignment.job_id(), ": workers are past clock ", clock,
        ", an epoch's end; the state can only be read at clocks ", clocks));
  }
  if (job.is_evaluator() && clock == epochs.clocks_total) {
    return absl::FailedPreconditionError(absl::StrCat(
        "job ", job.assignment.job_id(), ": the cut at the last clock, ", clock,
        ", can only be had at clocks ", clocks,
        ", and the chief, who reads its values there, does not know that one"));
  }
  EpochCut cut = {.id = CutIdOf(job, clock), .clock = clock};
  if (job.is_evaluator()) {
    // The last clock stands for the last cut, which is another one.
    const int64_t least = *std::min_element(agreed.begin(), agreed.end());
    if (least < epochs.clocks_total) cut.clock = least;
  } else {
    cut.clock = std::min(agreed[job.rank], epochs.clocks_total);
  }
  LogWarning("an evaluation is of a later state than its epoch's end")
      .Job(job.assignment.job_id())
      .Field("clock", clock)
      .Field("clocks", clocks);
  return cut;
}

}  // namespace

void JobExchange::Cancel(const absl::Status& reason) const {
  parameters->Cancel(reason);
  if (folds != nullptr) folds->Cancel(reason);
}

absl::StatusOr<JobExchange> MakeJobExchange(const PreparedJob& job,
                                            const JobProcess& process) {
  if (!job.regimes.regimes().back().has_ps()) {
    return MakePeerExchange(job, process);
  }
  if (job.spec().strategy() == HYBRID) return MakeHybridExchange(job, process);
  if (IsInGroup(job, GroupsOf(job))) return MakeGroupExchange(job, process);
  const std::shared_ptr<CurrentRouting> routing = MakeRouting(job, process);
  JobExchange exchange;
  exchange.parameters = MakeParameters(job, process, DenseTensorsOf(job),
                                       routing, job.regimes, /*goes_on=*/false);
  exchange.folds = MakeStatistics(job, process, routing);
  if (!MaySwitch(job, process)) return exchange;
  exchange.parameters =
      MakeSwitching(job, process, std::move(exchange.parameters),
                    /*peers=*/nullptr, routing);
  return exchange;
}

PeerGroup PeerGroupOf(const PreparedJob& job) {
  PeerGroup group;
  group.job = job.assignment.job_id();
  group.epoch = job.assignment.attempt();
  group.rank = job.rank;
  const auto add = [&](const Participant& participant) {
    const Member& member = participant.member();
    group.peers.push_back({absl::StrCat(absl::AsciiStrToLower(TaskType_Name(
                                            member.task().type())),
                                        ":", member.task().index()),
                           member.address()});
  };
  const WorkerGroups groups = GroupsOf(job);
  if (IsInGroup(job, groups)) {
    group.rank = groups.PlaceOf(job.rank);
    for (const uint32_t rank : groups.MembersOf(groups.GroupOf(job.rank))) {
      add(job.assignment.workers(static_cast<int>(rank)));
    }
    return group;
  }
  for (const Participant& worker : job.assignment.workers()) add(worker);
  if (job.evaluator_reads_cuts()) add(job.assignment.evaluator());
  return group;
}

DenseTensors DenseTensorsOf(const PreparedJob& job) {
  DenseTensors tensors;
  const int count = static_cast<int>(job.training.parameters.size());
  for (int i = 0; i < count; ++i) {
    tensors.values.push_back(job.executor->parameter(i));
    if (job.local != nullptr) {
      tensors.gradients.push_back(job.local->change(static_cast<size_t>(i)));
    } else if (!FreesGradients(job.spec())) {
      tensors.gradients.push_back(job.executor->gradient(i));
    }
    tensors.names.push_back(job.training.parameters[i].name);
    tensors.running_means.push_back(
        job.training.parameters[i].momentum.has_value());
  }
  if (FreesGradients(job.spec())) {
    tensors.gradient_of = [executor = job.executor.get()](uint32_t tensor) {
      return executor->gradient(static_cast<int>(tensor));
    };
  }
  const auto units = job.executor->gather_units();
  tensors.gather_units.assign(units.begin(), units.end());
  if (FreesValues(job.spec())) {
    tensors.release_values = [executor = job.executor.get()] {
      executor->ReleaseParameters();
    };
  }
  tensors.first_use = FirstUse(job.training, job.model->graph());
  if (job.local == nullptr) {
    tensors.gradient_region = job.executor->gradient_region();
  }
  tensors.owner = job.memory();
  return tensors;
}

uint64_t CutIdOf(const PreparedJob& job, int64_t clock) {
  return MakeCutId(job.assignment.attempt(), clock, CutSeries::kEpochEnds,
                   /*number=*/0);
}

absl::StatusOr<std::optional<EpochCut>> AnnounceCut(
    const PreparedJob& job, const Epochs& epochs, int64_t clock,
    ParameterExchange* exchange) {
  const int64_t end = epochs.EndOf(clock);
  std::optional<absl::Duration> hold;
  if (job.rows != nullptr || job.evaluator_reads_cuts() ||
      job.spec().has_stop()) {
    hold =
        std::max(kLongHold,
                 kHoldTimeouts *
                     absl::Seconds(job.spec().limits().step_timeout_seconds()));
  }
  const std::vector<int64_t> asked(
      static_cast<size_t>(job.assignment.workers_size()), end);
  const absl::StatusOr<std::vector<int64_t>> agreed =
      exchange->BeginCut({.id = CutIdOf(job, end),
                          .use = CutUse::kEvaluation,
                          .clocks = asked,
                          .hold = hold});
  if (agreed.ok()) {
    if (*agreed != asked) return RaisedCut(job, epochs, end, *agreed);
    return EpochCut{.id = CutIdOf(job, end), .clock = end};
  }
  if (absl::IsCancelled(agreed.status()) || end == epochs.clocks_total ||
      IsForTheEvaluator(job)) {
    return agreed.status();
  }
  // Where the exchange itself has failed, its next call says so.
  LogWarning("an epoch is not evaluated: there is no cut at its end")
      .Job(job.assignment.job_id())
      .Field("clock", end)
      .Status(agreed.status());
  return std::nullopt;
}

}  // namespace syncline::worker
