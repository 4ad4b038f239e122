#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/element_type.h"
#include "common/base/status_macros.h"
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/library_device.h"
#include "kernels/cuda/product_library.h"
#include "kernels/cuda/product_types.h"
#include "kernels/cuda/spread.h"
#include "kernels/device/device.h"
#include "kernels/device/matrix_product_kernels.h"

namespace syncline {
namespace {

// Sums over nothing, for which the library has no algorithm.
class EmptyProduct : public MatrixProduct {
 public:
  explicit EmptyProduct(const MatrixProductShape& shape) : s_(shape) {}

  absl::Status Run(Stream& stream, ConstFloats, ConstFloats, const float* bias,
                   Floats c) override {
    const int64_t bytes = c.Bytes(s_.n);
    const int64_t row = s_.c_row == 0 ? s_.n : s_.c_row;
    if (bias == nullptr && row == s_.n) {  // one array, without gaps
      stream.Clear(c, s_.batch * s_.m * bytes);
      return absl::OkStatus();
    }
    for (int64_t i = 0; i < s_.batch * s_.m; ++i) {
      if (bias == nullptr) {
        stream.Clear(c + i * row, bytes);
      } else {
        stream.Copy(c + i * row, bias, bytes);
      }
    }
    return absl::OkStatus();
  }
  absl::Status Accumulate(Stream&, ConstFloats, ConstFloats, Floats) override {
    return absl::OkStatus();
  }

 private:
  const MatrixProductShape s_;
};

absl::StatusOr<std::unique_ptr<MatrixProduct>> Make(
    Device& device, const MatrixProductShape& shape) {
  SYNCLINE_RETURN_IF_ERROR(CheckCudaProductTypes(shape));
  if (shape.k == 0) return std::make_unique<EmptyProduct>(shape);
  return cuda::MakeLibraryProduct(device, shape);
}

// Whether the library's ReLU leaves NaN what it is: cuBLASLt's documents call
// it max(x, 0), which may be a maximum that drops NaN. Found out by a small
// product whose bias is NaN, where the device's first plan with a ReLU of the
// type is made; no larger one is looked at. Errors: ResourceExhausted: the
// device has no memory for it, which says nothing of the library.
absl::StatusOr<bool> ReluKeepsNan(Device& device,
                                  const MatrixProductShape& shape) {
  constexpr int64_t kSize = 16;
  MatrixProductShape s = {.m = kSize, .n = kSize, .k = kSize};
  s.a_type = s.b_type = s.c_type = shape.c_type;
  SYNCLINE_ASSIGN_OR_RETURN(
      const auto product,
      cuda::MakeLibraryEpilogueProduct(
          device, s,
          {.function = ProductEpilogue::Function::kRelu, .has_bias = true}));
  const size_t bytes = kSize * kSize * DTypeBytes(shape.c_type);
  SYNCLINE_ASSIGN_OR_RETURN(const DeviceMemory factor, device.Allocate(bytes));
  SYNCLINE_ASSIGN_OR_RETURN(const DeviceMemory bias, device.Allocate(bytes));
  SYNCLINE_ASSIGN_OR_RETURN(const DeviceMemory result, device.Allocate(bytes));
  SYNCLINE_ASSIGN_OR_RETURN(const std::unique_ptr<Stream> stream,
                            device.MakeStream());
  // All bits set is NaN in each of the types.
  const std::string nan(bytes, '\xff');
  std::string got(bytes, '\0');
  stream->Clear(factor.data(), bytes);
  stream->CopyToDevice(bias.data(), nan.data(), bytes);
  const ConstFloats zeros = {factor.data(), s.a_type};
  SYNCLINE_RETURN_IF_ERROR(
      product->Run(*stream, zeros, zeros, {bias.data(), s.c_type},
                   /*kept=*/nullptr, {result.data(), s.c_type}));
  stream->CopyToHost(got.data(), result.data(), bytes);
  SYNCLINE_RETURN_IF_ERROR(stream->Synchronize());
  const ElementType element =
      s.c_type == DType::kBfloat16  ? ElementType::kBfloat16
      : s.c_type == DType::kFloat16 ? ElementType::kFloat16
                                    : ElementType::kFloat32;
  std::vector<float> values(kSize * kSize);
  Widen(element, got.data(), values.data(), values.size());
  return std::all_of(values.begin(), values.end(),
                     [](float value) { return std::isnan(value); });
}

absl::StatusOr<std::unique_ptr<EpilogueProduct>> MakeWithEpilogue(
    Device& device, const MatrixProductShape& shape,
    const ProductEpilogue& epilogue) {
  SYNCLINE_RETURN_IF_ERROR(CheckCudaEpilogue(shape, epilogue));
  SYNCLINE_ASSIGN_OR_RETURN(
      std::unique_ptr<EpilogueProduct> product,
      cuda::MakeLibraryEpilogueProduct(device, shape, epilogue));
  if (epilogue.function == ProductEpilogue::Function::kRelu &&
      !epilogue.is_gradient) {
    SYNCLINE_ASSIGN_OR_RETURN(
        const bool keeps_nan,
        cuda::LibraryDevice::Of(device).relu_keeps_nan().Get(
            shape.c_type, [&] { return ReluKeepsNan(device, shape); }));
    if (!keeps_nan) {
      return absl::UnimplementedError("the library's ReLU drops NaN");
    }
  }
  return product;
}

}  // namespace

const MatrixProductKernels& CudaMatrixProductKernels() {
  static constexpr MatrixProductKernels kKernels = {
      .make = Make,
      .make_with_epilogue = MakeWithEpilogue,
      .spread = cuda::Spread,
      .spread_gradient = cuda::SpreadGradient};
  return kKernels;
}

}  // namespace syncline
