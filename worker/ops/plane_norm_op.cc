#include "worker/ops/plane_norm_op.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/normalization.h"

namespace syncline::worker {
namespace {

class PlaneNormOp : public Op {
 public:
  PlaneNormOp(const PlaneNorm& shape, float epsilon)
      : Op(TraitsOf(shape)), shape_(shape), epsilon_(epsilon) {}

  absl::Status Forward(const Tensors& t) override {
    float* const mean = static_cast<float*>(t.workspace);
    float* const inverse = mean + shape_.statistic_count();
    PlaneMoments(shape_, t.in(0), mean, inverse);
    InverseDeviation(shape_.statistic_count(), epsilon_, inverse, inverse);
    NormalizePlanes(shape_, t.in(0), mean, inverse, t.in(1), t.in(2), t.out(0));
    return absl::OkStatus();
  }

  absl::Status Backward(const Tensors& t, const Gradients& g) override {
    const float* const mean = static_cast<const float*>(t.workspace);
    NormalizePlanesGradient(shape_, {.x = t.in(0),
                                     .dy = g.out(),
                                     .mean = mean,
                                     .inverse = mean + shape_.statistic_count(),
                                     .scale = t.in(1),
                                     .fixed_statistics = false,
                                     .dx = g.in(0),
                                     .accumulate_x = g.accumulate(0),
                                     .dscale = g.in(1),
                                     .accumulate_scale = g.accumulate(1),
                                     .dbias = g.in(2),
                                     .accumulate_bias = g.accumulate(2),
                                     .sums = static_cast<double*>(t.scratch)});
    return absl::OkStatus();
  }

 private:
  static Traits TraitsOf(const PlaneNorm& shape) {
    Traits traits;
    traits.backward_inputs = 0b11;
    traits.workspace_bytes = 2 * shape.statistic_count() * sizeof(float);
    traits.backward_scratch_bytes = GradientSums(shape) * sizeof(double);
    return traits;
  }

  const PlaneNorm shape_;
  const float epsilon_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakePlaneNorm(
    const OpSpec& spec, int64_t groups, int64_t channels_per_parameter) {
  SYNCLINE_RETURN_IF_ERROR(spec.RequireFloat32());
  const Dims& x = spec.input(0).dims;
  if (x.size() < 3) {
    return absl::InvalidArgumentError(
        absl::StrCat("input 0 is ", DimsToString(x),
                     "; it must have at least one spatial dimension"));
  }
  if (groups < 1 || x[1] % groups != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(x[1], " channels cannot be cut into ", groups, " groups"));
  }
  PlaneNorm shape;
  shape.batch = x[0];
  shape.channels = x[1];
  shape.plane = ElementCount({x.data() + 2, x.size() - 2});
  shape.group = x[1] / groups;
  shape.channels_per_parameter = channels_per_parameter;
  for (int i = 1; i <= 2; ++i) {
    if (spec.input(i).dims == Dims{shape.parameter_count()}) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("input ", i, " is ", DimsToString(spec.input(i).dims),
                     "; it must be [", shape.parameter_count(), "]"));
  }
  return std::make_unique<PlaneNormOp>(shape,
                                       spec.node->Float("epsilon", 1e-5f));
}

}  // namespace syncline::worker
