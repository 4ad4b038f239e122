#ifndef SYNCLINE_KERNELS_DEVICE_CLASS_LOSS_KERNELS_H_
#define SYNCLINE_KERNELS_DEVICE_CLASS_LOSS_KERNELS_H_

#include <cstdint>

#include "common/base/dtype.h"
#include "kernels/device/data_error.h"
#include "kernels/softmax.h"

namespace syncline {

class Stream;

enum class LossReduction { kNone, kSum, kMean };

// Scores [outer, classes, inner] with a label for each of [outer, inner].
struct ClassLoss {
  SoftmaxShape scores;
  LossReduction reduction = LossReduction::kMean;
  bool ignores = false;  // labels that are `ignored` cost nothing
  int64_t ignored = 0;
  DType label_type = DType::kInt64;  // or int32

  int64_t score_count() const { return scores.outer * scores.n * scores.inner; }
  int64_t label_count() const { return scores.outer * scores.inner; }
};

// The arrays that the loss leaves for its gradient.
struct ClassLossKept {
  int64_t* at = nullptr;     // by label: where its score is; -1: it is ignored
  float* weights = nullptr;  // by label; 0 if it is ignored
  float* divisor = nullptr;  // one: of the loss
};

// The loss by classes, float32: of each label the score, which is a log
// probability, times minus the weight of its class. With kMean the sum of
// these is divided by that of the weights.
struct ClassLossKernels {
  // `class_weights` is [classes]; null: all 1. `loss` is one number, with kNone
  // one for each label. The first label that is no class is reported as kind 0,
  // with its position; it is ignored.
  void (*forward)(Stream& stream, const ClassLoss& s, const float* log_p,
                  const void* labels, const float* class_weights,
                  const ClassLossKept& kept, float* loss,
                  const ErrorSlot& errors) = nullptr;
  // Adds the loss's gradient to `dlog_p`. `dy` has the shape of `loss`.
  void (*add_gradient)(Stream& stream, const ClassLoss& s,
                       const ClassLossKept& kept, const float* dy,
                       float* dlog_p) = nullptr;
};

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_DEVICE_CLASS_LOSS_KERNELS_H_
