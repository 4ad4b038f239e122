#ifndef SYNCLINE_WORKER_DATA_EPOCHS_H_
#define SYNCLINE_WORKER_DATA_EPOCHS_H_

#include <algorithm>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "proto/job_spec.pb.h"

namespace syncline::worker {

// How a job's clocks fall into epochs: the same on all ranks. Epoch e ends, in
// a cut, at clock (e + 1) * steps_per_epoch; the last may be cut short by
// max_clocks.
struct Epochs {
  int64_t steps_per_epoch = 0;
  int64_t clocks_total = 0;

  // REQUIRES: `training` has its defaults, steps_per_epoch > 0.
  static Epochs Of(const TrainingSpec& training, int64_t steps_per_epoch) {
    int64_t total = steps_per_epoch * static_cast<int64_t>(training.epochs());
    if (training.max_clocks() > 0 &&
        training.max_clocks() < static_cast<uint64_t>(total)) {
      total = static_cast<int64_t>(training.max_clocks());
    }
    return {steps_per_epoch, total};
  }

  // Errors: InvalidArgument: a job cannot go on with step `clock`.
  // clocks_total: nothing is left to do.
  absl::Status CheckStart(int64_t clock) const {
    if (clock >= 0 && clock <= clocks_total) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        "start_clock is ", clock, "; this job has clocks 0 to ", clocks_total,
        ": training.epochs and training.max_clocks count from clock 0"));
  }
  // The clock at which the epoch that contains step `clock` ends.
  int64_t EndOf(int64_t clock) const {
    return std::min((clock / steps_per_epoch + 1) * steps_per_epoch,
                    clocks_total);
  }
  // Epochs begun before `clock`, which is > 0: at an epoch's end, how many are
  // done, counting one that max_clocks cut short.
  uint32_t DoneAt(int64_t clock) const {
    return static_cast<uint32_t>((clock + steps_per_epoch - 1) /
                                 steps_per_epoch);
  }
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_DATA_EPOCHS_H_
