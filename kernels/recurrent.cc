#include "kernels/recurrent.h"

#include "kernels/elementwise/loop.h"
#include "kernels/elementwise/vector_math.h"

namespace syncline {
namespace {

// sums[i] += weights[i] * c[i], if there are weights.
void AddPeephole(int64_t n, const float* weights, const float* c, float* sums) {
  if (weights == nullptr) return;
  Emit(n, /*accumulate=*/true, sums,
       [=](int64_t i) { return weights[i] * c[i]; });
}

// Of one gate of an LSTM; null: there are none.
const float* PeepholesOf(const float* peepholes, int64_t n, int64_t gate) {
  return peepholes == nullptr ? nullptr : peepholes + gate * n;
}

// Input and forget gate and candidate.
void LstmGates(const LstmFunctions& functions, int64_t n, const float* sums,
               float* gates) {
  float* const forget = gates + 2 * n;
  Apply(functions.f, n, sums, gates);
  if (functions.coupled) {
    Emit(n, /*accumulate=*/false, forget,
         [=](int64_t i) { return 1.0f - gates[i]; });
  } else {
    Apply(functions.f, n, sums + 2 * n, forget);
  }
  Apply(functions.g, n, sums + 3 * n, gates + 3 * n);
}

// Adds what the reset gate leaves of `recurrent` to the candidate's sum.
void AddReset(int64_t n, const float* reset, const float* recurrent,
              float* sum) {
  if (recurrent == nullptr) return;
  Emit(n, /*accumulate=*/true, sum,
       [=](int64_t i) { return reset[i] * recurrent[i]; });
}

}  // namespace

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

void LstmCell(const LstmFunctions& functions, int64_t n, const float* peepholes,
              float* sums, float* gates, const float* c_before, float* c,
              float* h) {
  const float* const input = gates;
  const float* const forget = gates + 2 * n;
  const float* const candidate = gates + 3 * n;
  AddPeephole(n, PeepholesOf(peepholes, n, 0), c_before, sums);
  AddPeephole(n, PeepholesOf(peepholes, n, 2), c_before, sums + 2 * n);
  LstmGates(functions, n, sums, gates);
  Emit(n, /*accumulate=*/false, c, [=](int64_t i) {
    return forget[i] * c_before[i] + input[i] * candidate[i];
  });
  float* const output = gates + n;
  AddPeephole(n, PeepholesOf(peepholes, n, 1), c, sums + n);
  Apply(functions.f, n, sums + n, output);
  Apply(functions.h, n, c, h);
  Emit(n, /*accumulate=*/false, h, [=](int64_t i) { return output[i] * h[i]; });
}

void LstmCellGradient(const LstmFunctions& functions, int64_t n,
                      const float* peepholes, const float* sums, float* gates,
                      const float* c_before, const float* c, const float* dh,
                      float* dc, float* dgates) {
  const float* const input = gates;
  const float* const output = gates + n;
  const float* const forget = gates + 2 * n;
  const float* const candidate = gates + 3 * n;
  float* const squashed = gates + 4 * n;
  float* const dinput = dgates;
  float* const doutput = dgates + n;
  float* const dforget = dgates + 2 * n;
  float* const dcandidate = dgates + 3 * n;
  LstmGates(functions, n, sums, gates);
  Apply(functions.f, n, sums + n, gates + n);
  Apply(functions.h, n, c, squashed);
  Emit(n, /*accumulate=*/false, doutput,
       [=](int64_t i) { return dh[i] * squashed[i]; });
  ApplyGradient(functions.f, n, sums + n, doutput, doutput);
  // The memory's, through the result and the output's peephole.
  float* const through = squashed;
  Emit(n, /*accumulate=*/false, through,
       [=](int64_t i) { return dh[i] * output[i]; });
  ApplyGradient(functions.h, n, c, through, through);
  Emit(n, /*accumulate=*/true, dc, [=](int64_t i) { return through[i]; });
  AddPeephole(n, PeepholesOf(peepholes, n, 1), doutput, dc);
  const float past = functions.coupled ? -1.0f : 0.0f;
  SYNCLINE_INDEPENDENT_ITERATIONS
  for (int64_t i = 0; i < n; ++i) {
    const float d = dc[i];
    dinput[i] = d * (candidate[i] + past * c_before[i]);
    dforget[i] = functions.coupled ? 0.0f : d * c_before[i];
    dcandidate[i] = d * input[i];
    dc[i] = d * forget[i];
  }
  ApplyGradient(functions.f, n, sums, dinput, dinput);
  if (!functions.coupled) {
    ApplyGradient(functions.f, n, sums + 2 * n, dforget, dforget);
  }
  ApplyGradient(functions.g, n, sums + 3 * n, dcandidate, dcandidate);
  AddPeephole(n, PeepholesOf(peepholes, n, 0), dinput, dc);
  AddPeephole(n, PeepholesOf(peepholes, n, 2), dforget, dc);
}

void GruCell(int64_t n, float* gates, const float* recurrent,
             const float* h_before, float* h) {
  const float* const update = gates;
  const float* const reset = gates + n;
  float* const candidate = gates + 2 * n;
  AddReset(n, reset, recurrent, candidate);
  SYNCLINE_INDEPENDENT_ITERATIONS
  for (int64_t i = 0; i < n; ++i) {
    candidate[i] = Tanh(candidate[i]);
    h[i] = (1.0f - update[i]) * candidate[i] + update[i] * h_before[i];
  }
}

void GruCell(const RnnActivation& g, int64_t n, float* sums, float* gates,
             const float* recurrent, const float* h_before, float* h) {
  const float* const update = gates;
  float* const candidate = gates + 2 * n;
  AddReset(n, gates + n, recurrent, sums + 2 * n);
  Apply(g, n, sums + 2 * n, candidate);
  Emit(n, /*accumulate=*/false, h, [=](int64_t i) {
    return (1.0f - update[i]) * candidate[i] + update[i] * h_before[i];
  });
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

void GruCellGradient(const RnnActivation& f, const RnnActivation& g, int64_t n,
                     const float* sums, const float* gates,
                     const float* h_before, float* dh, float* dgates) {
  const float* const update = gates;
  const float* const candidate = gates + 2 * n;
  SYNCLINE_INDEPENDENT_ITERATIONS
  for (int64_t i = 0; i < n; ++i) {
    const float d = dh[i];
    dgates[i] = d * (h_before[i] - candidate[i]);
    dgates[2 * n + i] = d * (1.0f - update[i]);
    dh[i] = d * update[i];
  }
  ApplyGradient(f, n, sums, dgates, dgates);
  ApplyGradient(g, n, sums + 2 * n, dgates + 2 * n, dgates + 2 * n);
}

void GruResetGradient(int64_t n, const float* reset, const float* value,
                      const float* d, float* dreset, bool accumulate,
                      float* dvalue) {
  Emit(n, /*accumulate=*/false, dreset, [=](int64_t i) {
    return d[i] * value[i] * reset[i] * (1.0f - reset[i]);
  });
  Emit(n, accumulate, dvalue, [=](int64_t i) { return d[i] * reset[i]; });
}

void GruResetGradient(const RnnActivation& f, int64_t n, const float* sum,
                      const float* reset, const float* value, const float* d,
                      float* dreset, bool accumulate, float* dvalue) {
  Emit(n, /*accumulate=*/false, dreset,
       [=](int64_t i) { return d[i] * value[i]; });
  ApplyGradient(f, n, sum, dreset, dreset);
  Emit(n, accumulate, dvalue, [=](int64_t i) { return d[i] * reset[i]; });
}

}  // namespace syncline
