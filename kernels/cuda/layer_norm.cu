#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/walk/lines.h"
#include "kernels/device/layer_norm_kernels.h"

namespace syncline {
namespace {

using cuda::ConstFloatArray;
using cuda::FloatArray;
using cuda::Global;
using cuda::OnDevice;

struct ForwardBody {
  RowNorm s;
  bool has_bias;
  bool has_mean;
  ConstFloatArray x;
  ConstFloatArray scale;
  ConstFloatArray bias;
  FloatArray y;
  Global<float> mean;
  Global<float> inverse;

  template <typename Group>
  SYNCLINE_DEVICE void operator()(const Group& group, int64_t row,
                                  int64_t n) const {
    const float per = 1.0f / static_cast<float>(s.n);
    const int64_t begin = row * s.n;
    float m = 0;
    if (s.centred) {
      float sum = 0;
      for (int64_t i = group.rank(); i < n; i += group.size()) {
        sum += x[begin + i];
      }
      m = group.Fold(sum, cuda::Plus()) * per;
    }
    float squares = 0;
    for (int64_t i = group.rank(); i < n; i += group.size()) {
      const float distance = x[begin + i] - m;
      squares += distance * distance;
    }
    squares = group.Fold(squares, cuda::Plus());
    const float inv = 1.0f / std::sqrt(squares * per + s.epsilon);
    for (int64_t i = group.rank(); i < n; i += group.size()) {
      const float scaled = (x[begin + i] - m) * inv * scale[i];
      y[begin + i] = has_bias ? scaled + bias[i] : scaled;
    }
    if (group.rank() != 0 || n == 0) return;
    if (has_mean) mean[row] = m;
    inverse[row] = inv;
  }
};

void Forward(Stream& stream, const RowNorm& s, ConstFloats x, ConstFloats scale,
             ConstFloats bias, Floats y, float* mean, float* inverse) {
  cuda::LaunchLines(
      stream, s.rows, s.n, /*are_adjacent=*/false,
      ForwardBody{s, bias != nullptr, s.centred && mean != nullptr, OnDevice(x),
                  OnDevice(scale), OnDevice(bias), OnDevice(y), OnDevice(mean),
                  OnDevice(inverse)});
}

// Sums over all rows, column by column.
struct ParametersBody {
  int64_t columns;
  bool centred;
  bool wants_scale;
  bool wants_bias;
  bool add_scale;
  bool add_bias;
  ConstFloatArray x;
  Global<const float> mean;
  Global<const float> inverse;
  ConstFloatArray dy;
  FloatArray dscale;
  FloatArray dbias;

  template <typename Group>
  SYNCLINE_DEVICE void operator()(const Group& group, int64_t column,
                                  int64_t rows) const {
    double of_scale = 0;
    double of_bias = 0;
    for (int64_t row = group.rank(); row < rows; row += group.size()) {
      const int64_t at = row * columns + column;
      const float d = dy[at];
      const float m = centred ? static_cast<float>(mean[row]) : 0.0f;
      of_bias += d;
      if (wants_scale) of_scale += d * ((x[at] - m) * inverse[row]);
    }
    of_scale = group.Fold(of_scale, cuda::Plus());
    of_bias = group.Fold(of_bias, cuda::Plus());
    if (group.rank() != 0 || column >= columns) return;
    if (wants_scale) {
      const float sum = static_cast<float>(of_scale);
      dscale[column] = add_scale ? dscale[column] + sum : sum;
    }
    if (wants_bias) {
      const float sum = static_cast<float>(of_bias);
      dbias[column] = add_bias ? dbias[column] + sum : sum;
    }
  }
};

struct InputBody {
  RowNorm s;
  bool accumulate;
  ConstFloatArray x;
  ConstFloatArray scale;
  Global<const float> mean;
  Global<const float> inverse;
  ConstFloatArray dy;
  FloatArray dx;

  template <typename Group>
  SYNCLINE_DEVICE void operator()(const Group& group, int64_t row,
                                  int64_t n) const {
    const float per = 1.0f / static_cast<float>(s.n);
    const int64_t begin = row * s.n;
    const float m = s.centred && n > 0 ? static_cast<float>(mean[row]) : 0.0f;
    const float inv = n > 0 ? static_cast<float>(inverse[row]) : 0.0f;
    float g = 0;
    float gh = 0;
    for (int64_t i = group.rank(); i < n; i += group.size()) {
      const float d = dy[begin + i] * scale[i];
      g += d;
      gh += d * ((x[begin + i] - m) * inv);
    }
    g = group.Fold(g, cuda::Plus()) * per;
    gh = group.Fold(gh, cuda::Plus()) * per;
    if (!s.centred) g = 0;
    for (int64_t i = group.rank(); i < n; i += group.size()) {
      const int64_t at = begin + i;
      const float value =
          inv * (dy[at] * scale[i] - g - (x[at] - m) * inv * gh);
      dx[at] = accumulate ? dx[at] + value : value;
    }
  }
};

void Backward(Stream& stream, const RowNorm& s, ConstFloats x,
              ConstFloats scale, const float* mean, const float* inverse,
              ConstFloats dy, const LayerNormKernels::Gradients& out) {
  // dx is last: it may lie over dy.
  if (out.dscale != nullptr || out.dbias != nullptr) {
    cuda::LaunchLines(
        stream, s.n, s.rows, /*are_adjacent=*/true,
        ParametersBody{s.n, s.centred, out.dscale != nullptr,
                       out.dbias != nullptr, out.add_dscale, out.add_dbias,
                       OnDevice(x), OnDevice(mean), OnDevice(inverse),
                       OnDevice(dy), OnDevice(out.dscale),
                       OnDevice(out.dbias)});
  }
  if (out.dx == nullptr) return;
  cuda::LaunchLines(
      stream, s.rows, s.n, /*are_adjacent=*/false,
      InputBody{s, out.add_dx, OnDevice(x), OnDevice(scale), OnDevice(mean),
                OnDevice(inverse), OnDevice(dy), OnDevice(out.dx)});
}

void AddMomentsGradient(Stream& stream, const RowNorm& s, const float* x,
                        const float* mean, const float* inverse,
                        const float* dmean, const float* dinverse, float* dx) {
  const bool has_mean = dmean != nullptr;
  const bool has_inverse = dinverse != nullptr;
  const float per = 1.0f / static_cast<float>(s.n);
  cuda::LaunchElements(
      stream, s.rows * s.n,
      [=, x = OnDevice(x), mean = OnDevice(mean), inverse = OnDevice(inverse),
       dmean = OnDevice(dmean), dinverse = OnDevice(dinverse),
       dx = OnDevice(dx)] SYNCLINE_DEVICE(int64_t i) {
        const int64_t row = i / s.n;
        const float m = s.centred ? static_cast<float>(mean[row]) : 0.0f;
        const float inv = inverse[row];
        const float of_mean = has_mean ? dmean[row] * per : 0.0f;
        const float of_inverse =
            has_inverse ? -dinverse[row] * (inv * inv * inv) * per : 0.0f;
        dx[i] += of_mean + of_inverse * (x[i] - m);
      });
}

}  // namespace

const LayerNormKernels& CudaLayerNormKernels() {
  static constexpr LayerNormKernels kKernels = {
      .forward = Forward,
      .backward = Backward,
      .add_moments_gradient = AddMomentsGradient};
  return kKernels;
}

}  // namespace syncline
