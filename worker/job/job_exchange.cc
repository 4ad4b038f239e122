#include "worker/job/job_exchange.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/cuts/cut_id.h"
#include "common/cuts/cut_use.h"
#include "common/job/step_limits.h"
#include "common/system/log.h"
#include "common/update/update_spec.h"
#include "worker/client/current_routing.h"
#include "worker/client/ps_client.h"
#include "worker/client/routed_exchange.h"
#include "worker/client/statistics_client.h"

namespace syncline::worker {
namespace {

// A cut under which rows are read, batch by batch for an evaluation or all for
// the export, or that an evaluator has still to come to, is held for as long as
// that takes: who hangs is noticed by its silence.
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

absl::Duration StepTimeout(const PreparedJob& job) {
  return absl::Seconds(job.spec().limits().step_timeout_seconds());
}

std::shared_ptr<CurrentRouting> MakeRouting(const PreparedJob& job,
                                            const JobProcess& process) {
  Caller caller;
  caller.set_job_id(job.assignment.job_id());
  caller.set_rank(job.rank);
  caller.set_incarnation(process.incarnation);
  caller.set_attempt(job.assignment.attempt());
  caller.set_job_secret(job.assignment.job_secret());
  auto routing =
      CurrentRouting::Create(job.assignment, caller, StepTimeout(job));
  SYNCLINE_CHECK(routing.ok());  // PrepareJob has read it
  return *std::move(routing);
}

// All but what the routing says.
PsClient::Options ClientOptionsOf(const PreparedJob& job,
                                  const JobProcess& process) {
  PsClient::Options options;
  options.job_id = job.assignment.job_id();
  options.rank = job.rank;
  options.incarnation = process.incarnation;
  options.pass = PassOf(job.assignment);
  options.step_timeout = StepTimeout(job);
  options.cut_series =
      job.is_evaluator() ? CutSeries::kEvaluator : CutSeries::kChief;
  options.regimes = job.regimes;
  options.clip_norm = job.spec().optimizer().clip_norm() > 0;
  options.trust_ratio = job.spec().optimizer().kind() == OptimizerSpec::LAMB;
  options.has_tables = job.rows != nullptr;
  options.on_non_finite = GradientPolicyOf(job.spec());
  options.telemetry = process.metrics->client();
  options.shared_memory = process.shared_memory;
  options.carry_over = std::make_shared<CarryOver>();
  if (job.assignment.start_clock() > 0) options.carry_over->non_finite.reset();
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

std::unique_ptr<ParameterExchange> MakeParameters(
    const PreparedJob& job, const JobProcess& process,
    std::shared_ptr<CurrentRouting> routing) {
  RoutedExchange::Options options;
  options.routing = std::move(routing);
  options.make_client = [options = ClientOptionsOf(job, process), process,
                         tensors = DenseTensorsOf(job)](const auto& routed) {
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

// The evaluator reads a cut that this rank, the chief, announces: it knows the
// cut by its clock. So does the chief know the evaluator's last one.
bool IsForTheEvaluator(const PreparedJob& job) {
  return job.has_evaluator() && !job.is_evaluator();
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

JobExchange MakeJobExchange(const PreparedJob& job, const JobProcess& process) {
  const std::shared_ptr<CurrentRouting> routing = MakeRouting(job, process);
  return {.parameters = MakeParameters(job, process, routing),
          .folds = MakeStatistics(job, process, routing)};
}

DenseTensors DenseTensorsOf(const PreparedJob& job) {
  DenseTensors tensors;
  const int count = static_cast<int>(job.training.parameters.size());
  for (int i = 0; i < count; ++i) {
    tensors.values.push_back(job.executor->parameter(i));
    tensors.gradients.push_back(job.executor->gradient(i));
    tensors.names.push_back(job.training.parameters[i].name);
    tensors.running_means.push_back(
        job.training.parameters[i].momentum.has_value());
  }
  tensors.first_use = FirstUse(job.training, job.model->graph());
  tensors.gradient_region = job.executor->gradient_region();
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
  if (job.rows != nullptr || job.has_evaluator()) {
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
