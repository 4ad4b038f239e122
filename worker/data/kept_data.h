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
// a loss the members that are left need not read them again. Of one job at a
// time. Thread-safe.
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

  // What was kept of that version. `field` is the source's name in the job,
  // "data.train"; `version` is all that the dataset is made from. Another
  // version is forgotten: its memory is needed for what is to be read.
  std::optional<Source> Find(absl::string_view job_id, const std::string& field,
                             absl::string_view version)
      ABSL_LOCKS_EXCLUDED(mu_);
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
  // Out of the lock: large data take a while to free.
  using Sources = std::map<std::string, Versioned>;  // by field
  Sources Take(absl::string_view next_job_id)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  mutable Mutex mu_;
  std::string job_id_ ABSL_GUARDED_BY(mu_);  // empty: nothing is kept
  Sources sources_ ABSL_GUARDED_BY(mu_);
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_DATA_KEPT_DATA_H_
