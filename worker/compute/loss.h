#ifndef SYNCLINE_WORKER_COMPUTE_LOSS_H_
#define SYNCLINE_WORKER_COMPUTE_LOSS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/model/graph/tensor.h"
#include "kernels/device/device.h"
#include "kernels/device/loss_kernels.h"
#include "proto/job_spec.pb.h"

namespace syncline::worker {

// A job's loss over one output of the graph: checks labels, then computes the
// loss summed over samples and its gradient (kernels/loss.h has the formulas;
// mean squared error is the mean over a sample's outputs, and softmax
// cross-entropy, where a sample has several positions with a label each, the
// mean over these). Immutable.
//
// With `ignores` positions may have kIgnoredLabel. A sample's loss is then the
// mean over its other positions, 0 if it has none; a batch's remains the mean
// over all its samples, and so does not depend on how samples are batched. (The
// mean over all positions of a batch, which PyTorch's CrossEntropyLoss with
// ignore_index takes, gives long samples more weight.)
class Loss {
 public:
  // `output` is the scores' shape for a batch of `rows`. Errors:
  // InvalidArgument: a shape that the loss does not take, `ignores` with
  // another loss than softmax cross-entropy.
  static absl::StatusOr<Loss> Create(LossSpec::Kind kind, const Dims& output,
                                     int64_t rows, bool ignores = false);

  int64_t rows() const { return rows_; }
  // Scores that one label or target is for: classes, or else a sample's.
  int64_t width() const { return width_; }
  // Rows of that many scores in a sample.
  int64_t positions() const { return positions_; }
  int64_t label_width() const { return labels_; }  // labels per sample

  // `labels` is [samples, label_width], of a whole batch. Errors:
  // InvalidArgument: a wrong number of labels, or one that is no class; names
  // the first such sample and its value.
  absl::Status CheckLabels(int64_t samples,
                           absl::Span<const float> labels) const;

  // Errors: InvalidArgument: the device does not compute it.
  absl::Status RequireKernel(const Device& device) const;
  // Puts into the stream: the summed loss to `loss`, and its gradient to
  // `gradient`, unless that is null. All are in memory of the device. REQUIRES:
  // CheckLabels and RequireKernel passed.
  void Run(Stream& stream, const float* scores, const float* labels,
           float* gradient, double* loss) const;

 private:
  Loss(LossSpec::Kind kind, int64_t rows, int64_t positions, int64_t width,
       bool ignores = false);
  LossKernels::Kernel KernelOf(const Device& device) const;  // null: none

  LossSpec::Kind kind_;
  int64_t rows_;
  int64_t positions_;
  int64_t width_;
  int64_t labels_;
  bool ignores_;
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_COMPUTE_LOSS_H_
