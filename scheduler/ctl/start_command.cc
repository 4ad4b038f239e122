#include "scheduler/ctl/start_command.h"

#include <filesystem>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/crc32c.h"
#include "common/base/random.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/checkpoint_folder.h"
#include "common/job/compression_rules.h"
#include "common/job/job_spec_validator.h"
#include "common/job/lease_rules.h"
#include "common/job/local_rules.h"
#include "common/job/start_validator.h"
#include "common/job/step_shares.h"
#include "common/system/file.h"
#include "google/protobuf/struct.pb.h"
#include "google/protobuf/util/message_differencer.h"
#include "scheduler/ctl/commands.h"
#include "scheduler/ctl/job_file.h"
#include "scheduler/ctl/text/exit_codes.h"

namespace syncline::ctl {
namespace {

using google::protobuf::util::MessageDifferencer;

constexpr char kModel[] = "model.onnx";

bool IsJobId(absl::string_view text) {
  uint64_t number = 0;
  return absl::StartsWith(text, "j-") &&
         absl::SimpleAtoi(text.substr(2), &number);
}

absl::Status Refusal(absl::string_view field, const auto& of_job,
                     const auto& of_checkpoint, absl::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat(field, ": ", of_job, ", but the job of the checkpoint has ",
                   of_checkpoint, ": ", why,
                   "; --weights-only starts anew from its values"));
}

// Its rate at a clock depends on how long the job is.
bool FollowsTheLength(const LearningRateSpec& rate) {
  return rate.total_clocks() == 0 &&
         rate.schedule() != LearningRateSpec::CONSTANT &&
         rate.schedule() != LearningRateSpec::STEP &&
         rate.schedule() != LearningRateSpec::LINEAR_WARMUP;
}

bool HasOtherLength(const JobSpec& a, const JobSpec& b) {
  return a.training().epochs() != b.training().epochs() ||
         a.training().max_clocks() != b.training().max_clocks();
}

CompressionSpec::Kind CompressionOf(const JobSpec& spec) {
  return Compresses(spec) ? spec.compression().kind() : CompressionSpec::NONE;
}

std::string StartNote(const StartSpec& start, absl::string_view job_id) {
  return absl::StrCat(
      "starts ",
      start.weights_only()
          ? "at clock 0, from the values of the checkpoint"
          : absl::StrCat("at clock ", start.clock(), ", from the checkpoint"),
      job_id.empty() ? "" : absl::StrCat(" of ", job_id), " in ",
      start.checkpoint());
}

void PrintResumed(const SubmitResponse& submitted, const JobSpec& spec,
                  const std::string& from, const Console& console) {
  const std::string note = StartNote(spec.start(), from);
  if (console.json) {
    google::protobuf::Struct object;
    SetField(&object, "job_id", submitted.job_id());
    SetFlag(&object, "repeated_submission", submitted.repeated_submission());
    SetField(&object, "start", note);
    console.PrintJson(object);
    return;
  }
  console.out << "submitted " << submitted.job_id() << " (" << spec.name()
              << "), which " << note << std::endl;
}

}  // namespace

StartSpec StartFrom(const CheckpointInfo& checkpoint) {
  StartSpec start;
  start.set_checkpoint(checkpoint.path());
  start.set_clock(checkpoint.clock());
  start.set_shards(checkpoint.shards());
  start.set_manifest_crc32c(checkpoint.manifest_crc32c());
  return start;
}

CheckpointJob CheckpointJobOf(const JobStatus& job) {
  CheckpointJob of = {.id = job.job_id(), .spec = job.spec()};
  for (const Artifact& artifact : job.artifacts()) {
    if (artifact.name() == kModel) of.model_crc32c = artifact.crc32c();
  }
  return of;
}

std::string OtherModelNote(const std::string& model_file,
                           const CheckpointJob& of) {
  if (of.model_crc32c == 0) return "";
  // One that cannot be read is refused where it is needed.
  const auto bytes = ReadFile(model_file, kModelBytesMax);
  if (!bytes.ok() || Crc32c(*bytes) == of.model_crc32c) return "";
  return absl::StrCat(
      "warning: ", model_file, " is another file than the model of ", of.id,
      ": the graph, and parameters that are not trained (model.freeze), are "
      "those of this file, since a checkpoint has neither");
}

absl::StatusOr<StartSpec> ReadStart(const std::string& path,
                                    CheckpointJob* of) {
  std::error_code error;
  const std::string absolute =
      std::filesystem::absolute(path, error).lexically_normal().string();
  uint32_t crc32c = 0;
  SYNCLINE_ASSIGN_OR_RETURN(const CheckpointManifest manifest,
                            ReadManifest(absolute, &crc32c));
  *of = {.id = manifest.job_id(),
         .spec = manifest.spec(),
         .model_crc32c = manifest.model_crc32c()};
  StartSpec start;
  start.set_checkpoint(absolute);
  start.set_clock(manifest.clock());
  start.set_shards(static_cast<uint32_t>(manifest.shards_size()));
  start.set_manifest_crc32c(crc32c);
  return start;
}

absl::StatusOr<SubmitResponse> SubmitAgain(JobsClient* client,
                                           const JobStatus& job,
                                           const JobSpec& spec,
                                           const std::string& client_key,
                                           const Console& console,
                                           InterruptSignals* interrupts) {
  const auto model = absl::c_find_if(
      job.artifacts(), [](const Artifact& a) { return a.name() == kModel; });
  if (model == job.artifacts().end()) {
    return absl::NotFoundError(
        absl::StrCat("job ", job.job_id(), " has no ", kModel, " any more"));
  }
  std::error_code error;
  const std::string folder =
      absl::StrCat(std::filesystem::temp_directory_path(error).string(),
                   "/synctl-", absl::Hex(EntropySeed(), absl::kZeroPad16));
  SYNCLINE_RETURN_IF_ERROR(MakeDirs(folder));
  const absl::Cleanup remove = [&] { RemoveTree(folder).IgnoreError(); };
  const std::string file = absl::StrCat(folder, "/", kModel);
  SYNCLINE_RETURN_IF_ERROR(client->Download(
      job.job_id(), *model, file, ShowTransfer(kModel, console, interrupts)));
  return client->Submit(spec, file,
                        client_key.empty() ? RandomClientKey() : client_key,
                        ShowTransfer(kModel, console, interrupts));
}

absl::StatusOr<CheckpointReference> ParseReference(absl::string_view text,
                                                   absl::string_view option) {
  CheckpointReference reference;
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(text, absl::MaxSplits('@', 1));
  if (!IsJobId(parts.first)) {
    if (text.empty() || !absl::StrContains(text, '/')) {
      return absl::InvalidArgumentError(absl::StrCat(
          option, ": '", text,
          "' is neither a job's id, as j-0042 or j-0042@800, nor a path"));
    }
    reference.path = std::string(text);
    return reference;
  }
  reference.job_id = std::string(parts.first);
  if (!absl::StrContains(text, '@')) return reference;
  int64_t clock = 0;
  if (!absl::SimpleAtoi(parts.second, &clock) || clock < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        option, ": '", parts.second, "' is not a clock of job ", parts.first));
  }
  reference.clock = clock;
  return reference;
}

absl::StatusOr<CheckpointInfo> ChooseCheckpoint(const JobStatus& job,
                                                std::optional<int64_t> clock) {
  if (job.checkpoints().empty()) {
    return absl::NotFoundError(
        absl::StrCat("job ", job.job_id(), " has no checkpoint"));
  }
  if (!clock.has_value()) return *job.checkpoints().rbegin();
  for (const CheckpointInfo& checkpoint : job.checkpoints()) {
    if (checkpoint.clock() == *clock) return checkpoint;
  }
  return absl::NotFoundError(absl::StrCat(
      "job ", job.job_id(), " has no checkpoint at clock ", *clock,
      "; it has some at clocks ",
      absl::StrJoin(job.checkpoints(), ", ",
                    [](std::string* out, const CheckpointInfo& checkpoint) {
                      absl::StrAppend(out, checkpoint.clock());
                    })));
}

absl::Status CheckGoesOn(const JobSpec& from, const JobSpec& spec,
                         int64_t clock, std::vector<std::string>* notes) {
  // In LOCAL the state of `optimizer` is in no checkpoint.
  const OptimizerSpec::Kind kind = OwnersOptimizer(spec).kind();
  const OptimizerSpec::Kind of_checkpoint = OwnersOptimizer(from).kind();
  constexpr absl::string_view kPosition =
      "a clock would stand for other samples";
  const bool has_other_steps = StepsOfClock(spec) != StepsOfClock(from);
  if (IsLocal(spec) != IsLocal(from) &&
      (kind != of_checkpoint || has_other_steps)) {
    const auto mode = [](const JobSpec& of) {
      return ConsistencySpec::Mode_Name(of.consistency().mode());
    };
    return Refusal("consistency.mode", mode(spec), mode(from),
                   has_other_steps ? kPosition
                                   : "in LOCAL the ps have the state of "
                                     "another optimizer than in other modes");
  }
  if (kind != of_checkpoint) {
    return Refusal(absl::StrCat(OwnersOptimizerField(spec), ".kind"),
                   OptimizerSpec::Kind_Name(kind),
                   OptimizerSpec::Kind_Name(of_checkpoint),
                   "its state is that optimizer's");
  }
  if (spec.optimizer().kind() == OptimizerSpec::MOMENTUM &&
      WorkersHaveMomentum(spec) != WorkersHaveMomentum(from)) {
    return Refusal("compression.kind",
                   CompressionSpec::Kind_Name(CompressionOf(spec)),
                   CompressionSpec::Kind_Name(CompressionOf(from)),
                   "with DGC the workers have the momentum, else the "
                   "checkpoint has it");
  }
  // Up to a warm-up's end the state is that of the job's optimizer.
  const auto is_frozen = [clock](const JobSpec& of) {
    return CompressionOf(of) == CompressionSpec::ONE_BIT_ADAM &&
           clock > static_cast<int64_t>(of.compression().warmup_clocks());
  };
  const auto warmup = [](const JobSpec& of) {
    return CompressionOf(of) == CompressionSpec::ONE_BIT_ADAM
               ? absl::StrCat(of.compression().warmup_clocks())
               : "none of ONE_BIT_ADAM";
  };
  if ((is_frozen(spec) || is_frozen(from)) && warmup(spec) != warmup(from)) {
    return Refusal("compression.warmup_clocks", warmup(spec), warmup(from),
                   "with ONE_BIT_ADAM the second moment stays as the warm-up "
                   "has left it");
  }
  if (has_other_steps) {
    return Refusal("consistency.local.steps", StepsOfClock(spec),
                   StepsOfClock(from), kPosition);
  }
  if (LeasesData(spec) != LeasesData(from)) {
    const auto sharing = [](const JobSpec& of) {
      return LeasesData(of) ? "LEASED" : "STATIC";
    };
    return Refusal("data.sharing", sharing(spec), sharing(from), kPosition);
  }
  // The size of a clock's batch is compared: any workers may share its samples,
  // or make it.
  const bool is_global =
      spec.training().global_batch() > 0 || from.training().global_batch() > 0;
  if (is_global && SharesOf(spec).samples != SharesOf(from).samples) {
    return Refusal("training.global_batch", SharesOf(spec).samples,
                   SharesOf(from).samples, kPosition);
  }
  if (!is_global &&
      spec.training().batch_size() != from.training().batch_size()) {
    return Refusal("training.batch_size", spec.training().batch_size(),
                   from.training().batch_size(), kPosition);
  }
  if (!is_global && !LeasesData(spec) &&
      spec.resources().workers() != from.resources().workers()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "resources.workers: ", spec.resources().workers(),
        ", but the job of the checkpoint has ", from.resources().workers(),
        ": a clock would stand for other samples; ",
        Compresses(spec)
            ? ""
            : absl::StrCat(
                  "--set training.global_batch=", SharesOf(from).samples,
                  " keeps them, with any number of workers, and "),
        "--weights-only starts anew from its values"));
  }
  const auto warn = [&](absl::string_view field) {
    notes->push_back(absl::StrCat(
        "warning: ", field,
        " is not that of the checkpoint's job: the result will not be that of "
        "a job that was never interrupted"));
  };
  const auto note = [&](absl::string_view field, const auto& of_job,
                        const auto& of_checkpoint) {
    if (!MessageDifferencer::Equals(of_job, of_checkpoint)) warn(field);
  };
  note("data", spec.data(), from.data());
  note("optimizer", spec.optimizer(), from.optimizer());
  note("learning_rate", spec.learning_rate(), from.learning_rate());
  if (FollowsTheLength(spec.learning_rate()) && HasOtherLength(spec, from)) {
    warn(
        "training.epochs or max_clocks, from which learning_rate.total_clocks "
        "follows,");
  }
  note("consistency", spec.consistency(), from.consistency());
  note("loss", spec.loss(), from.loss());
  if (Compresses(spec) || Compresses(from)) {
    note("compression", spec.compression(), from.compression());
  }
  if (spec.wire_type() != from.wire_type()) warn("wire_type");
  // Its length, and what changes no step, may be another.
  TrainingSpec training = spec.training();
  training.set_epochs(from.training().epochs());
  training.set_max_clocks(from.training().max_clocks());
  training.set_eval_batch_size(from.training().eval_batch_size());
  if (is_global) {
    training.set_global_batch(from.training().global_batch());
    training.set_batch_size(from.training().batch_size());
    training.set_micro_batches(from.training().micro_batches());
  }
  note("training", training, from.training());
  if (spec.precision() != from.precision()) warn("precision");
  return absl::OkStatus();
}

absl::Status FillStart(JobsClient* client, const StartOptions& options,
                       JobSpec* spec, std::vector<std::string>* notes) {
  if (StartsFromWeights(*spec)) {
    if (options.from.empty() && !options.weights_only) {
      notes->push_back(absl::StrCat("starts at clock 0, from the values in ",
                                    spec->start().weights()));
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(
        absl::StrCat(options.from.empty() ? "--weights-only" : "--from",
                     ": is for a checkpoint, and the job starts from the "
                     "values of a file, start.weights or --weights"));
  }
  if (options.from.empty() && !spec->has_start()) {
    if (!options.weights_only) return absl::OkStatus();
    return absl::InvalidArgumentError(
        "--weights-only: needs --from, or start in the job file");
  }
  const bool weights_only =
      options.weights_only || spec->start().weights_only();
  CheckpointReference reference;
  if (options.from.empty()) {
    reference.path = spec->start().checkpoint();
  } else {
    SYNCLINE_ASSIGN_OR_RETURN(reference, ParseReference(options.from));
  }
  CheckpointJob from;
  StartSpec start;
  if (!reference.job_id.empty()) {
    SYNCLINE_ASSIGN_OR_RETURN(const JobStatus job,
                              client->Get(reference.job_id));
    SYNCLINE_ASSIGN_OR_RETURN(const CheckpointInfo checkpoint,
                              ChooseCheckpoint(job, reference.clock));
    from = CheckpointJobOf(job);
    start = StartFrom(checkpoint);
  } else {
    auto read = ReadStart(reference.path, &from);
    if (!read.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(
          options.from.empty() ? "start.checkpoint" : "--from", ": ",
          read.status().message(),
          "; a folder that this host does not see is named by its job, as "
          "--from j-0042"));
    }
    start = *std::move(read);
  }
  start.set_weights_only(weights_only);
  if (!weights_only) {
    SYNCLINE_RETURN_IF_ERROR(CheckGoesOn(
        WithDefaults(from.spec), WithDefaults(*spec), start.clock(), notes));
  }
  if (std::string other = OtherModelNote(options.model_file, from);
      !other.empty()) {
    notes->push_back(std::move(other));
  }
  *spec->mutable_start() = start;
  notes->push_back(StartNote(start, from.id));
  return absl::OkStatus();
}

absl::StatusOr<JobSpec> SpecToResume(const JobStatus& job) {
  if (!HasEnded(job.state())) {
    return absl::FailedPreconditionError(
        absl::StrCat("job ", job.job_id(), " is ", JobState_Name(job.state()),
                     ": it goes on by itself; cancel it first"));
  }
  if (job.state() == SUCCEEDED) {
    return absl::FailedPreconditionError(
        absl::StrCat("job ", job.job_id(),
                     " has succeeded; to train longer, submit its job file "
                     "with more epochs and --from ",
                     job.job_id()));
  }
  SYNCLINE_ASSIGN_OR_RETURN(const CheckpointInfo checkpoint,
                            ChooseCheckpoint(job, std::nullopt));
  JobSpec spec = job.spec();
  *spec.mutable_start() = StartFrom(checkpoint);
  return spec;
}

int RunResume(const std::string& scheduler, const ResumeOptions& options,
              const Console& console) {
  InterruptSignals interrupts;
  JobsClient client(scheduler);
  const auto job = client.Get(options.job_id);
  if (!job.ok()) return console.PrintError(job.status());
  const auto spec = SpecToResume(*job);
  if (!spec.ok()) return console.PrintError(spec.status());
  const auto submitted = SubmitAgain(&client, *job, *spec, options.client_key,
                                     console, &interrupts);
  if (!submitted.ok()) return console.PrintError(submitted.status());
  PrintResumed(*submitted, *spec, options.job_id, console);
  return options.watch ? RunWatch(scheduler, submitted->job_id(), console)
                       : kExitOk;
}

}  // namespace syncline::ctl
