#include "scheduler/ctl/commands.h"

#include <algorithm>
#include <deque>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "common/base/random.h"
#include "common/base/status_macros.h"
#include "common/base/trace_id.h"
#include "common/job/start_validator.h"
#include "common/system/file.h"
#include "google/protobuf/struct.pb.h"
#include "google/protobuf/util/json_util.h"
#include "scheduler/ctl/folder_claim.h"
#include "scheduler/ctl/job_file.h"
#include "scheduler/ctl/text/exit_codes.h"
#include "scheduler/ctl/text/job_text.h"
#include "scheduler/ctl/text/table_text.h"
#include "scheduler/ctl/text/weights_text.h"
#include "scheduler/ctl/text/why_text.h"
#include "scheduler/ctl/watch.h"

namespace syncline::ctl {
namespace {

constexpr char kSubmittedModel[] = "model.onnx";
// Transfers above it show that they are going on.
constexpr uint64_t kLargeBytes = 16 << 20;
constexpr char kOwnerFile[] = ".syncline-job";
constexpr uint64_t kOwnerBytesMax = 1 << 10;
constexpr int kFoldersMax = 1000;
// Of a job that is asked about: the last ones.
constexpr size_t kWhyEvents = 5;
// Workers report twice a second.
constexpr absl::Duration kWhyLook = absl::Seconds(2);

// Watches until the end, or until Ctrl-C, which leaves the job as it is.
int WatchAndReport(JobsClient* client, const std::string& job_id,
                   const Console& console, InterruptSignals* interrupts) {
  bool stopped = false;
  const auto end = WatchOnConsole(
      client, job_id, console, interrupts, [&](const JobStatus&) {
        stopped = stopped || interrupts->Take();
        return stopped ? absl::CancelledError("") : absl::OkStatus();
      });
  if (end.ok()) return PrintOutcome(*end, console);
  if (!stopped) return console.PrintError(end.status());
  if (!console.json) {
    console.err << "\nStopped watching; job " << job_id
                << " goes on. Watch it with `synctl watch " << job_id
                << "`, end it with `synctl cancel " << job_id << "`."
                << std::endl;
  }
  return kExitCancelled;
}

// A job that the cluster is too small for waits, perhaps for ever: its author
// should not learn that later.
std::string CapacityWarningOf(JobsClient* client, const JobSpec& spec) {
  const auto cluster = client->GetCluster();
  // If that cannot be told the job is queued all the same.
  return cluster.ok() ? CapacityWarning(spec, *cluster) : "";
}

// The trace id of a submission. Errors: InvalidArgument: --trace-id is none. A
// TRACEPARENT that is none was meant for others: *notes says so.
absl::StatusOr<std::string> ChooseTraceId(const SubmitOptions& options,
                                          std::vector<std::string>* notes) {
  if (!options.trace_id.empty()) {
    const std::string given = absl::AsciiStrToLower(options.trace_id);
    SYNCLINE_RETURN_IF_ERROR(CheckTraceId("--trace-id", given));
    return given;
  }
  if (options.traceparent.empty()) return NewTraceId();
  auto trace_id = TraceIdOfParent(options.traceparent);
  if (trace_id.ok()) return trace_id;
  notes->push_back(absl::StrCat(trace_id.status().message(),
                                "; the job has a trace id of its own"));
  return NewTraceId();
}

// One object in JSON, so that a program that reads the id reads the warnings
// too.
void PrintSubmitted(const SubmitResponse& submitted, const JobFile& job,
                    const std::vector<std::string>& warnings,
                    const Console& console) {
  const std::string& job_id = submitted.job_id();
  if (console.json) {
    google::protobuf::Struct object;
    SetField(&object, "job_id", job_id);
    SetFlag(&object, "repeated_submission", submitted.repeated_submission());
    if (!warnings.empty()) {
      SetField(&object, "warning", absl::StrJoin(warnings, "; "));
    }
    SetWeights(job.training, &object);
    console.PrintJson(object);
    return;
  }
  console.out << "submitted " << job_id << " (" << job.spec.name() << ")"
              << (submitted.repeated_submission() ? " before, with this key"
                                                  : "")
              << std::endl;
  PrintWeights(job.training, console);
  for (const std::string& warning : warnings) {
    console.err << "synctl: " << warning << std::endl;
  }
}

// A list has only the names of specs: the rest must not look like defaults.
google::protobuf::Struct WithoutSpecs(const ListResponse& jobs) {
  google::protobuf::Struct object;
  auto* const list = (*object.mutable_fields())["jobs"].mutable_list_value();
  for (const JobStatus& job : jobs.jobs()) {
    google::protobuf::Struct* const entry =
        list->add_values()->mutable_struct_value();
    // Its own output is JSON.
    static_cast<void>(
        google::protobuf::util::JsonStringToMessage(ToJson(job), entry));
    google::protobuf::Struct spec;
    SetField(&spec, "name", job.spec().name());
    *(*entry->mutable_fields())["spec"].mutable_struct_value() =
        std::move(spec);
  }
  return object;
}

absl::StatusOr<JobState> ParseState(const std::string& name) {
  JobState state;
  if (!JobState_Parse(absl::AsciiStrToUpper(name), &state) ||
      state == JOB_STATE_UNSPECIFIED) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--state: '", name,
        "' is not a state; expected queued, preparing, running, succeeded, "
        "failed or cancelled"));
  }
  return state;
}

// A name comes from the scheduler: it must not lead out of the folder.
absl::Status CheckStaysInside(const std::string& name) {
  const std::filesystem::path path(name);
  const bool climbs = std::any_of(path.begin(), path.end(),
                                  [](const auto& p) { return p == ".."; });
  if (!name.empty() && path.is_relative() && !climbs) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("'", name, "' is not a file name inside a folder"));
}

absl::StatusOr<std::vector<Artifact>> ChooseArtifacts(
    const JobStatus& job, const std::vector<std::string>& names) {
  std::vector<Artifact> chosen;
  if (names.empty()) {
    for (const Artifact& artifact : job.artifacts()) {
      if (artifact.name() == kSubmittedModel ||
          artifact.name() == kWeightsArtifact) {
        continue;
      }
      chosen.push_back(artifact);
    }
    return chosen;
  }
  for (const std::string& name : names) {
    const auto found = std::find_if(
        job.artifacts().begin(), job.artifacts().end(),
        [&](const Artifact& artifact) { return artifact.name() == name; });
    if (found == job.artifacts().end()) {
      return absl::NotFoundError(absl::StrCat(
          "job ", job.job_id(), " has no '", name, "'; it has: ",
          absl::StrJoin(job.artifacts(), ", ",
                        [](std::string* out, const Artifact& artifact) {
                          absl::StrAppend(out, artifact.name());
                        })));
    }
    chosen.push_back(*found);
  }
  return chosen;
}

// "out", "out-2", "out-3" ...
std::string Numbered(const std::string& path, int number) {
  std::filesystem::path folder = path;
  if (!folder.has_filename()) folder = folder.parent_path();
  if (number == 1) return path;
  if (folder.filename() == "." || folder.filename() == ".." || folder.empty()) {
    std::error_code error;
    folder = std::filesystem::weakly_canonical(folder, error);
  }
  return absl::StrCat(folder.string(), "-", number);
}

// Names the job whose files a folder has: its id, and when it was submitted,
// because another cluster has the same ids.
std::string OwnerText(const JobStatus& job) {
  std::string text = job.job_id();
  if (!job.transitions().empty()) {
    const auto& time = job.transitions(0).time();
    absl::StrAppend(&text, " ", time.seconds(), ".", time.nanos());
  }
  return absl::StrCat(text, "\n");
}

// Neither replaces another job's files nor comes among them.
bool MayHold(const std::string& folder, const JobStatus& job,
             const std::vector<Artifact>& artifacts) {
  const auto owner =
      ReadFile(absl::StrCat(folder, "/", kOwnerFile), kOwnerBytesMax);
  if (owner.ok()) return *owner == OwnerText(job);
  return std::none_of(
      artifacts.begin(), artifacts.end(), [&](const Artifact& artifact) {
        std::error_code error;
        return std::filesystem::exists(
            std::filesystem::path(folder) / artifact.name(), error);
      });
}

}  // namespace

absl::StatusOr<std::string> ChooseFolder(const JobStatus& job,
                                         const std::vector<std::string>& names,
                                         const std::string& wanted) {
  SYNCLINE_ASSIGN_OR_RETURN(const auto artifacts, ChooseArtifacts(job, names));
  for (int number = 1; number <= kFoldersMax; ++number) {
    const std::string folder = Numbered(wanted, number);
    if (!MayHold(folder, job, artifacts)) continue;
    SYNCLINE_RETURN_IF_ERROR(MakeDirs(folder));
    SYNCLINE_RETURN_IF_ERROR(WriteFileAtomically(
        absl::StrCat(folder, "/", kOwnerFile), OwnerText(job)));
    return folder;
  }
  return absl::AlreadyExistsError(
      absl::StrCat(wanted, " and ", kFoldersMax - 1,
                   " folders beside it have files of other jobs"));
}

absl::StatusOr<std::string> MakeNumberedDir(const std::string& path) {
  for (int number = 1; number <= kFoldersMax; ++number) {
    const std::string folder = Numbered(path, number);
    SYNCLINE_RETURN_IF_ERROR(MakeDirs(folder));
    std::error_code error;
    if (std::filesystem::is_empty(folder, error)) return folder;
    if (error) return FileError(error.value(), "list", folder);
  }
  return absl::AlreadyExistsError(absl::StrCat(
      path, " and ", kFoldersMax - 1, " folders beside it have files"));
}

int RunSubmit(const std::string& scheduler, const SubmitOptions& options,
              const Console& console) {
  auto job = LoadJobFile(options.job_file, options.overrides, options.planner);
  if (!job.ok()) {
    console.PrintError(job.status());
    return kExitFailed;  // whatever the code: the file is at fault
  }
  InterruptSignals interrupts;
  JobsClient client(scheduler);
  StartOptions from = options.start;
  from.model_file = job->model_file;
  const absl::Status start = FillStart(&client, from, &job->spec, &job->notes);
  if (!start.ok()) return console.PrintError(start);
  const auto trace_id = ChooseTraceId(options, &job->notes);
  if (!trace_id.ok()) {
    console.PrintError(trace_id.status());
    return kExitUsage;
  }
  const auto submitted = client.Submit(
      job->spec, job->model_file,
      options.client_key.empty() ? RandomClientKey() : options.client_key,
      ShowTransfer("model", console, &interrupts), *trace_id,
      job->weights_file);
  if (!submitted.ok()) return console.PrintError(submitted.status());
  std::vector<std::string> warnings = job->notes;
  const std::string capacity = CapacityWarningOf(&client, job->spec);
  if (!capacity.empty()) warnings.push_back(capacity);
  PrintSubmitted(*submitted, *job, warnings, console);
  return options.watch ? WatchAndReport(&client, submitted->job_id(), console,
                                        &interrupts)
                       : kExitOk;
}

int RunWatch(const std::string& scheduler, const std::string& job_id,
             const Console& console) {
  InterruptSignals interrupts;
  JobsClient client(scheduler);
  return WatchAndReport(&client, job_id, console, &interrupts);
}

int RunList(const std::string& scheduler,
            const std::vector<std::string>& states, uint32_t limit,
            const Console& console) {
  ListRequest request;
  request.set_limit(limit);
  for (const std::string& name : states) {
    const auto state = ParseState(name);
    if (!state.ok()) {
      console.PrintError(state.status());
      return kExitUsage;
    }
    request.add_states(*state);
  }
  const auto jobs = JobsClient(scheduler).List(request);
  if (!jobs.ok()) return console.PrintError(jobs.status());
  if (console.json) {
    console.PrintJson(WithoutSpecs(*jobs));
  } else {
    console.out << JobTable(*jobs, absl::Now()) << std::flush;
  }
  return kExitOk;
}

int RunGet(const std::string& scheduler, const std::string& job_id,
           const Console& console) {
  const auto job = JobsClient(scheduler).Get(job_id);
  if (!job.ok()) return console.PrintError(job.status());
  if (console.json) {
    console.PrintJson(*job);
  } else {
    console.out << JobDetails(*job, absl::Now()) << std::flush;
  }
  return kExitOk;
}

int RunWhy(const std::string& scheduler, const std::string& job_id,
           const Console& console) {
  JobsClient client(scheduler);
  auto job = client.Get(job_id);
  if (!job.ok()) return console.PrintError(job.status());
  InterruptSignals interrupts;
  // A worker that has become slow an hour ago does not show in a day's times.
  JobProgress before;
  if (job->state() == RUNNING && job->progress().workers_size() > 1 &&
      !interrupts.WaitFor(kWhyLook)) {
    if (auto later = client.Get(job_id); later.ok() &&
                                         later->state() == RUNNING &&
                                         later->attempt() == job->attempt()) {
      before = std::move(*job->mutable_progress());
      job = std::move(later);
    }
  }
  std::deque<JobEvent> last;
  // It can be said without them.
  client
      .Events(
          job_id, /*follow=*/false,
          [&last](const JobEvent& event) {
            last.push_back(event);
            if (last.size() > kWhyEvents) last.pop_front();
          },
          &interrupts)
      .IgnoreError();
  const std::vector<JobEvent> events(last.begin(), last.end());
  const std::string why = WhyText(*job, absl::Now(), events, before);
  if (console.json) {
    google::protobuf::Struct object;
    SetField(&object, "job_id", job_id);
    SetField(&object, "why", why);
    console.PrintJson(object);
  } else {
    console.out << why << std::flush;
  }
  return kExitOk;
}

int RunCancel(const std::string& scheduler, const std::string& job_id,
              const std::string& reason, const Console& console) {
  const auto job = JobsClient(scheduler).Cancel(job_id, reason);
  if (!job.ok()) return console.PrintError(job.status());
  if (console.json) {
    console.PrintJson(*job);
  } else {
    console.out << "cancelled " << job_id << std::endl;
  }
  return kExitOk;
}

int RunDownload(const std::string& scheduler, const std::string& job_id,
                const std::vector<std::string>& names, const std::string& to,
                const Console& console) {
  InterruptSignals interrupts;
  JobsClient client(scheduler);
  const auto job = client.Get(job_id);
  if (!job.ok()) return console.PrintError(job.status());
  const std::string wanted = to.empty() ? job_id : to;
  // Before it is looked at: two jobs must not both find it free.
  const auto claim = FolderClaim::Take(wanted);
  if (!claim.ok()) return console.PrintError(claim.status());
  const auto folder = ChooseFolder(*job, names, wanted);
  if (!folder.ok()) return console.PrintError(folder.status());
  if (*folder != wanted) {
    console.err << "synctl: " << wanted
                << " has files of another job; those of " << job_id << " go to "
                << *folder << std::endl;
  }
  std::optional<FolderClaim> second;
  if (*folder != wanted) {
    auto taken = FolderClaim::Take(*folder);
    if (!taken.ok()) return console.PrintError(taken.status());
    second.emplace(*std::move(taken));
  }
  const absl::Status status =
      DownloadArtifacts(&client, *job, names, *folder, console, &interrupts);
  return status.ok() ? kExitOk : console.PrintError(status);
}

int RunTables(const std::string& scheduler, const std::string& job_id,
              const Console& console) {
  JobsClient client(scheduler);
  std::string asked = job_id;
  if (asked.empty()) {
    ListRequest running;
    running.add_states(RUNNING);
    running.set_limit(1);
    const auto jobs = client.List(running);
    if (!jobs.ok()) return console.PrintError(jobs.status());
    if (jobs->jobs().empty()) {
      return console.PrintError(absl::NotFoundError("no job is running"));
    }
    asked = jobs->jobs(0).job_id();
  }
  const auto tables = client.GetTables(asked);
  if (!tables.ok()) return console.PrintError(tables.status());
  if (console.json) {
    console.PrintJson(*tables);
  } else {
    console.out << TablesText(*tables) << std::flush;
  }
  return kExitOk;
}

int RunCluster(const std::string& scheduler, const Console& console) {
  const auto cluster = JobsClient(scheduler).GetCluster();
  if (!cluster.ok()) return console.PrintError(cluster.status());
  if (console.json) {
    console.PrintJson(*cluster);
  } else {
    console.out << ClusterTable(*cluster) << std::flush;
  }
  return kExitOk;
}

std::string RandomClientKey() {
  return absl::StrCat("synctl-", absl::Hex(EntropySeed(), absl::kZeroPad16),
                      absl::Hex(EntropySeed(), absl::kZeroPad16));
}

absl::Status DownloadArtifacts(JobsClient* client, const JobStatus& job,
                               const std::vector<std::string>& names,
                               const std::string& to, const Console& console,
                               InterruptSignals* interrupts) {
  SYNCLINE_ASSIGN_OR_RETURN(const auto artifacts, ChooseArtifacts(job, names));
  for (const Artifact& artifact : artifacts) {
    SYNCLINE_RETURN_IF_ERROR(CheckStaysInside(artifact.name()));
    const std::filesystem::path file =
        std::filesystem::path(to) / artifact.name();
    SYNCLINE_RETURN_IF_ERROR(MakeDirs(file.parent_path().string()));
    RemoveParts(file.string());
    SYNCLINE_RETURN_IF_ERROR(Annotate(
        client->Download(job.job_id(), artifact, file.string(),
                         ShowTransfer(artifact.name(), console, interrupts)),
        artifact.name()));
    if (console.json) {
      google::protobuf::Struct object;
      SetField(&object, "artifact", artifact.name());
      SetField(&object, "file", file.string());
      console.PrintJson(object);
    } else {
      console.out << file.string() << "  " << FormatBytes(artifact.size_bytes())
                  << std::endl;
    }
  }
  return absl::OkStatus();
}

JobsClient::Transferred ShowTransfer(const std::string& what,
                                     const Console& console,
                                     InterruptSignals* interrupts) {
  return [=, &console, last_percent = uint64_t{0}](uint64_t done,
                                                   uint64_t total) mutable {
    if (console.live && total >= kLargeBytes) {
      const uint64_t percent = 100 * done / total;
      if (percent != last_percent || done == total) {
        console.PrintLive("\r\033[K");
        if (done < total) {
          console.out << what << "  " << percent << "%  " << FormatBytes(done)
                      << " of " << FormatBytes(total);
        }
        console.out << std::flush;
        last_percent = percent;
      }
    }
    return !interrupts->Take();
  };
}

}  // namespace syncline::ctl
