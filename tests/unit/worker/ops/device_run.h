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
#include "kernels/device/data_error.h"
#include "kernels/device/device.h"
#include "tests/testing/arrays.h"
#include "tests/testing/op_case.h"
#include "worker/ops/op_table.h"

namespace syncline::worker {

using testing::DoubleArray;
using testing::OpCase;
using testing::ToFloats;

// One operator and all its memory, on one device.
class DeviceRun {
 public:
  DeviceRun(const OpCase& c, const DoubleArray& y, Device* device)
      : device_(device) {
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
    spec_.outputs.push_back(
        {.present = true, .dims = y.dims, .channel_block = c.output_block});
    output_ = Filled(y.values.size());
    record_ = OnDevice(std::vector<DataError>(1));
  }

  // Errors: the operator's factory's.
  absl::StatusOr<std::unique_ptr<Op>> Create() const { return CreateOp(spec_); }

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
                                 .errors = {.record = record_}};
    EXPECT_TRUE((*op)->Forward(tensors).ok());
    std::vector<std::vector<float>> results = {
        Read(output_, spec_.outputs[0].count())};
    const float* const output_gradients[] = {OnDevice(dy)};
    std::vector<float*> dx(inputs_.size(), nullptr);
    for (size_t i = 0; i < dx.size(); ++i) {
      if (!spec_.wants_gradient[i]) continue;
      dx[i] = Filled(spec_.inputs[i].count(), before.value_or(kUnset));
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
      results.push_back(Read(dx[i], spec_.inputs[i].count()));
    }
    return results;
  }

 private:
  static constexpr float kUnset = 7;

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
      spec_.inputs[at] = {.present = true, .dims = c.inputs[i]};
      spec_.wants_gradient[at] = true;
      inputs_[at] = OnDevice(ToFloats(x.values));
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
  float* Filled(int64_t count, float value = kUnset) {
    return OnDevice(std::vector<float>(count, value));
  }
  std::vector<float> Read(const float* from, int64_t count) {
    std::vector<float> values(count);
    stream_->CopyToHost(values.data(), from, count * sizeof(float));
    EXPECT_TRUE(stream_->Synchronize().ok());
    return values;
  }

  Device* const device_;
  std::unique_ptr<Stream> stream_;
  Node node_;
  OpSpec spec_;
  std::list<std::string> constants_;
  std::vector<DeviceMemory> memory_;
  std::vector<const void*> inputs_;
  float* output_ = nullptr;
  DataError* record_ = nullptr;
};

}  // namespace syncline::worker

#endif  // SYNCLINE_TESTS_UNIT_WORKER_OPS_DEVICE_RUN_H_
