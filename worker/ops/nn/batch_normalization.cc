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
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/model/graph/operator_list.h"
#include "kernels/device/kernel_table.h"
#include "kernels/device/normalization_kernels.h"
#include "worker/ops/op.h"
#include "worker/ops/statistics_exchange.h"

namespace syncline::worker {
namespace {

enum Input { kX, kScale, kBias, kMean, kVariance };

// Memory of an Op that folds statistics.
struct FoldMemory {
  // Mean, variance and inverse deviation of the step, by channel. A step folds
  // once, so they also serve the segments that are computed again.
  DeviceMemory kept;
  // Of the host, which talks to the other workers: the batch's mean and
  // variance, by channel, and the sums that are exchanged.
  DeviceMemory moments;
  DeviceMemory sums;
};

absl::StatusOr<FoldMemory> FoldMemoryFor(Device& device, int64_t channels) {
  FoldMemory memory;
  SYNCLINE_ASSIGN_OR_RETURN(memory.kept,
                            device.Allocate(3 * channels * sizeof(float)));
  SYNCLINE_ASSIGN_OR_RETURN(
      memory.moments, device.AllocatePinned(2 * channels * sizeof(float)));
  SYNCLINE_ASSIGN_OR_RETURN(
      memory.sums, device.AllocatePinned((1 + 2 * channels) * sizeof(double)));
  return memory;
}

class BatchNormOp : public Op {
 public:
  BatchNormOp(const OpSpec& spec, const NormalizationShape& shape,
              bool of_batch, FoldMemory folding,
              const NormalizationKernels& kernels)
      : Op(TraitsOf(spec, shape)),
        shape_(shape),
        of_batch_(of_batch),
        elements_(static_cast<double>(shape.elements())),
        folding_(std::move(folding)),
        samples_(static_cast<float>(spec.samples)),
        epsilon_(spec.node->Float("epsilon", 1e-5f)),
        momentum_(spec.node->Float("momentum", 0.9f)),
        sample_variance_(spec.node->Int(kSampleVariance, 0) != 0),
        kernels_(kernels) {}

  absl::Status Forward(const Tensors& t) override {
    const Statistics s = StatisticsIn(t);
    // A second fold in one step would be another point of it.
    const bool kept = t.again && keeps_statistics();
    if (!kept) SYNCLINE_RETURN_IF_ERROR(Measure(t, s));
    kernels_.forward(*t.stream, shape_, t.in(kX), s.mean, s.inverse,
                     t.in(kScale), t.in(kBias), t.out(0));
    WriteRunning(t, t.in(kMean), /*factor=*/1, s.mean, t.out(1));
    WriteRunning(t, t.in(kVariance), VarianceFactor(), s.variance, t.out(2));
    // The batch's own, before opset 14.
    if (t.out(3) != nullptr) CopyChannels(t, s.mean, t.out(3));
    if (t.out(4) != nullptr) CopyChannels(t, s.variance, t.out(4));
    return absl::OkStatus();
  }

  absl::Status Backward(const Tensors& t, const Gradients& g) override {
    const Statistics s = StatisticsIn(t);
    WriteTimes(t, samples_ * VarianceFactor(), s.variance,
               g.accumulate(kVariance), g.in(kVariance));
    WriteTimes(t, samples_, s.mean, g.accumulate(kMean), g.in(kMean));
    const DeviceNormalizationGradient gradient = {
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
    kernels_.sum_gradient(*t.stream, shape_, gradient);
    if (folds(t) && normalises_by_batch() && gradient.dx != nullptr) {
      SYNCLINE_RETURN_IF_ERROR(
          FoldSums(t, 2 * shape_.statistic_count(), gradient.sums));
    }
    kernels_.write_gradient(*t.stream, shape_, gradient, elements_);
    return absl::OkStatus();
  }

 private:
  // By channel, one after the other.
  struct Statistics {
    Statistics(const NormalizationShape& shape, float* at)
        : mean(at),
          variance(mean + shape.channels),
          inverse(variance + shape.channels) {}
    float* mean;
    float* variance;
    float* inverse;
  };

  bool keeps_statistics() const { return folding_.kept.data() != nullptr; }
  Statistics StatisticsIn(const Tensors& t) const {
    return {shape_, keeps_statistics() ? folding_.kept.as<float>()
                                       : static_cast<float*>(t.workspace)};
  }
  bool folds(const Tensors& t) const {
    return of_batch_ && keeps_statistics() && t.statistics != nullptr;
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
      kernels_.moments(*t.stream, shape_, t.in(kX), s.mean, s.variance);
    }
    elements_ = static_cast<double>(shape_.elements());
    if (folds(t)) SYNCLINE_RETURN_IF_ERROR(FoldMoments(t, s));
    if (!normalises_by_batch()) {
      CopyChannels(t, t.in(kMean), s.mean);
      CopyChannels(t, t.in(kVariance), s.variance);
    }
    kernels_.inverse_deviation(*t.stream, shape_.channels, epsilon_, s.variance,
                               s.inverse);
    return absl::OkStatus();
  }

  absl::Status FoldMoments(const Tensors& t, const Statistics& s) {
    const auto channels = static_cast<size_t>(shape_.channels);
    float* const mean = folding_.moments.as<float>();
    float* const variance = mean + channels;
    const size_t moment_bytes = 2 * channels * sizeof(float);
    t.stream->CopyToHost(mean, s.mean, moment_bytes);
    SYNCLINE_RETURN_IF_ERROR(t.stream->Synchronize());
    const absl::Span<double> all(folding_.sums.as<double>(), 1 + 2 * channels);
    const absl::Span<double> sums = all.subspan(1, channels);
    const absl::Span<double> squares = all.subspan(1 + channels);
    all[0] = elements_;
    for (size_t c = 0; c < channels; ++c) {
      const double m = mean[c];
      sums[c] = elements_ * m;
      squares[c] = elements_ * (variance[c] + m * m);
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
      const double m = sums[c] / elements_;
      mean[c] = static_cast<float>(m);
      variance[c] =
          static_cast<float>(std::max(0.0, squares[c] / elements_ - m * m));
    }
    t.stream->CopyToDevice(s.mean, mean, moment_bytes);
    return absl::OkStatus();
  }

  // Replaces `sums`, of the device, by those of all workers.
  absl::Status FoldSums(const Tensors& t, int64_t count, double* sums) {
    const absl::Span<double> all(folding_.sums.as<double>(), count);
    const size_t bytes = all.size() * sizeof(double);
    t.stream->CopyToHost(all.data(), sums, bytes);
    SYNCLINE_RETURN_IF_ERROR(t.stream->Synchronize());
    SYNCLINE_RETURN_IF_ERROR(t.statistics->Fold(all));
    t.stream->CopyToDevice(sums, all.data(), bytes);
    return absl::OkStatus();
  }

  static Traits TraitsOf(const OpSpec& spec, const NormalizationShape& shape) {
    Traits traits;
    traits.backward_inputs = 1 << kX | 1 << kScale;
    if (!spec.folds_statistics) {
      traits.workspace_bytes = 3 * shape.channels * sizeof(float);
    }
    traits.backward_scratch_bytes = GradientSums(shape) * sizeof(double);
    traits.in_place_input = kX;
    traits.gradient_in_place = true;
    traits.folds_statistics = spec.folds_statistics;
    return traits;
  }

  void CopyChannels(const Tensors& t, const float* from, float* to) const {
    t.stream->Copy(to, from, shape_.channels * sizeof(float));
  }

  // Writes an output of running statistics as they are after this batch.
  void WriteRunning(const Tensors& t, const float* running, float factor,
                    const float* batch, float* out) const {
    if (out == nullptr) return;
    if (normalises_by_batch()) {
      kernels_.average_in(*t.stream, shape_.channels, momentum_, factor,
                          running, batch, out);
    } else {
      CopyChannels(t, running, out);
    }
  }

  void WriteTimes(const Tensors& t, float factor, const float* from,
                  bool accumulate, float* out) const {
    if (out == nullptr) return;
    kernels_.multiply(*t.stream, shape_.channels, factor, from, accumulate,
                      out);
  }

  const NormalizationShape shape_;
  const bool of_batch_;
  double elements_;  // that each mean is of, in this step
  const FoldMemory folding_;
  const float samples_;
  const float epsilon_;
  const float momentum_;
  const bool sample_variance_;
  const NormalizationKernels kernels_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeBatchNormalization(const OpSpec& spec) {
  SYNCLINE_RETURN_IF_ERROR(spec.RequireFloat32());
  SYNCLINE_RETURN_IF_ERROR(spec.RequireOthersFloat32());
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
  const NormalizationKernels* const kernels = spec.kernels().normalization;
  SYNCLINE_RETURN_IF_ERROR(spec.RequireKernels(kernels));
  SYNCLINE_RETURN_IF_ERROR(spec.RequireKernels(
      kernels->moments, kernels->inverse_deviation, kernels->forward,
      kernels->sum_gradient, kernels->write_gradient, kernels->average_in,
      kernels->multiply));
  FoldMemory folding;
  if (spec.folds_statistics) {
    SYNCLINE_ASSIGN_OR_RETURN(folding,
                              FoldMemoryFor(*spec.device, shape.channels));
  }
  return std::make_unique<BatchNormOp>(spec, shape, of_batch,
                                       std::move(folding), *kernels);
}

}  // namespace syncline::worker
