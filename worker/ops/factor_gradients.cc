#include "worker/ops/factor_gradients.h"

namespace syncline::worker {

// a [m,k]: dy * op(b)^T.   Stored transposed: op(b) * dy^T.
FactorGradient GradientOfA(const MatrixProductShape& y, const OpSpec& spec) {
  const DType dy = spec.output(0).gradient_dtype;
  FactorGradient result;
  result.dy_is_second = y.transpose_a;
  MatrixProductShape& shape = result.shape;
  shape.alpha = y.alpha;
  shape.k = y.n;
  shape.m = y.transpose_a ? y.k : y.m;
  shape.n = y.transpose_a ? y.m : y.k;
  shape.transpose_a = y.transpose_a && y.transpose_b;
  shape.transpose_b = y.transpose_a || !y.transpose_b;
  shape.a_type = y.transpose_a ? y.b_type : dy;
  shape.b_type = y.transpose_a ? dy : y.b_type;
  shape.c_type = spec.input(0).gradient_dtype;
  return result;
}

// b [k,n]: op(a)^T * dy.   Stored transposed: dy^T * op(a).
FactorGradient GradientOfB(const MatrixProductShape& y, const OpSpec& spec) {
  const DType dy = spec.output(0).gradient_dtype;
  FactorGradient result;
  result.dy_is_second = !y.transpose_b;
  MatrixProductShape& shape = result.shape;
  shape.alpha = y.alpha;
  shape.k = y.m;
  shape.m = y.transpose_b ? y.n : y.k;
  shape.n = y.transpose_b ? y.k : y.n;
  shape.transpose_a = y.transpose_b || !y.transpose_a;
  shape.transpose_b = y.transpose_b && y.transpose_a;
  shape.a_type = y.transpose_b ? dy : y.a_type;
  shape.b_type = y.transpose_b ? y.a_type : dy;
  shape.c_type = spec.input(1).gradient_dtype;
  return result;
}

}  // namespace syncline::worker
