#include "scheduler/ctl/evaluate_command.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/job/job_spec_override.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "google/protobuf/util/message_differencer.h"
#include "scheduler/ctl/commands.h"
#include "scheduler/ctl/interrupt_signals.h"
#include "scheduler/ctl/jobs_client.h"
#include "scheduler/ctl/start_command.h"
#include "scheduler/ctl/text/exit_codes.h"

namespace syncline::ctl {
namespace {

// Sets the one path of a source, whatever its format.
absl::Status ReplacePath(const std::string& path, DataSource* source) {
  const auto* const oneof = DataSource::descriptor()->FindOneofByName("format");
  const auto* const set =
      source->GetReflection()->GetOneofFieldDescriptor(*source, oneof);
  const google::protobuf::FieldDescriptor* field = nullptr;
  if (set != nullptr) field = set->message_type()->FindFieldByName("path");
  if (field == nullptr) {
    if (set == nullptr) {
      return absl::InvalidArgumentError(
          "--data: the job has no data.test; set it with --set, as in --set "
          "data.test.idx.images=...");
    }
    return absl::InvalidArgumentError(absl::StrCat(
        "--data: ", set->name(),
        " has not one path; set its fields with --set "
        "data.test.",
        set->name(), ".", set->message_type()->field(0)->name(),
        "=...; `synctl help job ", set->message_type()->name(), "` has them"));
  }
  google::protobuf::Message* const format =
      source->GetReflection()->MutableMessage(source, set);
  format->GetReflection()->SetString(format, field, path);
  return absl::OkStatus();
}

// A key without a row in the checkpoint has initial values that follow from
// these fields: with others it would be another model.
absl::Status CheckSameRows(const JobSpec& before, const JobSpec& after) {
  bool same = before.tables_size() == after.tables_size() &&
              (before.tables().empty() ||
               before.training().seed() == after.training().seed());
  for (int i = 0; same && i < before.tables_size(); ++i) {
    same = google::protobuf::util::MessageDifferencer::Equals(before.tables(i),
                                                              after.tables(i));
  }
  if (same) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "--set: tables and training.seed are the checkpoint's, because rows "
      "that it does not have follow from them; leave them out");
}

struct Found {
  StartSpec start;
  CheckpointJob job;
};

absl::StatusOr<Found> Find(JobsClient* client, const std::string& checkpoint) {
  SYNCLINE_ASSIGN_OR_RETURN(const CheckpointReference reference,
                            ParseReference(checkpoint, "CHECKPOINT"));
  Found found;
  if (reference.job_id.empty()) {
    SYNCLINE_ASSIGN_OR_RETURN(found.start,
                              ReadStart(reference.path, &found.job));
    return found;
  }
  SYNCLINE_ASSIGN_OR_RETURN(const JobStatus job, client->Get(reference.job_id));
  SYNCLINE_ASSIGN_OR_RETURN(const CheckpointInfo chosen,
                            ChooseCheckpoint(job, reference.clock));
  found.start = StartFrom(chosen);
  found.job = CheckpointJobOf(job);
  return found;
}

absl::StatusOr<SubmitResponse> Submit(JobsClient* client, const Found& found,
                                      const JobSpec& spec,
                                      const EvaluateOptions& options,
                                      const Console& console,
                                      InterruptSignals* interrupts) {
  const std::string key =
      options.client_key.empty() ? RandomClientKey() : options.client_key;
  if (!options.model_file.empty()) {
    return client->Submit(spec, options.model_file, key,
                          ShowTransfer("model", console, interrupts));
  }
  const auto job = client->Get(found.job.id);
  if (absl::IsNotFound(job.status())) {
    return absl::NotFoundError(absl::StrCat(
        "the scheduler does not know job ", found.job.id,
        ", whose checkpoint it is, any more; name its model with --model"));
  }
  SYNCLINE_RETURN_IF_ERROR(job.status());
  return SubmitAgain(client, *job, spec, key, console, interrupts);
}

}  // namespace

absl::StatusOr<JobSpec> SpecToEvaluate(const JobSpec& from,
                                       const StartSpec& start,
                                       const EvaluateOptions& options) {
  JobSpec spec = from;
  spec.clear_checkpoint();
  spec.clear_restart();
  spec.clear_stop();
  spec.clear_regimes();
  spec.clear_auto_regime();
  spec.clear_export_();
  spec.clear_strategy();
  spec.clear_sharding();
  spec.clear_consistency();
  spec.clear_table_consistency();
  spec.clear_groups();
  spec.clear_compression();
  spec.clear_wire_type();
  spec.mutable_training()->clear_sync_batch_statistics();
  spec.mutable_training()->clear_global_batch();
  // Of rows that are read from ps.
  for (TableSpec& table : *spec.mutable_tables()) {
    table.clear_cache_rows();
    table.clear_cache_clocks();
  }
  const ResourcesSpec::Device device = from.resources().device();
  spec.clear_resources();
  spec.mutable_resources()->set_workers(1);
  spec.mutable_resources()->set_device(device);
  *spec.mutable_start() = start;
  spec.mutable_start()->set_weights_only(false);
  spec.clear_evaluate();
  spec.mutable_evaluate()->set_only(true);
  const JobSpec before = spec;
  for (const std::string& setting : options.settings) {
    SYNCLINE_RETURN_IF_ERROR(OverrideField(setting, &spec).status());
  }
  SYNCLINE_RETURN_IF_ERROR(CheckSameRows(before, spec));
  if (!options.data.empty()) {
    if (!spec.data().has_test()) {
      *spec.mutable_data()->mutable_test() = spec.data().train();
    }
    SYNCLINE_RETURN_IF_ERROR(
        ReplacePath(options.data, spec.mutable_data()->mutable_test()));
  }
  if (!spec.data().has_test()) {
    return absl::InvalidArgumentError(
        "the job of the checkpoint has no data.test; name some with --data or "
        "--set data.test...");
  }
  return spec;
}

int RunEvaluate(const std::string& scheduler, const EvaluateOptions& options,
                const Console& console) {
  InterruptSignals interrupts;
  JobsClient client(scheduler);
  const auto found = Find(&client, options.checkpoint);
  if (!found.ok()) return console.PrintError(found.status());
  const auto spec = SpecToEvaluate(found->job.spec, found->start, options);
  if (!spec.ok()) return console.PrintError(spec.status());
  if (const std::string other = OtherModelNote(options.model_file, found->job);
      !options.model_file.empty() && !other.empty()) {
    console.err << other << std::endl;
  }
  const auto submitted =
      Submit(&client, *found, *spec, options, console, &interrupts);
  if (!submitted.ok()) return console.PrintError(submitted.status());
  if (!console.json) {
    console.err << "submitted " << submitted->job_id() << ", which evaluates "
                << found->start.checkpoint() << ", of clock "
                << found->start.clock() << " of " << found->job.id << std::endl;
  }
  return RunWatch(scheduler, submitted->job_id(), console);
}

}  // namespace syncline::ctl
