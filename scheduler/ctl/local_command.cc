#include "scheduler/ctl/local_command.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/checkpoint_folder.h"
#include "common/job/elastic_validator.h"
#include "common/job/job_spec_validator.h"
#include "common/system/file.h"
#include "google/protobuf/struct.pb.h"
#include "scheduler/ctl/commands.h"
#include "scheduler/ctl/folder_claim.h"
#include "scheduler/ctl/interrupt_signals.h"
#include "scheduler/ctl/jobs_client.h"
#include "scheduler/ctl/local_cluster.h"
#include "scheduler/ctl/local_end.h"
#include "scheduler/ctl/start_command.h"
#include "scheduler/ctl/text/exit_codes.h"
#include "scheduler/ctl/text/job_text.h"
#include "scheduler/ctl/text/weights_text.h"
#include "scheduler/ctl/watch.h"

namespace syncline::ctl {
namespace {

namespace fs = std::filesystem;

constexpr absl::Duration kRegisterTimeout = absl::Seconds(30);
constexpr absl::Duration kPollInterval = absl::Milliseconds(50);
constexpr absl::Duration kGrace = absl::Seconds(5);
// The first job of a scheduler with no state, as that of each run is.
constexpr char kJobId[] = "j-0001";

// A folder of its own for each run: one that has files already belongs to
// another.
absl::StatusOr<std::string> MakeOutDir(const LocalOptions& options,
                                       const std::string& job_name) {
  if (!options.out_dir.empty()) return MakeNumberedDir(options.out_dir);
  const std::string stem = absl::StrCat(
      "syncline-out/", job_name, "-",
      absl::FormatTime("%Y%m%d-%H%M%S", absl::Now(), absl::LocalTimeZone()));
  SYNCLINE_RETURN_IF_ERROR(MakeDirs("syncline-out"));
  for (int attempt = 1;; ++attempt) {
    const std::string path =
        attempt == 1 ? stem : absl::StrCat(stem, "-", attempt);
    std::error_code error;
    if (fs::create_directory(path, error)) return path;
    if (error) return FileError(error.value(), "create", path);
  }
}

// "" for what is no result: the model as it was submitted, logs, profiles.
const char* ResultTitle(absl::string_view artifact) {
  if (artifact == "trained.onnx") return "trained model";
  if (artifact == "best.onnx") return "best model";
  if (absl::EndsWith(artifact, ".safetensors")) {
    return absl::StartsWith(artifact, "tables/") ? "table" : "weights";
  }
  if (artifact == "metrics.json") return "metrics";
  if (artifact == "history.csv") return "history";
  return "";
}

int ThreadsPerWorker(const LocalOptions& options, int workers) {
  if (options.threads > 0) return options.threads;
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  return std::max(1, cores / (workers + (options.evaluator ? 1 : 0)));
}

absl::Status CheckEvaluator(const LocalOptions& options, const JobSpec& spec) {
  if (options.evaluator && !spec.data().has_test()) {
    return absl::InvalidArgumentError(
        "--evaluator: the job has no data.test, so there is nothing to "
        "evaluate");
  }
  if (!options.evaluator && spec.evaluate().checkpoints()) {
    return absl::InvalidArgumentError(
        "evaluate.checkpoints: needs an evaluator; start one with --evaluator");
  }
  return absl::OkStatus();
}

// Does the job go on from a checkpoint that lies in `folder`?
bool GoesOnFrom(const StartSpec& start, const fs::path& folder) {
  if (start.checkpoint().empty() || start.weights_only()) return false;
  fs::path checkpoint(start.checkpoint());
  if (!checkpoint.has_filename()) checkpoint = checkpoint.parent_path();
  std::error_code error;
  return fs::equivalent(checkpoint.parent_path(), folder, error) && !error;
}

// A run that goes on comes to the clocks of later checkpoints again.
absl::Status CheckIsTheLast(const StartSpec& start, const fs::path& folder) {
  SYNCLINE_ASSIGN_OR_RETURN(const std::vector<CheckpointFolder> all,
                            ListCheckpoints(folder.string()));
  for (const CheckpointFolder& later : all) {
    if (later.name.clock <= start.clock() || !later.manifest.ok()) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "checkpoint.directory: ", later.path, " is later than clock ",
        start.clock(),
        ", where this run begins, and would be written over; go on from the "
        "last one, choose another folder, or delete those behind it (synctl "
        "checkpoints delete)"));
  }
  return absl::OkStatus();
}

// Each run's job has the same id, so a second one in a folder would write over
// the checkpoints of the first.
absl::Status CheckCheckpointFolder(const JobSpec& spec) {
  if (!spec.has_checkpoint()) return absl::OkStatus();
  const std::string& directory = spec.checkpoint().directory();
  if (directory.empty()) {
    return absl::InvalidArgumentError(
        "checkpoint.directory: is required in synctl local; set it to the "
        "absolute path of a folder for the checkpoints");
  }
  const fs::path folder = fs::path(directory) / kJobId;
  std::error_code error;
  const bool has_files =
      fs::exists(folder, error) && !fs::is_empty(folder, error);
  if (error) return FileError(error.value(), "read", folder.string());
  if (!has_files) return absl::OkStatus();
  if (GoesOnFrom(spec.start(), folder)) {
    return CheckIsTheLast(spec.start(), folder);
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "checkpoint.directory: ", folder.string(),
      " has files of another run, and this one would write over them; choose "
      "another folder, or go on from a checkpoint there with start { "
      "checkpoint: \"",
      folder.string(), "/...\" }"));
}

// One run of one job.
class LocalRun {
 public:
  LocalRun(const LocalOptions& options, const Console& console)
      : options_(options), console_(console) {}

  absl::StatusOr<int> Run() {
    auto job = LoadJobFile(options_.job_file, options_.size, options_.planner);
    if (!job.ok()) {
      console_.PrintError(job.status());
      return kExitFailed;  // whatever the code: the file is at fault
    }
    job_ = *std::move(job);
    const absl::Status prepared =
        PrepareLocalJob(options_, job_.model_file, &job_.spec, &job_.notes);
    for (const std::string& note : job_.notes) Say(note);
    SYNCLINE_RETURN_IF_ERROR(prepared);
    SYNCLINE_RETURN_IF_ERROR(ClaimCheckpoints());
    PrintWeights(job_.training, console_);
    SYNCLINE_ASSIGN_OR_RETURN(out_dir_, MakeOutDir(options_, job_.spec.name()));
    if (!options_.out_dir.empty() && out_dir_ != options_.out_dir) {
      Say(absl::StrCat(options_.out_dir,
                       " has files of another run; this one's "
                       "go to ",
                       out_dir_));
    }
    SYNCLINE_ASSIGN_OR_RETURN(cluster_, StartCluster());
    JobsClient client(cluster_->scheduler_address());
    SYNCLINE_RETURN_IF_ERROR(AwaitMembers(&client));
    Say(
        absl::StrCat("the cluster is there; synctl get, profile, tables and "
                     "the like reach it with --scheduler ",
                     cluster_->scheduler_address()));
    SYNCLINE_ASSIGN_OR_RETURN(
        const SubmitResponse submitted,
        client.Submit(job_.spec, job_.model_file, RandomClientKey(),
                      ShowTransfer("model", console_, &interrupts_),
                      /*trace_id=*/"", job_.weights_file));
    const std::string& job_id = submitted.job_id();
    const auto end = WatchOnConsole(&client, job_id, console_, &interrupts_,
                                    [&](const JobStatus& latest) {
                                      return OnIdle(&client, job_id, latest);
                                    });
    if (!end.ok()) return WhyTheWatchEnded(end.status());
    return Report(&client, *end);
  }

  // After Run, whatever it returned: no process and no scratch file is left.
  void TearDown() {
    if (cluster_ != nullptr) cluster_->Stop(kGrace);
    if (options_.keep || out_dir_.empty()) return;
    if (const std::string kept = KeptResults(); !kept.empty()) {
      console_.err
          << "synctl: results that the scheduler could not store are in "
          << kept << std::endl;
      return;
    }
    RemoveTree(RunDir()).IgnoreError();
  }

 private:
  // A folder that a worker has left; empty: none.
  std::string KeptResults() const {
    std::error_code error;
    for (fs::recursive_directory_iterator it(RunDir(), error), end;
         !error && it != end; it.increment(error)) {
      if (absl::StartsWith(it->path().filename().string(),
                           "syncline-results-")) {
        return it->path().string();
      }
    }
    return "";
  }
  std::string RunDir() const { return absl::StrCat(out_dir_, "/run"); }
  std::string LogDir() const { return absl::StrCat(out_dir_, "/logs"); }

  absl::StatusOr<std::unique_ptr<LocalCluster>> StartCluster() {
    SYNCLINE_RETURN_IF_ERROR(MakeDirs(RunDir()));
    SYNCLINE_RETURN_IF_ERROR(MakeDirs(LogDir()));
    const ResourcesSpec resources = WithDefaults(job_.spec).resources();
    LocalCluster::Options cluster;
    cluster.binary_dir = options_.binary_dir;
    cluster.run_dir = RunDir();
    cluster.log_dir = LogDir();
    cluster.data_root =
        options_.data_root.empty()
            ? fs::absolute(options_.job_file).parent_path().string()
            : fs::absolute(options_.data_root).string();
    cluster.bounds_data = options_.bounds_data;
    cluster.workers = static_cast<int>(resources.workers());
    cluster.ps = static_cast<int>(resources.ps());
    cluster.evaluator = options_.evaluator;
    cluster.threads_per_worker = ThreadsPerWorker(options_, cluster.workers);
    Say(absl::StrCat("starting a cluster of ",
                     cluster.ps > 0 ? absl::StrCat(cluster.ps, " ps") : "no ps",
                     cluster.evaluator ? ", an evaluator" : "", " and ",
                     FormatAmount(cluster.workers, "worker"), " (",
                     FormatAmount(cluster.threads_per_worker, "thread"),
                     " each)"));
    return LocalCluster::Start(cluster, &interrupts_);
  }

  // Waits until all daemons have registered, so that the cluster is whole when
  // the job is submitted.
  absl::Status AwaitMembers(JobsClient* client) {
    const absl::Time deadline = MonotonicNow() + kRegisterTimeout;
    for (;;) {
      SYNCLINE_RETURN_IF_ERROR(cluster_->CheckAlive());
      const auto cluster = client->GetCluster();
      if (cluster.ok() && cluster->members_size() == cluster_->member_count()) {
        return CheckGpus(*cluster);
      }
      if (MonotonicNow() > deadline) {
        return absl::UnavailableError(absl::StrCat(
            "not all daemons registered within ",
            absl::FormatDuration(kRegisterTimeout), "; see ", LogDir()));
      }
      if (interrupts_.WaitFor(kPollInterval)) {
        return absl::CancelledError("interrupted");
      }
    }
  }

  // No other member joins this cluster: a job for GPUs that it has not would
  // wait for ever.
  absl::Status CheckGpus(const ClusterStatus& cluster) const {
    if (job_.spec.resources().device() != ResourcesSpec::CUDA) {
      return absl::OkStatus();
    }
    int workers = 0;
    int with_gpu = 0;
    for (const ClusterStatus::Entry& entry : cluster.members()) {
      const TaskType type = entry.member().task().type();
      if (type != CHIEF && type != WORKER) continue;
      ++workers;
      with_gpu += entry.member().has_gpu() ? 1 : 0;
    }
    if (with_gpu == workers) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrCat(
        "resources.device: CUDA, but ", with_gpu, " of ",
        FormatAmount(static_cast<uint64_t>(workers), "worker"),
        " on this machine found a GPU to compute on; ", LogDir(),
        " says why. --set resources.device=CPU computes on processors"));
  }

  void Say(const std::string& line) const {
    if (!console_.json) console_.out << line << std::endl;
  }

  absl::Status OnIdle(JobsClient* client, const std::string& job_id,
                      const JobStatus& latest) {
    if (interrupts_.Take()) {
      if (end_.interrupted()) return absl::CancelledError("killed");
      end_.Interrupt(MonotonicNow());
      console_.err << "\ncancelling " << job_id
                   << "; Ctrl-C again kills the cluster at once" << std::endl;
      // A job that has just ended cannot be cancelled; the watch will tell.
      client->Cancel(job_id, "interrupted by the user").status().IgnoreError();
    }
    if (!latest.checkpoints().empty()) {
      last_checkpoint_ = latest.checkpoints().rbegin()->path();
    }
    for (const JobStatus::Lost& lost : latest.lost_workers()) {
      if (lost.rank() >= static_cast<uint32_t>(latest.workers_size())) continue;
      left_out_.insert(LocalCluster::NameOf(
          latest.workers(static_cast<int>(lost.rank())).member().task()));
    }
    end_.SetAlive(cluster_->CheckAlive(left_out_), MonotonicNow());
    return end_.Check(latest.state(), MonotonicNow());
  }

  // Two runs in one folder would write the same files. It is looked at again
  // once it is this run's.
  absl::Status ClaimCheckpoints() {
    if (!job_.spec.has_checkpoint()) return absl::OkStatus();
    SYNCLINE_ASSIGN_OR_RETURN(
        checkpoints_claim_,
        FolderClaim::Take(
            (fs::path(job_.spec.checkpoint().directory()) / kJobId).string()));
    return CheckCheckpointFolder(job_.spec);
  }

  // A lost scheduler is better told by how it died than by a broken stream.
  absl::Status WhyTheWatchEnded(const absl::Status& status) {
    if (end_.interrupted() || absl::IsCancelled(status)) {
      return absl::CancelledError("interrupted; the cluster is torn down");
    }
    const absl::Status alive = cluster_->CheckAlive(left_out_);
    if (alive.ok()) return status;
    // Worth a retry, like any other daemon of the job that has ended.
    return absl::AbortedError(absl::StrCat(alive.message(), HowToGoOn()));
  }

  // Empty: there is no checkpoint to go on from.
  std::string HowToGoOn() const {
    if (last_checkpoint_.empty()) return "";
    return absl::StrCat(
        "\nthe job goes on from its last checkpoint with start { checkpoint: "
        "\"",
        last_checkpoint_, "\" } in its job file");
  }

  absl::StatusOr<int> Report(JobsClient* client, const JobStatus& job) {
    const int code = PrintOutcome(job, console_);
    SYNCLINE_ASSIGN_OR_RETURN(const FolderClaim claim,
                              FolderClaim::Take(out_dir_));
    const absl::Status fetched =
        DownloadArtifacts(client, job, {}, out_dir_, Quiet(), &interrupts_);
    if (job.state() == SUCCEEDED) {
      SYNCLINE_RETURN_IF_ERROR(fetched);
      SayResults(job);
    }
    Say(absl::StrCat("  logs           ", LogDir(), "/"));
    if (console_.json) PrintFiles(job);
    return end_.interrupted() ? kExitCancelled : code;
  }

  void SayResults(const JobStatus& job) const {
    for (const Artifact& artifact : job.artifacts()) {
      const char* const title = ResultTitle(artifact.name());
      if (*title == '\0') continue;
      Say(absl::StrFormat("  %-13s  %s/%s", title, out_dir_, artifact.name()));
    }
  }

  void PrintFiles(const JobStatus& job) const {
    google::protobuf::Struct object;
    SetField(&object, "out_dir", out_dir_);
    SetField(&object, "log_dir", LogDir());
    if (job.state() == SUCCEEDED) {
      SetField(&object, "trained_model",
               absl::StrCat(out_dir_, "/trained.onnx"));
      auto* const files =
          (*object.mutable_fields())["results"].mutable_list_value();
      for (const Artifact& artifact : job.artifacts()) {
        if (*ResultTitle(artifact.name()) == '\0') continue;
        files->add_values()->set_string_value(
            absl::StrCat(out_dir_, "/", artifact.name()));
      }
    }
    console_.PrintJson(object);
  }

  // The files are named once, at the end, not one by one.
  Console Quiet() {
    return Console{.out = nowhere_, .err = console_.err, .json = false};
  }

  const LocalOptions& options_;
  const Console& console_;
  std::ostream nowhere_{nullptr};
  InterruptSignals interrupts_;
  JobFile job_;
  std::optional<FolderClaim> checkpoints_claim_;
  std::string out_dir_;
  std::unique_ptr<LocalCluster> cluster_;
  std::string last_checkpoint_;  // empty: none is known
  // Daemons that the job has gone on without. Later attempts do, too.
  std::set<std::string> left_out_;
  LocalEnd end_;
};

}  // namespace

absl::Status PrepareLocalJob(const LocalOptions& options,
                             const std::string& model_file, JobSpec* spec,
                             std::vector<std::string>* notes) {
  SYNCLINE_RETURN_IF_ERROR(CheckEvaluator(options, *spec));
  // Without --from it asks no scheduler.
  SYNCLINE_RETURN_IF_ERROR(
      FillStart(nullptr, StartOptions{.model_file = model_file}, spec, notes));
  SYNCLINE_RETURN_IF_ERROR(CheckCheckpointFolder(*spec));
  if (spec->has_restart()) {
    notes->push_back(absl::StrCat(
        "warning: restart: synctl local starts no process again; ",
        OutlivesWorkers(WithDefaults(*spec))
            ? "a lost worker is left out, down to resources.min_workers; when "
              "another process is "
            : "when one is ",
        "lost, it ends and says how to go on"));
  }
  return absl::OkStatus();
}

int RunLocal(const LocalOptions& options, const Console& console) {
  LocalRun run(options, console);
  const auto code = run.Run();
  run.TearDown();
  return code.ok() ? *code : console.PrintError(code.status());
}

}  // namespace syncline::ctl
