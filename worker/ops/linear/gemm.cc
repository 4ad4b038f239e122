#include "kernels/gemm.h"

#include <optional>

#include "common/base/status_macros.h"
#include "kernels/elementwise/elementwise.h"
#include "worker/ops/op.h"

namespace syncline::worker {
namespace {

// y = alpha * op(a) * op(b) + beta * c; c is broadcast to y.
struct GemmParams {
  int64_t m, n, k;
  bool transpose_a, transpose_b;
  float alpha, beta;
  bool adds_c;   // c is given, and beta is not 0
  bool is_bias;  // c goes into the product itself
  Broadcast c_over_y;
};

absl::StatusOr<GemmParams> ParamsOf(const OpSpec& spec) {
  const Dims& a = spec.input(0).dims;
  const Dims& b = spec.input(1).dims;
  if (a.size() != 2 || b.size() != 2) {
    return absl::InvalidArgumentError("inputs 0 and 1 must be matrices");
  }
  GemmParams p;
  p.transpose_a = spec.node->Int("transA", 0) != 0;
  p.transpose_b = spec.node->Int("transB", 0) != 0;
  p.alpha = spec.node->Float("alpha", 1);
  p.beta = spec.node->Float("beta", 1);
  p.m = a[p.transpose_a ? 1 : 0];
  p.k = a[p.transpose_a ? 0 : 1];
  p.n = b[p.transpose_b ? 0 : 1];
  if (b[p.transpose_b ? 1 : 0] != p.k) {
    return absl::InvalidArgumentError("the inner dimensions differ");
  }
  p.adds_c = spec.input(2).present && p.beta != 0;
  p.is_bias = false;
  if (spec.input(2).present) {
    const Dims y = {p.m, p.n};
    SYNCLINE_ASSIGN_OR_RETURN(p.c_over_y, MakeBroadcast(y, spec.input(2).dims));
    if (p.c_over_y.count != p.m * p.n) {
      return absl::InvalidArgumentError("input 2 is larger than the output");
    }
    const Dims& c = spec.input(2).dims;
    p.is_bias = p.alpha == 1 && p.beta == 1 && !c.empty() && c.back() == p.n &&
                ElementCount(c) == p.n;
  }
  return p;
}

Op::Traits TraitsOf(const OpSpec& spec) {
  Op::Traits traits;
  if (spec.WantsGradient(0)) traits.backward_inputs |= 0b10;
  if (spec.WantsGradient(1)) traits.backward_inputs |= 0b01;
  return traits;
}

class GemmOp : public Op {
 public:
  GemmOp(const OpSpec& spec, GemmParams params, Gemm product)
      : Op(TraitsOf(spec)),
        p_(std::move(params)),
        product_(std::move(product)) {}

  // The products of the gradients that are wanted.
  absl::Status CompileBackward(const OpSpec& spec);

  absl::Status Forward(const Tensors& t) override {
    if (!p_.adds_c || p_.is_bias) {
      return product_.Run(t.in(0), t.in(1), p_.is_bias ? t.in(2) : nullptr,
                          t.out(0));
    }
    Spread(p_.c_over_y, p_.beta, t.in(2), t.out(0));
    return product_.Accumulate(t.in(0), t.in(1), t.out(0));
  }

  absl::Status Backward(const Tensors& t, const Gradients& g) override {
    if (g.in(2) != nullptr) {
      AddGradient(p_.c_over_y, Side::kB, p_.beta, g.out(), g.accumulate(2),
                  g.in(2));
    }
    if (g.in(1) != nullptr) {
      SYNCLINE_RETURN_IF_ERROR(
          p_.transpose_b
              ? Into(*db_, g.out(), t.in(0), g.accumulate(1), g.in(1))
              : Into(*db_, t.in(0), g.out(), g.accumulate(1), g.in(1)));
    }
    if (g.in(0) != nullptr) {
      SYNCLINE_RETURN_IF_ERROR(
          p_.transpose_a
              ? Into(*da_, t.in(1), g.out(), g.accumulate(0), g.in(0))
              : Into(*da_, g.out(), t.in(1), g.accumulate(0), g.in(0)));
    }
    return absl::OkStatus();
  }

 private:
  static absl::Status Into(Gemm& product, const float* left, const float* right,
                           bool accumulate, float* out) {
    return accumulate ? product.Accumulate(left, right, out)
                      : product.Run(left, right, nullptr, out);
  }

  const GemmParams p_;
  Gemm product_;
  std::optional<Gemm> da_, db_;
};

absl::Status GemmOp::CompileBackward(const OpSpec& spec) {
  const GemmParams& p = p_;
  if (spec.WantsGradient(0)) {
    // a [m,k]: dy * op(b)^T.   Stored transposed: op(b) * dy^T.
    Gemm::Shape shape;
    shape.alpha = p.alpha;
    shape.k = p.n;
    shape.m = p.transpose_a ? p.k : p.m;
    shape.n = p.transpose_a ? p.m : p.k;
    shape.transpose_a = p.transpose_a && p.transpose_b;
    shape.transpose_b = p.transpose_a || !p.transpose_b;
    SYNCLINE_ASSIGN_OR_RETURN(da_, Gemm::Create(shape));
  }
  if (spec.WantsGradient(1)) {
    // b [k,n]: op(a)^T * dy.   Stored transposed: dy^T * op(a).
    Gemm::Shape shape;
    shape.alpha = p.alpha;
    shape.k = p.m;
    shape.m = p.transpose_b ? p.n : p.k;
    shape.n = p.transpose_b ? p.k : p.n;
    shape.transpose_a = p.transpose_b || !p.transpose_a;
    shape.transpose_b = p.transpose_b && p.transpose_a;
    SYNCLINE_ASSIGN_OR_RETURN(db_, Gemm::Create(shape));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeGemm(const OpSpec& spec) {
  SYNCLINE_RETURN_IF_ERROR(spec.RequireFloat32());
  SYNCLINE_ASSIGN_OR_RETURN(GemmParams p, ParamsOf(spec));
  SYNCLINE_ASSIGN_OR_RETURN(Gemm product,
                            Gemm::Create({.m = p.m,
                                          .n = p.n,
                                          .k = p.k,
                                          .transpose_a = p.transpose_a,
                                          .transpose_b = p.transpose_b,
                                          .alpha = p.alpha,
                                          .has_bias = p.is_bias}));
  auto op = std::make_unique<GemmOp>(spec, std::move(p), std::move(product));
  SYNCLINE_RETURN_IF_ERROR(op->CompileBackward(spec));
  return op;
}

}  // namespace syncline::worker
