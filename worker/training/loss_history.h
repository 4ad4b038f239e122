#ifndef SYNCLINE_WORKER_TRAINING_LOSS_HISTORY_H_
#define SYNCLINE_WORKER_TRAINING_LOSS_HISTORY_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "worker/data/epochs.h"
#include "worker/export/event_file.h"

namespace syncline::worker {

// The chief's training loss over a job, for history.csv: of its own part of
// each batch, because no worker has the others' losses. Bounded: where there
// are too many points, neighbours become one, with the mean over the samples of
// both. Thread-compatible.
class LossHistory {
 public:
  // REQUIRES: points_max is even and at least 2.
  explicit LossHistory(size_t points_max = 4096) : points_max_(points_max) {}

  // Step `clock`, after those before it, was closed with `samples`, of which
  // `loss_sum` is the loss. `loss_scale`: that it was computed with; 0: none.
  // `took`: from the begin of the step to that of the next one.
  void Add(int64_t clock, uint64_t samples, double loss_sum,
           double loss_scale = 0, absl::Duration took = absl::ZeroDuration());

  // A line of names, then one line per point, in order:
  //   clock          steps closed at the point's end
  //   epoch          that its last step is in, from 1
  //   chief_samples  that the chief has trained on up to there
  //   chief_loss     its mean per sample over the point's steps; empty: no
  //                  samples
  //   learning_rate  of its last step, as rate(clock of the step) says
  //   loss_scale     of its last step; the column is left out of a job that has
  //                  no loss scale
  std::string Csv(const Epochs& epochs,
                  const std::function<double(int64_t clock)>& rate) const;

  // The same points; the last step was closed at `end`, by the wall clock.
  std::vector<HistoryPoint> Points(
      const std::function<double(int64_t clock)>& rate, absl::Time end) const;

 private:
  struct Point {
    int64_t last_clock = 0;
    uint64_t samples = 0;
    double loss_sum = 0;
    double loss_scale = 0;
    absl::Duration took;
    void Add(const Point& later);
  };
  void Thin();

  const size_t points_max_;
  int64_t steps_per_point_ = 1;
  int64_t steps_in_last_ = 0;
  std::vector<Point> points_;
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_TRAINING_LOSS_HISTORY_H_
