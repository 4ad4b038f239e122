#include <algorithm>
#include <utility>

#include "common/base/status_macros.h"
#include "kernels/device/kernel_table.h"
#include "kernels/device/matrix_product_kernels.h"
#include "kernels/elementwise/broadcast.h"
#include "worker/ops/linear/product_types.h"
#include "worker/ops/op.h"

namespace syncline::worker {
namespace {

// numpy.matmul as a list of products of one shape. Usually it is one: a stack
// times one matrix is a taller matrix, equal stacks are a batch. Otherwise one
// per matrix of the result.
struct MatMulParams {
  int64_t m, n, k;
  int64_t batch = 1;
  struct Product {
    int64_t a, b, y;        // offsets, in elements
    bool first_a, first_b;  // the first product that reads this part of a, b
  };
  std::vector<Product> products;
};

// Stacks that are broadcast: a matrix may be in several products.
absl::Status ListProducts(absl::Span<const int64_t> a_stack,
                          absl::Span<const int64_t> b_stack, MatMulParams* p) {
  SYNCLINE_ASSIGN_OR_RETURN(const Broadcast s, MakeBroadcast(a_stack, b_stack));
  std::vector<bool> seen_a(s.a_count, false);
  std::vector<bool> seen_b(s.b_count, false);
  ForEachRow(s, [&](auto sa, auto sb, int64_t o, int64_t ia, int64_t ib) {
    for (int64_t i = 0; i < s.inner; ++i) {
      const int64_t a = ia + i * sa;
      const int64_t b = ib + i * sb;
      p->products.push_back({.a = a * p->m * p->k,
                             .b = b * p->k * p->n,
                             .y = (o + i) * p->m * p->n,
                             .first_a = !seen_a[a],
                             .first_b = !seen_b[b]});
      seen_a[a] = true;
      seen_b[b] = true;
    }
  });
  return absl::OkStatus();
}

absl::StatusOr<MatMulParams> ParamsOf(Dims a, Dims b) {
  if (a.empty() || b.empty()) {
    return absl::InvalidArgumentError("a scalar has no matrix product");
  }
  if (a.size() == 1) a.insert(a.begin(), 1);
  if (b.size() == 1) b.push_back(1);
  const auto a_stack = absl::MakeSpan(a).first(a.size() - 2);
  const auto b_stack = absl::MakeSpan(b).first(b.size() - 2);
  MatMulParams p;
  p.m = a[a.size() - 2];
  p.k = a.back();
  p.n = b.back();
  if (b[b.size() - 2] != p.k) {
    return absl::InvalidArgumentError("the inner dimensions differ");
  }
  constexpr MatMulParams::Product kWhole = {0, 0, 0, true, true};
  if (ElementCount(b_stack) == 1) {
    p.m *= ElementCount(a_stack);
    p.products = {kWhole};
  } else if (a_stack == b_stack) {
    p.batch = ElementCount(a_stack);
    p.products = {kWhole};
  } else {
    SYNCLINE_RETURN_IF_ERROR(ListProducts(a_stack, b_stack, &p));
  }
  return p;
}

Op::Traits TraitsOf(const OpSpec& spec) {
  Op::Traits traits;
  if (spec.WantsGradient(0)) traits.backward_inputs |= 0b10;
  if (spec.WantsGradient(1)) traits.backward_inputs |= 0b01;
  return traits;
}

class MatMulOp : public Op {
 public:
  MatMulOp(const OpSpec& spec, MatMulParams params)
      : Op(TraitsOf(spec)),
        p_(std::move(params)),
        a_count_(spec.input(0).count()),
        b_count_(spec.input(1).count()) {}

  // y = a * b; da = dy * b^T, db = a^T * dy, as far as they are wanted.
  absl::Status Compile(const OpSpec& spec) {
    const auto make = [&](const MatrixProductShape& shape) {
      return spec.kernels().matrix_product->make(*spec.device, shape);
    };
    const TensorType& a = spec.input(0);
    const TensorType& b = spec.input(1);
    const TensorType& y = spec.output(0);
    SYNCLINE_ASSIGN_OR_RETURN(product_, make({.m = p_.m,
                                              .n = p_.n,
                                              .k = p_.k,
                                              .batch = p_.batch,
                                              .a_type = a.dtype,
                                              .b_type = b.dtype,
                                              .c_type = y.dtype}));
    if (spec.WantsGradient(0)) {
      SYNCLINE_ASSIGN_OR_RETURN(da_, make({.m = p_.m,
                                           .n = p_.k,
                                           .k = p_.n,
                                           .transpose_b = true,
                                           .batch = p_.batch,
                                           .a_type = y.gradient_dtype,
                                           .b_type = b.dtype,
                                           .c_type = a.gradient_dtype}));
    }
    if (spec.WantsGradient(1)) {
      SYNCLINE_ASSIGN_OR_RETURN(db_, make({.m = p_.k,
                                           .n = p_.n,
                                           .k = p_.m,
                                           .transpose_a = true,
                                           .batch = p_.batch,
                                           .a_type = a.dtype,
                                           .b_type = y.gradient_dtype,
                                           .c_type = b.gradient_dtype}));
    }
    return absl::OkStatus();
  }

  absl::Status Forward(const Tensors& t) override {
    for (const auto& part : p_.products) {
      SYNCLINE_RETURN_IF_ERROR(product_->Run(*t.stream, t.in(0) + part.a,
                                             t.in(1) + part.b, /*bias=*/nullptr,
                                             t.out(0) + part.y));
    }
    return absl::OkStatus();
  }

  absl::Status Backward(const Tensors& t, const Gradients& g) override {
    if (p_.products.empty()) ClearGradients(t, g);
    if (g.in(1) != nullptr) {
      for (const auto& part : p_.products) {
        SYNCLINE_RETURN_IF_ERROR(
            db_->Into(*t.stream, t.in(0) + part.a, g.out() + part.y,
                      !part.first_b || g.accumulate(1), g.in(1) + part.b));
      }
    }
    if (g.in(0) != nullptr) {
      for (const auto& part : p_.products) {
        SYNCLINE_RETURN_IF_ERROR(
            da_->Into(*t.stream, g.out() + part.y, t.in(1) + part.b,
                      !part.first_a || g.accumulate(0), g.in(0) + part.a));
      }
    }
    return absl::OkStatus();
  }

 private:
  // No product writes them where one stack is empty and the other is not.
  void ClearGradients(const Tensors& t, const Gradients& g) const {
    for (const auto& [input, count] : {std::pair{0, a_count_}, {1, b_count_}}) {
      if (g.in(input) == nullptr || g.accumulate(input)) continue;
      t.stream->Clear(g.in(input), g.in(input).Bytes(count));
    }
  }

  const MatMulParams p_;
  const int64_t a_count_, b_count_;
  std::unique_ptr<MatrixProduct> product_, da_, db_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeMatMul(const OpSpec& spec) {
  SYNCLINE_RETURN_IF_ERROR(spec.RequireFloat32());
  const MatrixProductKernels* const family = spec.kernels().matrix_product;
  SYNCLINE_RETURN_IF_ERROR(spec.RequireKernels(family));
  SYNCLINE_RETURN_IF_ERROR(spec.RequireKernels(family->make));
  SYNCLINE_ASSIGN_OR_RETURN(MatMulParams p,
                            ParamsOf(spec.input(0).dims, spec.input(1).dims));
  // The gradient of a matrix in several products is added to by each.
  const bool adds = std::any_of(
      p.products.begin(), p.products.end(),
      [](const auto& part) { return !part.first_a || !part.first_b; });
  SYNCLINE_RETURN_IF_ERROR(RequireTypesOfProducts(spec));
  if (adds && (Is16Bit(spec.input(0).gradient_dtype) ||
               Is16Bit(spec.input(1).gradient_dtype))) {
    return absl::UnimplementedError("gradients that are sums of products");
  }
  auto op = std::make_unique<MatMulOp>(spec, std::move(p));
  SYNCLINE_RETURN_IF_ERROR(op->Compile(spec));
  return op;
}

}  // namespace syncline::worker
