// The double of cuBLASLt: products one by one, in fp64; in TF32 where the
// device takes it.

#include <vector>

#include "common/base/check.h"
#include "kernels/cuda/float_array.h"
#include "kernels/cuda/library_device.h"
#include "kernels/cuda/product_library.h"
#include "tests/testing/cuda_emulator/emulated_device.h"
#include "tests/testing/cuda_emulator/tf32.h"

namespace syncline::cuda {
namespace {

class ProductDouble : public MatrixProduct {
 public:
  ProductDouble(const MatrixProductShape& shape, bool takes_tf32)
      : s_(shape), takes_tf32_(takes_tf32) {}

  absl::Status Run(Stream& stream, ConstFloats a, ConstFloats b,
                   const float* bias, Floats c) override {
    return Compute(stream, a, b, bias, /*accumulate=*/false, c);
  }
  absl::Status Accumulate(Stream& stream, ConstFloats a, ConstFloats b,
                          Floats c) override {
    return Compute(stream, a, b, /*bias=*/nullptr, /*accumulate=*/true, c);
  }

 private:
  struct Matrix {
    int64_t rows;  // as it is stored
    int64_t columns;
    int64_t row;

    int64_t stride() const { return rows * columns; }  // of the batch
  };
  static Matrix Stored(int64_t rows, int64_t columns, bool is_transposed,
                       int64_t row) {
    if (is_transposed) std::swap(rows, columns);
    return {rows, columns, row == 0 ? columns : row};
  }

  template <typename May>
  bool EachRow(const Matrix& matrix, ConstFloats at, May may) const {
    for (int64_t batch = 0; batch < s_.batch; ++batch) {
      for (int64_t row = 0; row < matrix.rows; ++row) {
        const ConstFloats begin =
            at + (batch * matrix.stride() + row * matrix.row);
        if (!may(begin.data(), begin.Bytes(matrix.columns))) return false;
      }
    }
    return true;
  }

  static float Read(ConstFloats array, int64_t i) {
    if (array.type() == DType::kFloat32) {
      return static_cast<const float*>(array.data())[i];
    }
    return WidenAs(array.type(), static_cast<const uint16_t*>(array.data())[i]);
  }
  static void Write(Floats array, int64_t i, float value) {
    if (array.type() == DType::kFloat32) {
      static_cast<float*>(array.data())[i] = value;
    } else {
      static_cast<uint16_t*>(array.data())[i] = NarrowAs(array.type(), value);
    }
  }

  float Factor(ConstFloats array, int64_t i) const {
    const float value = Read(array, i);
    return takes_tf32_ ? testing::ToTf32(value) : value;
  }

  absl::Status Compute(Stream& stream, ConstFloats a, ConstFloats b,
                       const float* bias, bool accumulate, Floats c) const {
    SYNCLINE_CHECK(a.type() == s_.a_type && b.type() == s_.b_type &&
                   c.type() == s_.c_type);
    testing::QueueMark(stream);
    auto& device = static_cast<testing::EmulatedDevice&>(stream.device());
    const Matrix in_a = Stored(s_.m, s_.k, s_.transpose_a, s_.a_row);
    const Matrix in_b = Stored(s_.k, s_.n, s_.transpose_b, s_.b_row);
    const Matrix in_c = Stored(s_.m, s_.n, false, s_.c_row);
    if (s_.m == 0 || s_.n == 0 || s_.batch == 0) return absl::OkStatus();
    const auto may_read = [&](const void* at, size_t bytes) {
      return device.MayRead("matrix product", at, bytes);
    };
    const bool is_there =
        (s_.k == 0 ||
         (EachRow(in_a, a, may_read) && EachRow(in_b, b, may_read))) &&
        (bias == nullptr || may_read(bias, s_.n * sizeof(float))) &&
        (!accumulate || EachRow(in_c, c, may_read)) &&
        EachRow(in_c, c, [&](const void* at, size_t bytes) {
          return device.MayWrite("matrix product", const_cast<void*>(at),
                                 bytes);
        });
    if (!is_there) return absl::OkStatus();  // The stream says so.
    for (int64_t batch = 0; batch < s_.batch; ++batch) {
      One(in_a, a + batch * in_a.stride(), in_b, b + batch * in_b.stride(),
          bias, accumulate, in_c, c + batch * in_c.stride());
    }
    return absl::OkStatus();
  }

  void One(const Matrix& in_a, ConstFloats a, const Matrix& in_b, ConstFloats b,
           const float* bias, bool accumulate, const Matrix& in_c,
           Floats c) const {
    for (int64_t i = 0; i < s_.m; ++i) {
      for (int64_t j = 0; j < s_.n; ++j) {
        double sum = 0;
        for (int64_t k = 0; k < s_.k; ++k) {
          const float x =
              Factor(a, s_.transpose_a ? k * in_a.row + i : i * in_a.row + k);
          const float y =
              Factor(b, s_.transpose_b ? j * in_b.row + k : k * in_b.row + j);
          sum += static_cast<double>(x) * y;
        }
        const int64_t at = i * in_c.row + j;
        Write(c, at,
              static_cast<float>(s_.alpha * sum +
                                 (bias == nullptr ? 0 : bias[j]) +
                                 (accumulate ? Read(c, at) : 0)));
      }
    }
  }

  const MatrixProductShape s_;
  const bool takes_tf32_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<MatrixProduct>> MakeLibraryProduct(
    Device& device, const MatrixProductShape& shape) {
  return std::make_unique<ProductDouble>(
      shape, LibraryDevice::Of(device).takes_tf32());
}

}  // namespace syncline::cuda
