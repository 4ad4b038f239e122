#include <algorithm>
#include <utility>

#include "common/base/status_macros.h"
#include "kernels/elementwise/loop.h"
#include "worker/ops/integers.h"
#include "worker/ops/reduce.h"

namespace syncline::worker {
namespace {

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

absl::StatusOr<std::unique_ptr<Op>> MakeReduceProd(const OpSpec& spec) {
  if (IsInteger(spec.input(0).dtype)) {
    return MakeIntegerReduction(spec, IntegerFunction::kMultiply);
  }
  SYNCLINE_ASSIGN_OR_RETURN(Broadcast shape, ReductionShape(spec));
  return std::make_unique<ReduceProdOp>(std::move(shape));
}

}  // namespace syncline::worker
