#ifndef SYNCLINE_KERNELS_OPTIMIZER_OPTIMIZER_H_
#define SYNCLINE_KERNELS_OPTIMIZER_OPTIMIZER_H_

#include <cmath>
#include <cstddef>
#include <cstdint>

namespace syncline {

enum class OptimizerKind {
  kSgd,
  kMomentum,
  kNesterov,
  kAdagrad,
  kAdam,
  kAdamW,
  kRmsProp,
  kLamb,  // two passes: kernels/optimizer/lamb.h
  kFtrl,
  kRowWiseAdagrad  // rows of tables only: kernels/optimizer/row_optimizer.h
};

// Parameters that stay the same for a whole job. The fields are those of
// OptimizerSpec in proto/job_spec.proto, with every default filled in.
struct OptimizerParams {
  OptimizerKind kind = OptimizerKind::kSgd;
  float momentum = 0.9f;  // kRmsProp: 0 is none
  float beta1 = 0.9f;
  float beta2 = 0.999f;
  float epsilon = 1e-8f;
  // Sum of squares of kAdagrad, kRowWiseAdagrad, kFtrl before the first step.
  float initial_accumulator = 0;
  float weight_decay = 0;
  float clip_value = 0;               // 0: off
  float decay = 0.99f;                // kRmsProp
  bool centered = false;              // kRmsProp
  float l1 = 0;                       // kFtrl
  float l2 = 0;                       // kFtrl
  float learning_rate_power = -0.5f;  // kFtrl; [-1, 0]
};

// Parameters that change from step to step.
struct OptimizerStep {
  float learning_rate = 0;
  // Turns the gradient of the summed loss into that of the mean: 1 / samples,
  // times the norm's scale where the global norm is clipped.
  float gradient_scale = 1;
  // kAdam, kAdamW, kLamb: which update of these elements this is, from 1.
  int64_t t = 1;
  // kAdam, kAdamW: not 0: the second moment stays as that update has left it,
  // and the gradient is the first moment over its root (1-bit Adam,
  // FrozenAdam).
  int64_t frozen_t = 0;
};

// State per element besides the value: 0 to 3 floats.
//   kMomentum, kNesterov  velocity
//   kAdagrad              sum of squares
//   kAdam, kAdamW, kLamb  first moment, second moment
//   kRmsProp              mean of squares; centered: mean; momentum: velocity
//   kFtrl                 sum of squares, z
// REQUIRES, here and below: not kRowWiseAdagrad.
inline constexpr int kOptimizerSlotsMax = 3;
int OptimizerSlots(const OptimizerParams& params);
// Value of every element's slot before the first step.
float InitialSlotValue(const OptimizerParams& params, int slot);

// One step over `count` elements, one pass over memory:
//
//   g = clip(gradient * scale)            g = g + decay * value  (not kAdamW)
//   kSgd       value -= lr * g
//   kMomentum  v = mu * v + g             value -= lr * v
//   kNesterov  v = mu * v + g             value -= lr * (g + mu * v)
//   kAdagrad   a = a + g^2                value -= lr * g / (sqrt(a) + eps)
//   kAdam      m = b1 * m + (1 - b1) * g  s = b2 * s + (1 - b2) * g^2
//              value -= lr * (m / (1 - b1^t)) / (sqrt(s / (1 - b2^t)) + eps)
//   kAdamW     as kAdam after             value -= lr * decay * value
//   frozen_t   u = gradient * scale          m = u * root(s)
//              value -= lr * u / (1 - b1^t)  with root of FrozenAdam
//   kRmsProp   s = d * s + (1 - d) * g^2  u = g / (sqrt(s) + eps)
//              centered: m = d * m + (1 - d) * g, and s - m^2 for s in u
//              momentum: v = mu * v + u, and v for u
//              value -= lr * u
//   kFtrl      n' = n + g^2               z += g - (n'^-p - n^-p) / lr * value
//              value = |z| <= l1 ? 0 : (sign(z) * l1 - z) / (n'^-p / lr + l2)
//              with p the learning-rate power; nothing while n' or lr is 0
//
// REQUIRES: not kLamb; frozen_t is 0 but for kAdam without weight_decay and
// kAdamW.
//   gradient, value [count]; slots [OptimizerSlots] of [count] each, not read
//   where there are none. They do not overlap; no alignment is assumed.
// Elements are independent and each is rounded the same way wherever a range is
// cut, so results do not depend on `count`. NaN stays NaN.
// Sources: Polyak 1964; Sutskever et al., ICML 2013 (in the form of PyTorch and
// ONNX); Duchi et al., JMLR 2011; Kingma and Ba, ICLR 2015; Loshchilov and
// Hutter, ICLR 2019; Tang et al., ICML 2021, algorithm 1 (frozen_t); Tieleman
// and Hinton 2012, lecture 6.5 (in the form of PyTorch: epsilon outside the
// root, which TensorFlow has inside, and the rate outside the velocity);
// McMahan et al., KDD 2013, algorithm 1, with beta = 0 and the power of the
// squares left open.
void ApplyOptimizer(const OptimizerParams& params, const OptimizerStep& step,
                    const float* gradient, float* value, float* const* slots,
                    size_t count);

// Factors that undo the bias of Adam's moments, which start at zero. They are a
// function of t, and cost more to compute than the update of a short range.
struct AdamCorrection {
  double first = 1;        // 1 - beta1^t
  double second_root = 1;  // sqrt(1 - beta2^t)
};
AdamCorrection AdamCorrectionAt(const OptimizerParams& params, int64_t t);

// Adam whose second moment is that of update `frozen_t`, for 1-bit Adam: first
// moments are sent over its root, by which they are all of about the same size.
struct FrozenAdam {
  // `workers` share the samples of a step.
  FrozenAdam(const OptimizerParams& params, int64_t frozen_t, uint32_t workers);
  // sqrt(s / (1 - b2^frozen_t)) + eps.
  float Root(float second) const;
  // The first moment that a worker's mean gradient makes of `first`, over
  // `root`. It counts as sqrt(workers / (1 - b2)) roots at most: were the mean
  // of all workers in the second moment, as Adam has it, that would count as 1
  // / sqrt(1 - b2) at most, and one worker's is sqrt(workers) times as noisy.
  // REQUIRES: `mean` is finite.
  float NextOverRoot(float first, float mean, float root) const;

  float beta1 = 0;
  float root_scale = 0;
  float epsilon = 0;
  float most = 0;  // roots
};

// ApplyOptimizer of kAdam and kAdamW for callers that keep step.t's correction.
void ApplyAdam(const OptimizerParams& params, const OptimizerStep& step,
               const AdamCorrection& correction, const float* gradient,
               float* value, float* first, float* second, size_t count);

// Sum of (gradient * scale)^2 in fp64, added to `sum` in element order: cutting
// a range and passing the sum on gives the same bits.
double AddSquares(double sum, const float* gradient, float scale, size_t count);

// A running mean in place of an optimizer:
// value = momentum * value + (1 - momentum) * (sum * scale).
//   sum, value [count]; they do not overlap; no alignment is assumed.
void AverageIn(float momentum, float scale, const float* sum, float* value,
               size_t count);

// sum[i] += addend[i].
void AddTo(const float* addend, float* sum, size_t count);

inline float FrozenAdam::Root(float second) const {
  return std::sqrt(second) * root_scale + epsilon;
}

inline float FrozenAdam::NextOverRoot(float first, float mean,
                                      float root) const {
  const float limit = most * root;
  const float above = mean < -limit ? -limit : mean;
  const float clipped = above > limit ? limit : above;
  return (beta1 * first + (1 - beta1) * clipped) / root;
}

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_OPTIMIZER_OPTIMIZER_H_
