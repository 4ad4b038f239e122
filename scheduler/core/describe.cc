#include "scheduler/core/describe.h"

#include <algorithm>
#include <map>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/base/incarnation.h"
#include "common/job/lease_rules.h"
#include "common/job/step_shares.h"

namespace syncline::scheduler {

absl::string_view TaskTypeName(TaskType type) {
  switch (type) {
    case CHIEF:
      return "chief";
    case WORKER:
      return "worker";
    case PS:
      return "ps";
    case EVALUATOR:
      return "evaluator";
    case SCHEDULER:
      return "scheduler";
    default:
      return "unknown";
  }
}

std::string TaskText(const Task& task) {
  return absl::StrCat(TaskTypeName(task.type()), " ", task.index());
}

std::string MemberText(const Member& member) {
  return absl::StrCat(TaskText(member.task()), " at ", member.address());
}

std::string MemberTextWithIncarnation(const Member& member) {
  return absl::StrCat(MemberText(member), " (incarnation ",
                      IncarnationText(member.incarnation()), ")");
}

std::string CountText(uint64_t count, absl::string_view noun) {
  const bool plural = count != 1 && noun != "ps";
  return absl::StrCat(count, " ", noun, plural ? "s" : "");
}

std::string SecondsText(absl::Duration duration) {
  return absl::StrFormat("%.1f s", absl::ToDoubleSeconds(duration));
}

uint64_t JobNumber(absl::string_view job_id) {
  uint64_t number = 0;
  if (!absl::ConsumePrefix(&job_id, "j-")) return 0;
  return absl::SimpleAtoi(job_id, &number) ? number : 0;
}

bool IsFinal(JobState state) {
  return state == SUCCEEDED || state == FAILED || state == CANCELLED;
}

google::protobuf::Timestamp ToTimestamp(absl::Time time) {
  google::protobuf::Timestamp timestamp;
  const int64_t seconds = absl::ToUnixSeconds(time);
  timestamp.set_seconds(seconds);
  timestamp.set_nanos(static_cast<int32_t>(
      absl::ToInt64Nanoseconds(time - absl::FromUnixSeconds(seconds))));
  return timestamp;
}

absl::Time FromTimestamp(const google::protobuf::Timestamp& timestamp) {
  return absl::FromUnixSeconds(timestamp.seconds()) +
         absl::Nanoseconds(timestamp.nanos());
}

std::string StepWarning(const JobStatus& job, uint64_t train_samples) {
  const auto workers = static_cast<uint32_t>(job.workers_size());
  const JobSpec spec = SpecForWorkers(job.spec(), workers);
  const TrainingSpec& training = spec.training();
  const auto samples =
      static_cast<uint64_t>(SharesOf(spec, std::max(1u, workers)).samples);
  if (train_samples == 0 || train_samples >= samples) return "";
  return absl::StrCat(
      "\nwarning: a step takes ", samples, " samples (",
      LeasesData(spec) ? "of one worker" : CountText(workers, "worker"),
      training.global_batch() > 0
          ? absl::StrCat(", training.global_batch ", training.global_batch())
          : absl::StrCat(", training.batch_size ", training.batch_size()),
      "), but data.train has ", train_samples,
      ": each pass over the data is one smaller step");
}

// "A (worker:0) and B (worker:1)": what the workers have of this field of
// theirs; empty if all have the same.
std::string DifferencesText(const JobStatus& job,
                            const std::string& (Gpu::*field)() const,
                            absl::string_view if_empty) {
  std::map<std::string, std::vector<std::string>> tasks;  // by what they have
  for (const Participant& worker : job.workers()) {
    const Member& member = worker.member();
    tasks[(member.gpu().*field)()].push_back(TaskText(member.task()));
  }
  if (tasks.size() < 2) return "";
  std::vector<std::string> parts;
  for (const auto& [what, who] : tasks) {
    parts.push_back(absl::StrCat(what.empty() ? if_empty : what, " (",
                                 absl::StrJoin(who, ", "), ")"));
  }
  return absl::StrJoin(parts, " and ");
}

// Of a job whose workers all have a GPU.
std::string ModelsWarning(const JobStatus& job) {
  const std::string differences =
      DifferencesText(job, &Gpu::model, "an unnamed one");
  if (differences.empty()) return "";
  return absl::StrCat(
      "\nwarning: the workers' GPUs are ", differences,
      ": those that are not the chief's model choose the algorithms of their "
      "matrix products for themselves, and the job ends with other last bits "
      "when its workers change places");
}

// Likewise.
std::string ConvolutionsWarning(const JobStatus& job) {
  const std::string differences =
      DifferencesText(job, &Gpu::convolutions, "an older program");
  if (differences.empty()) return "";
  return absl::StrCat(
      "\nwarning: convolutions are computed by ", differences,
      ": a model that has some ends with other last bits when its workers "
      "change places. Start all workers with the same --convolutions, and with "
      "the same version of cuDNN");
}

std::string DeviceWarning(const JobStatus& job) {
  if (job.spec().resources().device() == ResourcesSpec::CPU) return "";
  int with_gpu = 0;
  for (const Participant& worker : job.workers()) {
    with_gpu += worker.member().has_gpu() ? 1 : 0;
  }
  if (with_gpu == 0) return "";
  if (with_gpu == job.workers_size()) {
    return absl::StrCat(ModelsWarning(job), ConvolutionsWarning(job));
  }
  return absl::StrCat(
      "\nwarning: ", with_gpu, " of ",
      CountText(static_cast<uint64_t>(job.workers_size()), "worker"),
      " compute on a GPU, the others on their processors: the slowest sets the "
      "pace in SYNC. resources.device: CUDA waits for workers with a GPU");
}

}  // namespace syncline::scheduler
