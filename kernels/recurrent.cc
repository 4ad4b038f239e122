#include "kernels/recurrent.h"

#include "kernels/loop.h"
#include "kernels/vector_math.h"

namespace syncline {

void LstmCell(int64_t n, float* gates, const float* c_before, float* c,
              float* h) {
  float* const input = gates;
  float* const output = gates + n;
  float* const forget = gates + 2 * n;
  float* const candidate = gates + 3 * n;
  SYNCLINE_INDEPENDENT_ITERATIONS
  for (int64_t i = 0; i < n; ++i) {
    input[i] = Logistic(input[i]);
    output[i] = Logistic(output[i]);
    forget[i] = Logistic(forget[i]);
    candidate[i] = Tanh(candidate[i]);
    c[i] = forget[i] * c_before[i] + input[i] * candidate[i];
    h[i] = output[i] * Tanh(c[i]);
  }
}

void LstmCellGradient(int64_t n, const float* gates, const float* c_before,
                      const float* c, const float* dh, float* dc,
                      float* dgates) {
  const float* const input = gates;
  const float* const output = gates + n;
  const float* const forget = gates + 2 * n;
  const float* const candidate = gates + 3 * n;
  SYNCLINE_INDEPENDENT_ITERATIONS
  for (int64_t i = 0; i < n; ++i) {
    const float squashed = Tanh(c[i]);
    const float d = dc[i] + dh[i] * output[i] * (1.0f - squashed * squashed);
    dgates[i] = d * candidate[i] * input[i] * (1.0f - input[i]);
    dgates[n + i] = dh[i] * squashed * output[i] * (1.0f - output[i]);
    dgates[2 * n + i] = d * c_before[i] * forget[i] * (1.0f - forget[i]);
    dgates[3 * n + i] = d * input[i] * (1.0f - candidate[i] * candidate[i]);
    dc[i] = d * forget[i];
  }
}

void GruCell(int64_t n, float* gates, const float* recurrent,
             const float* h_before, float* h) {
  const float* const update = gates;
  const float* const reset = gates + n;
  float* const candidate = gates + 2 * n;
  if (recurrent != nullptr) {
    Emit(n, /*accumulate=*/true, candidate,
         [=](int64_t i) { return reset[i] * recurrent[i]; });
  }
  SYNCLINE_INDEPENDENT_ITERATIONS
  for (int64_t i = 0; i < n; ++i) {
    candidate[i] = Tanh(candidate[i]);
    h[i] = (1.0f - update[i]) * candidate[i] + update[i] * h_before[i];
  }
}

void GruCellGradient(int64_t n, const float* gates, const float* h_before,
                     float* dh, float* dgates) {
  const float* const update = gates;
  const float* const candidate = gates + 2 * n;
  SYNCLINE_INDEPENDENT_ITERATIONS
  for (int64_t i = 0; i < n; ++i) {
    const float d = dh[i];
    dgates[i] =
        d * (h_before[i] - candidate[i]) * update[i] * (1.0f - update[i]);
    dgates[2 * n + i] =
        d * (1.0f - update[i]) * (1.0f - candidate[i] * candidate[i]);
    dh[i] = d * update[i];
  }
}

void GruResetGradient(int64_t n, const float* reset, const float* value,
                      const float* d, float* dreset, bool accumulate,
                      float* dvalue) {
  Emit(n, /*accumulate=*/false, dreset, [=](int64_t i) {
    return d[i] * value[i] * reset[i] * (1.0f - reset[i]);
  });
  Emit(n, accumulate, dvalue, [=](int64_t i) { return d[i] * reset[i]; });
}

}  // namespace syncline
