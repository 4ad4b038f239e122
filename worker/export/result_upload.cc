#include "worker/export/result_upload.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/clock.h"
#include "common/base/fault_points.h"
#include "common/base/random.h"
#include "common/base/status_macros.h"
#include "common/job/kept_results.h"
#include "common/system/file.h"
#include "common/system/log.h"
#include "common/system/periodic_task.h"
#include "worker/export/file_growth.h"

namespace syncline::worker {
namespace {

// Even a slow network moves a megabyte a second.
absl::Duration UploadTimeout(uint64_t bytes) {
  return absl::Seconds(30 + static_cast<double>(bytes) * 1e-6);
}

// No later attempt would fare better.
bool IsFinal(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kFailedPrecondition:  // the job is not ours any more
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
    case absl::StatusCode::kUnimplemented:
      return true;
    default:
      return false;
  }
}

absl::Status MakeParent(const std::string& path) {
  return MakeDirs(std::filesystem::path(path).parent_path().string());
}

}  // namespace

ResultUpload::ResultUpload(Options options, ArtifactTransfer* artifacts,
                           std::function<void(const std::string&)> on_activity)
    : options_(std::move(options)),
      artifacts_(artifacts),
      on_activity_(std::move(on_activity)) {}

ResultUpload::~ResultUpload() {
  if (!kept_) return;
  if (dropped()) {
    RemoveTree(options_.kept_folder).IgnoreError();
    return;
  }
  // Folders that have files stay.
  for (const char* const part : {"tables", "tensorboard", "logs"}) {
    rmdir(absl::StrCat(options_.kept_folder, "/", part).c_str());
  }
  rmdir(options_.kept_folder.c_str());
}

absl::Status ResultUpload::Put(const std::string& name, const Write& write) {
  SYNCLINE_RETURN_IF_ERROR(WriteFile(name, write));
  return Upload(name);
}

absl::Status ResultUpload::Finish() const {
  if (unstored_.empty() || dropped()) return absl::OkStatus();
  return Annotate(last_failure_,
                  absl::StrCat(kNotStored, absl::StrJoin(unstored_, ", "),
                               "; kept on ", options_.hostname, " in ",
                               kept_ ? options_.kept_folder : options_.folder));
}

void ResultUpload::Stop() {
  {
    MutexLock lock(&mu_);
    stopped_ = true;
    changed_.SignalAll();
  }
  cancellation_.Cancel();
}

void ResultUpload::Drop() {
  {
    MutexLock lock(&mu_);
    dropped_ = true;
  }
  Stop();
}

bool ResultUpload::stopped() const {
  MutexLock lock(&mu_);
  return stopped_;
}

bool ResultUpload::dropped() const {
  MutexLock lock(&mu_);
  return dropped_;
}

std::string ResultUpload::PathOf(const std::string& name) const {
  return absl::StrCat(kept_ ? options_.kept_folder : options_.folder, "/",
                      name);
}

absl::Status ResultUpload::WriteFile(const std::string& name,
                                     const Write& write) {
  for (;;) {
    if (stopped()) return absl::CancelledError("stopped");
    const absl::Status written = WriteOnce(name, write);
    if (written.ok()) return written;
    // Half a file is of no use, and takes room.
    RemoveTree(PathOf(name)).IgnoreError();
    LogWarning("a result cannot be written")
        .Job(options_.job_id)
        .Field("name", name)
        .Field("path", PathOf(name))
        .Status(written);
    if (!absl::IsResourceExhausted(written) ||
        !Pause(name, Whereabouts::kInMemory, written)) {
      return stopped() ? absl::CancelledError("stopped")
                       : Annotate(written, absl::StrCat("writing ", name));
    }
  }
}

absl::Status ResultUpload::WriteOnce(const std::string& name,
                                     const Write& write) {
  const std::string path = PathOf(name);
  SYNCLINE_RETURN_IF_ERROR(MakeParent(path));
  const std::string folder = std::filesystem::path(path).parent_path().string();
  const uint64_t before = BytesIn(folder);
  std::optional<uint64_t> said;
  const PeriodicTask says("results", options_.say_period, [&] {
    const uint64_t now = BytesIn(folder);
    const uint64_t bytes = now - std::min(now, before);
    if (said.has_value() && bytes <= *said) return;
    said = bytes;
    Say(absl::StrCat("writing ", name, ", ", bytes, " bytes so far"));
  });
  return write(path);
}

absl::Status ResultUpload::Upload(const std::string& name) {
  for (;;) {
    if (stopped()) return absl::CancelledError("stopped");
    const absl::Status uploaded = UploadOnce(name);
    if (uploaded.ok()) {
      OnStored();
      return RemoveTree(PathOf(name));
    }
    if (dropped()) return absl::CancelledError("stopped");
    Keep();
    LogWarning("result not stored")
        .Job(options_.job_id)
        .Field("name", name)
        .Field("kept_as", PathOf(name))
        .Status(uploaded);
    if (IsFinal(uploaded) || !Pause(name, Whereabouts::kInFile, uploaded)) {
      if (dropped()) return absl::CancelledError("stopped");
      GiveUp(name, uploaded);
      return stopped() ? absl::CancelledError("stopped") : absl::OkStatus();
    }
  }
}

absl::Status ResultUpload::UploadOnce(const std::string& name) {
  const std::string path = PathOf(name);
  SYNCLINE_ASSIGN_OR_RETURN(const uint64_t bytes, FileSize(path));
  const absl::Duration timeout = UploadTimeout(bytes);
  const absl::Time deadline = MonotonicNow() + timeout;
  const PeriodicTask says("results", options_.say_period, [&] {
    const absl::Duration left = deadline - MonotonicNow();
    Say(absl::StrCat(
        "storing ", name, ", ", bytes, " bytes, for ",
        absl::FormatDuration(absl::Trunc(timeout - left, absl::Seconds(1))),
        " of at most ", absl::FormatDuration(timeout),
        kept_ ? absl::StrCat("; it is on ", options_.hostname, " as ", path)
              : ""));
  });
  SYNCLINE_RETURN_IF_ERROR(AtFaultPoint(FaultPoint::kResultUpload));
  return artifacts_->Upload(options_.job_id, options_.pass, name, path,
                            deadline, &cancellation_);
}

// Out of the folder that is removed with the job.
void ResultUpload::Keep() {
  if (kept_) return;
  const absl::Status made = MakeParent(options_.kept_folder);
  kept_ = made.ok() && std::rename(options_.folder.c_str(),
                                   options_.kept_folder.c_str()) == 0;
  if (kept_) return;
  LogWarning("results cannot be kept beyond the job")
      .Job(options_.job_id)
      .Field("folder", options_.folder)
      .Field("wanted", options_.kept_folder);
}

void ResultUpload::GiveUp(const std::string& name, const absl::Status& why) {
  LogError("result given up")
      .Job(options_.job_id)
      .Field("name", name)
      .Field("kept_on", options_.hostname)
      .Field("kept_as", PathOf(name))
      .Status(why);
  unstored_.push_back(name);
  last_failure_ = why;
}

bool ResultUpload::Pause(const std::string& name, Whereabouts whereabouts,
                         const absl::Status& why) {
  const absl::Time now = MonotonicNow();
  if (failures_ == 0) give_up_at_ = now + options_.limit;
  Random random(EntropySeed());
  const absl::Time next =
      now + BackoffDelay(options_.backoff, failures_++, random.Uniform());
  SayWaiting(name, whereabouts, why, now);
  const bool is_worth_it = next < give_up_at_;
  absl::Time say_at = now + options_.say_period;
  while (is_worth_it) {
    {
      MutexLock lock(&mu_);
      while (!stopped_ && MonotonicNow() < std::min(next, say_at)) {
        changed_.WaitUntil(&mu_, std::min(next, say_at));
      }
      if (stopped_) return false;
    }
    if (MonotonicNow() >= next) return true;
    say_at = MonotonicNow() + options_.say_period;
    SayWaiting(name, whereabouts, why, MonotonicNow());
  }
  return false;
}

void ResultUpload::SayWaiting(const std::string& name, Whereabouts whereabouts,
                              const absl::Status& why, absl::Time now) {
  const std::string path = PathOf(name);
  const std::string left = absl::StrCat(
      "given up in ", absl::FormatDuration(absl::Trunc(
                          std::max(give_up_at_ - now, absl::ZeroDuration()),
                          absl::Seconds(1))));
  switch (whereabouts) {
    case Whereabouts::kInMemory:
      return Say(absl::StrCat(
          name, " is in memory alone, as it cannot be written on ",
          options_.hostname, ": make room in ",
          std::filesystem::path(path).parent_path().string(),
          " and leave the job's processes running; it is tried again (", left,
          "): ", why.message()));
    case Whereabouts::kInFile:
      return Say(absl::StrCat(name, " is on ", options_.hostname, " as ", path,
                              " until the scheduler has it (", left,
                              "): ", why.message()));
  }
}

void ResultUpload::Say(const std::string& activity) {
  has_said_ = true;
  on_activity_(activity);
}

void ResultUpload::OnStored() {
  if (has_said_) on_activity_("");
  has_said_ = false;
  failures_ = 0;
}

}  // namespace syncline::worker
