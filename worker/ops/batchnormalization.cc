// Ioffe and Szegedy, ICML 2015. Evaluation normalises by the running mean and
// variance. A training step does so by the batch's, whatever training_mode
// says, because exporters leave it out also in models meant for training; and
// hands the batch's out as the running ones' gradient, times samples, so that
// they are summed and divided as gradients are. Only where the running ones are
// constants or frozen are they used in training, too.
//
// A channel of one element, as of a matrix' last batch of one sample, has no
// variance: it is normalised as in evaluation, and what is handed out are the
// running ones, which it does not move.
//
// Variances are ONNX's, over n, not PyTorch's, whose running one is over n - 1.

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/loop.h"
#include "kernels/optimizer.h"
#include "kernels/plane_norm.h"
#include "kernels/threads.h"
#include "worker/ops/op.h"

namespace syncline {
namespace {

enum Input { kX, kScale, kBias, kMean, kVariance };

class BatchNormOp : public Op {
 public:
  BatchNormOp(const OpSpec& spec, const PlaneNorm& shape, bool of_batch)
      : Op(TraitsOf(shape)),
        shape_(shape),
        of_batch_(of_batch),
        samples_(static_cast<float>(spec.samples)),
        epsilon_(spec.node->Float("epsilon", 1e-5f)),
        momentum_(spec.node->Float("momentum", 0.9f)) {}

  absl::Status Forward(const Tensors& t) override {
    const Statistics s(shape_, t.workspace);
    if (of_batch_) {
      ForChannels([&](const PlaneNorm& part, int64_t c) {
        PlaneMoments(part, t.in(kX) + c * shape_.plane, s.mean + c,
                     s.variance + c);
      });
    } else {
      std::copy_n(t.in(kMean), shape_.channels, s.mean);
      std::copy_n(t.in(kVariance), shape_.channels, s.variance);
    }
    InverseDeviation(shape_.channels, epsilon_, s.variance, s.inverse);
    ForChannels([&](const PlaneNorm& part, int64_t c) {
      const int64_t offset = c * shape_.plane;
      NormalizePlanes(part, t.in(kX) + offset, s.mean + c, s.inverse + c,
                      t.in(kScale) + c, t.in(kBias) + c, t.out(0) + offset);
    });
    WriteRunning(t.in(kMean), s.mean, t.out(1));
    WriteRunning(t.in(kVariance), s.variance, t.out(2));
    // The batch's own, before opset 14.
    WriteTimes(1, s.mean, /*accumulate=*/false, t.out(3));
    WriteTimes(1, s.variance, /*accumulate=*/false, t.out(4));
    return absl::OkStatus();
  }

  absl::Status Backward(const Tensors& t, const Gradients& g) override {
    const Statistics s(shape_, t.workspace);
    WriteTimes(samples_, s.variance, g.accumulate(kVariance), g.in(kVariance));
    WriteTimes(samples_, s.mean, g.accumulate(kMean), g.in(kMean));
    ForChannels([&](const PlaneNorm& part, int64_t c) {
      const int64_t offset = c * shape_.plane;
      NormalizePlanesGradient(part,
                              {.x = t.in(kX) + offset,
                               .dy = g.out() + offset,
                               .mean = s.mean + c,
                               .inverse = s.inverse + c,
                               .scale = t.in(kScale) + c,
                               .fixed_statistics = !of_batch_,
                               .dx = Moved(g.in(kX), offset),
                               .accumulate_x = g.accumulate(kX),
                               .dscale = Moved(g.in(kScale), c),
                               .accumulate_scale = g.accumulate(kScale),
                               .dbias = Moved(g.in(kBias), c),
                               .accumulate_bias = g.accumulate(kBias),
                               .sums = static_cast<double*>(t.scratch) +
                                       GradientSums(part) / part.channels * c});
    });
    return absl::OkStatus();
  }

 private:
  // By channel, in the workspace.
  struct Statistics {
    Statistics(const PlaneNorm& shape, void* workspace)
        : mean(static_cast<float*>(workspace)),
          variance(mean + shape.channels),
          inverse(variance + shape.channels) {}
    float* mean;
    float* variance;
    float* inverse;
  };

  static Traits TraitsOf(const PlaneNorm& shape) {
    Traits traits;
    traits.backward_inputs = 1 << kX | 1 << kScale;
    traits.workspace_bytes = 3 * shape.channels * sizeof(float);
    traits.backward_scratch_bytes = GradientSums(shape) * sizeof(double);
    traits.in_place_input = kX;
    traits.gradient_in_place = true;
    return traits;
  }

  // Calls run(part, first channel) for what each thread has. Channels have
  // nothing to do with each other, so the bits do not depend on the cut.
  template <typename Run>
  void ForChannels(Run run) const {
    const int64_t blocks = shape_.channels / shape_.block;
    ParallelForRows(blocks, shape_.elements() * shape_.block,
                    [&](int64_t begin, int64_t end) {
                      const int64_t first = begin * shape_.block;
                      run(shape_.Channels(first, end * shape_.block), first);
                    });
  }
  static float* Moved(float* array, int64_t offset) {
    return array == nullptr ? nullptr : array + offset;
  }

  // What the operator says of its input after this batch.
  void WriteRunning(const float* running, const float* batch,
                    float* out) const {
    if (out == nullptr) return;
    std::copy_n(running, shape_.channels, out);
    if (of_batch_) {
      AverageIn(momentum_, /*scale=*/1, batch, out, shape_.channels);
    }
  }

  void WriteTimes(float factor, const float* from, bool accumulate,
                  float* out) const {
    if (out == nullptr) return;
    Emit(shape_.channels, accumulate, out,
         [=](int64_t c) { return from[c] * factor; });
  }

  const PlaneNorm shape_;
  const bool of_batch_;
  const float samples_;
  const float epsilon_;
  const float momentum_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeBatchNormalization(const OpSpec& spec) {
  SYNCLINE_RETURN_IF_ERROR(spec.RequireFloat32());
  const Dims& x = spec.input(kX).dims;
  if (x.size() < 2) {
    return absl::InvalidArgumentError(absl::StrCat(
        "input 0 is ", DimsToString(x), "; its second dimension must be that ",
        "of the channels"));
  }
  PlaneNorm shape;
  shape.batch = x[0];
  shape.channels = x[1];
  shape.plane = ElementCount({x.data() + 2, x.size() - 2});
  shape.across_batch = true;
  shape.block = spec.input(kX).channel_block;
  for (const int i : {kScale, kBias, kMean, kVariance}) {
    if (spec.input(i).dims == Dims{shape.channels}) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("input ", i, " is ", DimsToString(spec.input(i).dims),
                     "; it must be [", shape.channels, "], a channel each"));
  }
  const bool frozen = spec.input(kMean).constant != nullptr &&
                      spec.input(kVariance).constant != nullptr;
  const int64_t elements = shape.batch * shape.plane;
  const bool of_batch = spec.training && !frozen && elements > 1;
  if (spec.training && !frozen && !of_batch && !spec.is_short) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a channel has ", elements, elements == 1 ? " element" : " elements",
        " in a training step, and so no ",
        "variance; raise batch_size or lower micro_batches, or freeze the ",
        "running mean and variance"));
  }
  return std::make_unique<BatchNormOp>(spec, shape, of_batch);
}

}  // namespace syncline
