#include "scheduler/ctl/plan_command.h"

#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/job/job_spec_validator.h"
#include "common/system/file.h"
#include "scheduler/ctl/text/exit_codes.h"
#include "scheduler/ctl/text/plan_text.h"

namespace syncline::ctl {
namespace {

bool SavesActivations(const TrainingSpec& training) {
  return training.micro_batches() > 1 || training.recompute_segments() > 1;
}

absl::StatusOr<JobPlan> Plan(const JobSpec& spec,
                             const std::shared_ptr<const Model>& model,
                             const JobPlanner& planner) {
  std::vector<std::string> problems;
  const TrainingGraph training = ResolveTrainingGraph(spec, *model, &problems);
  if (!problems.empty()) {
    return absl::InvalidArgumentError(absl::StrJoin(problems, "\n"));
  }
  return planner(spec, model, training);
}

absl::StatusOr<PlanReport> MakeReport(const PlanOptions& options,
                                      const JobPlanner& planner) {
  SYNCLINE_ASSIGN_OR_RETURN(const JobFile job,
                            LoadJobFile(options.job_file, options.overrides));
  PlanReport report;
  report.spec = WithDefaults(job.spec);
  report.training = job.training;
  report.tensors_max = options.tensors;
  report.notes = job.notes;
  SYNCLINE_ASSIGN_OR_RETURN(const std::string bytes,
                            ReadFile(job.model_file, kModelBytesMax));
  SYNCLINE_ASSIGN_OR_RETURN(const auto model,
                            ParseJobModel(report.spec, bytes, job.model_file));
  auto plan = Plan(report.spec, model, planner);
  if (absl::IsResourceExhausted(plan.status())) return plan.status();
  if (!plan.ok()) return Annotate(plan.status(), job.model_file);
  report.plan = *std::move(plan);
  if (SavesActivations(report.spec.training())) {
    JobSpec plain = report.spec;
    plain.mutable_training()->set_micro_batches(1);
    plain.mutable_training()->set_recompute_segments(0);
    SYNCLINE_ASSIGN_OR_RETURN(report.plain, Plan(plain, model, planner));
  }
  return report;
}

}  // namespace

int RunPlan(const PlanOptions& options, const JobPlanner& planner,
            const Console& console) {
  const absl::StatusOr<PlanReport> report = MakeReport(options, planner);
  if (!report.ok()) {
    console.PrintError(report.status());
    return kExitFailed;  // whatever the code: the file is at fault
  }
  if (console.json) {
    console.PrintJson(PlanJson(*report));
  } else {
    console.out << PlanText(*report) << std::flush;
  }
  return kExitOk;
}

}  // namespace syncline::ctl
