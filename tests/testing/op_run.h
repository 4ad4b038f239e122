#ifndef SYNCLINE_TESTS_TESTING_OP_RUN_H_
#define SYNCLINE_TESTS_TESTING_OP_RUN_H_

// One operator, run by itself with whatever inputs and outputs: for what the
// rows of op_table_test cannot say, such as several outputs or omitted inputs.

#include <gtest/gtest.h>

#include <limits>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "common/base/aligned_buffer.h"
#include "tests/testing/arrays.h"
#include "tests/testing/op_device.h"
#include "worker/ops/op_table.h"

namespace syncline::testing {

inline DoubleArray MakeArray(reference::Dims dims, std::vector<double> values) {
  DoubleArray array(std::move(dims));
  array.values = std::move(values);
  return array;
}

class OpRun {
 public:
  OpRun(std::string op_type, int version,
        std::map<std::string, Attribute> attributes = {}) {
    node_.name = "it";
    node_.op_type = std::move(op_type);
    node_.since_version = version;
    node_.attributes = std::move(attributes);
    spec_.node = &node_;
  }
  OpRun(const OpRun&) = delete;
  OpRun& operator=(const OpRun&) = delete;

  // In the order of the operator's inputs and outputs.
  OpRun& Input(const DoubleArray& x) {
    const std::vector<float> values = ToFloats(x.values);
    return Add(DType::kFloat32, x.dims, Bytes(values), /*wants=*/true);
  }
  template <typename T>
  OpRun& Integers(DType dtype, reference::Dims dims,
                  const std::vector<T>& values) {
    return Add(dtype, std::move(dims), Bytes(values), /*wants=*/false);
  }
  // The latest input's values are known when the operator is made.
  OpRun& Known() {
    spec_.inputs.back().constant = inputs_.back();
    return *this;
  }
  OpRun& NoInput() {
    spec_.inputs.emplace_back();
    spec_.wants_gradient.push_back(false);
    node_.inputs.push_back(kNoValue);
    inputs_.push_back(nullptr);
    return *this;
  }
  // Evaluates only: Backward must not follow.
  OpRun& WithoutGradients() {
    spec_.wants_gradient.assign(spec_.wants_gradient.size(), false);
    return *this;
  }
  OpRun& Output(reference::Dims dims) {
    node_.outputs.push_back(100 + static_cast<ValueId>(y_.size()));
    spec_.outputs.push_back({.present = true, .dims = dims});
    y_.emplace_back(reference::Product(dims), kNan);
    return *this;
  }
  OpRun& NoOutput() {
    node_.outputs.push_back(kNoValue);
    spec_.outputs.emplace_back();
    y_.emplace_back();
    return *this;
  }

  absl::Status Forward() {
    auto op = worker::CreateOp(spec_);
    if (!op.ok()) return op.status();
    op_ = *std::move(op);
    const worker::Op::Traits& traits = op_->traits();
    const auto floats = [](int64_t bytes) {
      return AlignedFloats(bytes / sizeof(float) + 16);
    };
    workspace_ = floats(traits.workspace_bytes);
    scratch_ = floats(
        std::max(traits.forward_scratch_bytes, traits.backward_scratch_bytes));
    return RunForward(*op_, Tensors());
  }

  int64_t workspace_bytes() const { return op_->traits().workspace_bytes; }

  const std::vector<float>& output(size_t i) const { return y_[i]; }

  // Gradients by input, empty where none is wanted, from those of the outputs,
  // empty for none. Added to `before`, or written over NaN. REQUIRES: Forward.
  std::vector<std::vector<float>> Backward(const std::vector<DoubleArray>& dy,
                                           std::optional<float> before = {}) {
    std::list<std::vector<float>> up;
    std::vector<const float*> outputs;
    for (const DoubleArray& d : dy) {
      outputs.push_back(d.values.empty()
                            ? nullptr
                            : up.emplace_back(ToFloats(d.values)).data());
    }
    std::vector<std::vector<float>> dx(spec_.inputs.size());
    std::vector<float*> pointers(dx.size(), nullptr);
    const absl::InlinedVector<bool, 8> accumulates(dx.size(),
                                                   before.has_value());
    for (size_t i = 0; i < dx.size(); ++i) {
      if (!spec_.wants_gradient[i]) continue;
      dx[i].assign(spec_.inputs[i].count(), before.value_or(kNan));
      pointers[i] = dx[i].data();
    }
    const absl::Status status = RunBackward(
        *op_, Tensors(),
        {.outputs = outputs, .inputs = pointers, .accumulates = accumulates});
    EXPECT_TRUE(status.ok()) << status;
    return dx;
  }

 private:
  static constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

  template <typename T>
  static std::string Bytes(const std::vector<T>& values) {
    return std::string(reinterpret_cast<const char*>(values.data()),
                       values.size() * sizeof(T));
  }

  OpRun& Add(DType dtype, reference::Dims dims, std::string bytes, bool wants) {
    node_.inputs.push_back(static_cast<ValueId>(spec_.inputs.size()));
    spec_.inputs.push_back(
        {.present = true, .dtype = dtype, .dims = std::move(dims)});
    spec_.wants_gradient.push_back(wants);
    inputs_.push_back(data_.emplace_back(std::move(bytes)).data());
    return *this;
  }

  worker::Op::Tensors Tensors() {
    outputs_.clear();
    for (std::vector<float>& y : y_) {
      outputs_.push_back(y.empty() ? nullptr : y.data());
    }
    std::fill_n(scratch_.data(), scratch_.size(), kNan);
    return {.inputs = inputs_,
            .outputs = outputs_,
            .workspace = workspace_.data(),
            .scratch = scratch_.data()};
  }

  Node node_;
  worker::OpSpec spec_ = HostSpec();
  std::list<std::string> data_;  // of the inputs, at fixed addresses
  std::vector<const void*> inputs_;
  std::vector<std::vector<float>> y_;
  std::vector<void*> outputs_;
  AlignedFloats workspace_;
  AlignedFloats scratch_;
  std::unique_ptr<worker::Op> op_;
};

}  // namespace syncline::testing

#endif  // SYNCLINE_TESTS_TESTING_OP_RUN_H_
