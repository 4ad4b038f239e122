// The double of cuBLASLt: products one by one, in fp64, or as another of its
// algorithms says; in TF32 where the device takes it.

#include "tests/testing/cuda_emulator/product_double.h"

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/check.h"
#include "kernels/cuda/float_array.h"
#include "kernels/cuda/library_device.h"
#include "kernels/cuda/product_library.h"
#include "kernels/cuda/product_types.h"
#include "kernels/device/product_tuner.h"
#include "tests/testing/cuda_emulator/emulated_device.h"
#include "tests/testing/cuda_emulator/tf32.h"

namespace syncline::cuda {
namespace {

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

// One product, with all that it depends on.
struct Multiplication {
  MatrixProductShape s;
  bool takes_tf32 = false;
  int algorithm = 0;

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
    for (int64_t batch = 0; batch < s.batch; ++batch) {
      for (int64_t row = 0; row < matrix.rows; ++row) {
        const ConstFloats begin =
            at + (batch * matrix.stride() + row * matrix.row);
        if (!may(begin.data(), begin.Bytes(matrix.columns))) return false;
      }
    }
    return true;
  }

  float Factor(ConstFloats array, int64_t i) const {
    const float value = Read(array, i);
    return takes_tf32 ? testing::ToTf32(value) : value;
  }

  void Run(testing::EmulatedDevice& device, ConstFloats a, ConstFloats b,
           const float* bias, bool accumulate, Floats c) const {
    const Matrix in_a = Stored(s.m, s.k, s.transpose_a, s.a_row);
    const Matrix in_b = Stored(s.k, s.n, s.transpose_b, s.b_row);
    const Matrix in_c = Stored(s.m, s.n, false, s.c_row);
    if (s.m == 0 || s.n == 0 || s.batch == 0) return;
    const auto may_read = [&](const void* at, size_t bytes) {
      return device.MayRead("matrix product", at, bytes);
    };
    const bool is_there =
        (s.k == 0 ||
         (EachRow(in_a, a, may_read) && EachRow(in_b, b, may_read))) &&
        (bias == nullptr || may_read(bias, s.n * sizeof(float))) &&
        (!accumulate || EachRow(in_c, c, may_read)) &&
        EachRow(in_c, c, [&](const void* at, size_t bytes) {
          return device.MayWrite("matrix product", const_cast<void*>(at),
                                 bytes);
        });
    if (!is_there) return;  // The stream says so.
    ++device.products().runs[algorithm];
    for (int64_t batch = 0; batch < s.batch; ++batch) {
      One(in_a, a + batch * in_a.stride(), in_b, b + batch * in_b.stride(),
          bias, accumulate, in_c, c + batch * in_c.stride());
    }
  }

  void One(const Matrix& in_a, ConstFloats a, const Matrix& in_b, ConstFloats b,
           const float* bias, bool accumulate, const Matrix& in_c,
           Floats c) const {
    for (int64_t i = 0; i < s.m; ++i) {
      for (int64_t j = 0; j < s.n; ++j) {
        double sum = 0;
        for (int64_t step = 0; step < s.k; ++step) {
          const bool is_backwards = algorithm > 0 && algorithm % 2 == 0;
          const int64_t k = is_backwards ? s.k - 1 - step : step;
          const float x =
              Factor(a, s.transpose_a ? k * in_a.row + i : i * in_a.row + k);
          const float y =
              Factor(b, s.transpose_b ? j * in_b.row + k : k * in_b.row + j);
          sum += static_cast<double>(x) * y;
          if (algorithm > 0) sum = static_cast<float>(sum);
        }
        const int64_t at = i * in_c.row + j;
        Write(c, at,
              s.alpha * sum + (bias == nullptr ? 0 : bias[j]) +
                  (accumulate ? Read(c, at) : 0));
      }
    }
  }
};

class PlainDouble : public MatrixProduct, public ProductTuner::Product {
 public:
  PlainDouble(testing::EmulatedDevice& device, const MatrixProductShape& shape)
      : device_(device),
        work_{.s = shape, .takes_tf32 = device.takes_tf32()},
        key_(ProductKeyOf(shape, shape.has_bias ? "bias" : "plain",
                          device.takes_tf32(), /*alignment=*/16)) {
    device_.product_tuner()->Add(this);
  }
  ~PlainDouble() override { device_.product_tuner()->Remove(this); }

  const std::string& key() const override { return key_; }
  absl::StatusOr<std::vector<std::string>> Algorithms(int count_max) override {
    std::vector<std::string> algorithms;
    for (size_t i = 0; i < device_.products().times.size() &&
                       algorithms.size() < static_cast<size_t>(count_max);
         ++i) {
      algorithms.push_back(absl::StrCat(kName, i));
    }
    return algorithms;
  }
  bool Takes(absl::string_view algorithm) override {
    int number = 0;
    return absl::ConsumePrefix(&algorithm, kName) &&
           absl::SimpleAtoi(algorithm, &number) && number >= 0 &&
           number < static_cast<int>(device_.products().times.size()) &&
           !device_.products().refused.contains(number);
  }
  void Use(absl::string_view algorithm) override {
    SYNCLINE_CHECK(Takes(algorithm));
    SYNCLINE_CHECK(absl::SimpleAtoi(absl::StripPrefix(algorithm, kName),
                                    &work_.algorithm));
  }
  int64_t array_bytes() const override {
    return (work_.s.m * work_.s.k + work_.s.k * work_.s.n +
            work_.s.m * work_.s.n) *
           work_.s.batch * static_cast<int64_t>(sizeof(float));
  }
  absl::StatusOr<absl::Duration> Measure(Stream&, absl::string_view algorithm,
                                         void* arrays) override {
    int number = 0;
    SYNCLINE_CHECK(
        arrays != nullptr && Takes(algorithm) &&
        absl::SimpleAtoi(absl::StripPrefix(algorithm, kName), &number));
    ++device_.products().measurements;
    return device_.products().times[number];
  }

  absl::Status Run(Stream& stream, ConstFloats a, ConstFloats b,
                   const float* bias, Floats c) override {
    return Queue(stream, a, b, bias, /*accumulate=*/false, c);
  }
  absl::Status Accumulate(Stream& stream, ConstFloats a, ConstFloats b,
                          Floats c) override {
    return Queue(stream, a, b, /*bias=*/nullptr, /*accumulate=*/true, c);
  }

 private:
  static constexpr absl::string_view kName = "algorithm ";

  absl::Status Queue(Stream& stream, ConstFloats a, ConstFloats b,
                     const float* bias, bool accumulate, Floats c) const {
    SYNCLINE_CHECK(a.type() == work_.s.a_type && b.type() == work_.s.b_type &&
                   c.type() == work_.s.c_type);
    testing::QueueWork(stream, [=, work = work_, &device = device_] {
      work.Run(device, a, b, bias, accumulate, c);
    });
    return absl::OkStatus();
  }

  testing::EmulatedDevice& device_;
  Multiplication work_;
  const std::string key_;
};

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
    testing::QueueWork(stream, [=, work = *this, &device = stream.device()] {
      work.RunNow(static_cast<testing::EmulatedDevice&>(device), a, b, bias,
                  kept, c);
    });
    return absl::OkStatus();
  }

 private:
  void RunNow(testing::EmulatedDevice& device, ConstFloats a, ConstFloats b,
              ConstFloats bias, void* kept, Floats c) const {
    ++testing::Epilogues().runs;
    if (!MayRun(device, a, b, bias, kept, c)) return;
    for (int64_t i = 0; i < s_.m; ++i) {
      for (int64_t j = 0; j < s_.n; ++j) {
        const double p = Product(a, b, i, j);
        Write(c, i * s_.n + j,
              e_.is_gradient
                  ? p * Derivative(kept, i, j)
                  : Value(p + (e_.has_bias ? Read(bias, j) : 0), kept, i, j));
      }
    }
  }

  bool MayRun(testing::EmulatedDevice& device, ConstFloats a, ConstFloats b,
              ConstFloats bias, void* kept, Floats c) const {
    constexpr const char* kName = "product with an epilogue";
    constexpr uintptr_t kAlignment = 16;
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
      if (std::isnan(x)) return testing::Epilogues().drops_nan ? 0 : x;
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
  return std::make_unique<PlainDouble>(
      static_cast<testing::EmulatedDevice&>(device), shape);
}

absl::StatusOr<std::unique_ptr<EpilogueProduct>> MakeLibraryEpilogueProduct(
    Device& device, const MatrixProductShape& shape,
    const ProductEpilogue& epilogue) {
  if (testing::Epilogues().has_no_algorithm(shape, epilogue)) {
    return absl::UnimplementedError("the double has no algorithm for it");
  }
  return std::make_unique<EpilogueDouble>(
      shape, epilogue, LibraryDevice::Of(device).takes_tf32());
}

absl::StatusOr<std::string> ProductLibraryName() { return "products 1.0"; }

}  // namespace syncline::cuda

namespace syncline::testing {

EpilogueDoubleState& Epilogues() {
  static EpilogueDoubleState& state = *new EpilogueDoubleState();
  return state;
}

}  // namespace syncline::testing
