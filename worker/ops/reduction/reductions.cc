#include "worker/ops/reduction/reductions.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "common/base/status_macros.h"
#include "kernels/elementwise/binary_loop.h"
#include "kernels/elementwise/loop.h"
#include "kernels/elementwise/vector_math.h"
#include "worker/ops/elementwise/integers.h"
#include "worker/ops/reduction_shape.h"

namespace syncline::worker {
namespace {

class ReduceOp : public Op {
 public:
  ReduceOp(Broadcast shape, float scale)
      : Op(Traits()), shape_(std::move(shape)), scale_(scale) {}

  absl::Status Forward(const Tensors& t) override {
    const float* const x = t.in(0);
    float* const y = t.out(0);
    std::fill(y, y + shape_.b_count, 0.0f);
    AddUpGradient(shape_, Side::kB, y,
                  [x](int64_t, int64_t a, int64_t) { return x[a]; });
    if (scale_ != 1) {
      for (int64_t i = 0; i < shape_.b_count; ++i) y[i] *= scale_;
    }
    return absl::OkStatus();
  }

  absl::Status Backward(const Tensors&, const Gradients& g) override {
    const float* const dy = g.out();
    ForEachRow(shape_, [&](auto, auto sb, int64_t, int64_t a, int64_t b) {
      Emit(shape_.inner, g.accumulate(0), g.in(0) + a,
           [&](int64_t i) { return dy[b + i * sb] * scale_; });
    });
    return absl::OkStatus();
  }

 private:
  const Broadcast shape_;
  const float scale_;
};

// Sum or mean over the axes.
absl::StatusOr<std::unique_ptr<Op>> MakeReduce(const OpSpec& spec,
                                               Reduction reduction) {
  SYNCLINE_ASSIGN_OR_RETURN(const Dims reduced, ReducedDims(spec));
  return MakeReduceTo(spec, reduced, reduction);
}

// y = F::Result(sum of F::Term(x)) over the axes, and F::Derivative(x, y) of y
// by x.
template <typename F>
class MappedReduceOp : public Op {
 public:
  explicit MappedReduceOp(Broadcast shape)
      : Op({.backward_inputs = 1, .backward_outputs = 1}),
        shape_(std::move(shape)) {}

  absl::Status Forward(const Tensors& t) override {
    const float* const x = t.in(0);
    float* const y = t.out(0);
    std::fill_n(y, shape_.b_count, 0.0f);
    AddUpGradient(shape_, Side::kB, y,
                  [x](int64_t, int64_t a, int64_t) { return F::Term(x[a]); });
    Emit(shape_.b_count, /*accumulate=*/false, y,
         [=](int64_t i) { return F::Result(y[i]); });
    return absl::OkStatus();
  }

  absl::Status Backward(const Tensors& t, const Gradients& g) override {
    const float* const x = t.in(0);
    const float* const y = t.out(0);
    const float* const dy = g.out();
    ForEachRow(shape_, [&](auto, auto sb, int64_t, int64_t a, int64_t b) {
      Emit(shape_.inner, g.accumulate(0), g.in(0) + a, [&](int64_t i) {
        return dy[b + i * sb] * F::Derivative(x[a + i], y[b + i * sb]);
      });
    });
    return absl::OkStatus();
  }

 private:
  const Broadcast shape_;
};

template <typename F>
absl::StatusOr<std::unique_ptr<Op>> MakeMappedReduce(const OpSpec& spec) {
  SYNCLINE_ASSIGN_OR_RETURN(Broadcast shape, ReductionShape(spec));
  return std::make_unique<MappedReduceOp<F>>(std::move(shape));
}

struct Magnitudes {
  static float Term(float x) { return std::fabs(x); }
  static float Result(float sum) { return sum; }
  static float Derivative(float x, float) {
    return x > 0 ? 1.0f : (x < 0 ? -1.0f : 0.0f);
  }
};

struct Length {
  static float Term(float x) { return x * x; }
  static float Result(float sum) { return std::sqrt(sum); }
  // At 0, where there is none, 0.
  static float Derivative(float x, float y) { return y == 0 ? 0.0f : x / y; }
};

struct Squares {
  static float Term(float x) { return x * x; }
  static float Result(float sum) { return sum; }
  static float Derivative(float x, float) { return 2.0f * x; }
};

struct LogOfSum {
  static float Term(float x) { return x; }
  static float Result(float sum) { return std::log(sum); }
  static float Derivative(float, float y) { return Exp(-y); }
};

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Shifted by the maximum, so that nothing overflows; by nothing where that is
// infinite. The scratch has the sums.
class ReduceLogSumExpOp : public Op {
 public:
  explicit ReduceLogSumExpOp(Broadcast shape)
      : Op({.backward_inputs = 1,
            .backward_outputs = 1,
            .forward_scratch_bytes =
                static_cast<int64_t>(shape.b_count * sizeof(float))}),
        shape_(std::move(shape)) {}

  absl::Status Forward(const Tensors& t) override {
    const float* const x = t.in(0);
    float* const y = t.out(0);
    float* const sums = static_cast<float*>(t.scratch);
    std::fill_n(y, shape_.b_count, -kInfinity);
    ForEachRow(shape_, [&](auto, auto sb, int64_t, int64_t a, int64_t b) {
      for (int64_t i = 0; i < shape_.inner; ++i) {
        float& most = y[b + i * sb];
        most = x[a + i] > most ? x[a + i] : most;
      }
    });
    Emit(shape_.b_count, /*accumulate=*/false, y,
         [=](int64_t i) { return std::isfinite(y[i]) ? y[i] : 0.0f; });
    std::fill_n(sums, shape_.b_count, 0.0f);
    AddUpGradient(
        shape_, Side::kB, sums,
        [x, y](int64_t, int64_t a, int64_t b) { return Exp(x[a] - y[b]); });
    Emit(shape_.b_count, /*accumulate=*/true, y,
         [=](int64_t i) { return std::log(sums[i]); });
    return absl::OkStatus();
  }

  absl::Status Backward(const Tensors& t, const Gradients& g) override {
    const float* const x = t.in(0);
    const float* const y = t.out(0);
    const float* const dy = g.out();
    ForEachRow(shape_, [&](auto, auto sb, int64_t, int64_t a, int64_t b) {
      Emit(shape_.inner, g.accumulate(0), g.in(0) + a, [&](int64_t i) {
        const float of = y[b + i * sb];
        return of == -kInfinity ? 0.0f : dy[b + i * sb] * Exp(x[a + i] - of);
      });
    });
    return absl::OkStatus();
  }

 private:
  const Broadcast shape_;
};

// The workspace has the product of what is not 0, and then how many are 0: the
// derivative by a factor is the product of the others. In double, so that it is
// still there to be divided where the product itself is too large or too small
// for a float.
class ReduceProdOp : public Op {
 public:
  explicit ReduceProdOp(Broadcast shape)
      : Op({.backward_inputs = 1,
            .workspace_bytes =
                static_cast<int64_t>(2 * shape.b_count * sizeof(double))}),
        shape_(std::move(shape)) {}

  absl::Status Forward(const Tensors& t) override {
    const float* const x = t.in(0);
    auto* const products = static_cast<double*>(t.workspace);
    double* const zeros = products + shape_.b_count;
    std::fill_n(products, shape_.b_count, 1.0);
    std::fill_n(zeros, shape_.b_count, 0.0);
    ForEachRow(shape_, [&](auto, auto sb, int64_t, int64_t a, int64_t b) {
      for (int64_t i = 0; i < shape_.inner; ++i) {
        const bool zero = x[a + i] == 0;
        products[b + i * sb] *= zero ? 1.0 : x[a + i];
        zeros[b + i * sb] += zero ? 1.0 : 0.0;
      }
    });
    Emit(shape_.b_count, /*accumulate=*/false, t.out(0), [=](int64_t i) {
      return zeros[i] > 0 ? 0.0f : static_cast<float>(products[i]);
    });
    return absl::OkStatus();
  }

  absl::Status Backward(const Tensors& t, const Gradients& g) override {
    const float* const x = t.in(0);
    const auto* const products = static_cast<const double*>(t.workspace);
    const double* const zeros = products + shape_.b_count;
    const float* const dy = g.out();
    const auto others = [&](float factor, int64_t b) {
      if (factor == 0) return zeros[b] > 1 ? 0.0 : products[b];
      return zeros[b] > 0 ? 0.0 : products[b] / factor;
    };
    ForEachRow(shape_, [&](auto, auto sb, int64_t, int64_t a, int64_t b) {
      Emit(shape_.inner, g.accumulate(0), g.in(0) + a, [&](int64_t i) {
        return dy[b + i * sb] *
               static_cast<float>(others(x[a + i], b + i * sb));
      });
    });
    return absl::OkStatus();
  }

 private:
  const Broadcast shape_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeReduceTo(const OpSpec& spec,
                                                 const Dims& reduced,
                                                 Reduction reduction) {
  SYNCLINE_ASSIGN_OR_RETURN(Broadcast shape, ReductionShapeTo(spec, reduced));
  const int64_t merged = std::max<int64_t>(ElementCount(reduced), 1);
  const float scale =
      reduction == Reduction::kMean
          ? static_cast<float>(merged) / static_cast<float>(shape.a_count)
          : 1.0f;
  return std::make_unique<ReduceOp>(std::move(shape), scale);
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
  return MakeMappedReduce<Magnitudes>(spec);
}

absl::StatusOr<std::unique_ptr<Op>> MakeReduceL2(const OpSpec& spec) {
  return MakeMappedReduce<Length>(spec);
}

absl::StatusOr<std::unique_ptr<Op>> MakeReduceSumSquare(const OpSpec& spec) {
  return MakeMappedReduce<Squares>(spec);
}

absl::StatusOr<std::unique_ptr<Op>> MakeReduceLogSum(const OpSpec& spec) {
  return MakeMappedReduce<LogOfSum>(spec);
}

absl::StatusOr<std::unique_ptr<Op>> MakeReduceLogSumExp(const OpSpec& spec) {
  SYNCLINE_ASSIGN_OR_RETURN(Broadcast shape, ReductionShape(spec));
  return std::make_unique<ReduceLogSumExpOp>(std::move(shape));
}

absl::StatusOr<std::unique_ptr<Op>> MakeReduceProd(const OpSpec& spec) {
  if (IsInteger(spec.input(0).dtype)) {
    return MakeIntegerReduction(spec, IntegerFunction::kMultiply);
  }
  SYNCLINE_ASSIGN_OR_RETURN(Broadcast shape, ReductionShape(spec));
  return std::make_unique<ReduceProdOp>(std::move(shape));
}

}  // namespace syncline::worker
