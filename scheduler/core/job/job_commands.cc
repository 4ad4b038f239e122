#include "scheduler/core/job/job_commands.h"

#include "common/job/start_validator.h"
#include "common/job/step_shares.h"
#include "scheduler/core/job/regime_history.h"

namespace syncline::scheduler {
namespace {

Participant* AddParticipant(JobMember::Role role, JobAssignment* assignment) {
  switch (role) {
    case JobMember::Role::kWorker:
      return assignment->add_workers();
    case JobMember::Role::kEvaluator:
      return assignment->mutable_evaluator();
    case JobMember::Role::kPs:
      break;
  }
  return assignment->add_ps();
}

}  // namespace

SchedulerMessage PrepareCommand(const JobStatus& job, const JobMembers& members,
                                absl::Span<const ParameterInfo> parameters,
                                absl::Span<const TableInfo> tables,
                                const JobPass& pass, const StartPoint& start) {
  SchedulerMessage message;
  JobAssignment* assignment = message.mutable_prepare()->mutable_assignment();
  assignment->set_job_id(job.job_id());
  *assignment->mutable_spec() =
      SpecForWorkers(job.spec(), static_cast<uint32_t>(job.workers_size()));
  // A user who has changed the regime has ended the job's own trials.
  if (WasChangedByOthers(job)) {
    assignment->mutable_spec()->clear_auto_regime();
  }
  assignment->set_tenant(job.tenant());
  for (const JobMember& member : members.all()) {
    *AddParticipant(member.role, assignment) = member.participant;
  }
  for (const ParameterInfo& parameter : parameters) {
    *assignment->add_parameters() = parameter;
  }
  for (const TableInfo& table : tables) *assignment->add_tables() = table;
  for (const Regime& regime : RegimesInForce(job)) {
    if (regime.first_clock() > start.clock) break;
    *assignment->add_regimes() = regime;
  }
  Routing* const routing = assignment->mutable_routing();
  routing->set_version(1);
  for (int shard = 0; shard < assignment->ps_size(); ++shard) {
    routing->add_shard_ps(static_cast<uint32_t>(shard));
  }
  assignment->set_attempt(pass.attempt);
  assignment->set_job_secret(pass.secret);
  assignment->set_start_clock(start.clock);
  if (start.from.has_value()) *assignment->mutable_start_from() = *start.from;
  assignment->set_model_artifact("model.onnx");
  // A later attempt that has a checkpoint does not need it.
  if (StartsFromWeights(job.spec()) && !start.from.has_value()) {
    assignment->set_weights_artifact(kWeightsArtifact);
  }
  assignment->set_trace_id(job.trace_id());
  return message;
}

SchedulerMessage RunCommand(const std::string& job_id, uint32_t attempt,
                            int64_t clocks_per_epoch, int64_t clocks_total) {
  SchedulerMessage message;
  message.mutable_run()->set_job_id(job_id);
  message.mutable_run()->set_attempt(attempt);
  message.mutable_run()->set_clocks_per_epoch(clocks_per_epoch);
  message.mutable_run()->set_clocks_total(clocks_total);
  return message;
}

}  // namespace syncline::scheduler
