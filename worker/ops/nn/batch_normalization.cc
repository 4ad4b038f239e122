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
// Variances are ONNX's, over n. The running one of a file that PyTorch wrote
// (kSampleVariance) is over n - 1, as PyTorch has it; n is the number of what
// the statistics are of, all workers' where they are folded. n is never 1 here.
//
// Where statistics are folded over all workers, each sends the number of its
// elements, their sum and their sum of squares, and gets the sums of all
// workers. The ps only adds, so it cannot join moments as in Chan et al. 1979.
// The sums say the same: they are made from the worker's own mean and variance,
// which are measured without cancellation, in fp64. Subtracting the squared
// mean again then costs 2^-53 of it, while the float32 x is itself good to
// 2^-24 of the mean: where that leaves the deviations any digit, fp64 leaves
// the variance as many. A second round trip, for deviations from the mean of
// all workers, would gain nothing.

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/model/graph/operator_list.h"
#include "kernels/elementwise/loop.h"
#include "kernels/normalization.h"
#include "kernels/optimizer/optimizer.h"
#include "kernels/threads.h"
#include "worker/ops/op.h"
#include "worker/ops/statistics_exchange.h"

namespace syncline::worker {
namespace {

enum Input { kX, kScale, kBias, kMean, kVariance };

class BatchNormOp : public Op {
 public:
  BatchNormOp(const OpSpec& spec, const NormalizationShape& shape,
              bool of_batch)
      : Op(TraitsOf(spec, shape)),
        shape_(shape),
        of_batch_(of_batch),
        elements_(static_cast<double>(shape.elements())),
        kept_(spec.folds_statistics ? 3 * shape.channels : 0),
        samples_(static_cast<float>(spec.samples)),
        epsilon_(spec.node->Float("epsilon", 1e-5f)),
        momentum_(spec.node->Float("momentum", 0.9f)),
        sample_variance_(spec.node->Int(kSampleVariance, 0) != 0) {}

  absl::Status Forward(const Tensors& t) override {
    const Statistics s = StatisticsIn(t);
    // A second fold in one step would be another point of it.
    const bool kept = t.again && !kept_.empty();
    if (!kept) SYNCLINE_RETURN_IF_ERROR(Measure(t, s));
    ForChannels([&](const NormalizationShape& part, int64_t c) {
      const int64_t offset = c * shape_.plane;
      NormalizePlanes(part, t.in(kX) + offset, s.mean + c, s.inverse + c,
                      t.in(kScale) + c, t.in(kBias) + c, t.out(0) + offset);
    });
    WriteRunning(t.in(kMean), /*factor=*/1, s.mean, t.out(1));
    WriteRunning(t.in(kVariance), VarianceFactor(), s.variance, t.out(2));
    // The batch's own, before opset 14.
    WriteTimes(1, s.mean, /*accumulate=*/false, t.out(3));
    WriteTimes(1, s.variance, /*accumulate=*/false, t.out(4));
    return absl::OkStatus();
  }

  absl::Status Backward(const Tensors& t, const Gradients& g) override {
    const Statistics s = StatisticsIn(t);
    WriteTimes(samples_ * VarianceFactor(), s.variance, g.accumulate(kVariance),
               g.in(kVariance));
    WriteTimes(samples_, s.mean, g.accumulate(kMean), g.in(kMean));
    const NormalizationGradient gradient = {
        .x = t.in(kX),
        .dy = g.out(),
        .mean = s.mean,
        .inverse = s.inverse,
        .scale = t.in(kScale),
        .fixed_statistics = !normalises_by_batch(),
        .dx = g.in(kX),
        .accumulate_x = g.accumulate(kX),
        .dscale = g.in(kScale),
        .accumulate_scale = g.accumulate(kScale),
        .dbias = g.in(kBias),
        .accumulate_bias = g.accumulate(kBias),
        .sums = static_cast<double*>(t.scratch)};
    ForChannels([&](const NormalizationShape& part, int64_t c) {
      SumPlanesGradient(part, OfChannels(gradient, c));
    });
    if (folds(t) && normalises_by_batch() && gradient.dx != nullptr) {
      const auto count = static_cast<size_t>(2 * shape_.statistic_count());
      SYNCLINE_RETURN_IF_ERROR(t.statistics->Fold({gradient.sums, count}));
    }
    ForChannels([&](const NormalizationShape& part, int64_t c) {
      WritePlanesGradient(part, OfChannels(gradient, c), elements_);
    });
    return absl::OkStatus();
  }

 private:
  // By channel.
  struct Statistics {
    Statistics(const NormalizationShape& shape, float* at)
        : mean(at),
          variance(mean + shape.channels),
          inverse(variance + shape.channels) {}
    float* mean;
    float* variance;
    float* inverse;
  };

  Statistics StatisticsIn(const Tensors& t) {
    return {shape_,
            kept_.empty() ? static_cast<float*>(t.workspace) : kept_.data()};
  }
  bool folds(const Tensors& t) const {
    return of_batch_ && !kept_.empty() && t.statistics != nullptr;
  }
  bool normalises_by_batch() const { return of_batch_ && elements_ > 1; }
  // From the batch's variance to what the running one follows.
  float VarianceFactor() const {
    return sample_variance_ && normalises_by_batch()
               ? static_cast<float>(elements_ / (elements_ - 1))
               : 1.0f;
  }

  // Of the batch, or of all workers'; or those that are stored.
  absl::Status Measure(const Tensors& t, const Statistics& s) {
    if (of_batch_) {
      ForChannels([&](const NormalizationShape& part, int64_t c) {
        PlaneMoments(part, t.in(kX) + c * shape_.plane, s.mean + c,
                     s.variance + c);
      });
    }
    elements_ = static_cast<double>(shape_.elements());
    if (folds(t)) SYNCLINE_RETURN_IF_ERROR(FoldMoments(t, s));
    if (!normalises_by_batch()) {
      std::copy_n(t.in(kMean), shape_.channels, s.mean);
      std::copy_n(t.in(kVariance), shape_.channels, s.variance);
    }
    InverseDeviation(shape_.channels, epsilon_, s.variance, s.inverse);
    return absl::OkStatus();
  }

  absl::Status FoldMoments(const Tensors& t, const Statistics& s) {
    const auto channels = static_cast<size_t>(shape_.channels);
    const absl::Span<double> all(static_cast<double*>(t.scratch),
                                 1 + 2 * channels);
    const absl::Span<double> sums = all.subspan(1, channels);
    const absl::Span<double> squares = all.subspan(1 + channels);
    all[0] = elements_;
    for (size_t c = 0; c < channels; ++c) {
      const double mean = s.mean[c];
      sums[c] = elements_ * mean;
      squares[c] = elements_ * (s.variance[c] + mean * mean);
    }
    const bool own_are_finite = AreFinite(all);
    SYNCLINE_RETURN_IF_ERROR(t.statistics->Fold(all));
    if (!AreFinite(all)) {
      return absl::FailedPreconditionError(absl::StrCat(
          "the batch's statistics over all workers are not finite: ",
          own_are_finite ? "another worker's input is not; that worker's own "
                           "message names it"
                         : "this worker's input is not"));
    }
    elements_ = all[0];
    for (size_t c = 0; c < channels; ++c) {
      const double mean = sums[c] / elements_;
      s.mean[c] = static_cast<float>(mean);
      s.variance[c] = static_cast<float>(
          std::max(0.0, squares[c] / elements_ - mean * mean));
    }
    return absl::OkStatus();
  }

  static Traits TraitsOf(const OpSpec& spec, const NormalizationShape& shape) {
    Traits traits;
    traits.backward_inputs = 1 << kX | 1 << kScale;
    const int64_t channels = shape.channels;
    if (spec.folds_statistics) {
      traits.forward_scratch_bytes =
          (1 + 2 * channels) * static_cast<int64_t>(sizeof(double));
    } else {
      traits.workspace_bytes = 3 * channels * sizeof(float);
    }
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
  NormalizationGradient OfChannels(NormalizationGradient g,
                                   int64_t first) const {
    const auto moved = [](float* array, int64_t offset) {
      return array == nullptr ? nullptr : array + offset;
    };
    const int64_t offset = first * shape_.plane;
    g.x += offset;
    g.dy += offset;
    g.dx = moved(g.dx, offset);
    g.mean += first;
    g.inverse += first;
    g.scale += first;
    g.dscale = moved(g.dscale, first);
    g.dbias = moved(g.dbias, first);
    g.sums += first;
    return g;
  }

  // Writes an output of running statistics as they are after this batch.
  void WriteRunning(const float* running, float factor, const float* batch,
                    float* out) const {
    if (out == nullptr) return;
    std::copy_n(running, shape_.channels, out);
    if (normalises_by_batch()) {
      AverageIn(momentum_, factor, batch, out, shape_.channels);
    }
  }

  void WriteTimes(float factor, const float* from, bool accumulate,
                  float* out) const {
    if (out == nullptr) return;
    Emit(shape_.channels, accumulate, out,
         [=](int64_t c) { return from[c] * factor; });
  }

  const NormalizationShape shape_;
  const bool of_batch_;
  double elements_;  // that each mean is of, in this step
  // The folded statistics of the step. A step folds once, so they also serve
  // the segments that are computed again.
  std::vector<float> kept_;
  const float samples_;
  const float epsilon_;
  const float momentum_;
  const bool sample_variance_;
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
  NormalizationShape shape;
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
  // Other workers have more elements; if not, it shows when they are folded.
  const bool of_batch =
      spec.training && !frozen && (elements > 1 || spec.folds_statistics);
  if (spec.training && !frozen && !of_batch && !spec.is_short) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a channel has ", elements, elements == 1 ? " element" : " elements",
        " in a training step, and so no ",
        "variance; raise batch_size or lower micro_batches, or freeze the ",
        "running mean and variance"));
  }
  return std::make_unique<BatchNormOp>(spec, shape, of_batch);
}

}  // namespace syncline::worker
