#include "scheduler/ctl/job_file.h"

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/file.h"
#include "common/base/status_macros.h"
#include "common/model/training_graph.h"
#include "common/rpc/job_spec_validator.h"
#include "scheduler/ctl/field_locations.h"

namespace syncline {
namespace {

constexpr uint64_t kJobFileBytesMax = 4 << 20;
// Protocol buffers end there, and so does ONNX.
constexpr uint64_t kModelBytesMax = (2ull << 30) - 1;

std::string BesideJobFile(const std::string& job_file,
                          const std::string& path) {
  return (std::filesystem::path(job_file).parent_path() / path).string();
}

void AppendLines(const absl::Status& status, std::vector<std::string>* lines) {
  for (absl::string_view line : absl::StrSplit(status.message(), '\n')) {
    lines->emplace_back(line);
  }
}

// Everything that is wrong with the model or with how the spec lies over it.
std::vector<std::string> CheckModel(const JobFile& job, bool spec_is_valid,
                                    absl::string_view text,
                                    const std::string& label) {
  std::vector<std::string> problems;
  const auto bytes = ReadFile(job.model_file, kModelBytesMax);
  if (!bytes.ok()) {
    return LocateProblems(
        text, label, {absl::StrCat("model.path: ", bytes.status().message())});
  }
  const auto model = ParseJobModel(job.spec, *bytes, job.model_file);
  if (!model.ok()) {
    AppendLines(model.status(), &problems);
  } else if (spec_is_valid) {
    std::vector<std::string> misfits;
    ResolveTrainingGraph(WithDefaults(job.spec), **model, &misfits);
    problems = LocateProblems(text, label, misfits);
  }
  return problems;
}

}  // namespace

absl::StatusOr<JobFile> LoadJobFile(const std::string& path,
                                    const JobOverrides& overrides) {
  SYNCLINE_ASSIGN_OR_RETURN(const std::string text,
                            ReadFile(path, kJobFileBytesMax));
  JobFile job;
  SYNCLINE_ASSIGN_OR_RETURN(job.spec, ParseJobSpec(text, path));
  if (overrides.workers)
    job.spec.mutable_resources()->set_workers(*overrides.workers);
  if (overrides.ps) job.spec.mutable_resources()->set_ps(*overrides.ps);

  const std::vector<std::string> invalid = ValidateJobSpec(job.spec);
  std::vector<std::string> problems = LocateProblems(text, path, invalid);
  if (!job.spec.model().path().empty()) {
    job.model_file = BesideJobFile(path, job.spec.model().path());
    for (std::string& problem : CheckModel(job, invalid.empty(), text, path)) {
      problems.push_back(std::move(problem));
    }
  }
  SYNCLINE_RETURN_IF_ERROR(ProblemsToStatus(problems));
  return job;
}

}  // namespace syncline
