#include "scheduler/ctl/job_file.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/types/span.h"
#include "common/base/status_macros.h"
#include "common/job/compression_rules.h"
#include "common/job/data_spec_validator.h"
#include "common/job/field_locations.h"
#include "common/job/job_spec_override.h"
#include "common/job/job_spec_parser.h"
#include "common/job/job_spec_validator.h"
#include "common/job/local_rules.h"
#include "common/job/name_rule.h"
#include "common/job/precision_validator.h"
#include "common/job/quorum_validator.h"
#include "common/job/start_validator.h"
#include "common/job/table_spec_validator.h"
#include "common/model/job_check.h"
#include "common/model/start_weights.h"
#include "common/system/file.h"

namespace syncline::ctl {
namespace {

constexpr uint64_t kJobFileBytesMax = 4 << 20;
// Enough to tell what a file is.
constexpr size_t kKindBytes = 256;

std::string BesideJobFile(const std::string& job_file,
                          const std::string& path) {
  return (std::filesystem::path(job_file).parent_path() / path).string();
}

void Override(const JobOverrides& overrides, JobSpec* spec) {
  ResourcesSpec* const resources = spec->mutable_resources();
  if (overrides.workers) resources->set_workers(*overrides.workers);
  if (overrides.ps) resources->set_ps(*overrides.ps);
  TrainingSpec* const training = spec->mutable_training();
  if (overrides.batch_size) training->set_batch_size(*overrides.batch_size);
  if (overrides.micro_batches) {
    training->set_micro_batches(*overrides.micro_batches);
  }
  if (overrides.recompute_segments) {
    training->set_recompute_segments(*overrides.recompute_segments);
  }
}

// start.weights and what belongs to it.
void OverrideWeights(const JobOverrides& overrides, JobSpec* spec,
                     std::vector<std::string>* problems) {
  if (!overrides.weights.empty()) {
    std::error_code error;
    spec->mutable_start()->set_weights(
        std::filesystem::absolute(overrides.weights, error)
            .lexically_normal()
            .string());
  }
  if (!overrides.renames.empty()) {
    StartSpec* const start = spec->mutable_start();
    const auto of_file = start->names();
    start->clear_names();
    for (const std::string& rename : overrides.renames) {
      const auto rule = ParseNameRule(rename);
      if (rule.ok()) {
        *start->add_names() = *rule;
      } else {
        problems->push_back(
            absl::StrCat("--rename: ", rule.status().message()));
      }
    }
    start->mutable_names()->MergeFrom(of_file);
  }
  if (overrides.allow_missing) spec->mutable_start()->set_allow_missing(true);
}

// Returns the paths of the fields that were set.
std::vector<std::string> ApplySettings(absl::Span<const std::string> settings,
                                       JobSpec* spec,
                                       std::vector<std::string>* problems) {
  std::vector<std::string> paths;
  for (const std::string& setting : settings) {
    absl::StatusOr<std::string> path = OverrideField(setting, spec);
    if (path.ok()) {
      paths.push_back(*std::move(path));
    } else {
      problems->emplace_back(path.status().message());
    }
  }
  return paths;
}

// Is "field.path: problem" about one of these fields, or inside one?
bool IsAbout(absl::string_view problem, absl::Span<const std::string> paths) {
  return absl::c_any_of(paths, [&](absl::string_view path) {
    absl::string_view rest = problem;
    return absl::ConsumePrefix(&rest, path) && !rest.empty() &&
           absl::StrContains(":.[", rest.substr(0, 1));
  });
}

// The kind of a file that is not a job file, as far as its name and its first
// bytes tell; empty: it may be a job file.
absl::string_view OtherKind(const std::string& path) {
  const std::string suffix =
      absl::AsciiStrToLower(std::filesystem::path(path).extension().string());
  if (suffix == ".onnx" || suffix == ".onnxtxt") return "an ONNX model";
  if (suffix == ".safetensors") return "a file of weights";
  if (suffix == ".pt" || suffix == ".pth") return "a file of PyTorch";
  std::ifstream in(path, std::ios::binary);
  std::string begin(kKindBytes, '\0');
  in.read(begin.data(), static_cast<std::streamsize>(begin.size()));
  begin.resize(static_cast<size_t>(std::max<std::streamsize>(0, in.gcount())));
  const absl::string_view text = absl::StripLeadingAsciiWhitespace(begin);
  // Field 1 of ModelProto, the version as a varint; and the text form.
  if (absl::StartsWith(begin, "\x08") ||
      (absl::StartsWith(text, "<") && absl::StrContains(text, "ir_version"))) {
    return "an ONNX model";
  }
  if (absl::StartsWith(begin, "PK\x03\x04")) return "a file of PyTorch";
  return "";
}

// What a worker would refuse while it prepares the job. Memory is its own
// machine's, and no reason here.
absl::Status CheckOperators(const absl::Status& planned,
                            const std::string& model_file) {
  if (planned.ok() || absl::IsResourceExhausted(planned)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(model_file, ": ", planned.message()));
}

absl::Status CheckIsJobFile(const std::string& path) {
  const absl::string_view kind = OtherKind(path);
  std::error_code error;
  if (kind.empty() || !std::filesystem::is_regular_file(path, error)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      path, " is ", kind, ", and a job file belongs here: a text that names ",
      "the model, as in model { path: \"model.onnx\" }. `synctl help job` "
      "lists ",
      "its fields; deploy/examples has such files"));
}

}  // namespace

absl::StatusOr<JobFile> LoadJobFile(const std::string& path,
                                    const JobOverrides& overrides,
                                    const JobPlanner& planner) {
  SYNCLINE_RETURN_IF_ERROR(CheckIsJobFile(path));
  SYNCLINE_ASSIGN_OR_RETURN(const std::string text,
                            ReadFile(path, kJobFileBytesMax));
  JobReading reading = ReadJobSpec(text, path);
  JobSpec& spec = reading.spec;
  Override(overrides, &spec);
  OverrideWeights(overrides, &spec, &reading.problems);
  JobProblems problems;
  const std::vector<std::string> set =
      ApplySettings(overrides.settings, &spec, &reading.problems);
  if (spec.start().weights().empty() &&
      (!overrides.renames.empty() || overrides.allow_missing)) {
    return absl::InvalidArgumentError(
        absl::StrCat(overrides.renames.empty() ? "--allow-missing" : "--rename",
                     ": needs --weights, or start.weights in the job file"));
  }

  ProblemDeduplicator deduplicator(reading);
  problems.of_fields = CheckSpec(spec, &deduplicator);
  JobFile job;
  std::shared_ptr<const Model> model;
  if (!spec.model().path().empty()) {
    job.model_file = BesideJobFile(path, spec.model().path());
    const auto bytes = ReadFile(job.model_file, kModelBytesMax);
    if (!bytes.ok()) {
      problems.of_fields.push_back(
          absl::StrCat("model.path: ", bytes.status().message()));
    } else {
      model = CheckModel(spec, *bytes, job.model_file, &deduplicator,
                         &job.training, &problems);
      for (const std::string& note :
           model == nullptr ? std::vector<std::string>() : model->notes()) {
        job.notes.push_back(absl::StrCat(job.model_file, ": ", note));
      }
      if (model != nullptr && StartsFromWeights(spec)) {
        job.weights_file = BesideJobFile(path, spec.start().weights());
        const WeightSources sources =
            CheckStartWeights(spec, *model, job.training, job.weights_file,
                              job.weights_file, &problems.of_fields);
        MarkStarted(sources, &job.training);
        job.notes.insert(job.notes.end(), sources.warnings.begin(),
                         sources.warnings.end());
      }
    }
  }
  std::vector<std::string> all = std::move(reading.problems);
  // Their fields are not what the file says.
  const auto settings = std::stable_partition(
      problems.of_fields.begin(), problems.of_fields.end(),
      [&](const std::string& problem) { return !IsAbout(problem, set); });
  for (auto it = settings; it != problems.of_fields.end(); ++it) {
    all.push_back(absl::StrCat("--set: ", *it));
  }
  problems.of_fields.erase(settings, problems.of_fields.end());
  for (auto& located :
       {LocateProblems(text, reading.source_map, path, problems.of_fields),
        problems.of_model}) {
    all.insert(all.end(), located.begin(), located.end());
  }
  SYNCLINE_RETURN_IF_ERROR(ProblemsToStatus(all));
  if (planner != nullptr && model != nullptr) {
    SYNCLINE_RETURN_IF_ERROR(CheckOperators(
        planner(WithDefaults(spec), model, job.training).status(),
        job.model_file));
  }
  if (const std::string note = PrecisionNote(spec); !note.empty()) {
    job.notes.push_back(absl::StrCat(path, ": ", note));
  }
  if (const std::string note = CompressionNote(spec); !note.empty()) {
    job.notes.push_back(absl::StrCat(path, ": ", note));
  }
  if (const std::string note = LocalNote(spec); !note.empty()) {
    job.notes.push_back(absl::StrCat(path, ": ", note));
  }
  if (const std::string note = LocalWarning(spec); !note.empty()) {
    job.notes.push_back(absl::StrCat("warning: ", path, ": ", note));
  }
  if (const std::string note = OffsetNote(spec); !note.empty()) {
    job.notes.push_back(absl::StrCat("warning: ", path, ": ", note));
  }
  if (const std::string note = DecayNote(spec); !note.empty()) {
    job.notes.push_back(absl::StrCat(path, ": ", note));
  }
  if (const std::string note = QuorumNote(spec); !note.empty()) {
    job.notes.push_back(absl::StrCat("warning: ", path, ": ", note));
  }
  // Here alone: the scheduler writes it into each spec that does not set it.
  if (spec.durability() == CHECKPOINT) {
    job.notes.push_back(absl::StrCat(
        "warning: ", path,
        ": durability: nothing is stored until the end of the job; losing a "
        "process fails it"));
  }
  job.spec = std::move(spec);
  return job;
}

}  // namespace syncline::ctl
