#include "worker/ops/layer_norm_op.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/layer_norm.h"
#include "worker/ops/axes.h"

namespace syncline::worker {
namespace {

Op::Traits TraitsOf(const OpSpec& spec, const RowNorm& shape) {
  Op::Traits traits;
  traits.backward_inputs = 0b11;
  traits.workspace_bytes = 2 * shape.rows * sizeof(float);
  traits.backward_scratch_bytes = RowNormScratchBytes(shape.n);
  traits.in_place_input = 0;
  traits.gradient_in_place = true;
  // One value as scale and as something else has one gradient for both, which
  // the single pass over a row would mix up.
  const std::vector<ValueId>& inputs = spec.node->inputs;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (std::count(inputs.begin(), inputs.end(), inputs[i]) > 1) {
      traits.gradient_in_place = false;
    }
  }
  return traits;
}

class LayerNormOp : public Op {
 public:
  LayerNormOp(const OpSpec& spec, const RowNorm& shape)
      : Op(TraitsOf(spec, shape)), shape_(shape) {}

  absl::Status Forward(const Tensors& t) override {
    float* const mean = static_cast<float*>(t.workspace);
    float* const inverse = mean + shape_.rows;
    NormalizeRows(shape_, t.in(0), t.in(1), t.in(2), t.out(0), mean, inverse);
    if (t.out(1) != nullptr) std::copy_n(mean, shape_.rows, t.out(1));
    if (t.out(2) != nullptr) std::copy_n(inverse, shape_.rows, t.out(2));
    return absl::OkStatus();
  }

  absl::Status Backward(const Tensors& t, const Gradients& g) override {
    if (g.out() != nullptr) {
      OutputGradient(t, g);
    } else {
      ClearGradients(g);
    }
    const auto of = [&](size_t i) {
      return i < g.outputs.size() ? g.outputs[i] : nullptr;
    };
    if (g.in(0) != nullptr && (of(1) != nullptr || of(2) != nullptr)) {
      const float* const mean = static_cast<const float*>(t.workspace);
      AddRowMomentsGradient(shape_, t.in(0), mean, mean + shape_.rows, of(1),
                            of(2), g.in(0));
    }
    return absl::OkStatus();
  }

 private:
  void OutputGradient(const Tensors& t, const Gradients& g) const {
    // One at a time where two of them are one value, else all at once.
    const bool apart = g.in(0) == g.in(1) || g.in(1) == g.in(2);
    if (!apart) {
      Run(t, g,
          {.dx = g.in(0),
           .dscale = g.in(1),
           .dbias = g.in(2),
           .add_dx = g.accumulate(0),
           .add_dscale = g.accumulate(1),
           .add_dbias = g.accumulate(2)});
      return;
    }
    if (g.in(2) != nullptr) {
      Run(t, g, {.dbias = g.in(2), .add_dbias = g.accumulate(2)});
    }
    if (g.in(1) != nullptr) {
      Run(t, g, {.dscale = g.in(1), .add_dscale = g.accumulate(1)});
    }
    if (g.in(0) != nullptr) {
      Run(t, g, {.dx = g.in(0), .add_dx = g.accumulate(0)});
    }
  }

  void ClearGradients(const Gradients& g) const {
    const int64_t counts[] = {shape_.rows * shape_.n, shape_.n, shape_.n};
    for (size_t i = 3; i-- > 0;) {
      if (g.in(i) == nullptr || g.accumulate(i)) continue;
      std::fill_n(g.in(i), counts[i], 0.0f);
    }
  }

  void Run(const Tensors& t, const Gradients& g, RowNormGradients out) const {
    const float* const mean = static_cast<const float*>(t.workspace);
    out.scratch = t.scratch;
    NormalizeRowsGradient(shape_, t.in(0), t.in(1), mean, mean + shape_.rows,
                          g.out(), out);
  }

  const RowNorm shape_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeLayerNormOp(const OpSpec& spec,
                                                    bool centred) {
  SYNCLINE_RETURN_IF_ERROR(spec.RequireFloat32());
  const Dims& dims = spec.input(0).dims;
  SYNCLINE_ASSIGN_OR_RETURN(
      const int64_t axis, ResolveAxis(spec.node->Int("axis", -1), dims.size()));
  RowNorm shape;
  shape.rows = ElementCount(absl::MakeConstSpan(dims).first(axis));
  shape.n = ElementCount(absl::MakeConstSpan(dims).subspan(axis));
  shape.epsilon = spec.node->Float("epsilon", 1e-5f);
  shape.centred = centred;
  for (size_t i = 1; i < 3; ++i) {
    const TensorType& input = spec.input(i);
    if (!input.present || input.count() == shape.n) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "input ", i, " is ", DimsToString(input.dims), "; it must have the ",
        shape.n, " elements that are normalised together"));
  }
  if (shape.n == 0) {
    return absl::InvalidArgumentError("nothing to normalise over");
  }
  return std::make_unique<LayerNormOp>(spec, shape);
}

}  // namespace syncline::worker
