// A sum of two arrays and its normalisation by row, in one pass.

#include <memory>

#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "kernels/device/kernel_table.h"
#include "kernels/device/layer_norm_kernels.h"
#include "worker/ops/axes.h"
#include "worker/ops/fused_op.h"
#include "worker/ops/op.h"

namespace syncline::worker {
namespace {

constexpr size_t kNormScale = 2;
constexpr size_t kNormBias = 3;
constexpr size_t kSum = 0;  // outputs
constexpr size_t kNormalised = 1;

Op::Traits TraitsOf(const RowNorm& shape) {
  Op::Traits traits;
  traits.backward_inputs = 1u << kNormScale;
  traits.backward_outputs = 1u << kSum;
  traits.workspace_bytes = 2 * shape.rows * static_cast<int64_t>(sizeof(float));
  traits.backward_scratch_bytes = RowNormScratchBytes(shape.n);
  traits.in_place_input = 0;
  traits.gradient_in_place = true;
  return traits;
}

class SumNormOp : public Op {
 public:
  SumNormOp(const OpSpec& spec, const RowNorm& shape)
      : Op(TraitsOf(shape)),
        shape_(shape),
        sum_type_(spec.output(kSum).gradient_dtype),
        kernels_(*spec.kernels().layer_norm) {}

  absl::Status Forward(const Tensors& t) override {
    float* const mean = static_cast<float*>(t.workspace);
    kernels_.add_forward(*t.stream, shape_, t.in(0), t.in(1), t.in(kNormScale),
                         t.in(kNormBias), t.out(kSum), t.out(kNormalised), mean,
                         mean + shape_.rows);
    return absl::OkStatus();
  }

  absl::Status Backward(const Tensors& t, const Gradients& g) override {
    const ConstFloats dy = g.out(kNormalised);
    SYNCLINE_CHECK(dy != nullptr);
    const float* const mean = static_cast<const float*>(t.workspace);
    const float* const inverse = mean + shape_.rows;
    if (g.in(kNormScale) != nullptr || g.in(kNormBias) != nullptr) {
      kernels_.backward(*t.stream, shape_, t.out(kSum), t.in(kNormScale), mean,
                        inverse, dy,
                        {.dscale = g.in(kNormScale),
                         .dbias = g.in(kNormBias),
                         .add_dscale = g.accumulate(kNormScale),
                         .add_dbias = g.accumulate(kNormBias),
                         .scratch = t.scratch});
    }
    if (g.in(0) == nullptr && g.in(1) == nullptr) return absl::OkStatus();
    kernels_.add_backward(*t.stream, shape_, t.out(kSum), t.in(kNormScale),
                          mean, inverse, dy, g.out(kSum),
                          {.da = g.in(0),
                           .db = g.in(1),
                           .add_da = g.accumulate(0),
                           .add_db = g.accumulate(1),
                           .sum_type = sum_type_});
    return absl::OkStatus();
  }

 private:
  const RowNorm shape_;
  const DType sum_type_;
  const LayerNormKernels kernels_;
};

// All arrays are float32, or of 16 bits where the device computes the sum and
// the normalisation in them.
bool HasTypes(const OpSpec& spec) {
  const auto takes = [&](DType type) {
    return type == DType::kFloat32 ||
           (Is16Bit(type) && spec.device->computes_in("Add", type) &&
            spec.device->computes_in("LayerNormalization", type) &&
            spec.device->computes_in("RMSNormalization", type));
  };
  for (const auto* types : {&spec.inputs, &spec.outputs}) {
    for (const TensorType& type : *types) {
      if (type.present && !takes(type.dtype)) return false;
    }
  }
  return true;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeFusedSumNorm(const OpSpec& spec) {
  const LayerNormKernels* const kernels = spec.kernels().layer_norm;
  if (kernels == nullptr || kernels->backward == nullptr ||
      kernels->add_forward == nullptr || kernels->add_backward == nullptr) {
    return absl::UnimplementedError("sums are not normalised in one pass");
  }
  if (!HasTypes(spec)) return absl::UnimplementedError("types that differ");
  const Dims& dims = spec.output(kSum).dims;
  SYNCLINE_ASSIGN_OR_RETURN(
      const int64_t axis, ResolveAxis(spec.node->Int("axis", -1), dims.size()));
  RowNorm shape;
  shape.rows = ElementCount(absl::MakeConstSpan(dims).first(axis));
  shape.n = ElementCount(absl::MakeConstSpan(dims).subspan(axis));
  shape.epsilon = spec.node->Float("epsilon", 1e-5f);
  shape.centred = spec.node->Int(kFusedCentred, 1) != 0;
  bool fits =
      shape.n > 0 && spec.input(0).dims == dims && spec.input(1).dims == dims;
  for (const size_t i : {kNormScale, kNormBias}) {
    const TensorType& input = spec.input(i);
    fits = fits && (!input.present || input.count() == shape.n);
  }
  if (!fits) return absl::UnimplementedError("arrays that do not fit");
  return std::make_unique<SumNormOp>(spec, shape);
}

}  // namespace syncline::worker
