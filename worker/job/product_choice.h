#ifndef SYNCLINE_WORKER_JOB_PRODUCT_CHOICE_H_
#define SYNCLINE_WORKER_JOB_PRODUCT_CHOICE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/system/memory_claim.h"
#include "kernels/device/product_table.h"

namespace syncline {
class Device;
class ProductTuner;
}  // namespace syncline

namespace syncline::worker {

// How a worker chooses the algorithms of its GPU's matrix products.
struct ProductTuning {
  // A chief measures those of its job. Else all are the library's first choice.
  bool measures = false;
  // Keeps what was measured, for other jobs; empty: nothing is kept.
  std::string file = {};
  absl::Duration time_max = absl::Seconds(20);  // of a job
};

// The algorithms of matrix products of one job on one worker: the chief's
// choice, which all of the job's workers follow. Its table is an artifact of
// the job, kProductsArtifact, so that later attempts follow it, too. One
// thread.
class ProductChoice {
 public:
  // `gpu` outlives this; null, or one without a tuner: all of this does
  // nothing. It is not asked for its tuner, which loads a library, before
  // Begin.
  ProductChoice(Device* gpu, std::string job_id, ProductTuning tuning);

  // Whether there is something to choose. Not before Begin.
  bool exists() const { return tuner_ != nullptr; }

  // Before the job's executor is made: its products are the library's first
  // choice. Errors: Internal: the library failed.
  absl::Status Begin();
  // A table that the job has, of the chief of this attempt or the one before.
  // One that is damaged, or of another GPU or library, is told in the log, and
  // nothing changes; a chief's products then are chosen anew (Measure).
  // `is_chief`: this worker is the job's. Errors: Internal: the library failed.
  absl::Status Follow(absl::string_view text, bool is_chief);
  // The chief's: measures what no table has, and keeps it in the file. The text
  // is for the job. Errors: those of `go_on`, and of the GPU.
  absl::StatusOr<std::string> Measure(const GoOnCheck& go_on);

 private:
  // Empty if there is none, or none of use, which the log says.
  ProductTable ReadKept() const;
  void Keep(const ProductTable& kept, ProductTable chosen) const;

  Device* const gpu_;
  ProductTuner* tuner_ = nullptr;  // Begin's
  const std::string job_id_;
  const ProductTuning tuning_;
};

inline constexpr char kProductsArtifact[] = "product-algorithms.txt";

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_JOB_PRODUCT_CHOICE_H_
