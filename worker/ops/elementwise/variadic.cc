// Operators of any number of inputs, element by element: Sum, Mean, Max, Min.

#include <limits>
#include <utility>
#include <vector>

#include "common/base/status_macros.h"
#include "kernels/device/combination_kernels.h"
#include "kernels/device/kernel_table.h"
#include "kernels/elementwise/broadcast.h"
#include "worker/ops/elementwise/integers.h"

namespace syncline::worker {
namespace {

enum class Combination { kSum, kMean, kMax, kMin };

// Each is a result with an operand under it: `a` is the result.
using Shapes = std::vector<Broadcast>;

bool HasResultsShape(const Broadcast& shape) {
  return shape.b_count == shape.count;
}

class WeightedSumOp : public Op {
 public:
  WeightedSumOp(Shapes shapes, float weight, const CombinationKernels& kernels)
      : Op({.gradient_in_place = HasResultsShape(shapes[0])}),
        shapes_(std::move(shapes)),
        weight_(weight),
        kernels_(kernels) {}

  absl::Status Forward(const Tensors& t) override {
    float* const y = t.out(0);
    kernels_.spread(*t.stream, shapes_[0], t.in(0), y);
    for (size_t i = 1; i < shapes_.size(); ++i) {
      kernels_.add(*t.stream, shapes_[i], t.in(i), y);
    }
    if (weight_ != 1) kernels_.scale(*t.stream, shapes_[0].count, weight_, y);
    return absl::OkStatus();
  }

  absl::Status Backward(const Tensors& t, const Gradients& g) override {
    for (size_t i = shapes_.size(); i-- > 0;) {
      if (g.in(i) == nullptr) continue;
      kernels_.sum_backward(*t.stream, shapes_[i], weight_, g.out(),
                            g.accumulate(i), g.in(i));
    }
    return absl::OkStatus();
  }

 private:
  const Shapes shapes_;
  const float weight_;
  const CombinationKernels kernels_;
};

// The workspace says which input each element of the result is of, as a Winner,
// which is wide enough for the last input's index.
template <typename Winner>
class ExtremumOp : public Op {
 public:
  using Contest = CombinationKernels::Contest<Winner>;

  ExtremumOp(Shapes shapes, bool largest, const Contest& kernels)
      : Op({.workspace_bytes =
                shapes[0].count * static_cast<int64_t>(sizeof(Winner)),
            .gradient_in_place = HasResultsShape(shapes[0])}),
        shapes_(std::move(shapes)),
        kernels_(kernels),
        join_(largest ? kernels.maximum : kernels.minimum) {}

  absl::Status Forward(const Tensors& t) override {
    auto* const winners = static_cast<Winner*>(t.workspace);
    kernels_.begin(*t.stream, shapes_[0], t.in(0), t.out(0), winners);
    for (size_t i = 1; i < shapes_.size(); ++i) {
      join_(*t.stream, shapes_[i], static_cast<Winner>(i), t.in(i), t.out(0),
            winners);
    }
    return absl::OkStatus();
  }

  absl::Status Backward(const Tensors& t, const Gradients& g) override {
    const auto* const winners = static_cast<const Winner*>(t.workspace);
    for (size_t i = shapes_.size(); i-- > 0;) {
      if (g.in(i) == nullptr) continue;
      kernels_.backward(*t.stream, shapes_[i], static_cast<Winner>(i), winners,
                        g.out(), g.accumulate(i), g.in(i));
    }
    return absl::OkStatus();
  }

 private:
  const Shapes shapes_;
  const Contest kernels_;
  const typename Contest::Join join_;
};

template <typename Winner>
absl::StatusOr<std::unique_ptr<Op>> MakeExtremumOf(
    const OpSpec& spec, Shapes shapes, bool largest,
    const CombinationKernels::Contest<Winner>& kernels) {
  SYNCLINE_RETURN_IF_ERROR(spec.RequireKernels(
      kernels.begin, kernels.maximum, kernels.minimum, kernels.backward));
  return std::make_unique<ExtremumOp<Winner>>(std::move(shapes), largest,
                                              kernels);
}

absl::StatusOr<std::unique_ptr<Op>> MakeExtremum(
    const OpSpec& spec, Shapes shapes, bool largest,
    const CombinationKernels& kernels) {
  if (shapes.size() <= std::numeric_limits<uint8_t>::max() + size_t{1}) {
    return MakeExtremumOf(spec, std::move(shapes), largest, kernels.few);
  }
  return MakeExtremumOf(spec, std::move(shapes), largest, kernels.many);
}

// One result of one or more float32 inputs, element by element, broadcast.
// Among equals the first input is the largest, and the smallest: it alone has
// the gradient. NaN in any input is NaN in the result.
absl::StatusOr<std::unique_ptr<Op>> MakeCombination(const OpSpec& spec,
                                                    Combination combination) {
  SYNCLINE_RETURN_IF_ERROR(spec.RequireFloat32());
  if (spec.inputs.empty()) {
    return absl::InvalidArgumentError("no inputs; it combines at least 1");
  }
  Dims out;
  for (const TensorType& input : spec.inputs) {
    SYNCLINE_ASSIGN_OR_RETURN(out, BroadcastDims(out, input.dims));
  }
  Shapes shapes;
  for (const TensorType& input : spec.inputs) {
    SYNCLINE_ASSIGN_OR_RETURN(Broadcast shape, MakeBroadcast(out, input.dims));
    shapes.push_back(std::move(shape));
  }
  const CombinationKernels* const kernels = spec.kernels().combination;
  SYNCLINE_RETURN_IF_ERROR(spec.RequireKernels(kernels));
  if (combination == Combination::kMax || combination == Combination::kMin) {
    return MakeExtremum(spec, std::move(shapes),
                        combination == Combination::kMax, *kernels);
  }
  SYNCLINE_RETURN_IF_ERROR(spec.RequireKernels(
      kernels->spread, kernels->add, kernels->scale, kernels->sum_backward));
  const float weight = combination == Combination::kMean
                           ? 1.0f / static_cast<float>(spec.inputs.size())
                           : 1.0f;
  return std::make_unique<WeightedSumOp>(std::move(shapes), weight, *kernels);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeSum(const OpSpec& spec) {
  return MakeCombination(spec, Combination::kSum);
}

absl::StatusOr<std::unique_ptr<Op>> MakeMean(const OpSpec& spec) {
  return MakeCombination(spec, Combination::kMean);
}

absl::StatusOr<std::unique_ptr<Op>> MakeMax(const OpSpec& spec) {
  if (IsInteger(spec.input(0).dtype)) {
    return MakeIntegerArithmetic(spec, IntegerFunction::kMax);
  }
  return MakeCombination(spec, Combination::kMax);
}

absl::StatusOr<std::unique_ptr<Op>> MakeMin(const OpSpec& spec) {
  if (IsInteger(spec.input(0).dtype)) {
    return MakeIntegerArithmetic(spec, IntegerFunction::kMin);
  }
  return MakeCombination(spec, Combination::kMin);
}

}  // namespace syncline::worker
