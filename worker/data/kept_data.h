#ifndef SYNCLINE_WORKER_DATA_KEPT_DATA_H_
#define SYNCLINE_WORKER_DATA_KEPT_DATA_H_

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/mutex.h"
#include "proto/scheduler.pb.h"
#include "worker/data/dataset.h"

namespace syncline::worker {

// The data that a worker has read for a job, for the job's next attempt: after
// a loss the members that are left need not read them again. It has the data of
// one job at a time. A data set that is forgotten is freed, by the thread that
// forgets it, unless an attempt still uses it. Thread-safe; calls do not wait
// for that.
class KeptData {
 public:
  struct Source {
    std::shared_ptr<const Dataset> dataset;
    DataFingerprint::Source print;
  };

  // From here on data of `job_id` are kept, and those of another job forgotten.
  void Begin(absl::string_view job_id) ABSL_LOCKS_EXCLUDED(mu_);
  // Forgets what was kept, unless it is another job's; nothing more is kept
  // until Begin.
  void Forget(absl::string_view job_id) ABSL_LOCKS_EXCLUDED(mu_);
  void ForgetAll() ABSL_LOCKS_EXCLUDED(mu_);

  // Returns the source that was kept of a field of the job ("data.train") if it
  // is of this version, which is all that the data set is made from. One of
  // another version is forgotten: its memory is needed for what is to be read.
  std::optional<Source> Find(absl::string_view job_id, const std::string& field,
                             absl::string_view version)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Replaces what was kept of the field. Nothing is kept of a job that has not
  // begun, or was forgotten.
  void Keep(absl::string_view job_id, const std::string& field,
            const std::string& version, Source source) ABSL_LOCKS_EXCLUDED(mu_);
  // Forgets the sources that the attempt does not use.
  void KeepOnly(absl::string_view job_id, absl::Span<const std::string> fields)
      ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Versioned {
    std::string version;
    Source source;
  };
  using Sources = std::map<std::string, Versioned>;  // by field
  // Returns what was kept, to be freed behind the lock: that takes a while.
  Sources Take(absl::string_view next_job_id)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  mutable Mutex mu_;
  std::string job_id_ ABSL_GUARDED_BY(mu_);  // empty: nothing is kept
  Sources sources_ ABSL_GUARDED_BY(mu_);
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_DATA_KEPT_DATA_H_
