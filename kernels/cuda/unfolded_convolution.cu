// Convolutions as products of matrices: for each place of the window a column
// has the inputs that it covers (Chellapilla, Puri and Simard, IWFHR 2006), of
// as many samples at a time as scratch memory is kept for.

#include <algorithm>
#include <memory>

#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "kernels/convolution.h"
#include "kernels/cuda/convolution_memory.h"
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/float_array.h"
#include "kernels/cuda/unfolded_convolution.h"
#include "kernels/cuda/walk/split_lines.h"
#include "kernels/cuda/walk/window_walk.h"
#include "kernels/device/convolution_kernels.h"
#include "kernels/device/device.h"
#include "kernels/device/matrix_product_kernels.h"

namespace syncline {
namespace {

using cuda::ConstFloatArray;
using cuda::FloatArray;
using cuda::Global;
using cuda::OnDevice;

// A group of a layer and the samples of a round, as kernels read them.
struct Round {
  cuda::Plane plane;
  int64_t first = 0;    // sample
  int64_t samples = 0;  // of this round
  int64_t group = 0;
  int64_t groups = 1;
  int64_t channels = 0;  // of a group, as filters is
  int64_t filters = 0;

  SYNCLINE_DEVICE int64_t kernel_count() const {
    return plane.d.kernel * plane.h.kernel * plane.w.kernel;
  }
  // Columns of the matrices: the places of all samples.
  SYNCLINE_HOST_DEVICE int64_t places() const {
    return samples * plane.out_count();
  }
  // Where the plane of a sample's channel or filter begins among planes of
  // `size` elements, `count` of them in a group.
  SYNCLINE_DEVICE int64_t PlaneAt(int64_t sample, int64_t index, int64_t count,
                                  int64_t size) const {
    return (((first + sample) * groups + group) * count + index) * size;
  }
};

// The element of an axis that element k of window o covers.
SYNCLINE_DEVICE int ElementOf(const cuda::PlaneAxis& axis, int o, int k) {
  return o * axis.stride + k * axis.dilation - axis.pad_begin;
}

// The window whose element k covers element i; -1: none.
SYNCLINE_DEVICE int WindowOf(const cuda::PlaneAxis& axis, int i, int k) {
  const int begin = i + axis.pad_begin - k * axis.dilation;
  if (begin < 0 || begin % axis.stride != 0) return -1;
  const int o = begin / axis.stride;
  return o < axis.out ? o : -1;
}

// columns [channels * kernel, places]
struct Unfold {
  Round r;
  ConstFloatArray x;
  FloatArray columns;

  SYNCLINE_DEVICE void operator()(int64_t at) const {
    const cuda::Plane& p = r.plane;
    const int64_t place = at % r.places();
    const int64_t row = at / r.places();
    const int o = static_cast<int>(place % p.out_count());
    const int k = static_cast<int>(row % r.kernel_count());
    const int iw = ElementOf(p.w, o % p.w.out, k % p.w.kernel);
    const int ih =
        ElementOf(p.h, o / p.w.out % p.h.out, k / p.w.kernel % p.h.kernel);
    const int id =
        ElementOf(p.d, o / p.w.out / p.h.out, k / p.w.kernel / p.h.kernel);
    float value = 0;
    if (iw >= 0 && iw < p.w.in && ih >= 0 && ih < p.h.in && id >= 0 &&
        id < p.d.in) {
      value = x[r.PlaneAt(place / p.out_count(), row / r.kernel_count(),
                          r.channels, p.in_count()) +
                (id * p.h.in + ih) * p.w.in + iw];
    }
    columns[at] = value;
  }
};

// dx from the gradient of columns, element by element.
struct FoldColumns {
  Round r;
  bool accumulate;
  Global<const float> columns;
  FloatArray dx;

  SYNCLINE_DEVICE void operator()(int64_t element) const {
    const cuda::Plane& p = r.plane;
    const int i = static_cast<int>(element % p.in_count());
    const int64_t c = element / p.in_count() % r.channels;
    const int64_t sample = element / p.in_count() / r.channels;
    float sum = 0;
    for (int kd = 0; kd < p.d.kernel; ++kd) {
      const int od = WindowOf(p.d, i / p.w.in / p.h.in, kd);
      if (od < 0) continue;
      for (int kh = 0; kh < p.h.kernel; ++kh) {
        const int oh = WindowOf(p.h, i / p.w.in % p.h.in, kh);
        if (oh < 0) continue;
        for (int kw = 0; kw < p.w.kernel; ++kw) {
          const int ow = WindowOf(p.w, i % p.w.in, kw);
          if (ow < 0) continue;
          const int64_t row =
              c * r.kernel_count() + (kd * p.h.kernel + kh) * p.w.kernel + kw;
          sum += columns[row * r.places() + sample * p.out_count() +
                         (od * p.h.out + oh) * p.w.out + ow];
        }
      }
    }
    const int64_t at = r.PlaneAt(sample, c, r.channels, p.in_count()) + i;
    dx[at] = accumulate ? dx[at] + sum : sum;
  }
};

// by_filter [filters, places] from y [samples, filters, out].
struct TakeFilters {
  Round r;
  ConstFloatArray y;
  FloatArray by_filter;

  SYNCLINE_DEVICE void operator()(int64_t at) const {
    const int64_t out = r.plane.out_count();
    const int64_t place = at % r.places();
    by_filter[at] = y[r.PlaneAt(place / out, at / r.places(), r.filters, out) +
                      place % out];
  }
};

// y from by_filter, and bias.
struct PutFilters {
  Round r;
  bool has_bias;
  bool accumulate;
  Global<const float> by_filter;
  Global<const float> bias;
  FloatArray y;

  SYNCLINE_DEVICE void operator()(int64_t at) const {
    const int64_t out = r.plane.out_count();
    const int64_t place = at % r.places();
    const int64_t f = at / r.places();
    float value = by_filter[at];
    if (has_bias) value += bias[r.group * r.filters + f];
    const int64_t to = r.PlaneAt(place / out, f, r.filters, out) + place % out;
    y[to] = accumulate ? y[to] + value : value;
  }
};

// A line for each filter: dy [batch, filters, out].
struct SumOfFilters {
  using Value = double;
  struct Place {
    int64_t filter = 0;
  };

  int64_t filters;
  int64_t out;
  bool accumulate;
  ConstFloatArray dy;
  Global<float> dbias;

  SYNCLINE_DEVICE double neutral() const { return 0; }
  SYNCLINE_DEVICE Place At(int64_t filter) const { return {filter}; }
  SYNCLINE_DEVICE double TermAt(const Place& place, int64_t k) const {
    return dy[(k / out * filters + place.filter) * out + k % out];
  }
  SYNCLINE_DEVICE double Join(double a, double b) const { return a + b; }
  SYNCLINE_DEVICE void Finish(const Place&, int64_t filter, double sum) const {
    const float whole = static_cast<float>(sum);
    dbias[filter] = accumulate ? dbias[filter] + whole : whole;
  }
};

class UnfoldedConvolution : public ConvolutionLayer {
 public:
  explicit UnfoldedConvolution(const ConvolutionShape& shape)
      : s_(shape), samples_(UnfoldedSamples(shape)) {
    SYNCLINE_CHECK(s_.x_block == 1 && s_.y_block == 1);  // the CPU's
  }

  // Errors: the product library's.
  absl::Status Compile(Device& device, const ConvolutionUses& uses) {
    SYNCLINE_RETURN_IF_ERROR(CompileFor(device, uses, samples_, &whole_));
    const int64_t rest = s_.batch % samples_;
    return rest == 0 ? absl::OkStatus()
                     : CompileFor(device, uses, rest, &rest_);
  }

  int64_t forward_scratch_bytes() const override {
    return CudaConvolutionScratchOf(s_).forward_bytes;
  }
  int64_t backward_data_scratch_bytes() const override {
    return CudaConvolutionScratchOf(s_).backward_data_bytes;
  }
  int64_t backward_weights_scratch_bytes() const override {
    return CudaConvolutionScratchOf(s_).backward_weights_bytes;
  }

  absl::Status Forward(Stream& stream, ConstFloats x, ConstFloats w,
                       const float* bias, bool accumulate, Floats y,
                       void* scratch) override {
    const Floats columns = ColumnsAt(scratch, s_.type);
    float* const products_at = ByFilterAt(scratch, DType::kFloat32);
    return ForRounds([&](const Round& r, Products& products) -> absl::Status {
      DoUnfold(stream, r, x, columns);
      SYNCLINE_RETURN_IF_ERROR(
          products.forward->Run(stream, WeightsOf(w, r), columns,
                                /*bias=*/nullptr, products_at));
      const float* const by_filter = products_at;
      cuda::LaunchElements(
          stream, r.filters * r.places(),
          PutFilters{r, bias != nullptr, accumulate, OnDevice(by_filter),
                     OnDevice(bias), OnDevice(y)});
      return absl::OkStatus();
    });
  }

  absl::Status BackwardData(Stream& stream, ConstFloats dy, ConstFloats w,
                            bool accumulate, Floats dx, void* scratch,
                            bool) override {
    float* const products_at = ColumnsAt(scratch, DType::kFloat32);
    const Floats by_filter = ByFilterAt(scratch, s_.type);
    return ForRounds([&](const Round& r, Products& products) -> absl::Status {
      DoTakeFilters(stream, r, dy, by_filter);
      SYNCLINE_RETURN_IF_ERROR(
          products.data->Run(stream, WeightsOf(w, r), by_filter,
                             /*bias=*/nullptr, products_at));
      const float* const columns = products_at;
      cuda::LaunchElements(
          stream, r.samples * r.channels * r.plane.in_count(),
          FoldColumns{r, accumulate, OnDevice(columns), OnDevice(dx)});
      return absl::OkStatus();
    });
  }

  absl::Status BackwardWeights(Stream& stream, ConstFloats x, ConstFloats dy,
                               bool accumulate, Floats dw,
                               void* scratch) override {
    const Floats columns = ColumnsAt(scratch, s_.type);
    const Floats by_filter = ByFilterAt(scratch, s_.type);
    if (!accumulate && s_.batch * out() == 0) {
      stream.Clear(dw, dw.Bytes(s_.filters * rows()));
    }
    return ForRounds([&](const Round& r, Products& products) -> absl::Status {
      DoUnfold(stream, r, x, columns);
      DoTakeFilters(stream, r, dy, by_filter);
      return products.weights->Into(stream, by_filter, columns,
                                    accumulate || r.first > 0,
                                    dw + r.group * r.filters * rows());
    });
  }

  void BackwardBias(Stream& stream, ConstFloats dy, bool accumulate,
                    float* dbias) override {
    cuda::FoldLines(stream, s_.filters, s_.batch * out(), out() == 1,
                    SumOfFilters{s_.filters, out(), accumulate, OnDevice(dy),
                                 OnDevice(dbias)});
  }

 private:
  // Of the columns of so many samples, in one group.
  struct Products {
    std::unique_ptr<MatrixProduct> forward;
    std::unique_ptr<MatrixProduct> data;
    std::unique_ptr<MatrixProduct> weights;
  };

  int64_t out() const { return s_.window.out_count(); }
  // Of the columns, and of a filter's weights.
  int64_t rows() const {
    return s_.channels / s_.groups * s_.window.kernel_count();
  }
  int64_t filters() const { return s_.filters / s_.groups; }

  absl::Status CompileFor(Device& device, const ConvolutionUses& uses,
                          int64_t samples, Products* to) {
    const auto make = CudaMatrixProductKernels().make;
    const int64_t places = samples * out();
    if (uses.forward) {
      SYNCLINE_ASSIGN_OR_RETURN(to->forward,
                                make(device, {.m = filters(),
                                              .n = places,
                                              .k = rows(),
                                              .a_type = s_.type,
                                              .b_type = s_.type,
                                              .c_type = DType::kFloat32}));
    }
    if (uses.backward_data) {
      SYNCLINE_ASSIGN_OR_RETURN(to->data,
                                make(device, {.m = rows(),
                                              .n = places,
                                              .k = filters(),
                                              .transpose_a = true,
                                              .a_type = s_.type,
                                              .b_type = s_.type,
                                              .c_type = DType::kFloat32}));
    }
    if (uses.backward_weights) {
      SYNCLINE_ASSIGN_OR_RETURN(
          to->weights, make(device, {.m = filters(),
                                     .n = rows(),
                                     .k = places,
                                     .transpose_b = true,
                                     .a_type = s_.type,
                                     .b_type = s_.type,
                                     .c_type = s_.weights_gradient_type}));
    }
    return absl::OkStatus();
  }

  // Columns [rows, places], and behind them the planes of filters [filters of a
  // group, places]: of the shape's type where they are factors, float32 where
  // they are products. Each has room for float32.
  static Floats ColumnsAt(void* scratch, DType type) { return {scratch, type}; }
  Floats ByFilterAt(void* scratch, DType type) const {
    const int64_t columns_bytes = WidenedBytes(rows() * samples_ * out());
    return {static_cast<char*>(scratch) + columns_bytes, type};
  }
  ConstFloats WeightsOf(ConstFloats w, const Round& r) const {
    return w + r.group * filters() * rows();
  }

  // Calls run(round, products) for the groups of some samples after the other.
  template <typename Run>
  absl::Status ForRounds(Run run) {
    if (out() == 0) return absl::OkStatus();
    Round r;
    r.plane = cuda::MakePlane(s_.window);
    r.groups = s_.groups;
    r.channels = s_.channels / s_.groups;
    r.filters = filters();
    for (r.first = 0; r.first < s_.batch; r.first += samples_) {
      r.samples = std::min(samples_, s_.batch - r.first);
      Products& products = r.samples == samples_ ? whole_ : rest_;
      for (r.group = 0; r.group < s_.groups; ++r.group) {
        SYNCLINE_RETURN_IF_ERROR(run(r, products));
      }
    }
    return absl::OkStatus();
  }

  void DoUnfold(Stream& stream, const Round& r, ConstFloats x,
                Floats columns) const {
    cuda::LaunchElements(stream, rows() * r.samples * out(),
                         Unfold{r, OnDevice(x), OnDevice(columns)});
  }
  void DoTakeFilters(Stream& stream, const Round& r, ConstFloats y,
                     Floats by_filter) const {
    cuda::LaunchElements(stream, r.filters * r.samples * out(),
                         TakeFilters{r, OnDevice(y), OnDevice(by_filter)});
  }

  const ConvolutionShape s_;
  const int64_t samples_;  // of a round
  Products whole_;
  Products rest_;  // of the last round, if it has fewer
};

}  // namespace

namespace cuda {

absl::StatusOr<std::unique_ptr<ConvolutionLayer>> MakeUnfoldedConvolution(
    Device& device, const ConvolutionShape& shape,
    const ConvolutionUses& uses) {
  SYNCLINE_RETURN_IF_ERROR(CheckCudaConvolutionTypes(shape, uses));
  auto layer = std::make_unique<UnfoldedConvolution>(shape);
  SYNCLINE_RETURN_IF_ERROR(layer->Compile(device, uses));
  return layer;
}

}  // namespace cuda
}  // namespace syncline
