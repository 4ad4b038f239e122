// A matrix product with a bias and a function in its epilogue, and the function
// of what it multiplies in that of its gradient.

#include <memory>
#include <string>
#include <utility>

#include "common/base/status_macros.h"
#include "kernels/device/cast_kernels.h"
#include "kernels/device/kernel_table.h"
#include "kernels/device/matrix_product_kernels.h"
#include "kernels/elementwise/broadcast.h"
#include "worker/ops/factor_gradients.h"
#include "worker/ops/fused_op.h"
#include "worker/ops/op.h"

namespace syncline::worker {
namespace {

constexpr size_t kBiasInput = 2;
constexpr size_t kKeptInput = 3;
constexpr size_t kKeptOutput = 1;

absl::StatusOr<ProductEpilogue::Function> FunctionOf(const Node& node,
                                                     const char* attribute) {
  const std::string name = node.String(attribute, "");
  if (name.empty()) return ProductEpilogue::Function::kNone;
  if (name == kReluFunction) return ProductEpilogue::Function::kRelu;
  if (name == kGeluTanhFunction) return ProductEpilogue::Function::kGeluTanh;
  return absl::UnimplementedError("a function of another kind");
}

// One type for all matrices, 32 or 16 bits; the factors' gradients may be
// float32. Errors: Unimplemented: others.
absl::Status RequireOneTypeOfMatrices(const OpSpec& spec) {
  const DType type = spec.input(0).dtype;
  const bool is_float =
      type == DType::kFloat32 ||
      (Is16Bit(type) && spec.device->computes_in("MatMul", type));
  bool is_one =
      spec.input(1).dtype == type && spec.output(0).dtype == type &&
      (!spec.WantsAnyGradient() || spec.output(0).gradient_dtype == type);
  if (spec.input(kKeptInput).present && spec.WantsGradient(0)) {
    is_one = is_one && spec.input(0).gradient_dtype == type;
  }
  const TensorType& bias = spec.input(kBiasInput);
  const bool is_float32 =
      !bias.present ||
      (bias.dtype == DType::kFloat32 && bias.gradient_dtype == DType::kFloat32);
  if (is_float && is_one && is_float32) return absl::OkStatus();
  return absl::UnimplementedError("matrices of two types");
}

absl::StatusOr<MatrixProductShape> ShapeOf(const OpSpec& spec) {
  const Dims& a = spec.input(0).dims;
  const Dims& b = spec.input(1).dims;
  MatrixProductShape s;
  s.transpose_a = spec.node->Int("transA", 0) != 0;
  s.transpose_b = spec.node->Int("transB", 0) != 0;
  s.alpha = spec.node->Float("alpha", 1);
  if (a.size() < 2 || b.size() != 2 || (s.transpose_a && a.size() != 2)) {
    return absl::UnimplementedError("factors that are no two matrices");
  }
  s.k = s.transpose_a ? a[0] : a.back();
  s.m = s.transpose_a ? a[1] : ElementCount({a.data(), a.size() - 1});
  s.n = b[s.transpose_b ? 0 : 1];
  const bool fits = b[s.transpose_b ? 1 : 0] == s.k;
  const TensorType& bias = spec.input(kBiasInput);
  if (!fits || (bias.present && bias.count() != s.n)) {
    return absl::UnimplementedError("matrices that do not fit");
  }
  s.a_type = spec.input(0).dtype;
  s.b_type = spec.input(1).dtype;
  s.c_type = spec.output(0).dtype;
  return s;
}

// A bias of another type than the product's is rounded into scratch.
bool CastsBias(const OpSpec& spec) {
  return spec.input(kBiasInput).present &&
         spec.input(kBiasInput).dtype != spec.output(0).dtype;
}

Op::Traits TraitsOf(const OpSpec& spec, const MatrixProductShape& shape) {
  Op::Traits traits;
  if (spec.WantsGradient(0)) traits.backward_inputs |= 0b10;
  if (spec.WantsGradient(1)) traits.backward_inputs |= 0b01;
  if (spec.WantsGradient(0) && spec.input(kKeptInput).present) {
    traits.backward_inputs |= 1u << kKeptInput;
  }
  if (CastsBias(spec)) {
    traits.forward_scratch_bytes =
        shape.n * static_cast<int64_t>(DTypeBytes(shape.c_type));
  }
  return traits;
}

class FusedProductOp : public Op {
 public:
  FusedProductOp(const OpSpec& spec, const MatrixProductShape& shape)
      : Op(TraitsOf(spec, shape)),
        shape_(shape),
        spread_gradient_(spec.kernels().matrix_product->spread_gradient) {}

  // The products, as far as they are wanted.
  absl::Status Compile(const OpSpec& spec);

  absl::Status Forward(const Tensors& t) override {
    if (plain_ != nullptr) {
      return plain_->Run(*t.stream, t.in(0), t.in(1), /*bias=*/nullptr,
                         t.out(0));
    }
    ConstFloats bias = t.in(kBiasInput);
    if (cast_ != nullptr) {
      cast_(*t.stream, shape_.n, bias.data(), t.scratch);
      bias = {t.scratch, shape_.c_type};
    }
    void* const kept =
        t.outputs.size() > kKeptOutput ? t.outputs[kKeptOutput] : nullptr;
    return product_->Run(*t.stream, t.in(0), t.in(1), bias, kept, t.out(0));
  }

  absl::Status Backward(const Tensors& t, const Gradients& g) override {
    if (g.in(kBiasInput) != nullptr) {
      spread_gradient_(*t.stream, bias_over_y_, /*scale=*/1, g.out(),
                       g.accumulate(kBiasInput), g.in(kBiasInput));
    }
    if (g.in(1) != nullptr) {
      SYNCLINE_RETURN_IF_ERROR(of_b_.Run(*db_, *t.stream, g.out(), t.in(0),
                                         g.accumulate(1), g.in(1)));
    }
    if (g.in(0) == nullptr) return absl::OkStatus();
    if (da_through_ == nullptr) {
      return of_a_.Run(*da_, *t.stream, g.out(), t.in(1), g.accumulate(0),
                       g.in(0));
    }
    return da_through_->Run(*t.stream, g.out(), t.in(1), /*bias=*/nullptr,
                            const_cast<void*>(t.inputs[kKeptInput]), g.in(0));
  }

 private:
  absl::Status CompileForward(const OpSpec& spec);

  const MatrixProductShape shape_;
  const decltype(MatrixProductKernels::spread_gradient) spread_gradient_;
  std::unique_ptr<MatrixProduct> plain_;      // without an epilogue
  std::unique_ptr<EpilogueProduct> product_;  // or with one
  CastKernels::Forward cast_ = nullptr;       // of the bias, if it needs one
  Broadcast bias_over_y_;
  FactorGradient of_a_, of_b_;
  std::unique_ptr<MatrixProduct> da_, db_;
  // In place of da_: the gradient of the argument of a's function.
  std::unique_ptr<EpilogueProduct> da_through_;
};

absl::Status FusedProductOp::CompileForward(const OpSpec& spec) {
  const MatrixProductKernels& kernels = *spec.kernels().matrix_product;
  SYNCLINE_ASSIGN_OR_RETURN(const ProductEpilogue::Function function,
                            FunctionOf(*spec.node, kFusedFunction));
  const TensorType& kept = spec.output(kKeptOutput);
  if (function == ProductEpilogue::Function::kGeluTanh && kept.present &&
      kept.dtype != shape_.c_type) {
    return absl::UnimplementedError("what is kept has another type");
  }
  const bool has_bias = spec.input(kBiasInput).present;
  if (!has_bias && function == ProductEpilogue::Function::kNone) {
    SYNCLINE_ASSIGN_OR_RETURN(plain_, kernels.make(*spec.device, shape_));
    return absl::OkStatus();
  }
  if (CastsBias(spec)) {
    const CastKernels* const casts = spec.kernels().cast;
    SYNCLINE_RETURN_IF_ERROR(spec.RequireKernels(casts));
    cast_ = casts->casts[DType::kFloat32][shape_.c_type];
    SYNCLINE_RETURN_IF_ERROR(spec.RequireKernels(cast_));
  }
  SYNCLINE_ASSIGN_OR_RETURN(
      product_,
      kernels.make_with_epilogue(
          *spec.device, shape_,
          {.function = function, .has_bias = has_bias, .keeps = kept.present}));
  return absl::OkStatus();
}

absl::Status FusedProductOp::Compile(const OpSpec& spec) {
  const MatrixProductKernels& kernels = *spec.kernels().matrix_product;
  SYNCLINE_RETURN_IF_ERROR(CompileForward(spec));
  if (spec.input(kBiasInput).present) {
    SYNCLINE_ASSIGN_OR_RETURN(
        bias_over_y_, MakeBroadcast(Dims{shape_.m, shape_.n}, Dims{shape_.n}));
  }
  if (spec.WantsGradient(1)) {
    of_b_ = GradientOfB(shape_, spec);
    SYNCLINE_ASSIGN_OR_RETURN(db_, kernels.make(*spec.device, of_b_.shape));
  }
  if (!spec.WantsGradient(0)) return absl::OkStatus();
  of_a_ = GradientOfA(shape_, spec);
  if (!spec.input(kKeptInput).present) {
    SYNCLINE_ASSIGN_OR_RETURN(da_, kernels.make(*spec.device, of_a_.shape));
    return absl::OkStatus();
  }
  SYNCLINE_ASSIGN_OR_RETURN(const ProductEpilogue::Function function,
                            FunctionOf(*spec.node, kFusedInputFunction));
  // The kept array has the rows of a, as it is not transposed.
  if (shape_.transpose_a) return absl::UnimplementedError("a transposed");
  SYNCLINE_ASSIGN_OR_RETURN(
      da_through_,
      kernels.make_with_epilogue(*spec.device, of_a_.shape,
                                 {.function = function, .is_gradient = true}));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Op>> MakeFusedProduct(const OpSpec& spec) {
  const MatrixProductKernels* const family = spec.kernels().matrix_product;
  if (family == nullptr || family->make == nullptr ||
      family->make_with_epilogue == nullptr ||
      family->spread_gradient == nullptr) {
    return absl::UnimplementedError("products have no epilogues");
  }
  SYNCLINE_RETURN_IF_ERROR(RequireOneTypeOfMatrices(spec));
  SYNCLINE_ASSIGN_OR_RETURN(const MatrixProductShape shape, ShapeOf(spec));
  auto op = std::make_unique<FusedProductOp>(spec, shape);
  SYNCLINE_RETURN_IF_ERROR(op->Compile(spec));
  return op;
}

}  // namespace syncline::worker
