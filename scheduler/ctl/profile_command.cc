#include "scheduler/ctl/profile_command.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/system/file.h"
#include "proto/profile.pb.h"
#include "scheduler/ctl/interrupt_signals.h"
#include "scheduler/ctl/jobs_client.h"
#include "scheduler/ctl/text/exit_codes.h"
#include "scheduler/ctl/text/job_text.h"
#include "scheduler/ctl/text/profile_text.h"

namespace syncline::ctl {
namespace {

constexpr absl::Duration kPollInterval = absl::Milliseconds(200);
constexpr uint64_t kProfileBytesMax = 256 << 20;

const Artifact* FindArtifact(const JobStatus& job, const std::string& name) {
  const auto found = std::find_if(
      job.artifacts().begin(), job.artifacts().end(),
      [&](const Artifact& artifact) { return artifact.name() == name; });
  return found == job.artifacts().end() ? nullptr : &*found;
}

// Until the worker has stored it, the job has ended, or time is up.
absl::StatusOr<Artifact> AwaitProfile(const ProfileOptions& options,
                                      const std::string& name,
                                      JobsClient* client,
                                      InterruptSignals* interrupts) {
  const absl::Time deadline =
      MonotonicNow() + absl::Seconds(options.timeout_seconds);
  for (;;) {
    SYNCLINE_ASSIGN_OR_RETURN(const JobStatus job, client->Get(options.job_id));
    if (const Artifact* artifact = FindArtifact(job, name)) return *artifact;
    if (HasEnded(job.state())) {
      const std::string reason = ReasonText(job);
      return absl::FailedPreconditionError(absl::StrCat(
          "job ", options.job_id, " is ", JobState_Name(job.state()),
          " and worker ", options.rank, " has recorded no step",
          reason.empty() ? "" : ": ", reason));
    }
    if (MonotonicNow() > deadline) {
      return absl::FailedPreconditionError(absl::StrCat(
          "no profile of ", options.steps, " steps from worker ", options.rank,
          " within ",
          absl::FormatDuration(absl::Seconds(options.timeout_seconds)),
          "; ask for fewer --steps or give it a longer --timeout"));
    }
    if (interrupts->WaitFor(kPollInterval)) {
      return absl::CancelledError("interrupted; the job goes on");
    }
  }
}

absl::StatusOr<std::string> Download(const ProfileOptions& options,
                                     const Artifact& artifact,
                                     const std::string& to_file,
                                     JobsClient* client,
                                     InterruptSignals* interrupts) {
  SYNCLINE_RETURN_IF_ERROR(client->Download(
      options.job_id, artifact, to_file,
      [interrupts](uint64_t, uint64_t) { return !interrupts->Take(); }));
  return ReadFile(to_file, kProfileBytesMax);
}

absl::StatusOr<StepProfile> Fetch(const ProfileOptions& options,
                                  const Artifact& artifact, JobsClient* client,
                                  InterruptSignals* interrupts) {
  std::string dir =
      (std::filesystem::temp_directory_path() / "syncline-profile-XXXXXX")
          .string();
  if (mkdtemp(dir.data()) == nullptr) return FileError(errno, "create", dir);
  const auto bytes =
      Download(options, artifact, dir + "/profile.pb", client, interrupts);
  RemoveTree(dir).IgnoreError();
  SYNCLINE_RETURN_IF_ERROR(bytes.status());
  StepProfile profile;
  if (!profile.ParseFromString(*bytes) || !IsWellFormed(profile)) {
    return absl::DataLossError(
        absl::StrCat(artifact.name(), " is no profile of this version"));
  }
  return profile;
}

absl::StatusOr<StepProfile> Record(const ProfileOptions& options,
                                   JobsClient* client,
                                   InterruptSignals* interrupts) {
  ProfileRequest request;
  request.set_job_id(options.job_id);
  request.set_rank(options.rank);
  request.set_steps(options.steps);
  SYNCLINE_ASSIGN_OR_RETURN(const std::string name, client->Profile(request));
  SYNCLINE_ASSIGN_OR_RETURN(const Artifact artifact,
                            AwaitProfile(options, name, client, interrupts));
  return Fetch(options, artifact, client, interrupts);
}

}  // namespace

int RunProfile(const ProfileOptions& options, const Console& console) {
  InterruptSignals interrupts;
  JobsClient client(options.scheduler);
  const absl::StatusOr<StepProfile> profile =
      Record(options, &client, &interrupts);
  if (!profile.ok()) return console.PrintError(profile.status());
  if (!options.trace_file.empty()) {
    const absl::Status written =
        WriteFileAtomically(options.trace_file, ChromeTrace(*profile));
    if (!written.ok()) return console.PrintError(written);
  }
  if (console.json) {
    console.PrintJson(ProfileJson(*profile));
  } else {
    console.out << ProfileText(*profile);
    if (!options.trace_file.empty()) {
      console.out << "\ntrace in " << options.trace_file
                  << "; open it in chrome://tracing or ui.perfetto.dev\n";
    }
    console.out << std::flush;
  }
  return kExitOk;
}

}  // namespace syncline::ctl
