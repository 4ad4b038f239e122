#include "common/base/status_macros.h"
#include "kernels/device/binary_kernels.h"
#include "kernels/device/kernel_table.h"
#include "kernels/device/matrix_product_kernels.h"
#include "kernels/elementwise/broadcast.h"
#include "worker/ops/factor_gradients.h"
#include "worker/ops/linear/product_types.h"
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
  // The product is a float32 array, to which c is added with one rounding:
  // where the result has 16 bits.
  bool adds_c_apart = false;
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

// Where the result has 16 bits. Errors: Unimplemented: c is scaled, or has 16
// bits and is in a float32 product.
absl::Status AddInOneRounding(const OpSpec& spec, GemmParams* p) {
  const bool is_narrow = Is16Bit(spec.output(0).dtype);
  if (!p->adds_c || !(is_narrow || Is16Bit(spec.input(2).dtype))) {
    return absl::OkStatus();
  }
  const BinaryKernels* const binary = spec.kernels().binary;
  if (!is_narrow || p->beta != 1 || binary == nullptr) {
    return absl::UnimplementedError("a summand of two roundings");
  }
  SYNCLINE_RETURN_IF_ERROR(
      spec.RequireKernels((*binary)[BinaryFunction::kAdd].forward));
  p->adds_c_apart = true;
  p->is_bias = false;
  return absl::OkStatus();
}

Op::Traits TraitsOf(const OpSpec& spec, const GemmParams& params) {
  Op::Traits traits;
  if (params.adds_c_apart) {
    traits.forward_scratch_bytes =
        params.m * params.n * static_cast<int64_t>(sizeof(float));
  }
  if (spec.WantsGradient(0)) traits.backward_inputs |= 0b10;
  if (spec.WantsGradient(1)) traits.backward_inputs |= 0b01;
  return traits;
}

class GemmOp : public Op {
 public:
  GemmOp(const OpSpec& spec, const GemmParams& params)
      : Op(TraitsOf(spec, params)),
        p_(params),
        kernels_(*spec.kernels().matrix_product) {
    if (p_.adds_c_apart) {
      add_ = (*spec.kernels().binary)[BinaryFunction::kAdd].forward;
    }
  }

  // The product, and those of the gradients that are wanted.
  absl::Status Compile(const OpSpec& spec);

  absl::Status Forward(const Tensors& t) override {
    if (p_.adds_c_apart) {
      float* const product = static_cast<float*>(t.scratch);
      SYNCLINE_RETURN_IF_ERROR(product_->Run(*t.stream, t.in(0), t.in(1),
                                             /*bias=*/nullptr, product));
      add_(*t.stream, p_.c_over_y, product, t.in(2), t.out(0));
      return absl::OkStatus();
    }
    if (!p_.adds_c || p_.is_bias) {
      return product_->Run(*t.stream, t.in(0), t.in(1),
                           p_.is_bias ? t.in(2) : nullptr, t.out(0));
    }
    kernels_.spread(*t.stream, p_.c_over_y, p_.beta, t.in(2), t.out(0));
    return product_->Accumulate(*t.stream, t.in(0), t.in(1), t.out(0));
  }

  absl::Status Backward(const Tensors& t, const Gradients& g) override {
    if (g.in(2) != nullptr) {
      kernels_.spread_gradient(*t.stream, p_.c_over_y, p_.beta, g.out(),
                               g.accumulate(2), g.in(2));
    }
    if (g.in(1) != nullptr) {
      SYNCLINE_RETURN_IF_ERROR(of_b_.Run(*db_, *t.stream, g.out(), t.in(0),
                                         g.accumulate(1), g.in(1)));
    }
    if (g.in(0) != nullptr) {
      SYNCLINE_RETURN_IF_ERROR(of_a_.Run(*da_, *t.stream, g.out(), t.in(1),
                                         g.accumulate(0), g.in(0)));
    }
    return absl::OkStatus();
  }

 private:
  const GemmParams p_;
  const MatrixProductKernels kernels_;
  decltype(BinaryKernels::Function::forward) add_ = nullptr;
  std::unique_ptr<MatrixProduct> product_, da_, db_;
  FactorGradient of_a_, of_b_;
};

absl::Status GemmOp::Compile(const OpSpec& spec) {
  const GemmParams& p = p_;
  MatrixProductShape shape = {.m = p.m,
                              .n = p.n,
                              .k = p.k,
                              .transpose_a = p.transpose_a,
                              .transpose_b = p.transpose_b,
                              .alpha = p.alpha,
                              .has_bias = p.is_bias};
  shape.a_type = spec.input(0).dtype;
  shape.b_type = spec.input(1).dtype;
  shape.c_type = p.adds_c_apart ? DType::kFloat32 : spec.output(0).dtype;
  SYNCLINE_ASSIGN_OR_RETURN(product_, kernels_.make(*spec.device, shape));
  if (spec.WantsGradient(0)) {
    of_a_ = GradientOfA(shape, spec);
    SYNCLINE_ASSIGN_OR_RETURN(da_, kernels_.make(*spec.device, of_a_.shape));
  }
  if (spec.WantsGradient(1)) {
    of_b_ = GradientOfB(shape, spec);
    SYNCLINE_ASSIGN_OR_RETURN(db_, kernels_.make(*spec.device, of_b_.shape));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeGemm(const OpSpec& spec) {
  SYNCLINE_RETURN_IF_ERROR(spec.RequireFloat32());
  const MatrixProductKernels* const family = spec.kernels().matrix_product;
  SYNCLINE_RETURN_IF_ERROR(spec.RequireKernels(family));
  SYNCLINE_RETURN_IF_ERROR(spec.RequireKernels(family->make));
  SYNCLINE_ASSIGN_OR_RETURN(GemmParams p, ParamsOf(spec));
  SYNCLINE_RETURN_IF_ERROR(RequireTypesOfProducts(spec));
  SYNCLINE_RETURN_IF_ERROR(AddInOneRounding(spec, &p));
  if (p.adds_c) SYNCLINE_RETURN_IF_ERROR(spec.RequireKernels(family->spread));
  if (spec.WantsGradient(2)) {
    SYNCLINE_RETURN_IF_ERROR(spec.RequireKernels(family->spread_gradient));
  }
  auto op = std::make_unique<GemmOp>(spec, p);
  SYNCLINE_RETURN_IF_ERROR(op->Compile(spec));
  return op;
}

}  // namespace syncline::worker
