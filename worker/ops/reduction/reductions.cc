#include "worker/ops/reduction/reductions.h"

#include <algorithm>

#include "common/base/status_macros.h"
#include "kernels/device/kernel_table.h"
#include "kernels/device/reduction_kernels.h"
#include "worker/ops/elementwise/integers.h"
#include "worker/ops/reduction_shape.h"

namespace syncline::worker {
namespace {

// The shape of a float32 reduction, and the kernels of it.
struct ReductionPlan {
  Broadcast shape;
  const ReductionKernels* kernels = nullptr;
};

absl::StatusOr<ReductionPlan> PlanOf(const OpSpec& spec,
                                     const absl::StatusOr<Broadcast>& shape) {
  SYNCLINE_RETURN_IF_ERROR(shape.status());
  const ReductionKernels* const kernels = spec.kernels().reduction;
  SYNCLINE_RETURN_IF_ERROR(spec.RequireKernels(kernels));
  return ReductionPlan{*shape, kernels};
}

class ReduceOp : public Op {
 public:
  ReduceOp(const ReductionPlan& plan, float scale)
      : Op(Traits()), plan_(plan), scale_(scale) {}

  absl::Status Forward(const Tensors& t) override {
    plan_.kernels->sum(*t.stream, plan_.shape, scale_, t.in(0), t.out(0));
    return absl::OkStatus();
  }

  absl::Status Backward(const Tensors& t, const Gradients& g) override {
    plan_.kernels->sum_backward(*t.stream, plan_.shape, scale_, g.out(),
                                g.accumulate(0), g.in(0));
    return absl::OkStatus();
  }

 private:
  const ReductionPlan plan_;
  const float scale_;
};

// Sum or mean over the axes.
absl::StatusOr<std::unique_ptr<Op>> MakeReduce(const OpSpec& spec,
                                               Reduction reduction) {
  SYNCLINE_ASSIGN_OR_RETURN(const Dims reduced, ReducedDims(spec));
  return MakeReduceTo(spec, reduced, reduction);
}

class MappedReduceOp : public Op {
 public:
  MappedReduceOp(const Broadcast& shape,
                 const ReductionKernels::Function& kernels)
      : Op({.backward_inputs = 1, .backward_outputs = 1}),
        shape_(shape),
        kernels_(kernels) {}

  absl::Status Forward(const Tensors& t) override {
    kernels_.forward(*t.stream, shape_, t.in(0), t.out(0));
    return absl::OkStatus();
  }

  absl::Status Backward(const Tensors& t, const Gradients& g) override {
    kernels_.backward(*t.stream, shape_, t.in(0), t.out(0), g.out(),
                      g.accumulate(0), g.in(0));
    return absl::OkStatus();
  }

 private:
  const Broadcast shape_;
  const ReductionKernels::Function kernels_;
};

absl::StatusOr<std::unique_ptr<Op>> MakeMappedReduce(
    const OpSpec& spec, ReductionFunction function) {
  SYNCLINE_ASSIGN_OR_RETURN(const ReductionPlan plan,
                            PlanOf(spec, ReductionShape(spec)));
  const ReductionKernels::Function& kernels = (*plan.kernels)[function];
  SYNCLINE_RETURN_IF_ERROR(
      spec.RequireKernels(kernels.forward, kernels.backward));
  return std::make_unique<MappedReduceOp>(plan.shape, kernels);
}

class ReduceLogSumExpOp : public Op {
 public:
  explicit ReduceLogSumExpOp(const ReductionPlan& plan)
      : Op({.backward_inputs = 1,
            .backward_outputs = 1,
            .forward_scratch_bytes =
                static_cast<int64_t>(plan.shape.b_count * sizeof(float))}),
        plan_(plan) {}

  absl::Status Forward(const Tensors& t) override {
    plan_.kernels->log_sum_exp(*t.stream, plan_.shape, t.in(0),
                               static_cast<float*>(t.scratch), t.out(0));
    return absl::OkStatus();
  }

  absl::Status Backward(const Tensors& t, const Gradients& g) override {
    plan_.kernels->log_sum_exp_backward(*t.stream, plan_.shape, t.in(0),
                                        t.out(0), g.out(), g.accumulate(0),
                                        g.in(0));
    return absl::OkStatus();
  }

 private:
  const ReductionPlan plan_;
};

// The workspace has the products, and then the numbers of zeros.
class ReduceProdOp : public Op {
 public:
  explicit ReduceProdOp(const ReductionPlan& plan)
      : Op({.backward_inputs = 1,
            .workspace_bytes =
                static_cast<int64_t>(2 * plan.shape.b_count * sizeof(double))}),
        plan_(plan) {}

  absl::Status Forward(const Tensors& t) override {
    auto* const products = static_cast<double*>(t.workspace);
    plan_.kernels->product(*t.stream, plan_.shape, t.in(0), products,
                           products + plan_.shape.b_count, t.out(0));
    return absl::OkStatus();
  }

  absl::Status Backward(const Tensors& t, const Gradients& g) override {
    const auto* const products = static_cast<const double*>(t.workspace);
    plan_.kernels->product_backward(*t.stream, plan_.shape, t.in(0), products,
                                    products + plan_.shape.b_count, g.out(),
                                    g.accumulate(0), g.in(0));
    return absl::OkStatus();
  }

 private:
  const ReductionPlan plan_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeReduceTo(const OpSpec& spec,
                                                 const Dims& reduced,
                                                 Reduction reduction) {
  SYNCLINE_ASSIGN_OR_RETURN(const ReductionPlan plan,
                            PlanOf(spec, ReductionShapeTo(spec, reduced)));
  SYNCLINE_RETURN_IF_ERROR(
      spec.RequireKernels(plan.kernels->sum, plan.kernels->sum_backward));
  const int64_t merged = std::max<int64_t>(ElementCount(reduced), 1);
  const float scale =
      reduction == Reduction::kMean
          ? static_cast<float>(merged) / static_cast<float>(plan.shape.a_count)
          : 1.0f;
  return std::make_unique<ReduceOp>(plan, scale);
}

absl::StatusOr<std::unique_ptr<Op>> MakeReduceSum(const OpSpec& spec) {
  if (IsInteger(spec.input(0).dtype)) {
    return MakeIntegerReduction(spec, IntegerFunction::kAdd);
  }
  return MakeReduce(spec, Reduction::kSum);
}

absl::StatusOr<std::unique_ptr<Op>> MakeReduceMean(const OpSpec& spec) {
  return MakeReduce(spec, Reduction::kMean);
}

absl::StatusOr<std::unique_ptr<Op>> MakeReduceL1(const OpSpec& spec) {
  return MakeMappedReduce(spec, ReductionFunction::kL1);
}

absl::StatusOr<std::unique_ptr<Op>> MakeReduceL2(const OpSpec& spec) {
  return MakeMappedReduce(spec, ReductionFunction::kL2);
}

absl::StatusOr<std::unique_ptr<Op>> MakeReduceSumSquare(const OpSpec& spec) {
  return MakeMappedReduce(spec, ReductionFunction::kSumSquare);
}

absl::StatusOr<std::unique_ptr<Op>> MakeReduceLogSum(const OpSpec& spec) {
  return MakeMappedReduce(spec, ReductionFunction::kLogSum);
}

absl::StatusOr<std::unique_ptr<Op>> MakeReduceLogSumExp(const OpSpec& spec) {
  SYNCLINE_ASSIGN_OR_RETURN(const ReductionPlan plan,
                            PlanOf(spec, ReductionShape(spec)));
  SYNCLINE_RETURN_IF_ERROR(spec.RequireKernels(
      plan.kernels->log_sum_exp, plan.kernels->log_sum_exp_backward));
  return std::make_unique<ReduceLogSumExpOp>(plan);
}

absl::StatusOr<std::unique_ptr<Op>> MakeReduceProd(const OpSpec& spec) {
  if (IsInteger(spec.input(0).dtype)) {
    return MakeIntegerReduction(spec, IntegerFunction::kMultiply);
  }
  SYNCLINE_ASSIGN_OR_RETURN(const ReductionPlan plan,
                            PlanOf(spec, ReductionShape(spec)));
  SYNCLINE_RETURN_IF_ERROR(spec.RequireKernels(plan.kernels->product,
                                               plan.kernels->product_backward));
  return std::make_unique<ReduceProdOp>(plan);
}

}  // namespace syncline::worker
