// ScatterElements and ScatterND.

#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/device/kernel_table.h"
#include "kernels/device/scatter_kernels.h"
#include "worker/ops/axes.h"
#include "worker/ops/tensor/indexed.h"

namespace syncline::worker {
namespace {

struct ScatterPlan {
  IndexedShape shape;
  ScatterReduction reduction = ScatterReduction::kReplace;
  const IndexedKernels* indexed = nullptr;
  ScatterKernels::Reduction kernels;
};

// The workspace has where each run begins.
class ScatterOp : public Op {
 public:
  explicit ScatterOp(const ScatterPlan& plan)
      : Op(TraitsOf(plan)), plan_(plan) {}

  absl::Status Forward(const Tensors& t) override {
    auto* const begins = static_cast<int64_t*>(t.workspace);
    plan_.indexed->find(*t.stream, plan_.shape, t.inputs[1], begins, t.errors);
    plan_.kernels.forward(*t.stream, plan_.shape, t.in(0), t.in(2), begins,
                          t.out(0), t.scratch);
    return absl::OkStatus();
  }

  absl::Status Backward(const Tensors& t, const Gradients& g) override {
    plan_.kernels.backward(*t.stream, plan_.shape, t.in(0), t.in(2),
                           static_cast<const int64_t*>(t.workspace), t.out(0),
                           g.out(),
                           {.x = g.in(0),
                            .accumulate_x = g.accumulate(0),
                            .updates = g.in(2),
                            .accumulate_updates = g.accumulate(2)},
                           t.scratch);
    return absl::OkStatus();
  }

  absl::Status Explain(const DataError& error) const override {
    return ExplainIndex(error);
  }

 private:
  static Traits TraitsOf(const ScatterPlan& plan) {
    const bool is_linear = plan.reduction == ScatterReduction::kReplace ||
                           plan.reduction == ScatterReduction::kAdd;
    const bool is_extremum = plan.reduction == ScatterReduction::kMax ||
                             plan.reduction == ScatterReduction::kMin;
    Traits traits;
    traits.gradient_in_place = true;
    traits.backward_inputs = is_linear ? 0 : 0b101;
    traits.backward_outputs = is_extremum ? 1 : 0;
    traits.workspace_bytes = plan.shape.runs * sizeof(int64_t);
    traits.forward_scratch_bytes =
        plan.kernels.forward_scratch_bytes(plan.shape);
    traits.backward_scratch_bytes =
        plan.kernels.backward_scratch_bytes(plan.shape);
    return traits;
  }

  const ScatterPlan plan_;
};

absl::StatusOr<ScatterReduction> ReductionOf(const Node& node) {
  const std::string name = node.String("reduction", "none");
  if (name == "none") return ScatterReduction::kReplace;
  if (name == "add") return ScatterReduction::kAdd;
  if (name == "mul") return ScatterReduction::kMultiply;
  if (name == "max") return ScatterReduction::kMax;
  if (name == "min") return ScatterReduction::kMin;
  return absl::InvalidArgumentError(absl::StrCat(
      "reduction is \"", name, "\"; it must be none, add, mul, max or min"));
}

// An operator whose output is its first input, with the runs of the third one
// at the places that the second one says: in place of what is there, or reduced
// with it as the attribute "reduction" says. float32. ONNX leaves open which of
// runs that replace the same place counts.
absl::StatusOr<std::unique_ptr<Op>> MakeScatter(const OpSpec& spec,
                                                const IndexedShape& shape) {
  SYNCLINE_RETURN_IF_ERROR(CheckIndexType(spec.input(1)));
  if (spec.input(0).dtype != DType::kFloat32 ||
      spec.input(2).dtype != DType::kFloat32) {
    return absl::InvalidArgumentError("only float32 is computed");
  }
  SYNCLINE_ASSIGN_OR_RETURN(const ScatterReduction reduction,
                            ReductionOf(*spec.node));
  const IndexedKernels* const indexed = spec.kernels().indexed;
  const ScatterKernels* const family = spec.kernels().scatter;
  SYNCLINE_RETURN_IF_ERROR(spec.RequireKernels(indexed, family));
  const ScatterKernels::Reduction kernels = (*family)[reduction];
  SYNCLINE_RETURN_IF_ERROR(spec.RequireKernels(
      indexed->find, kernels.forward, kernels.backward,
      kernels.forward_scratch_bytes, kernels.backward_scratch_bytes));
  return std::make_unique<ScatterOp>(
      ScatterPlan{shape, reduction, indexed, kernels});
}

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeScatterElements(const OpSpec& spec) {
  const TensorType& data = spec.input(0);
  SYNCLINE_ASSIGN_OR_RETURN(
      const int64_t axis,
      ResolveAxis(spec.node->Int("axis", 0), data.dims.size()));
  SYNCLINE_ASSIGN_OR_RETURN(const IndexedShape shape,
                            ElementsAlong(data, spec.input(1), axis));
  if (spec.input(2).dims != spec.input(1).dims) {
    return absl::InvalidArgumentError(absl::StrCat(
        "updates ", DimsToString(spec.input(2).dims),
        " are not of the indices' shape ", DimsToString(spec.input(1).dims)));
  }
  return MakeScatter(spec, shape);
}

absl::StatusOr<std::unique_ptr<Op>> MakeScatterND(const OpSpec& spec) {
  const Dims& data = spec.input(0).dims;
  const Dims& indices = spec.input(1).dims;
  const Dims& updates = spec.input(2).dims;
  const auto shape =
      PartsByTuple(spec.input(0), spec.input(1), /*batch_dims=*/0);
  if (shape.ok()) {
    Dims wanted(indices.begin(), indices.end() - 1);
    wanted.insert(wanted.end(), data.begin() + indices.back(), data.end());
    if (updates == wanted) return MakeScatter(spec, *shape);
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "data ", DimsToString(data), ", indices ", DimsToString(indices),
      " and updates ", DimsToString(updates), " do not fit"));
}

}  // namespace syncline::worker
