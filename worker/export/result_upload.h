#ifndef SYNCLINE_WORKER_EXPORT_RESULT_UPLOAD_H_
#define SYNCLINE_WORKER_EXPORT_RESULT_UPLOAD_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/backoff.h"
#include "common/base/cancellation.h"
#include "common/base/mutex.h"
#include "worker/export/artifact_transfer.h"

namespace syncline::worker {

// The results of a job on their way from this process to the scheduler. A file
// stays here until the scheduler has it: a failed attempt is repeated, with
// growing pauses, until it succeeds, the job is stopped, or nothing has been
// stored for `limit`. Meanwhile it reports its activity. A report is repeated
// only with more progress: a write that hangs is not reported again. From
// the first failure on the files lie in `kept_folder`, and those that were
// never stored stay there when the process ends, unless they are dropped. Used
// by one thread; Stop and Drop from any.
class ResultUpload {
 public:
  struct Options {
    std::string job_id;
    JobPass pass = {};
    std::string hostname;     // of this process, for people
    std::string folder;       // made when needed; the caller removes it
    std::string kept_folder;  // in the same file system; made when needed
    absl::Duration limit = absl::Minutes(30);
    Backoff backoff = {.initial = absl::Seconds(1), .max = absl::Seconds(30)};
    // How often it is said what is done; a shorter step is not spoken of.
    absl::Duration say_period = absl::Seconds(2);
  };
  // Writes the file at `path`, which replaces what is there.
  using Write = std::function<absl::Status(const std::string& path)>;
  // `on_activity` is told what is written, stored or waited for, and where the
  // files are; "" when nothing is any more. It is called by the thread that
  // calls Put, and by another one while that waits. `artifacts` outlives this.
  ResultUpload(Options options, ArtifactTransfer* artifacts,
               std::function<void(const std::string&)> on_activity);
  ~ResultUpload();
  ResultUpload(const ResultUpload&) = delete;
  ResultUpload& operator=(const ResultUpload&) = delete;

  // Writes the file and stores it as the artifact `name`. A disk that is full,
  // here or there, is waited for. OK also where storing was given up: Finish
  // says so. Errors: Cancelled: stopped; those of `write`, ResourceExhausted
  // once there has been no room here for `limit`.
  absl::Status Put(const std::string& name, const Write& write);

  // OK: everything is stored. Else the last error, with the host and the path
  // of what is not.
  absl::Status Finish() const;

  // The folder where results stay that could not be stored; empty: none are.
  std::string LeftFolder() const {
    return kept_ && !unstored_.empty() && !dropped() ? options_.kept_folder
                                                     : "";
  }

  // Ends waits, and an upload that is under way. Thread-safe.
  void Stop() ABSL_LOCKS_EXCLUDED(mu_);
  // The same, and nothing stays: what is not stored is no result. Thread-safe.
  void Drop() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  std::string PathOf(const std::string& name) const;
  absl::Status WriteFile(const std::string& name, const Write& write);
  // One attempt.
  absl::Status WriteOnce(const std::string& name, const Write& write);
  // OK: stored, or given up.
  absl::Status Upload(const std::string& name);
  absl::Status UploadOnce(const std::string& name);
  void Keep();
  void GiveUp(const std::string& name, const absl::Status& why);
  // Where a result is while it is waited for.
  enum class Whereabouts { kInMemory, kInFile };
  // `why` has just happened to `name`. True: it is worth another attempt, and
  // the pause before it is over. False: stopped, or it has taken too long.
  bool Pause(const std::string& name, Whereabouts whereabouts,
             const absl::Status& why) ABSL_LOCKS_EXCLUDED(mu_);
  void OnStored();
  void Say(const std::string& activity);
  void SayWaiting(const std::string& name, Whereabouts whereabouts,
                  const absl::Status& why, absl::Time now);
  bool stopped() const ABSL_LOCKS_EXCLUDED(mu_);
  bool dropped() const ABSL_LOCKS_EXCLUDED(mu_);

  const Options options_;
  ArtifactTransfer* const artifacts_;
  const std::function<void(const std::string&)> on_activity_;
  bool kept_ = false;
  bool has_said_ = false;  // what is still to be taken back
  int failures_ = 0;       // since the last progress
  absl::Time give_up_at_ = absl::InfiniteFuture();
  std::vector<std::string> unstored_;
  absl::Status last_failure_;

  Cancellation cancellation_;  // of uploads

  mutable Mutex mu_;
  CondVar changed_;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  bool dropped_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_EXPORT_RESULT_UPLOAD_H_
