// The double of cuBLASLt: products one by one, in fp64; in TF32 where the
// device takes it.

#include "tests/testing/cuda_emulator/product_double.h"

#include <cmath>
#include <vector>

#include "common/base/check.h"
#include "kernels/cuda/float_array.h"
#include "kernels/cuda/library_device.h"
#include "kernels/cuda/product_library.h"
#include "tests/testing/cuda_emulator/emulated_device.h"
#include "tests/testing/cuda_emulator/tf32.h"

namespace syncline::cuda {
namespace {

class PlainDouble : public MatrixProduct {
 public:
  PlainDouble(const MatrixProductShape& shape, bool takes_tf32)
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
    testing::QueueWork(stream, [=, product = *this, &device = stream.device()] {
      product.ComputeNow(static_cast<testing::EmulatedDevice&>(device), a, b,
                         bias, accumulate, c);
    });
    return absl::OkStatus();
  }

  void ComputeNow(testing::EmulatedDevice& device, ConstFloats a, ConstFloats b,
                  const float* bias, bool accumulate, Floats c) const {
    const Matrix in_a = Stored(s_.m, s_.k, s_.transpose_a, s_.a_row);
    const Matrix in_b = Stored(s_.k, s_.n, s_.transpose_b, s_.b_row);
    const Matrix in_c = Stored(s_.m, s_.n, false, s_.c_row);
    if (s_.m == 0 || s_.n == 0 || s_.batch == 0) return;
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
    if (!is_there) return;  // The stream says so.
    for (int64_t batch = 0; batch < s_.batch; ++batch) {
      One(in_a, a + batch * in_a.stride(), in_b, b + batch * in_b.stride(),
          bias, accumulate, in_c, c + batch * in_c.stride());
    }
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

float Read(ConstFloats array, int64_t i) {
  if (array.type() == DType::kFloat32) {
    return static_cast<const float*>(array.data())[i];
  }
  return WidenAs(array.type(), static_cast<const uint16_t*>(array.data())[i]);
}

void Write(Floats array, int64_t i, double value) {
  if (array.type() == DType::kFloat32) {
    static_cast<float*>(array.data())[i] = static_cast<float>(value);
  } else {
    static_cast<uint16_t*>(array.data())[i] =
        NarrowAs(array.type(), static_cast<float>(value));
  }
}

// x (1 + tanh(u)) / 2 with u = sqrt(2/pi) (x + 0.044715 x^3), as cuBLASLt's
// documents have it.
double GeluTanh(double x) {
  const double u = std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
  return x * (1 + std::tanh(u)) / 2;
}
double GeluTanhDerivative(double x) {
  const double root = std::sqrt(2 / M_PI);
  const double t = std::tanh(root * (x + 0.044715 * x * x * x));
  return (1 + t) / 2 + x / 2 * (1 - t * t) * root * (1 + 3 * 0.044715 * x * x);
}

// Products one by one in fp64, in loops of its own: nothing of what plain
// products do.
class EpilogueDouble : public EpilogueProduct {
 public:
  EpilogueDouble(const MatrixProductShape& shape,
                 const ProductEpilogue& epilogue, bool takes_tf32)
      : s_(shape), e_(epilogue), takes_tf32_(takes_tf32) {}

  absl::Status Run(Stream& stream, ConstFloats a, ConstFloats b,
                   ConstFloats bias, void* kept, Floats c) override {
    SYNCLINE_CHECK(a.type() == s_.a_type && b.type() == s_.b_type &&
                   c.type() == s_.c_type);
    SYNCLINE_CHECK((bias != nullptr) == e_.has_bias &&
                   (bias == nullptr || bias.type() == s_.c_type));
    SYNCLINE_CHECK((kept != nullptr) == (e_.keeps || e_.is_gradient));
    testing::QueueMark(stream);
    ++testing::ProductDouble().runs_with_epilogue;
    if (!MayRun(stream, a, b, bias, kept, c)) return absl::OkStatus();
    for (int64_t i = 0; i < s_.m; ++i) {
      for (int64_t j = 0; j < s_.n; ++j) {
        const double p = Product(a, b, i, j);
        Write(c, i * s_.n + j,
              e_.is_gradient
                  ? p * Derivative(kept, i, j)
                  : Value(p + (e_.has_bias ? Read(bias, j) : 0), kept, i, j));
      }
    }
    return absl::OkStatus();
  }

 private:
  bool MayRun(Stream& stream, ConstFloats a, ConstFloats b, ConstFloats bias,
              void* kept, Floats c) const {
    constexpr const char* kName = "product with an epilogue";
    constexpr uintptr_t kAlignment = 16;
    auto& device = static_cast<testing::EmulatedDevice&>(stream.device());
    const bool is_narrow = Is16Bit(s_.a_type);
    for (const void* at :
         {is_narrow ? a.data() : nullptr, is_narrow ? b.data() : nullptr,
          bias.data(), static_cast<const void*>(kept),
          static_cast<const void*>(c.data())}) {
      if (reinterpret_cast<uintptr_t>(at) % kAlignment == 0) continue;
      device.Report("product with an epilogue: an array is not aligned");
      return false;
    }
    const size_t kept_bytes = e_.function == ProductEpilogue::Function::kRelu
                                  ? s_.m * KeptReluRowBytes(s_.n)
                                  : s_.m * s_.n * DTypeBytes(s_.c_type);
    return device.MayRead(kName, a, a.Bytes(s_.m * s_.k)) &&
           device.MayRead(kName, b, b.Bytes(s_.k * s_.n)) &&
           (!e_.has_bias || device.MayRead(kName, bias, bias.Bytes(s_.n))) &&
           (!e_.is_gradient || device.MayRead(kName, kept, kept_bytes)) &&
           (!e_.keeps || device.MayWrite(kName, kept, kept_bytes)) &&
           device.MayWrite(kName, c, c.Bytes(s_.m * s_.n));
  }

  float Factor(ConstFloats array, int64_t i) const {
    const float value = Read(array, i);
    return takes_tf32_ ? testing::ToTf32(value) : value;
  }
  double Product(ConstFloats a, ConstFloats b, int64_t i, int64_t j) const {
    double sum = 0;
    for (int64_t k = 0; k < s_.k; ++k) {
      const float x = Factor(a, s_.transpose_a ? k * s_.m + i : i * s_.k + k);
      const float y = Factor(b, s_.transpose_b ? j * s_.k + k : k * s_.n + j);
      sum += static_cast<double>(x) * y;
    }
    return s_.alpha * sum;
  }

  // Bit j of row i, the lowest of a byte first.
  uint8_t* ByteOf(void* kept, int64_t i, int64_t j) const {
    return static_cast<uint8_t*>(kept) + i * KeptReluRowBytes(s_.n) + j / 8;
  }
  double Value(double x, void* kept, int64_t i, int64_t j) const {
    if (e_.function == ProductEpilogue::Function::kRelu) {
      const auto bit = static_cast<uint8_t>(1 << (j % 8));
      if (e_.keeps && j % 8 == 0) *ByteOf(kept, i, j) = 0;
      if (e_.keeps && x > 0) *ByteOf(kept, i, j) |= bit;
      if (std::isnan(x)) return testing::ProductDouble().drops_nan ? 0 : x;
      return x > 0 ? x : 0;
    }
    if (e_.function == ProductEpilogue::Function::kNone) return x;
    if (e_.keeps) Write({kept, s_.c_type}, i * s_.n + j, x);
    return GeluTanh(x);
  }
  double Derivative(void* kept, int64_t i, int64_t j) const {
    if (e_.function == ProductEpilogue::Function::kRelu) {
      return *ByteOf(kept, i, j) >> (j % 8) & 1;
    }
    return GeluTanhDerivative(Read({kept, s_.c_type}, i * s_.n + j));
  }

  const MatrixProductShape s_;
  const ProductEpilogue e_;
  const bool takes_tf32_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<MatrixProduct>> MakeLibraryProduct(
    Device& device, const MatrixProductShape& shape) {
  return std::make_unique<PlainDouble>(shape,
                                       LibraryDevice::Of(device).takes_tf32());
}

absl::StatusOr<std::unique_ptr<EpilogueProduct>> MakeLibraryEpilogueProduct(
    Device& device, const MatrixProductShape& shape,
    const ProductEpilogue& epilogue) {
  if (testing::ProductDouble().has_no_algorithm(shape, epilogue)) {
    return absl::UnimplementedError("the double has no algorithm for it");
  }
  return std::make_unique<EpilogueDouble>(
      shape, epilogue, LibraryDevice::Of(device).takes_tf32());
}

}  // namespace syncline::cuda

namespace syncline::testing {

ProductDoubleState& ProductDouble() {
  static ProductDoubleState& state = *new ProductDoubleState();
  return state;
}

}  // namespace syncline::testing
