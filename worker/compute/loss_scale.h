#ifndef SYNCLINE_WORKER_COMPUTE_LOSS_SCALE_H_
#define SYNCLINE_WORKER_COMPUTE_LOSS_SCALE_H_

#include <cstdint>

#include "proto/job_spec.pb.h"

namespace syncline::worker {

// The scale of a job's loss, step by step: JobSpec.loss_scale has the rules.
// Pure: workers that see the same steps have the same scale. Thread-compatible.
//
// With 16 bits of float16 a gradient below 2^-24 is zero, and one of 65,520 or
// more is infinite. A gradient that enters backward multiplied by factor()
// leaves it multiplied by factor(), as backward is linear in it; so small ones
// survive. The scale rises until something overflows, and falls then.
//
// Source: Micikevicius et al., Mixed Precision Training, ICLR 2018, sec. 3.2;
// hysteresis is as Megatron-LM and DeepSpeed have it.
class LossScale {
 public:
  // No scale rises above it.
  static constexpr float kMaximum = 16777216;  // 2^24

  // Of a job without one: 1, for good.
  LossScale() = default;
  // REQUIRES: `spec` is a FLOAT16 job's, with its defaults.
  explicit LossScale(const LossScaleSpec& spec);

  // A power of two. The mean loss of a batch is multiplied by it.
  float scale() const { return scale_; }
  // The factor for the gradient of the summed loss of `batch_size` samples that
  // does so: scale() / batch_size, with the latter rounded up to a power of
  // two, so that the factor is one, too. > 0.
  float FactorFor(int64_t batch_size) const;

  // The outcome of a step.
  enum class Event {
    kGood,
    kRaised,     // good, as were all of the window; the scale has doubled
    kTolerated,  // an overflow that hysteresis lets pass
    kLowered,    // an overflow; the scale is half of what it was
    // An overflow at the smallest scale, with hysteresis spent, or at a fixed
    // one: a lower scale cannot help. For JobSpec.non_finite.
    kExhausted,
  };
  // The next step was made with scale(): its gradient was finite, or the step
  // was skipped because it was not.
  Event OnStep(bool overflowed);

  // All that later steps depend on, but for the job's own LossScaleSpec.
  struct State {
    float scale = 1;
    uint32_t good_steps = 0;  // since an overflow, or since it has risen
    uint32_t tolerated = 0;   // overflows that hysteresis has let pass
  };
  State state() const;
  // Goes on from a state. False, and nothing has changed: no scale of such a
  // job can be there. REQUIRES: no OnStep yet.
  bool Restore(const State& state);

  // Steps that overflowed so far, whatever followed.
  uint64_t overflows() const { return overflows_; }

 private:
  Event OnOverflow();
  Event OnGood();

  bool dynamic_ = false;
  float scale_ = 1;
  float minimum_ = 1;
  uint32_t window_ = 0;
  uint32_t hysteresis_ = 1;
  uint32_t good_ = 0;  // steps since an overflow, or since it has risen
  uint32_t overflows_left_ = 1;  // until the scale is lowered, at least 1
  uint64_t overflows_ = 0;
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_COMPUTE_LOSS_SCALE_H_
