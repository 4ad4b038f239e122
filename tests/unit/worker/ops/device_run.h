#ifndef SYNCLINE_TESTS_UNIT_WORKER_OPS_DEVICE_RUN_H_
#define SYNCLINE_TESTS_UNIT_WORKER_OPS_DEVICE_RUN_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "common/base/dtype.h"
#include "common/base/element_type.h"
#include "common/model/graph/operator_list.h"
#include "kernels/device/data_error.h"
#include "kernels/device/device.h"
#include "tests/testing/arrays.h"
#include "tests/testing/op_case.h"
#include "worker/compute/type_rules.h"
#include "worker/ops/op_table.h"
#include "worker/ops/widened_op.h"

namespace syncline::worker {

using testing::DoubleArray;
using testing::OpCase;
using testing::ToFloats;

// One operator and all its memory, on one device. With a 16-bit `type` its
// arrays have the types that a plan gives them by the operator's rule, where
// all that it reads of the data has 16 bits; gradients have those of their
// values. Values are float32 here all the same: rounded ones.
class DeviceRun {
 public:
  DeviceRun(const OpCase& c, const DoubleArray& y, Device* device,
            DType type = DType::kFloat32, const TypeRule& rule = {})
      : device_(device), type_(type), rule_(rule) {
    auto stream = device->MakeStream();
    EXPECT_TRUE(stream.ok()) << stream.status();
    stream_ = *std::move(stream);
    node_.name = "it";
    node_.op_type = c.op_type;
    node_.since_version = c.version;
    node_.attributes = c.attributes;
    AddInputs(c);
    if (c.input_block > 1) spec_.inputs[0].channel_block = c.input_block;
    spec_.node = &node_;
    spec_.device = device;
    spec_.training = c.training;
    const DType of_output =
        rule_.kind == TypeRule::Kind::kFloat32 ? DType::kFloat32 : type_;
    spec_.outputs.push_back({.present = true,
                             .dtype = of_output,
                             .gradient_dtype = of_output,
                             .dims = y.dims,
                             .channel_block = c.output_block});
    output_ = Put(std::vector<float>(y.values.size(), kUnset), of_output);
    record_ = OnDevice(std::vector<DataError>(1));
    numbers_ = OnDevice(std::vector<StepNumbers>(1));
  }

  // Errors: the operator's factory's.
  absl::StatusOr<std::unique_ptr<Op>> Create() const {
    return CreateTypedOp(spec_);
  }

  // The result, and then the gradients of the differentiable inputs; these are
  // added to `before`, if there is one.
  std::vector<std::vector<float>> Run(const std::vector<float>& dy,
                                      std::optional<float> before = {}) {
    absl::StatusOr<std::unique_ptr<Op>> op = Create();
    EXPECT_TRUE(op.ok()) << op.status();
    if (!op.ok()) return {};
    const Op::Traits& traits = (*op)->traits();
    const auto workspace = Filled(traits.workspace_bytes / 4 + 16);
    const auto scratch = Filled(
        std::max(traits.forward_scratch_bytes, traits.backward_scratch_bytes) /
            4 +
        16);
    void* const outputs[] = {output_};
    const Op::Tensors tensors = {.inputs = inputs_,
                                 .outputs = outputs,
                                 .workspace = workspace,
                                 .scratch = scratch,
                                 .stream = stream_.get(),
                                 .errors = {.record = record_},
                                 .numbers = numbers_};
    EXPECT_TRUE((*op)->Forward(tensors).ok());
    const TensorType& y = spec_.outputs[0];
    std::vector<std::vector<float>> results = {
        Read(output_, y.count(), y.dtype)};
    const float* const output_gradients[] = {
        static_cast<const float*>(Put(dy, y.gradient_dtype))};
    std::vector<float*> dx(inputs_.size(), nullptr);
    for (size_t i = 0; i < dx.size(); ++i) {
      if (!spec_.wants_gradient[i]) continue;
      const TensorType& x = spec_.inputs[i];
      dx[i] = static_cast<float*>(
          Put(std::vector<float>(x.count(), before.value_or(kUnset)),
              x.gradient_dtype));
    }
    const absl::InlinedVector<bool, 8> accumulates(dx.size(),
                                                   before.has_value());
    EXPECT_TRUE((*op)
                    ->Backward(tensors, {.outputs = output_gradients,
                                         .inputs = dx,
                                         .accumulates = accumulates})
                    .ok());
    for (size_t i = 0; i < dx.size(); ++i) {
      if (dx[i] == nullptr) continue;
      const TensorType& x = spec_.inputs[i];
      results.push_back(Read(dx[i], x.count(), x.gradient_dtype));
    }
    return results;
  }

 private:
  static constexpr float kUnset = 7;

  // Inputs that are read as float32 may be given in 16 bits.
  bool IsNarrowInput(size_t i) const {
    return rule_.kind == TypeRule::Kind::kFloat32 ||
           HasPosition(rule_.inputs, i);
  }

  void AddInputs(const OpCase& c) {
    const auto drawn = c.DrawInputs();
    const size_t count = c.inputs.size() + c.integers.size() + c.fixed.size();
    spec_.inputs.resize(count);
    spec_.wants_gradient.assign(count, false);
    inputs_.resize(count);
    for (size_t i = 0; i < c.inputs.size(); ++i) {
      DoubleArray x = drawn[i];
      if (i == 0 && c.input_block > 1) x = testing::InBlocks(x, c.input_block);
      const size_t at = c.Position(i);
      const DType type = IsNarrowInput(at) ? type_ : DType::kFloat32;
      spec_.inputs[at] = {.present = true,
                          .dtype = type,
                          .gradient_dtype = type,
                          .dims = c.inputs[i]};
      spec_.wants_gradient[at] = true;
      inputs_[at] = Put(ToFloats(x.values), type);
    }
    for (const testing::IntegerInput& input : c.integers) {
      std::string bytes;
      for (const int64_t value : input.values) {
        bytes.append(reinterpret_cast<const char*>(&value),
                     DTypeBytes(input.dtype));
      }
      AddConstant(input.position, input.dtype, input.dims, std::move(bytes));
    }
    for (const testing::FixedInput& input : c.fixed) {
      AddConstant(input.position, DType::kFloat32, input.dims,
                  {reinterpret_cast<const char*>(input.values.data()),
                   input.values.size() * sizeof(float)});
    }
  }

  // Known when the operator is made, on the host; when it runs, on the device.
  void AddConstant(size_t at, DType dtype, const Dims& dims,
                   std::string bytes) {
    const std::string& host = constants_.emplace_back(std::move(bytes));
    spec_.inputs[at] = {
        .present = true, .dtype = dtype, .dims = dims, .constant = host.data()};
    inputs_[at] = OnDevice(std::vector<char>(host.begin(), host.end()));
  }

  template <typename T>
  T* OnDevice(const std::vector<T>& values) {
    absl::StatusOr<DeviceMemory> memory =
        Upload(*device_, absl::Span<const T>(values));
    EXPECT_TRUE(memory.ok()) << memory.status();
    return memory_.emplace_back(*std::move(memory)).template as<T>();
  }
  float* Filled(int64_t count) {
    return OnDevice(std::vector<float>(count, kUnset));
  }
  static ElementType ElementTypeOf(DType type) {
    return type == DType::kBfloat16 ? ElementType::kBfloat16
                                    : ElementType::kFloat16;
  }
  void* Put(const std::vector<float>& values, DType type) {
    if (!Is16Bit(type)) return OnDevice(values);
    std::vector<uint16_t> bits(values.size());
    Narrow(ElementTypeOf(type), values.data(), bits.data(), bits.size());
    return OnDevice(bits);
  }
  std::vector<float> Read(const void* from, int64_t count, DType type) {
    std::vector<float> values(count);
    std::vector<uint16_t> bits(count);
    const bool is_narrow = Is16Bit(type);
    stream_->CopyToHost(
        is_narrow ? static_cast<void*>(bits.data()) : values.data(), from,
        count * DTypeBytes(type));
    EXPECT_TRUE(stream_->Synchronize().ok());
    if (is_narrow) {
      Widen(ElementTypeOf(type), bits.data(), values.data(), values.size());
    }
    return values;
  }

  Device* const device_;
  const DType type_;
  const TypeRule rule_;
  std::unique_ptr<Stream> stream_;
  Node node_;
  OpSpec spec_;
  std::list<std::string> constants_;
  std::vector<DeviceMemory> memory_;
  std::vector<const void*> inputs_;
  void* output_ = nullptr;
  DataError* record_ = nullptr;
  const StepNumbers* numbers_ = nullptr;
};

}  // namespace syncline::worker

#endif  // SYNCLINE_TESTS_UNIT_WORKER_OPS_DEVICE_RUN_H_
