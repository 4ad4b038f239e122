#ifndef SYNCLINE_WORKER_TRAINING_CHECKPOINT_POLICY_H_
#define SYNCLINE_WORKER_TRAINING_CHECKPOINT_POLICY_H_

#include <cstdint>
#include <optional>

#include "absl/time/time.h"
#include "proto/job_spec.pb.h"

namespace syncline::worker {

// Decides when a job's chief begins a checkpoint: CheckpointSpec.every_clocks
// and every_seconds; where both are given, whichever is due. Pure: clocks and
// `now` in, a decision out. Thread-compatible.
class CheckpointPolicy {
 public:
  // `now`: the attempt begins to train. Unset fields: nothing is ever due.
  CheckpointPolicy(const CheckpointSpec& spec, absl::Time now)
      : every_clocks_(static_cast<int64_t>(spec.every_clocks())),
        every_(absl::Seconds(spec.every_seconds())),
        begun_(now) {}

  // True if a checkpoint of the state between the steps `clock` and `next` of
  // the chief is to be made.
  bool IsDue(int64_t clock, int64_t next, absl::Time now) const {
    return PointBetween(clock, next).has_value() ||
           (every_ > absl::ZeroDuration() && now - begun_ >= every_);
  }
  // The first of the clocks behind `clock`, up to `next`, that every_clocks
  // names: a checkpoint that cannot be begun there, because the one before is
  // still written, is left out, and not made up for.
  std::optional<int64_t> PointBetween(int64_t clock, int64_t next) const {
    if (every_clocks_ == 0) return std::nullopt;
    const int64_t point = (clock / every_clocks_ + 1) * every_clocks_;
    return point <= next ? std::optional<int64_t>(point) : std::nullopt;
  }
  // One was begun, or could not be: every_seconds counts from here.
  void OnBegun(absl::Time now) { begun_ = now; }

 private:
  const int64_t every_clocks_;
  const absl::Duration every_;
  absl::Time begun_;
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_TRAINING_CHECKPOINT_POLICY_H_
