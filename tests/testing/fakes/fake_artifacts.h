#ifndef SYNCLINE_TESTS_TESTING_FAKES_FAKE_ARTIFACTS_H_
#define SYNCLINE_TESTS_TESTING_FAKES_FAKE_ARTIFACTS_H_

#include <atomic>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/cancellation.h"
#include "common/base/mutex.h"
#include "common/system/file.h"
#include "tests/testing/fakes/wait_log.h"
#include "worker/export/artifact_transfer.h"

namespace syncline {

// A scheduler's artifacts in memory, which fail or stall when told to. Files
// may be put and read by several threads. The members below are for tests in
// which calls do not overlap.
class FakeArtifacts final : public worker::ArtifactTransfer {
 public:
  absl::Status Fetch(const std::string& job_id, const JobPass&,
                     const std::string& name, const std::string& to_file,
                     absl::Time, Cancellation* cancellation) override {
    if (stalls) return Stall(cancellation);
    if (fetch_failures > 0) {
      --fetch_failures;
      return absl::UnavailableError("frozen");
    }
    MutexLock lock(&mu_);
    const auto file = files_.find(absl::StrCat(job_id, "/", name));
    if (file == files_.end()) {
      return absl::NotFoundError(absl::StrCat("no artifact ", name));
    }
    return WriteFileAtomically(to_file, file->second);
  }
  absl::Status Upload(const std::string& job_id, const JobPass& pass,
                      const std::string& name, const std::string& from_file,
                      absl::Time, Cancellation* cancellation) override {
    ++upload_attempts;
    if (stalls) return Stall(cancellation);
    if (on_upload) on_upload();
    if (upload_failures > 0) {
      --upload_failures;
      return upload_failure;
    }
    absl::StatusOr<std::string> content = ReadFile(from_file, 1ull << 30);
    if (!content.ok()) return content.status();
    Put(job_id, name, *std::move(content));
    return absl::OkStatus();
  }

  void Put(const std::string& job_id, const std::string& name,
           std::string content) {
    MutexLock lock(&mu_);
    files_[absl::StrCat(job_id, "/", name)] = std::move(content);
  }
  // By name.
  std::map<std::string, std::string> OfJob(const std::string& job_id) {
    const std::string prefix = absl::StrCat(job_id, "/");
    std::map<std::string, std::string> files;
    MutexLock lock(&mu_);
    for (const auto& [path, content] : files_) {
      if (absl::StartsWith(path, prefix)) {
        files[path.substr(prefix.size())] = content;
      }
    }
    return files;
  }

  // Nothing moves until the call is cancelled; `stalled` counts such calls.
  bool stalls = false;
  WaitLog<bool> stalled;
  int fetch_failures = 0;  // so many more fetches are Unavailable
  int upload_failures = 0;
  absl::Status upload_failure = absl::ResourceExhaustedError("disk full");
  std::function<void()> on_upload = nullptr;  // in each upload
  std::atomic<int> upload_attempts{0};

 private:
  absl::Status Stall(Cancellation* cancellation) {
    WaitLog<bool> ended;
    const Cancellation::Scope scope(cancellation, [&] { ended.Add(true); });
    stalled.Add(true);
    return ended.Await(1).empty() ? absl::DeadlineExceededError("not ended")
                                  : absl::CancelledError("ended");
  }

  Mutex mu_;
  std::map<std::string, std::string> files_ ABSL_GUARDED_BY(mu_);
};

}  // namespace syncline

#endif  // SYNCLINE_TESTS_TESTING_FAKES_FAKE_ARTIFACTS_H_
