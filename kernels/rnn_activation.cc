#include "kernels/rnn_activation.h"

#include "kernels/elementwise/loop.h"
#include "kernels/rnn_functions.h"

namespace syncline {

void Apply(const RnnActivation& f, int64_t n, const float* x, float* y) {
  WithRnnFunction(f, [=, clip = f.clip](auto function) {
    Emit(n, /*accumulate=*/false, y,
         [=](int64_t i) { return function.Value(Clipped(x[i], clip)); });
  });
}

void ApplyGradient(const RnnActivation& f, int64_t n, const float* x,
                   const float* dy, float* dx) {
  WithRnnFunction(f, [=, clip = f.clip](auto function) {
    Emit(n, /*accumulate=*/false, dx, [=](int64_t i) {
      const float inside = x[i] > clip || x[i] < -clip ? 0.0f : 1.0f;
      return dy[i] * inside * function.Derivative(Clipped(x[i], clip));
    });
  });
}

}  // namespace syncline
