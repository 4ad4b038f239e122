// Goal: products of CUDA's family are those of this machine, empty sums too.
// Method: shapes with strides, transposes, batches and bias, on an emulated
// device whose library is a double.

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/dtype.h"
#include "common/base/element_type.h"
#include "gmock/gmock.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/device/kernel_table.h"
#include "kernels/device/matrix_product_kernels.h"
#include "kernels/elementwise/pointwise_functions.h"
#include "tests/testing/arrays.h"
#include "tests/testing/cuda_emulator/emulated_device.h"
#include "tests/testing/cuda_emulator/product_double.h"

namespace syncline {
namespace {

using testing::EmulatedDevice;
using testing::RandomArray;

struct Arrays {
  std::vector<float> a;
  std::vector<float> b;
  std::vector<float> bias;
  std::vector<float> c;
};

Arrays Draw(const MatrixProductShape& s) {
  const auto draw = [](int64_t count, uint64_t seed) {
    return testing::ToFloats(RandomArray({count}, seed).values);
  };
  const auto rows = [&](int64_t rows, int64_t columns, bool transposed,
                        int64_t row) {
    if (transposed) std::swap(rows, columns);
    return s.batch * rows * (row == 0 ? columns : row) + 1;
  };
  return {draw(rows(s.m, s.k, s.transpose_a, s.a_row), 1),
          draw(rows(s.k, s.n, s.transpose_b, s.b_row), 2), draw(s.n, 3),
          draw(rows(s.m, s.n, false, s.c_row), 4)};
}

// C after Run, and after Accumulate.
std::vector<std::vector<float>> Compute(Device& device,
                                        const MatrixProductShape& s) {
  const Arrays host = Draw(s);
  const auto product = *device.kernels().matrix_product->make(device, s);
  const auto stream = *device.MakeStream();
  const auto put = [&](const std::vector<float>& values) {
    return *Upload(device, absl::Span<const float>(values));
  };
  const DeviceMemory a = put(host.a);
  const DeviceMemory b = put(host.b);
  const DeviceMemory bias = put(host.bias);
  const DeviceMemory c = put(host.c);
  std::vector<std::vector<float>> results;
  const auto read = [&] {
    results.emplace_back(host.c.size());
    stream->CopyToHost(results.back().data(), c.data(),
                       host.c.size() * sizeof(float));
    EXPECT_EQ(stream->Synchronize(), absl::OkStatus());
  };
  EXPECT_EQ(
      product->Run(*stream, a.as<float>(), b.as<float>(),
                   s.has_bias ? bias.as<float>() : nullptr, c.as<float>()),
      absl::OkStatus());
  read();
  EXPECT_EQ(
      product->Accumulate(*stream, a.as<float>(), b.as<float>(), c.as<float>()),
      absl::OkStatus());
  read();
  return results;
}

// 16 bits of each value; and the values that they are.
struct Rounded {
  explicit Rounded(const std::vector<float>& from, ElementType type)
      : bits(from.size()), values(from.size()) {
    Narrow(type, from.data(), bits.data(), bits.size());
    Widen(type, bits.data(), values.data(), values.size());
  }
  std::vector<uint16_t> bits;
  std::vector<float> values;
};

// C += A B on an emulated device, C in 16 bits or not, against the sums in
// float64, rounded once.
void ExpectOneRounding(DType type, bool c_is_narrow) {
  const ElementType element =
      type == DType::kBfloat16 ? ElementType::kBfloat16 : ElementType::kFloat16;
  const MatrixProductShape s = {.m = 3,
                                .n = 4,
                                .k = 5,
                                .a_type = type,
                                .b_type = type,
                                .c_type = c_is_narrow ? type : DType::kFloat32};
  const Arrays host = Draw(s);
  const Rounded a(host.a, element), b(host.b, element), c(host.c, element);
  EmulatedDevice device;
  const auto product = *device.kernels().matrix_product->make(device, s);
  const auto stream = *device.MakeStream();
  const DeviceMemory on_a = *Upload(device, absl::MakeConstSpan(a.bits));
  const DeviceMemory on_b = *Upload(device, absl::MakeConstSpan(b.bits));
  const DeviceMemory on_c =
      c_is_narrow ? *Upload(device, absl::MakeConstSpan(c.bits))
                  : *Upload(device, absl::MakeConstSpan(c.values));
  ASSERT_EQ(product->Accumulate(*stream, {on_a.data(), type},
                                {on_b.data(), type}, {on_c.data(), s.c_type}),
            absl::OkStatus());
  std::vector<float> want;
  for (int64_t i = 0; i < s.m * s.n; ++i) {
    double sum = c.values[i];
    for (int64_t k = 0; k < s.k; ++k) {
      sum += static_cast<double>(a.values[i / s.n * s.k + k]) *
             b.values[k * s.n + i % s.n];
    }
    want.push_back(static_cast<float>(sum));
  }
  if (c_is_narrow) {
    std::vector<uint16_t> got(want.size());
    stream->CopyToHost(got.data(), on_c.data(), 2 * got.size());
    ASSERT_EQ(stream->Synchronize(), absl::OkStatus());
    EXPECT_EQ(got, Rounded(want, element).bits);
  } else {
    std::vector<float> got(want.size());
    stream->CopyToHost(got.data(), on_c.data(), 4 * got.size());
    ASSERT_EQ(stream->Synchronize(), absl::OkStatus());
    EXPECT_EQ(got, want);
  }
}

TEST(CudaMatrixProductTest, In16BitsResultsAreRoundedOnce) {
  for (const DType type : {DType::kBfloat16, DType::kFloat16}) {
    ExpectOneRounding(type, /*c_is_narrow=*/true);
    ExpectOneRounding(type, /*c_is_narrow=*/false);
  }
}

TEST(CudaMatrixProductTest, TypesThatAreNotMultipliedAreRefused) {
  EmulatedDevice device;
  const auto make = [&](const MatrixProductShape& s) {
    return std::string(
        device.kernels().matrix_product->make(device, s).status().message());
  };
  constexpr DType kNarrow = DType::kBfloat16;
  EXPECT_EQ(make({.m = 1, .n = 1, .k = 1, .b_type = kNarrow}),
            "a product of float32 and bfloat16 in float32 is not one of a "
            "GPU's");
  EXPECT_EQ(make({.m = 1, .n = 1, .k = 1, .c_type = kNarrow}),
            "a product of float32 and float32 in bfloat16 is not one of a "
            "GPU's");
  EXPECT_EQ(make({.m = 1,
                  .n = 1,
                  .k = 1,
                  .has_bias = true,
                  .a_type = kNarrow,
                  .b_type = kNarrow,
                  .c_type = kNarrow}),
            "a product of bfloat16 and bfloat16 in bfloat16 with a bias is not "
            "one of a GPU's");
  EXPECT_EQ(ThisMachine()
                .kernels()
                .matrix_product->make(ThisMachine(), {.a_type = kNarrow})
                .status()
                .message(),
            "a product of bfloat16 is not one of this machine's");
}

TEST(CudaMatrixProductTest, ComputesAsThisMachineDoes) {
  const MatrixProductShape shapes[] = {
      {.m = 3, .n = 4, .k = 5},
      {.m = 3, .n = 4, .k = 5, .transpose_a = true},
      {.m = 3, .n = 4, .k = 5, .transpose_b = true, .batch = 2},
      {.m = 3, .n = 4, .k = 5, .transpose_a = true, .transpose_b = true},
      {.m = 3, .n = 4, .k = 5, .a_row = 7, .b_row = 6, .c_row = 9, .alpha = 2},
      {.m = 3, .n = 4, .k = 5, .has_bias = true},
      {.m = 3, .n = 4, .k = 0},
      {.m = 3, .n = 4, .k = 0, .c_row = 6, .has_bias = true},
      {.m = 3, .n = 4, .k = 0, .batch = 2},
      {.m = 0, .n = 4, .k = 5},
      {.m = 3, .n = 0, .k = 5},
  };
  for (const MatrixProductShape& s : shapes) {
    SCOPED_TRACE(absl::StrCat(s.m, " x ", s.k, " x ", s.n, ", ", s.c_row));
    EmulatedDevice device;
    const auto got = Compute(device, s);
    const auto want = Compute(ThisMachine(), s);
    for (const int i : {0, 1}) {
      testing::ExpectNear(got[i], {want[i].begin(), want[i].end()}, 1e-6);
    }
  }
}

// Counts what it passes on.
class CountingStream : public Stream {
 public:
  explicit CountingStream(Stream* stream) : stream_(*stream) {}

  int64_t calls() const { return calls_; }

  Device& device() override { return stream_.device(); }
  void CopyToDevice(void* to, const void* from, size_t bytes) override {
    ++calls_;
    stream_.CopyToDevice(to, from, bytes);
  }
  void CopyToHost(void* to, const void* from, size_t bytes) override {
    ++calls_;
    stream_.CopyToHost(to, from, bytes);
  }
  void Copy(void* to, const void* from, size_t bytes) override {
    ++calls_;
    stream_.Copy(to, from, bytes);
  }
  void Clear(void* to, size_t bytes) override {
    ++calls_;
    stream_.Clear(to, bytes);
  }
  void Wait(Event& event) override { stream_.Wait(event); }
  absl::Status Synchronize() override { return stream_.Synchronize(); }

 private:
  Stream& stream_;
  int64_t calls_ = 0;
};

// 1 + 2^-11 has 12 bits.
TEST(CudaMatrixProductTest, Tf32RoundsFactorsWhereItIsAllowed) {
  const float twelve_bits = 1 + std::ldexp(1.0f, -11);
  for (const bool takes_tf32 : {false, true}) {
    EmulatedDevice device;
    device.AllowTf32(takes_tf32);
    const auto stream = *device.MakeStream();
    const auto product = *device.kernels().matrix_product->make(
        device, {.m = 1, .n = 1, .k = 1});
    const std::vector<float> values = {twelve_bits, 3};
    const DeviceMemory a = *Upload(device, absl::Span<const float>(values));
    const DeviceMemory c = *device.Allocate(sizeof(float));
    ASSERT_EQ(product->Run(*stream, a.as<float>(), a.as<float>() + 1,
                           /*bias=*/nullptr, c.as<float>()),
              absl::OkStatus());
    float got = 0;
    stream->CopyToHost(&got, c.data(), sizeof(float));
    EXPECT_EQ(got, takes_tf32 ? 3 : 3 * twelve_bits);
  }
}

TEST(CudaMatrixProductTest, AnEmptySumIsOneClear) {
  EmulatedDevice device;
  const auto stream = *device.MakeStream();
  CountingStream counting(stream.get());
  const MatrixProductShape s = {.m = 30, .n = 4, .k = 0, .batch = 50};
  const auto product = *device.kernels().matrix_product->make(device, s);
  const std::vector<float> before(50 * 30 * 4, 1.0f);
  const DeviceMemory c = *Upload(device, absl::Span<const float>(before));
  ASSERT_EQ(product->Run(counting, c.as<float>(), c.as<float>(),
                         /*bias=*/nullptr, c.as<float>()),
            absl::OkStatus());
  EXPECT_EQ(counting.calls(), 1);
  std::vector<float> got(before.size());
  stream->CopyToHost(got.data(), c.data(), c.bytes());
  ASSERT_EQ(stream->Synchronize(), absl::OkStatus());
  EXPECT_EQ(got, std::vector<float>(before.size(), 0.0f));
}

using Function = ProductEpilogue::Function;

// An array of a type, drawn.
struct Typed {
  Typed(Device& device, DType type, int64_t count, uint64_t seed)
      : type(type), values(count) {
    const std::vector<float> drawn =
        testing::ToFloats(RandomArray({count}, seed).values);
    if (type == DType::kFloat32) {
      values = drawn;
      memory = *Upload(device, absl::MakeConstSpan(values));
    } else {
      Rounded rounded(drawn, ElementType::kBfloat16);
      values = rounded.values;
      memory = *Upload(device, absl::MakeConstSpan(rounded.bits));
    }
  }
  ConstFloats in() const { return {memory.data(), type}; }
  Floats out() const { return {memory.data(), type}; }
  // The memory's elements, as float32.
  std::vector<float> Read(Stream& stream) const {
    std::string bytes(values.size() * DTypeBytes(type), '\0');
    stream.CopyToHost(bytes.data(), memory.data(), bytes.size());
    EXPECT_EQ(stream.Synchronize(), absl::OkStatus());
    std::vector<float> read(values.size());
    Widen(type == DType::kFloat32 ? ElementType::kFloat32
                                  : ElementType::kBfloat16,
          bytes.data(), read.data(), read.size());
    return read;
  }

  const DType type;
  std::vector<float> values;
  DeviceMemory memory;
};

double Applied(Function function, double x) {
  if (function == Function::kNone) return x;
  if (function == Function::kRelu) return x > 0 ? x : 0;
  return pointwise::GeluTanh().Value(static_cast<float>(x));
}
double DerivativeOf(Function function, double x) {
  if (function == Function::kRelu) return x > 0 ? 1 : 0;
  return pointwise::GeluTanh().Derivative(static_cast<float>(x));
}

// Forward, and the gradient that reads what it keeps, of [m, k] x [k, n].
void ExpectEpilogue(DType type, Function function, int64_t m, int64_t n,
                    int64_t k, bool has_bias) {
  SCOPED_TRACE(absl::StrCat(DTypeName(type), " ", static_cast<int>(function),
                            " ", m, " x ", k, " x ", n, " ", has_bias));
  EmulatedDevice device;
  const auto make = device.kernels().matrix_product->make_with_epilogue;
  const auto stream = *device.MakeStream();
  const bool keeps = function != Function::kNone;
  const double tolerance = type == DType::kFloat32 ? 1e-5 : 1.0 / 256;
  MatrixProductShape s = {.m = m, .n = n, .k = k, .transpose_b = true};
  s.a_type = s.b_type = s.c_type = type;
  const auto forward = make(
      device, s, {.function = function, .has_bias = has_bias, .keeps = keeps});
  ASSERT_EQ(forward.status(), absl::OkStatus());
  const Typed a(device, type, m * k, 1), b(device, type, n * k, 2);
  const Typed bias(device, type, n, 3), c(device, type, m * n, 4);
  const DeviceMemory kept =
      *device.Allocate(m * std::max(KeptReluRowBytes(n), 4 * n));
  ASSERT_EQ(
      (*forward)->Run(*stream, a.in(), b.in(), has_bias ? bias.in() : nullptr,
                      keeps ? kept.data() : nullptr, c.out()),
      absl::OkStatus());
  std::vector<double> before(m * n), want(m * n);
  for (int64_t i = 0; i < m * n; ++i) {
    double sum = has_bias ? bias.values[i % n] : 0;
    for (int64_t t = 0; t < k; ++t) {
      sum += static_cast<double>(a.values[i / n * k + t]) *
             b.values[i % n * k + t];
    }
    before[i] = sum;
    want[i] = Applied(function, sum);
  }
  testing::ExpectNear(c.Read(*stream), want, tolerance);
  if (!keeps) return;

  MatrixProductShape g = {.m = m, .n = n, .k = 3};
  g.a_type = g.b_type = g.c_type = type;
  const auto gradient =
      make(device, g, {.function = function, .is_gradient = true});
  ASSERT_EQ(gradient.status(), absl::OkStatus());
  const Typed p(device, type, m * 3, 5), q(device, type, 3 * n, 6);
  ASSERT_EQ(
      (*gradient)->Run(*stream, p.in(), q.in(), nullptr, kept.data(), c.out()),
      absl::OkStatus());
  for (int64_t i = 0; i < m * n; ++i) {
    double sum = 0;
    for (int64_t t = 0; t < 3; ++t) {
      sum += static_cast<double>(p.values[i / n * 3 + t]) *
             q.values[t * n + i % n];
    }
    want[i] = sum * DerivativeOf(function, before[i]);
  }
  // GELU's was rounded where it was kept.
  testing::ExpectNear(c.Read(*stream), want, 3 * tolerance);
}

TEST(CudaMatrixProductTest, EpiloguesAreFunctionsOfTheProduct) {
  for (const DType type : {DType::kFloat32, DType::kBfloat16}) {
    for (const bool has_bias : {false, true}) {
      ExpectEpilogue(type, Function::kNone, 3, 5, 4, has_bias);
      ExpectEpilogue(type, Function::kRelu, 3, 5, 4, has_bias);
      ExpectEpilogue(type, Function::kRelu, 2, 131, 1, has_bias);
      ExpectEpilogue(type, Function::kGeluTanh, 3, 8, 4, has_bias);
      ExpectEpilogue(type, Function::kGeluTanh, 1, 24, 7, has_bias);
    }
  }
}

TEST(CudaMatrixProductTest, EpiloguesThatAreNotThoseOfTheLibraryAreRefused) {
  EmulatedDevice device;
  const auto refusal = [&](const MatrixProductShape& s,
                           const ProductEpilogue& e) {
    const auto made =
        device.kernels().matrix_product->make_with_epilogue(device, s, e);
    EXPECT_TRUE(absl::IsUnimplemented(made.status())) << made.status();
    return std::string(made.status().message());
  };
  const MatrixProductShape whole = {.m = 2, .n = 8, .k = 3};
  const ProductEpilogue bias = {.has_bias = true};
  MatrixProductShape s = whole;
  s.batch = 2;
  EXPECT_EQ(refusal(s, bias), "an epilogue of parts of matrices");
  s = whole;
  s.c_row = 9;
  EXPECT_EQ(refusal(s, bias), "an epilogue of parts of matrices");
  s = whole;
  s.k = 0;
  EXPECT_EQ(refusal(s, bias), "an epilogue of an empty product");
  s = whole;
  s.a_type = s.b_type = DType::kBfloat16;
  EXPECT_EQ(refusal(s, bias), "an epilogue of matrices of two types");
  s = whole;
  s.n = 12;
  EXPECT_EQ(refusal(s, {.function = Function::kGeluTanh, .keeps = true}),
            "GELU keeps rows of whole 8 elements, and these have 12");
  EXPECT_EQ(refusal(whole, {.function = Function::kRelu,
                            .is_gradient = true,
                            .has_bias = true}),
            "an epilogue of another form");
  EXPECT_EQ(refusal(whole, {.keeps = true}), "an epilogue of another form");
  EXPECT_EQ(ThisMachine().kernels().matrix_product->make_with_epilogue, nullptr)
      << "a processor's products have none";
}

absl::Status MakeSmall(EmulatedDevice* device, Function function) {
  return device->kernels()
      .matrix_product
      ->make_with_epilogue(*device, {.m = 2, .n = 8, .k = 3},
                           {.function = function, .has_bias = true})
      .status();
}

TEST(CudaMatrixProductTest, AReluThatDropsNanIsNotUsed) {
  EmulatedDevice whole;
  EXPECT_EQ(MakeSmall(&whole, Function::kRelu), absl::OkStatus());
  testing::Epilogues().drops_nan = true;
  EmulatedDevice device;
  EXPECT_EQ(MakeSmall(&device, Function::kRelu),
            absl::UnimplementedError("the library's ReLU drops NaN"));
  EXPECT_EQ(MakeSmall(&device, Function::kGeluTanh), absl::OkStatus());
  testing::Epilogues() = {};
}

// No memory for the question is no answer; what is known is not asked again.
TEST(CudaMatrixProductTest, WhatTheReluDoesIsAskedOnce) {
  constexpr size_t kBytes = 8192;
  EmulatedDevice device(/*seed=*/1, kBytes);
  DeviceMemory others = *device.Allocate(kBytes - 1024);
  for (int repeat = 0; repeat < 2; ++repeat) {
    EXPECT_TRUE(absl::IsResourceExhausted(MakeSmall(&device, Function::kRelu)));
  }
  others = DeviceMemory();
  EXPECT_EQ(MakeSmall(&device, Function::kRelu), absl::OkStatus());
  others = *device.Allocate(kBytes - 1024);
  EXPECT_EQ(MakeSmall(&device, Function::kRelu), absl::OkStatus());
}

}  // namespace
}  // namespace syncline
