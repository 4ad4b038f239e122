#include "server/shard/job_config.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/job/auto_regime_rules.h"
#include "common/job/compression_rules.h"
#include "common/job/elastic_validator.h"
#include "common/job/job_spec_validator.h"
#include "common/job/lease_rules.h"
#include "common/job/local_rules.h"
#include "common/job/quorum_validator.h"
#include "common/regime/job_regimes.h"
#include "common/update/update_spec.h"
#include "common/wire/routing_table.h"
#include "server/shard/job_access.h"

namespace syncline::ps {
namespace {

absl::StatusOr<std::optional<float>> ReadMomentum(
    const ParameterInfo& parameter) {
  if (!parameter.has_momentum()) return std::nullopt;
  if (!(parameter.momentum() >= 0 && parameter.momentum() <= 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the momentum of the running mean '", parameter.name(),
                     "' is ", parameter.momentum(), "; it must be in [0, 1]"));
  }
  return parameter.momentum();
}

absl::StatusOr<JobConfig::Table> ReadTable(const JobAssignment& assignment,
                                           const TableMap& map, int index) {
  const std::string field = absl::StrCat("tables[", index, "]");
  const TableSpec& spec = assignment.spec().tables(index);
  const TableInfo& info = assignment.tables(index);
  if (info.name() != spec.name() || info.dim() == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(field, ": '", spec.name(), "' was assigned as '",
                     info.name(), "' with rows of ", info.dim(), " elements"));
  }
  JobConfig::Table table{.layout = {spec.name(), info.dim(), map},
                         .options = {}};
  TableOptions& options = table.options;
  options.name = spec.name();
  options.dim = info.dim();
  options.seed = assignment.spec().training().seed();
  SYNCLINE_ASSIGN_OR_RETURN(
      options.initializer,
      ReadRowInitializer(assignment.spec(), index, info.dim()));
  SYNCLINE_ASSIGN_OR_RETURN(options.optimizer,
                            ReadTableOptimizer(assignment.spec(), index));
  options.admission.min_sightings = spec.admission().min_sightings();
  options.admission.probability =
      spec.admission().min_sightings() > 1 ? 1 : spec.admission().probability();
  options.admission.filter_bytes = spec.admission().filter_bytes();
  options.expiry = ReadExpiry(spec.expiry());
  options.memory_bytes = spec.memory_bytes();
  table.disk_bytes = spec.disk_bytes();
  return table;
}

absl::Status ReadTables(const JobAssignment& assignment,
                        const RoutingTable& routing, JobConfig* config) {
  if (assignment.tables_size() != assignment.spec().tables_size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "job ", assignment.job_id(), " was assigned ", assignment.tables_size(),
        " tables, its spec has ", assignment.spec().tables_size()));
  }
  for (int i = 0; i < assignment.tables_size(); ++i) {
    SYNCLINE_ASSIGN_OR_RETURN(JobConfig::Table table,
                              ReadTable(assignment, routing.tables()[i], i));
    config->tables.push_back(std::move(table));
  }
  return absl::OkStatus();
}

// Sets the controller's options: those of the spec, the shard's blocks, and the
// participants. REQUIRES: the blocks and tables of `config` are set.
absl::Status SetController(const JobAssignment& assignment, JobConfig* config) {
  SYNCLINE_ASSIGN_OR_RETURN(config->controller,
                            ReadController(assignment.spec(), config->regimes));
  config->controller.deals_clocks =
      config->controller.leases && config->shard == 0;
  config->controller.label = config->label;
  config->folds_statistics =
      assignment.spec().training().sync_batch_statistics();
  const ShardLayout layout = LayoutOf(*config);
  config->controller.block_count = layout.block_count();
  config->controller.slot_count =
      layout.block_count() - static_cast<uint32_t>(layout.ids().size());
  return ReadCallers(assignment, &config->controller);
}

// Names the shard where the ps alone would not say which it is.
std::string LabelOf(const JobAssignment& assignment,
                    const RoutingTable& routing, uint32_t shard) {
  const uint32_t ps_rank = routing.PsOf(shard);
  std::string label = JobLabel(assignment, ps_rank);
  if (routing.ShardsOf(ps_rank).size() > 1) {
    absl::StrAppend(&label, ", shard ", shard);
  }
  return label;
}

using Quorum = ConsistencyController::Options::Quorum;

// Errors: InvalidArgument: what validation refuses.
absl::StatusOr<std::optional<Quorum>> ReadQuorum(const JobSpec& spec) {
  const ConsistencySpec& consistency = spec.consistency();
  if (OutlivesWorkers(spec) && !LeasesData(spec)) {
    return Quorum{.needed = spec.resources().workers(), .loses_workers = true};
  }
  if (!LeavesBehind(consistency.mode())) return std::optional<Quorum>();
  std::vector<std::string> list;
  Problems problems(&list);
  CheckQuorum(spec, &problems);
  SYNCLINE_RETURN_IF_ERROR(ProblemsToStatus(list));
  Quorum quorum = {.needed = consistency.needed()};
  if (consistency.mode() == ConsistencySpec::SYNC_WITH_TIMEOUT) {
    quorum.timeout = absl::Seconds(consistency.timeout_seconds());
  }
  return quorum;
}

}  // namespace

absl::StatusOr<ConsistencyController::Options> ReadController(
    const JobSpec& spec, const RegimeSchedule& regimes) {
  ConsistencyController::Options options;
  options.regimes = regimes;
  SYNCLINE_ASSIGN_OR_RETURN(const OnNonFinite policy, ReadGradientPolicy(spec));
  options.clip_norm =
      OwnersOptimizer(spec).clip_norm() > 0 && !WorkersHaveMomentum(spec);
  options.skip_non_finite = policy == OnNonFinite::kSkipStep;
  SYNCLINE_ASSIGN_OR_RETURN(options.quorum, ReadQuorum(spec));
  options.leases = LeasesData(spec);
  options.trust_ratio = OwnersOptimizer(spec).kind() == OptimizerSpec::LAMB;
  options.comes_to_sync =
      TriesSync(spec) ||
      std::any_of(spec.regimes().begin(), spec.regimes().end(),
                  [](const RegimeRule& rule) {
                    return rule.then().mode() == ConsistencySpec::SYNC;
                  });
  return options;
}

ShardLayout LayoutOf(const JobConfig& config) {
  std::vector<TableLayout> tables;
  for (const JobConfig::Table& table : config.tables) {
    tables.push_back(table.layout);
  }
  return ShardLayout(config.map, config.shard, std::move(tables),
                     config.regimes, config.controller.leases);
}

absl::StatusOr<JobConfig> ReadJobConfig(const JobAssignment& assignment,
                                        uint32_t shard) {
  if (assignment.workers_size() == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("job ", assignment.job_id(), " has no worker"));
  }
  SYNCLINE_RETURN_IF_ERROR(CheckAssignmentPass(assignment));
  JobConfig config;
  config.job_id = assignment.job_id();
  config.shard = shard;
  SYNCLINE_ASSIGN_OR_RETURN(const RoutingTable routing,
                            RoutingTable::Create(assignment));
  if (shard >= routing.shard_count()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "job ", assignment.job_id(), " has ", routing.shard_count(),
        " shards, there is none of number ", shard));
  }
  config.pass = PassOf(assignment);
  config.label = LabelOf(assignment, routing, shard);
  config.map = routing.blocks();

  SYNCLINE_ASSIGN_OR_RETURN(config.regimes, ReadRegimes(assignment));

  const JobSpec& spec = assignment.spec();
  SYNCLINE_ASSIGN_OR_RETURN(config.update, ReadUpdate(spec, config.regimes));
  for (const ParameterInfo& parameter : assignment.parameters()) {
    config.tensor_names.push_back(parameter.name());
    SYNCLINE_ASSIGN_OR_RETURN(config.momenta.emplace_back(),
                              ReadMomentum(parameter));
    // Workers push a running mean as it is at the end of a round.
    if (IsLocal(spec) && config.momenta.back().has_value()) {
      config.momenta.back() = 0;
    }
  }
  config.needs_total_clocks =
      config.update.rule.learning_rate.total_clocks == 0 &&
      EndsWithTheJob(config.update.rule.learning_rate.schedule);
  if (spec.has_checkpoint()) config.checkpoint = spec.checkpoint();
  config.checkpoint_files = routing.shard_count();
  config.start_clock = assignment.start_clock();
  if (spec.strategy() == HYBRID) {
    config.checkpoint_files += static_cast<uint32_t>(assignment.workers_size());
  }
  config.wait_max = absl::Seconds(spec.limits().step_timeout_seconds() > 0
                                      ? spec.limits().step_timeout_seconds()
                                      : 60);

  SYNCLINE_RETURN_IF_ERROR(ReadTables(assignment, routing, &config));
  if (assignment.parameters().empty() && config.tables.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "job ", config.job_id, " has neither parameters nor tables"));
  }

  SYNCLINE_RETURN_IF_ERROR(SetController(assignment, &config));
  return config;
}

}  // namespace syncline::ps
