#include "kernels/layer_norm.h"

#include <cmath>
#include <optional>

#include "kernels/elementwise/loop.h"
#include "kernels/elementwise/row_sums.h"

namespace syncline {
namespace {

// Sums of g and of g * h, h being the normalised x and g = dy * scale.
struct SumsOfRow {
  float g = 0;
  float gh = 0;
};

SumsOfRow SumsOf(int64_t n, const float* x, const float* scale, const float* dy,
                 float mean, float inverse) {
  return {SumOf(n, [=](int64_t i) { return dy[i] * scale[i]; }),
          SumOf(n, [=](int64_t i) {
            return dy[i] * scale[i] * ((x[i] - mean) * inverse);
          })};
}

// Over all rows, in memory of the caller.
struct ParameterSums {
  ParameterSums(int64_t n, void* scratch)
      : totals(static_cast<double*>(scratch)),
        blocks(reinterpret_cast<float*>(totals + 2 * n)),
        scale(n, blocks, totals),
        bias(n, blocks + n, totals + n) {}
  double* const totals;
  float* const blocks;
  RowSums scale;
  RowSums bias;
};

}  // namespace

void NormalizeRows(const RowNorm& s, const float* x, const float* scale,
                   const float* bias, float* y, float* mean, float* inverse) {
  const float per = 1.0f / static_cast<float>(s.n);
  for (int64_t r = 0; r < s.rows; ++r, x += s.n, y += s.n) {
    const float m =
        s.centred ? SumOf(s.n, [=](int64_t i) { return x[i]; }) * per : 0.0f;
    const float squares =
        SumOf(s.n, [=](int64_t i) { return (x[i] - m) * (x[i] - m); });
    const float inv = 1.0f / std::sqrt(squares * per + s.epsilon);
    if (bias != nullptr) {
      Emit(s.n, /*accumulate=*/false, y,
           [=](int64_t i) { return (x[i] - m) * inv * scale[i] + bias[i]; });
    } else {
      Emit(s.n, /*accumulate=*/false, y,
           [=](int64_t i) { return (x[i] - m) * inv * scale[i]; });
    }
    if (s.centred && mean != nullptr) mean[r] = m;
    inverse[r] = inv;
  }
}

void NormalizeRowsGradient(const RowNorm& s, const float* x, const float* scale,
                           const float* mean, const float* inverse,
                           const float* dy, const RowNormGradients& out) {
  std::optional<ParameterSums> parameters;
  if (out.dscale != nullptr || out.dbias != nullptr) {
    parameters.emplace(s.n, out.scratch);
  }
  const float per = 1.0f / static_cast<float>(s.n);
  for (int64_t r = 0; r < s.rows; ++r, x += s.n, dy += s.n) {
    const float m = s.centred ? mean[r] : 0.0f;
    const float inv = inverse[r];
    if (out.dbias != nullptr) {
      parameters->bias.Add([=](int64_t i) { return dy[i]; });
    }
    if (out.dscale != nullptr) {
      parameters->scale.Add(
          [=](int64_t i) { return dy[i] * ((x[i] - m) * inv); });
    }
    if (out.dx == nullptr) continue;  // last: it may lie over dy
    const SumsOfRow sums = SumsOf(s.n, x, scale, dy, m, inv);
    const float g = s.centred ? sums.g * per : 0.0f;
    const float gh = sums.gh * per;
    Emit(s.n, out.add_dx, out.dx + r * s.n, [=](int64_t i) {
      return inv * (dy[i] * scale[i] - g - (x[i] - m) * inv * gh);
    });
  }
  if (out.dscale != nullptr) {
    parameters->scale.Write(out.add_dscale, out.dscale);
  }
  if (out.dbias != nullptr) parameters->bias.Write(out.add_dbias, out.dbias);
}

void AddRowMomentsGradient(const RowNorm& s, const float* x, const float* mean,
                           const float* inverse, const float* dmean,
                           const float* dinverse, float* dx) {
  const float per = 1.0f / static_cast<float>(s.n);
  for (int64_t r = 0; r < s.rows; ++r, x += s.n, dx += s.n) {
    const float m = s.centred ? mean[r] : 0.0f;
    const float of_mean = dmean != nullptr ? dmean[r] * per : 0.0f;
    const float cube = inverse[r] * inverse[r] * inverse[r];
    const float of_inverse =
        dinverse != nullptr ? -dinverse[r] * cube * per : 0.0f;
    Emit(s.n, /*accumulate=*/true, dx,
         [=](int64_t i) { return of_mean + of_inverse * (x[i] - m); });
  }
}

}  // namespace syncline
