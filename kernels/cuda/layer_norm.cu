#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/walk/lines.h"
#include "kernels/device/layer_norm_kernels.h"

namespace syncline {
namespace {

using cuda::ConstFloatArray;
using cuda::FloatArray;
using cuda::Global;
using cuda::OnDevice;

// The elements that are normalised: an array.
struct RowsOf {
  ConstFloatArray x;

  SYNCLINE_DEVICE float First(int64_t at) const { return x[at]; }
  SYNCLINE_DEVICE float operator[](int64_t at) const { return x[at]; }
};

// The sum of two arrays, which whoever comes to an element first writes.
struct RowsOfSum {
  ConstFloatArray a;
  ConstFloatArray b;
  FloatArray sum;

  SYNCLINE_DEVICE float First(int64_t at) const {
    sum[at] = a[at] + b[at];
    return sum[at];
  }
  SYNCLINE_DEVICE float operator[](int64_t at) const { return sum[at]; }
};

template <typename Rows>
struct ForwardBody {
  RowNorm s;
  bool has_bias;
  bool has_mean;
  bool has_y;
  Rows x;
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
        sum += x.First(begin + i);
      }
      m = group.Fold(sum, cuda::Plus()) * per;
    }
    float squares = 0;
    for (int64_t i = group.rank(); i < n; i += group.size()) {
      const float value = s.centred ? x[begin + i] : x.First(begin + i);
      const float distance = value - m;
      squares += distance * distance;
    }
    squares = group.Fold(squares, cuda::Plus());
    const float inv = 1.0f / std::sqrt(squares * per + s.epsilon);
    for (int64_t i = group.rank(); has_y && i < n; i += group.size()) {
      const float scaled = (x[begin + i] - m) * inv * scale[i];
      y[begin + i] = has_bias ? scaled + bias[i] : scaled;
    }
    if (group.rank() != 0 || n == 0) return;
    if (has_mean) mean[row] = m;
    inverse[row] = inv;
  }
};

template <typename Rows>
void Normalize(Stream& stream, const RowNorm& s, const Rows& x,
               ConstFloats scale, ConstFloats bias, Floats y, float* mean,
               float* inverse) {
  cuda::LaunchLines(
      stream, s.rows, s.n, /*are_adjacent=*/false,
      ForwardBody<Rows>{s, bias != nullptr, s.centred && mean != nullptr,
                        y != nullptr, x, OnDevice(scale), OnDevice(bias),
                        OnDevice(y), OnDevice(mean), OnDevice(inverse)});
}

void Forward(Stream& stream, const RowNorm& s, ConstFloats x, ConstFloats scale,
             ConstFloats bias, Floats y, float* mean, float* inverse) {
  Normalize(stream, s, RowsOf{OnDevice(x)}, scale, bias, y, mean, inverse);
}

void AddForward(Stream& stream, const RowNorm& s, ConstFloats a, ConstFloats b,
                ConstFloats scale, ConstFloats bias, Floats sum, Floats y,
                float* mean, float* inverse) {
  Normalize(stream, s, RowsOfSum{OnDevice(a), OnDevice(b), OnDevice(sum)},
            scale, bias, y, mean, inverse);
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

// Where the gradient of an element goes: an array.
struct IntoArray {
  bool accumulate;
  FloatArray dx;

  SYNCLINE_DEVICE void Put(int64_t at, float value) const {
    dx[at] = accumulate ? dx[at] + value : value;
  }
};

// As a sum's gradient that others have begun, to both summands.
struct IntoSummands {
  bool has_dsum;
  bool has_da;
  bool has_db;
  bool add_da;
  bool add_db;
  DType sum_type;
  ConstFloatArray dsum;
  FloatArray da;
  FloatArray db;

  SYNCLINE_DEVICE void Put(int64_t at, float value) const {
    float whole = has_dsum ? dsum[at] + value : value;
    if (sum_type != DType::kFloat32) {
      whole = cuda::WidenAs(sum_type, cuda::NarrowAs(sum_type, whole));
    }
    if (has_db) db[at] = add_db ? db[at] + whole : whole;
    if (has_da) da[at] = add_da ? da[at] + whole : whole;
  }
};

template <typename Into>
struct InputBody {
  RowNorm s;
  ConstFloatArray x;
  ConstFloatArray scale;
  Global<const float> mean;
  Global<const float> inverse;
  ConstFloatArray dy;
  Into into;

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
      into.Put(at, inv * (dy[at] * scale[i] - g - (x[at] - m) * inv * gh));
    }
  }
};

template <typename Into>
void InputGradient(Stream& stream, const RowNorm& s, ConstFloats x,
                   ConstFloats scale, const float* mean, const float* inverse,
                   ConstFloats dy, const Into& into) {
  cuda::LaunchLines(
      stream, s.rows, s.n, /*are_adjacent=*/false,
      InputBody<Into>{s, OnDevice(x), OnDevice(scale), OnDevice(mean),
                      OnDevice(inverse), OnDevice(dy), into});
}

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
  InputGradient(stream, s, x, scale, mean, inverse, dy,
                IntoArray{out.add_dx, OnDevice(out.dx)});
}

void AddBackward(Stream& stream, const RowNorm& s, ConstFloats sum,
                 ConstFloats scale, const float* mean, const float* inverse,
                 ConstFloats dy, ConstFloats dsum,
                 const LayerNormKernels::SummandGradients& out) {
  InputGradient(
      stream, s, sum, scale, mean, inverse, dy,
      IntoSummands{dsum != nullptr, out.da != nullptr, out.db != nullptr,
                   out.add_da, out.add_db, out.sum_type, OnDevice(dsum),
                   OnDevice(out.da), OnDevice(out.db)});
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
      .add_moments_gradient = AddMomentsGradient,
      .add_forward = AddForward,
      .add_backward = AddBackward};
  return kKernels;
}

}  // namespace syncline
