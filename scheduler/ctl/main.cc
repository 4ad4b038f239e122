// synctl: the command line of a Syncline cluster.

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/status_macros.h"
#include "common/checkpoint/checkpoint_contents.h"
#include "common/job/strategy_rules.h"
#include "scheduler/ctl/synctl.h"
#include "scheduler/service/state_check.h"
#include "server/shard/ps_plan.h"
#include "worker/export/rows_file.h"
#include "worker/export/tensors_file.h"
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
  // Also where they are reserved for a change of the strategy.
  if (spec.resources().ps() == 0) return plan;
  SYNCLINE_ASSIGN_OR_RETURN(
      plan.ps,
      syncline::ps::PlanPs(spec, syncline::worker::TensorSizesOf(training)));
  SYNCLINE_ASSIGN_OR_RETURN(plan.tables,
                            syncline::ps::PlanTables(spec, training.tables));
  return plan;
}

absl::StatusOr<syncline::ctl::StateReport> CheckState(const std::string& path) {
  SYNCLINE_ASSIGN_OR_RETURN(auto found, syncline::scheduler::CheckState(path));
  return syncline::ctl::StateReport{.jobs = found.jobs,
                                    .unfinished = found.unfinished,
                                    .files = found.files,
                                    .file_bytes = found.file_bytes,
                                    .epoch = found.epoch,
                                    .problems = std::move(found.problems)};
}

absl::Status WriteTensors(const std::string& path,
                          const syncline::CheckpointManifest& manifest,
                          const std::vector<std::vector<float>>& values) {
  std::vector<syncline::worker::NamedTensor> tensors;
  for (int i = 0; i < manifest.parameters_size(); ++i) {
    const syncline::ParameterInfo& parameter = manifest.parameters(i);
    tensors.push_back({.name = parameter.name(),
                       .dims = parameter.dims(),
                       .values = values[static_cast<size_t>(i)]});
  }
  return syncline::worker::WriteTensors(path, tensors);
}

class RowsFile final : public syncline::ctl::CheckpointTools::RowsFile {
 public:
  explicit RowsFile(std::unique_ptr<syncline::worker::RowsFile> file)
      : file_(std::move(file)) {}
  absl::Status Add(absl::Span<const int64_t> keys,
                   absl::Span<const float> values) override {
    return file_->Add(keys, values);
  }
  absl::Status Finish() override { return file_->Finish(); }

 private:
  const std::unique_ptr<syncline::worker::RowsFile> file_;
};

absl::StatusOr<std::unique_ptr<syncline::ctl::CheckpointTools::RowsFile>>
WriteRows(const std::string& path, const std::string& table, int64_t dim) {
  SYNCLINE_ASSIGN_OR_RETURN(
      auto file, syncline::worker::RowsFile::Create(path, table, dim));
  return std::make_unique<RowsFile>(std::move(file));
}

}  // namespace

int main(int argc, char** argv) {
  syncline::ctl::SynctlEnvironment environment;
  if (const char* tf_config = std::getenv("TF_CONFIG")) {
    environment.tf_config = tf_config;
  }
  environment.scheduler = FromEnvironment("SYNCLINE_SCHEDULER");
  environment.tls = {FromEnvironment("SYNCLINE_TLS_CERT"),
                     FromEnvironment("SYNCLINE_TLS_KEY"),
                     FromEnvironment("SYNCLINE_TLS_CA")};
  environment.token = FromEnvironment("SYNCLINE_TOKEN");
  environment.token_file = FromEnvironment("SYNCLINE_TOKEN_FILE");
  environment.data_root = FromEnvironment("SYNCLINE_DATA");
  environment.traceparent = FromEnvironment("TRACEPARENT");
  std::error_code error;
  environment.binary_dir =
      std::filesystem::read_symlink("/proc/self/exe", error)
          .parent_path()
          .string();
  environment.planner = PlanJob;
  environment.checkpoints = {.read = syncline::ReadCheckpoint,
                             .write_tensors = WriteTensors,
                             .write_rows = WriteRows};
  environment.state_checker = CheckState;
  return syncline::ctl::RunSynctl(argc, argv, environment);
}
