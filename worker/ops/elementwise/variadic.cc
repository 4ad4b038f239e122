// Operators of any number of inputs, element by element: Sum, Mean, Max, Min.

#include <algorithm>
#include <limits>
#include <utility>

#include "common/base/status_macros.h"
#include "kernels/elementwise/binary_loop.h"
#include "kernels/elementwise/elementwise.h"
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
  WeightedSumOp(Shapes shapes, float weight)
      : Op({.gradient_in_place = HasResultsShape(shapes[0])}),
        shapes_(std::move(shapes)),
        weight_(weight) {}

  absl::Status Forward(const Tensors& t) override {
    float* const y = t.out(0);
    Spread(shapes_[0], 1.0f, t.in(0), y);
    for (size_t i = 1; i < shapes_.size(); ++i) {
      Add(shapes_[i], y, t.in(i), y);
    }
    if (weight_ != 1) {
      Emit(shapes_[0].count, /*accumulate=*/false, y,
           [y, weight = weight_](int64_t i) { return y[i] * weight; });
    }
    return absl::OkStatus();
  }

  absl::Status Backward(const Tensors&, const Gradients& g) override {
    for (size_t i = shapes_.size(); i-- > 0;) {
      if (g.in(i) == nullptr) continue;
      AddGradient(shapes_[i], Side::kB, weight_, g.out(), g.accumulate(i),
                  g.in(i));
    }
    return absl::OkStatus();
  }

 private:
  const Shapes shapes_;
  const float weight_;
};

// The workspace says which input each element of the result is of, as a Winner,
// which is wide enough for the last input's index.
template <typename Winner>
class ExtremumOp : public Op {
 public:
  ExtremumOp(Shapes shapes, bool largest)
      : Op({.workspace_bytes =
                shapes[0].count * static_cast<int64_t>(sizeof(Winner)),
            .gradient_in_place = HasResultsShape(shapes[0])}),
        shapes_(std::move(shapes)),
        largest_(largest) {}

  absl::Status Forward(const Tensors& t) override {
    auto* const winners = static_cast<Winner*>(t.workspace);
    std::fill_n(winners, shapes_[0].count, Winner{0});
    Spread(shapes_[0], 1.0f, t.in(0), t.out(0));
    for (size_t i = 1; i < shapes_.size(); ++i) {
      if (largest_) {
        Compete(i, t, winners, [](float x, float y) { return x > y; });
      } else {
        Compete(i, t, winners, [](float x, float y) { return x < y; });
      }
    }
    return absl::OkStatus();
  }

  absl::Status Backward(const Tensors& t, const Gradients& g) override {
    const auto* const winners = static_cast<const Winner*>(t.workspace);
    const float* const dy = g.out();
    for (size_t i = shapes_.size(); i-- > 0;) {
      if (g.in(i) == nullptr) continue;
      BinaryGradient(shapes_[i], Side::kB, g.accumulate(i), g.in(i),
                     [=](int64_t o, int64_t, int64_t) {
                       return winners[o] == i ? dy[o] : 0.0f;
                     });
    }
    return absl::OkStatus();
  }

 private:
  template <typename Beats>
  void Compete(size_t input, const Tensors& t, Winner* winners,
               Beats beats) const {
    const Broadcast& shape = shapes_[input];
    const float* const x = t.in(input);
    float* const y = t.out(0);
    ForEachRow(shape, [&](auto, auto sb, int64_t o, int64_t, int64_t b) {
      for (int64_t i = 0; i < shape.inner; ++i) {
        const float candidate = x[b + i * sb];
        const bool wins = beats(candidate, y[o + i]) || candidate != candidate;
        winners[o + i] = wins ? static_cast<Winner>(input) : winners[o + i];
        y[o + i] = wins ? candidate : y[o + i];
      }
    });
  }

  const Shapes shapes_;
  const bool largest_;
};

std::unique_ptr<Op> MakeExtremum(Shapes shapes, bool largest) {
  if (shapes.size() <= std::numeric_limits<uint8_t>::max() + size_t{1}) {
    return std::make_unique<ExtremumOp<uint8_t>>(std::move(shapes), largest);
  }
  return std::make_unique<ExtremumOp<uint32_t>>(std::move(shapes), largest);
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
  switch (combination) {
    case Combination::kMax:
    case Combination::kMin:
      return MakeExtremum(std::move(shapes), combination == Combination::kMax);
    case Combination::kSum:
    case Combination::kMean:
      break;
  }
  const float weight = combination == Combination::kMean
                           ? 1.0f / static_cast<float>(spec.inputs.size())
                           : 1.0f;
  return std::make_unique<WeightedSumOp>(std::move(shapes), weight);
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
