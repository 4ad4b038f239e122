#include "worker/job/start_values.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/model/safetensors.h"
#include "common/model/start_weights.h"
#include "common/system/log.h"

namespace syncline::worker {

void FillFromWeights(const std::string& path, PreparedJob* job,
                     std::vector<std::string>* problems) {
  const auto add = [&](const absl::Status& status) {
    // Its user knows the file by the name in the job, and not by this copy's.
    problems->push_back(absl::StrCat(
        "start.weights: ",
        absl::StrReplaceAll(status.message(),
                            {{path, job->spec().start().weights()}})));
  };
  const auto tensors = ReadSafetensors(path);
  if (!tensors.ok()) return add(tensors.status());
  const size_t before = problems->size();
  const WeightSources sources =
      MatchWeights(job->spec(), job->training, *tensors, problems);
  if (problems->size() > before) return;
  for (const std::string& warning : sources.warnings) {
    LogWarning("the weights file is not wholly the model's")
        .Job(job->assignment.job_id())
        .Field("what", warning);
  }
  int filled = 0;
  for (size_t i = 0; i < sources.parameters.size(); ++i) {
    if (sources.parameters[i] < 0) continue;
    const absl::Status read = ReadFileTensor(
        path, (*tensors)[static_cast<size_t>(sources.parameters[i])],
        job->executor->parameter(static_cast<int>(i)));
    if (!read.ok()) {
      add(read);
      continue;
    }
    job->training.parameters[i].rule = -1;
    ++filled;
  }
  MarkStarted(sources, &job->training);
  LogInfo("initial values were read from a weights file")
      .Job(job->assignment.job_id())
      .Field("file", job->spec().start().weights())
      .Field("parameters", filled)
      .Field("of", job->training.parameters.size());
}

}  // namespace syncline::worker
