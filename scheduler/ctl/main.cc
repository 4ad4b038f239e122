// synctl: the command line of a Syncline cluster.

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "common/base/status_macros.h"
#include "scheduler/ctl/synctl.h"
#include "server/shard/ps_plan.h"
#include "worker/job/job_planner.h"
#include "worker/job/prepared_job.h"

namespace {

std::string FromEnvironment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

absl::StatusOr<syncline::JobPlan> PlanJob(
    const syncline::JobSpec& spec, std::shared_ptr<const syncline::Model> model,
    const syncline::TrainingGraph& training) {
  syncline::JobPlan plan;
  SYNCLINE_ASSIGN_OR_RETURN(
      plan.worker, syncline::worker::PlanWorker(spec, model, training));
  if (spec.data().has_test()) {
    SYNCLINE_ASSIGN_OR_RETURN(
        plan.evaluator, syncline::worker::PlanEvaluator(spec, model, training));
  }
  SYNCLINE_ASSIGN_OR_RETURN(
      plan.ps,
      syncline::ps::PlanPs(spec, syncline::worker::TensorSizesOf(training)));
  SYNCLINE_ASSIGN_OR_RETURN(plan.tables,
                            syncline::ps::PlanTables(spec, training.tables));
  return plan;
}

}  // namespace

int main(int argc, char** argv) {
  syncline::ctl::SynctlEnvironment environment;
  if (const char* tf_config = std::getenv("TF_CONFIG")) {
    environment.tf_config = tf_config;
  }
  environment.scheduler = FromEnvironment("SYNCLINE_SCHEDULER");
  environment.data_root = FromEnvironment("SYNCLINE_DATA");
  std::error_code error;
  environment.binary_dir =
      std::filesystem::read_symlink("/proc/self/exe", error)
          .parent_path()
          .string();
  environment.planner = PlanJob;
  return syncline::ctl::RunSynctl(argc, argv, environment);
}
