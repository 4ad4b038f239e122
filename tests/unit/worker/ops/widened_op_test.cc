// Goal: an operator on 16-bit arrays is the float32 operator between exact
// widenings and one rounding. Method: results by hand, gradients that overwrite
// and add, one value as two inputs, results over their input; a device that
// computes in 16 bits itself, and one that cannot cast.

#include "worker/ops/widened_op.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "common/base/element_type.h"
#include "gmock/gmock.h"
#include "kernels/device/cast_kernels.h"
#include "kernels/device/floats.h"
#include "kernels/device/kernel_table.h"
#include "kernels/device/pointwise_kernels.h"
#include "tests/testing/op_device.h"

namespace syncline::worker {
namespace {

using Narrow16 = std::vector<uint16_t>;

Narrow16 Rounded(const std::vector<float>& values) {
  Narrow16 bits(values.size());
  Narrow(ElementType::kBfloat16, values.data(), bits.data(), values.size());
  return bits;
}

std::vector<float> Widened(const Narrow16& bits) {
  std::vector<float> values(bits.size());
  Widen(ElementType::kBfloat16, bits.data(), values.data(), bits.size());
  return values;
}

// Half the distance between 1 and the next bfloat16.
constexpr float kHalfStep = 1.0f / 256;

class WidenedOpTest : public ::testing::Test {
 protected:
  void SetUp() override {
    node_.name = "it";
    node_.since_version = 14;
    spec_ = testing::HostSpec();
    spec_.node = &node_;
  }

  static TensorType Type(int64_t count, DType type, DType gradient) {
    return {.present = true,
            .dtype = type,
            .gradient_dtype = gradient,
            .dims = {count}};
  }
  static TensorType Sixteen(int64_t count) {
    return Type(count, DType::kBfloat16, DType::kBfloat16);
  }
  static TensorType Whole(int64_t count) {
    return Type(count, DType::kFloat32, DType::kFloat32);
  }

  void Make(const std::string& op_type, std::vector<TensorType> inputs,
            TensorType output) {
    node_.op_type = op_type;
    spec_.inputs = std::move(inputs);
    spec_.wants_gradient.assign(spec_.inputs.size(), true);
    spec_.outputs = {std::move(output)};
    auto op = CreateTypedOp(spec_);
    ASSERT_TRUE(op.ok()) << op.status();
    op_ = *std::move(op);
    scratch_.assign(std::max(op_->traits().forward_scratch_bytes,
                             op_->traits().backward_scratch_bytes),
                    '\xff');
  }

  Op::Tensors Tensors(absl::Span<const void* const> inputs,
                      absl::Span<void* const> outputs) {
    return {.inputs = inputs, .outputs = outputs, .scratch = scratch_.data()};
  }
  void Forward(std::vector<const void*> inputs, void* output) {
    void* const outputs[] = {output};
    const auto status = testing::RunForward(*op_, Tensors(inputs, outputs));
    ASSERT_TRUE(status.ok()) << status;
  }
  void Backward(std::vector<const void*> inputs, void* output, const void* dy,
                std::vector<void*> dx,
                absl::InlinedVector<bool, 8> accumulates = {}) {
    void* const outputs[] = {output};
    const float* const output_gradients[] = {static_cast<const float*>(dy)};
    std::vector<float*> input_gradients;
    for (void* d : dx) input_gradients.push_back(static_cast<float*>(d));
    const auto status = testing::RunBackward(*op_, Tensors(inputs, outputs),
                                             {.outputs = output_gradients,
                                              .inputs = input_gradients,
                                              .accumulates = accumulates});
    ASSERT_TRUE(status.ok()) << status;
  }

  Node node_;
  OpSpec spec_;
  std::unique_ptr<Op> op_;
  std::vector<char> scratch_;
};

TEST_F(WidenedOpTest, ResultsAreRoundedOnceAndTiesGoToEven) {
  Make("Add", {Sixteen(3), Whole(3)}, Sixteen(3));
  const Narrow16 a = Rounded({1, 1, -2});
  // A float32 operand is used as it is.
  const std::vector<float> b = {kHalfStep, 3 * kHalfStep, kHalfStep};
  Narrow16 y(3);
  Forward({a.data(), b.data()}, y.data());
  EXPECT_EQ(Widened(y), (std::vector<float>{1, 1 + 4 * kHalfStep, -2}));
}

TEST_F(WidenedOpTest, TheResultMayLieOverTheInput) {
  Make("Relu", {Sixteen(4)}, Sixteen(4));
  EXPECT_EQ(op_->traits().in_place_input, 0);
  Narrow16 x = Rounded({-1, 2, -3, 4});
  Forward({x.data()}, x.data());
  EXPECT_EQ(Widened(x), (std::vector<float>{0, 2, 0, 4}));
}

TEST_F(WidenedOpTest, ATypeThatChangesIsNoPlaceToShare) {
  Make("Relu", {Sixteen(2)}, Whole(2));
  EXPECT_EQ(op_->traits().in_place_input, -1);
  EXPECT_FALSE(op_->traits().gradient_in_place);
  const Narrow16 x = Rounded({-1, 2});
  std::vector<float> y(2);
  Forward({x.data()}, y.data());
  EXPECT_EQ(y, (std::vector<float>{0, 2}));
}

TEST_F(WidenedOpTest, AViewMovesTheBits) {
  Make("Identity", {Sixteen(2)}, Sixteen(2));
  EXPECT_TRUE(op_->traits().is_view);
  EXPECT_EQ(op_->traits().forward_scratch_bytes, 0);
  const Narrow16 x = {0x7fc1, 0x0001};
  Narrow16 y(2);
  Forward({x.data()}, y.data());
  EXPECT_EQ(y, x);
  Make("Identity", {Sixteen(2)}, Whole(2));
  EXPECT_FALSE(op_->traits().is_view);
}

TEST_F(WidenedOpTest, GradientsOverwriteOrAdd) {
  Make("Mul", {Sixteen(1), Sixteen(1)}, Sixteen(1));
  const Narrow16 a = Rounded({1 + 2 * kHalfStep}), b = Rounded({3});
  const Narrow16 dy = Rounded({1 + 2 * kHalfStep});
  Narrow16 y(1), da = Rounded({7}), db = Rounded({7});
  Backward({a.data(), b.data()}, y.data(), dy.data(), {da.data(), db.data()},
           {false, true});
  // 3 + 6 / 256 lies between 3 + 4 / 256 and 3 + 8 / 256.
  EXPECT_EQ(Widened(da), (std::vector<float>{3.03125f}));
  // 7 + (1 + 2^-7)^2
  EXPECT_EQ(Widened(db), (std::vector<float>{8}));
}

// If each input were rounded by itself, half a step would be left.
TEST_F(WidenedOpTest, OneValueAsTwoInputsHasOneGradientRoundedOnce) {
  Make("Sub", {Sixteen(1), Sixteen(1)}, Whole(1));
  const Narrow16 a = Rounded({1});
  std::vector<float> y(1);
  const std::vector<float> dy = {1 + kHalfStep};
  Narrow16 da = Rounded({100});
  Backward({a.data(), a.data()}, y.data(), dy.data(), {da.data(), da.data()},
           {true, false});
  EXPECT_EQ(Widened(da), (std::vector<float>{0}));
  da = Rounded({100});
  Backward({a.data(), a.data()}, y.data(), dy.data(), {da.data(), da.data()},
           {true, true});
  EXPECT_EQ(Widened(da), (std::vector<float>{100}));
}

TEST_F(WidenedOpTest, TheGradientOfACopyIsThatOfItsSource) {
  Make("Mul", {Type(1, DType::kBfloat16, DType::kFloat32), Sixteen(1)},
       Sixteen(1));
  const Narrow16 a = Rounded({2}), b = Rounded({1 + 2 * kHalfStep});
  const Narrow16 dy = Rounded({1 + 2 * kHalfStep});
  Narrow16 y(1), db(1);
  std::vector<float> da = {1};
  Backward({a.data(), b.data()}, y.data(), dy.data(), {da.data(), db.data()},
           {true, false});
  const float product = (1 + 2 * kHalfStep) * (1 + 2 * kHalfStep);
  EXPECT_EQ(da, (std::vector<float>{1 + product}));  // not rounded
}

TEST_F(WidenedOpTest, CastRounds) {
  Make(kCastTo16Bits, {Whole(2)}, Sixteen(2));
  const std::vector<float> x = {1 + kHalfStep, -3};
  Narrow16 y(2);
  Forward({x.data()}, y.data());
  EXPECT_EQ(Widened(y), (std::vector<float>{1, -3}));
}

// This machine, which is said to compute Relu in bfloat16. Its Relu says what
// it is given.
class NarrowDevice : public CpuDevice {
 public:
  NarrowDevice() : kernels_(ThisMachine().kernels()) {
    pointwise_.functions[static_cast<size_t>(PointwiseFunction::kRelu)] = {
        .forward =
            [](Stream&, const PointwiseSettings&, int64_t, ConstFloats x,
               Floats y) {
              given_ = {x, y, nullptr};
            },
        .backward =
            [](Stream&, const PointwiseSettings&, int64_t, ConstFloats saved,
               ConstFloats dy, bool, Floats dx) {
              given_ = {saved, dx, dy};
            }};
    kernels_.pointwise = &pointwise_;
  }
  absl::string_view name() const override { return "narrow"; }
  const KernelTable& kernels() const override { return kernels_; }
  bool computes_in(absl::string_view op_type, DType type) const override {
    return op_type == "Relu" && type == DType::kBfloat16;
  }

  struct Given {
    ConstFloats read;
    Floats written;
    ConstFloats dy;
  };
  static const Given& given() { return given_; }

 private:
  inline static Given given_;
  PointwiseKernels pointwise_ = *ThisMachine().kernels().pointwise;
  KernelTable kernels_;
};

TEST_F(WidenedOpTest, ADeviceThatComputesIn16BitsIsAskedAndGetsThem) {
  NarrowDevice device;
  spec_.device = &device;
  Make("Relu", {Type(2, DType::kBfloat16, DType::kFloat32)}, Sixteen(2));
  EXPECT_EQ(op_->traits().forward_scratch_bytes, 0);
  EXPECT_EQ(op_->traits().in_place_input, 0);
  EXPECT_FALSE(op_->traits().gradient_in_place);
  const Narrow16 x = Rounded({-1, 2}), dy = Rounded({3, 4});
  Narrow16 y(2);
  std::vector<float> dx(2);
  Forward({x.data()}, y.data());
  EXPECT_EQ(device.given().read, ConstFloats(x.data(), DType::kBfloat16));
  EXPECT_EQ(device.given().read.type(), DType::kBfloat16);
  EXPECT_EQ(device.given().written.type(), DType::kBfloat16);
  Backward({x.data()}, y.data(), dy.data(), {dx.data()});
  EXPECT_EQ(device.given().read.type(), DType::kBfloat16);
  EXPECT_EQ(device.given().dy.type(), DType::kBfloat16);
  EXPECT_EQ(device.given().written.type(), DType::kFloat32);
}

TEST_F(WidenedOpTest, OtherOperatorsAndTypesAreWidened) {
  NarrowDevice device;
  spec_.device = &device;
  Make("Tanh", {Sixteen(2)}, Sixteen(2));
  EXPECT_GT(op_->traits().forward_scratch_bytes, 0);
  const TensorType half = Type(2, DType::kFloat16, DType::kFloat16);
  Make("Relu", {half}, half);
  EXPECT_GT(op_->traits().forward_scratch_bytes, 0);
}

// This machine without casts of 16 bits.
class WholeDevice : public CpuDevice {
 public:
  WholeDevice() : kernels_(ThisMachine().kernels()) { kernels_.cast = &casts_; }
  absl::string_view name() const override { return "whole"; }
  const KernelTable& kernels() const override { return kernels_; }

 private:
  const CastKernels casts_ = {};
  KernelTable kernels_;
};

TEST_F(WidenedOpTest, ADeviceWithoutCastsIsRefusedByNode) {
  WholeDevice device;
  spec_.device = &device;
  spec_.inputs = {Sixteen(2)};
  spec_.outputs = {Sixteen(2)};
  node_.op_type = "Relu";
  EXPECT_EQ(CreateTypedOp(spec_).status().message(),
            "node \"it\" (Relu): the device whole has no kernel for it");
  spec_.inputs = {Whole(2)};
  node_.op_type = kCastTo16Bits;
  EXPECT_EQ(CreateTypedOp(spec_).status().message(),
            "node \"it\" (CastTo16Bits): the device whole has no kernel for "
            "it");
  spec_.outputs = {Whole(2)};
  node_.op_type = "Relu";
  EXPECT_TRUE(CreateTypedOp(spec_).ok());
}

}  // namespace
}  // namespace syncline::worker
