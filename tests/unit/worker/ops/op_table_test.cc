// Goal: every operator computes what its reference says, forward and backward,
// in every way the executor may call it. Method: one row per operator and
// setting; for each row
//  - the reference gradient, in double, against central differences;
//  - the float32 Op against the reference: overwriting, accumulating, with each
//    subset of wanted gradients, in place where the Op offers it, and with all
//    it has not declared as read replaced by NaN before Backward;
//  - one that may be given channels in blocks, on elements in another order.
// A new operator adds one row in the file of its kind (*_cases.cc). The parts
// beside: op_table_value_test.cc (integers, flags, shapes),
// op_table_refusal_test.cc (errors).

#include "worker/ops/op_table.h"

#include <algorithm>
#include <limits>
#include <list>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "common/base/aligned_buffer.h"
#include "common/model/graph/operator_list.h"
#include "common/model/model.h"
#include "gtest/gtest.h"
#include "tests/testing/arrays.h"
#include "tests/testing/op_case.h"
#include "tests/testing/op_device.h"
#include "worker/compute/layout_assignment.h"

namespace syncline::worker {
namespace {

using reference::Dims;
using testing::Dot;
using testing::DoubleArray;
using testing::ExpectNear;
using testing::FiniteDifferences;
using testing::Gradients;
using testing::Inputs;
using testing::IntegerInput;
using testing::OpCase;
using testing::RandomArray;
using testing::ToFloats;

// The expected result of a case, which may take long to write out.
struct Expected {
  explicit Expected(const OpCase& c)
      : in(c.DrawInputs()),
        y(c.forward(in)),
        dy(RandomArray(y.dims, 3)),
        dx(c.gradient(in, dy)) {}
  const Inputs in;
  const DoubleArray y, dy;
  const Gradients dx;
};

// The Op of a case with everything it runs on.
class Bench {
 public:
  // With `reordered` the elements of all that has the output's shape lie in
  // another order.
  Bench(const OpCase& c, const Expected& expected, std::vector<bool> wants,
        bool reordered = false)
      : wants_(std::move(wants)),
        in_(expected.in),
        want_y_(expected.y),
        dy_(expected.dy),
        want_dx_(expected.dx) {
    node_.name = "it";
    node_.op_type = c.op_type;
    node_.since_version = c.version;
    node_.attributes = c.attributes;
    Arrange(c);
    if (reordered) Reorder();
    for (const Dims& dims : c.inputs) {
      floats_.push_back(ToFloats(in_[floats_.size()].values));
      spec_.inputs.push_back({.present = true, .dims = dims});
      positions_.push_back(c.Position(positions_.size()));
    }
    wants_at_ = wants_;
    inputs_.assign(spec_.inputs.size(), nullptr);
    if (c.input_block > 1) spec_.inputs[0].channel_block = c.input_block;
    AddConstants(c);
    spec_.node = &node_;
    spec_.outputs.push_back({.present = true,
                             .dims = want_y_.dims,
                             .channel_block = c.output_block});
    spec_.wants_gradient = wants_at_;
    spec_.training = c.training;
    y_.assign(want_y_.values.size(), kNan);
  }

  void Create() {
    auto op = CreateOp(spec_);
    ASSERT_TRUE(op.ok()) << op.status();
    op_ = *std::move(op);
    const Op::Traits& traits = op_->traits();
    workspace_ = AlignedFloats(traits.workspace_bytes / sizeof(float) + 16);
    scratch_ = AlignedFloats(
        std::max(traits.forward_scratch_bytes, traits.backward_scratch_bytes) /
            sizeof(float) +
        16);
  }

  void Forward() {
    ASSERT_TRUE(testing::RunForward(*op_, Tensors(y_.data())).ok());
    ExpectNear(y_, want_y_.values, kTolerance);
  }

  void ForwardInPlace() {
    const int i = op_->traits().in_place_input;
    if (i < 0) return;
    std::vector<float>& x = floats_[i];
    ASSERT_EQ(x.size(), y_.size());
    ASSERT_TRUE(testing::RunForward(*op_, Tensors(x.data())).ok());
    ExpectNear(x, want_y_.values, kTolerance);
    x = ToFloats(in_[i].values);
  }

  void ForgetWhatBackwardDoesNotRead() {
    const Op::Traits& traits = op_->traits();
    for (size_t i = 0; i < floats_.size(); ++i) {
      if (HasPosition(traits.backward_inputs, positions_[i])) continue;
      floats_[i].assign(floats_[i].size(), kNan);
    }
    if (!HasPosition(traits.backward_outputs, 0)) y_.assign(y_.size(), kNan);
  }

  void Backward(bool accumulate) {
    std::vector<std::vector<float>> dx;
    std::vector<float*> pointers;
    for (size_t i = 0; i < in_.size(); ++i) {
      dx.emplace_back(in_[i].values.size(), accumulate ? 1.0f : kNan);
    }
    pointers.resize(spec_.inputs.size());
    for (size_t i = 0; i < in_.size(); ++i) {
      if (wants_[i]) pointers[positions_[i]] = dx[i].data();
    }
    const std::vector<float> dy = ToFloats(dy_.values);
    Run(dy.data(), pointers, accumulate);
    for (size_t i = 0; i < in_.size(); ++i) {
      if (!wants_[i]) continue;
      SCOPED_TRACE(absl::StrCat("gradient of input ", i));
      std::vector<double> want = want_dx_[i].values;
      for (double& v : want) v += accumulate ? 1 : 0;
      ExpectNear(dx[i], want, kTolerance);
    }
  }

  // The gradient of input 0 over that of the output, the others beside.
  void BackwardInPlace() {
    if (!op_->traits().gradient_in_place || !wants_[0]) return;
    std::vector<float> dy = ToFloats(dy_.values);
    std::vector<std::vector<float>> others(in_.size());
    std::vector<float*> pointers(spec_.inputs.size());
    pointers[0] = dy.data();
    for (size_t i = 1; i < in_.size(); ++i) {
      others[i].assign(in_[i].values.size(), kNan);
      if (wants_[i]) pointers[positions_[i]] = others[i].data();
    }
    Run(dy.data(), pointers, /*accumulate=*/false);
    ExpectNear(dy, want_dx_[0].values, kTolerance);
    for (size_t i = 1; i < in_.size(); ++i) {
      if (wants_[i]) ExpectNear(others[i], want_dx_[i].values, kTolerance);
    }
  }

 private:
  static constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  static constexpr double kTolerance = 1e-5;

  Op::Tensors Tensors(float* y) {
    for (size_t i = 0; i < floats_.size(); ++i) {
      inputs_[positions_[i]] = floats_[i].data();
    }
    outputs_ = {y};
    std::fill_n(scratch_.data(), scratch_.size(), kNan);
    return {.inputs = inputs_,
            .outputs = outputs_,
            .workspace = workspace_.data(),
            .scratch = scratch_.data()};
  }

  // From the reference's order to what the Op is given and gives.
  void Arrange(const OpCase& c) {
    if (c.input_block > 1) {
      in_[0] = testing::InBlocks(in_[0], c.input_block);
      want_dx_[0] = testing::InBlocks(want_dx_[0], c.input_block);
    }
    if (c.output_block > 1) {
      want_y_ = testing::InBlocks(want_y_, c.output_block);
      dy_ = testing::InBlocks(dy_, c.output_block);
    }
  }

  void Reorder() {
    const auto shuffle = [](DoubleArray* array) {
      std::mt19937 random(1);
      std::shuffle(array->values.begin(), array->values.end(), random);
    };
    for (size_t i = 0; i < in_.size(); ++i) {
      if (in_[i].dims != want_y_.dims) continue;
      shuffle(&in_[i]);
      shuffle(&want_dx_[i]);
    }
    shuffle(&want_y_);
    shuffle(&dy_);
  }

  // From the first position to the last, because each moves those after it.
  void AddConstants(const OpCase& c) {
    const size_t count = c.inputs.size() + c.integers.size() + c.fixed.size();
    for (size_t position = 0; position < count; ++position) {
      for (const IntegerInput& integer : c.integers) {
        if (integer.position == position) AddIntegers(integer);
      }
      for (const testing::FixedInput& input : c.fixed) {
        if (input.position != position) continue;
        AddConstant(position, DType::kFloat32, input.dims,
                    {reinterpret_cast<const char*>(input.values.data()),
                     input.values.size() * sizeof(float)});
      }
    }
  }

  void AddIntegers(const IntegerInput& integer) {
    std::string bytes;
    for (const int64_t value : integer.values) {
      bytes.append(reinterpret_cast<const char*>(&value),
                   DTypeBytes(integer.dtype));
    }
    AddConstant(integer.position, integer.dtype, integer.dims,
                std::move(bytes));
  }

  // Constant as far as the Op can see: it may read them when it is made.
  void AddConstant(size_t position, DType dtype, const Dims& dims,
                   std::string bytes) {
    const char* const data = constants_.emplace_back(std::move(bytes)).data();
    spec_.inputs.insert(
        spec_.inputs.begin() + position,
        {.present = true, .dtype = dtype, .dims = dims, .constant = data});
    wants_at_.insert(wants_at_.begin() + position, false);
    inputs_.insert(inputs_.begin() + position, data);
  }

  void Run(const float* dy, const std::vector<float*>& dx, bool accumulate) {
    const std::vector<const float*> output_gradients = {dy};
    const absl::InlinedVector<bool, 8> accumulates(dx.size(), accumulate);
    ASSERT_TRUE(testing::RunBackward(*op_, Tensors(y_.data()),
                                     {.outputs = output_gradients,
                                      .inputs = dx,
                                      .accumulates = accumulates})
                    .ok());
  }

  const std::vector<bool> wants_;
  Inputs in_;
  DoubleArray want_y_, dy_;
  Gradients want_dx_;
  Node node_;
  OpSpec spec_ = testing::HostSpec();
  std::vector<std::vector<float>> floats_;
  std::vector<float> y_;
  std::vector<size_t> positions_;     // of in_ among all inputs
  std::vector<bool> wants_at_;        // by position
  std::list<std::string> constants_;  // at fixed addresses
  std::vector<const void*> inputs_;
  std::vector<void*> outputs_;
  AlignedFloats workspace_;
  AlignedFloats scratch_;
  std::unique_ptr<Op> op_;
};

// By input, the gradients that are wanted in each run: every subset. Of many
// inputs: none, all, every third, and those at both ends.
std::vector<std::vector<bool>> WantedGradients(size_t inputs) {
  constexpr size_t kEverySubset = 8;
  std::vector<std::vector<bool>> subsets;
  if (inputs <= kEverySubset) {
    for (uint32_t subset = 0; subset < 1u << inputs; ++subset) {
      std::vector<bool>& wants = subsets.emplace_back();
      for (size_t i = 0; i < inputs; ++i) wants.push_back(subset >> i & 1);
    }
    return subsets;
  }
  subsets.emplace_back(inputs, false);
  subsets.emplace_back(inputs, true);
  std::vector<bool>& thirds = subsets.emplace_back();
  for (size_t i = 0; i < inputs; ++i) thirds.push_back(i % 3 == 0);
  std::vector<bool>& ends = subsets.emplace_back(inputs, false);
  ends.front() = ends.back() = true;
  return subsets;
}

class OpTableTest : public ::testing::TestWithParam<OpCase> {};

TEST_P(OpTableTest, ReferenceGradientIsTheDerivative) {
  const OpCase& c = GetParam();
  Inputs in = c.DrawInputs();
  const DoubleArray dy = RandomArray(c.forward(in).dims, 3);
  const Gradients got = c.gradient(in, dy);
  for (size_t i = 0; i < in.size(); ++i) {
    ExpectNear(
        got[i].values,
        FiniteDifferences(in[i].values,
                          [&] { return Dot(c.forward(in).values, dy.values); }),
        1e-8);
  }
}

TEST_P(OpTableTest, OpIsTheReferenceInEveryMannerOfCalling) {
  const OpCase& c = GetParam();
  const Expected expected(c);
  for (const std::vector<bool>& wants : WantedGradients(c.inputs.size())) {
    SCOPED_TRACE("wanted gradients: " + ::testing::PrintToString(wants));
    Bench bench(c, expected, wants);
    ASSERT_NO_FATAL_FAILURE(bench.Create());
    bench.ForwardInPlace();
    bench.Forward();
    if (std::count(wants.begin(), wants.end(), true) == 0) continue;
    bench.ForgetWhatBackwardDoesNotRead();
    bench.Backward(/*accumulate=*/false);
    bench.Backward(/*accumulate=*/true);
    bench.BackwardInPlace();
  }
}

INSTANTIATE_TEST_SUITE_P(Operators, OpTableTest,
                         ::testing::ValuesIn(testing::AllOpCases()),
                         [](const ::testing::TestParamInfo<OpCase>& info) {
                           return absl::StrCat(info.param.op_type, "_",
                                               info.index);
                         });

TEST(OpTableTest, TableIsTheModelsListOfOperators) {
  std::vector<std::string> names;
  for (const OpEntry& entry : OpTable()) names.emplace_back(entry.op_type);
  EXPECT_EQ(names, SupportedOperators());
}

TEST(OpTableTest, EveryOperatorWithAGradientHasARow) {
  const std::vector<OpCase> cases = testing::AllOpCases();
  for (const OpEntry& entry : OpTable()) {
    if (entry.differentiable_inputs == 0) continue;
    EXPECT_TRUE(std::any_of(cases.begin(), cases.end(), [&](const OpCase& c) {
      return c.op_type == entry.op_type;
    })) << entry.op_type;
  }
}

TEST(OpTableTest, DifferentiableInputsAreThoseOfTheReference) {
  for (const OpCase& c : testing::AllOpCases()) {
    const OpEntry* entry = FindOp(c.op_type);
    ASSERT_NE(entry, nullptr);
    for (size_t i = 0; i < c.inputs.size(); ++i) {
      EXPECT_TRUE(HasPosition(entry->differentiable_inputs, c.Position(i)))
          << c.op_type;
    }
  }
}

// True if such a node between two convolutions reads blocks.
bool IsGivenBlocks(const std::string& op_type) {
  enum : ValueId { kX, kFilters, kRead, kMade, kY };
  Graph graph;
  graph.values.resize(kY + 1);
  graph.nodes.resize(3);
  graph.nodes[0].op_type = graph.nodes[2].op_type = "Conv";
  graph.nodes[1].op_type = op_type;
  graph.nodes[0].inputs = {kX, kFilters};
  graph.nodes[0].outputs = {kRead};
  graph.nodes[1].inputs = {kRead};
  graph.nodes[1].outputs = {kMade};
  graph.nodes[2].inputs = {kMade, kFilters};
  graph.nodes[2].outputs = {kY};
  std::vector<Dims> shapes(kY + 1, {2, 16, 4, 4});
  shapes[kFilters] = {16, 16, 1, 1};
  const BackwardGraph flow = {.nodes = {0, 1, 2}, .wants_gradient = {}};
  return AssignLayouts(graph, flow, shapes, kY, 16)[kRead] > 1;
}

// Each value of the case is of the output's shape or one number.
bool IsElementwise(const OpCase& c) {
  const Dims out = c.forward(c.DrawInputs()).dims;
  return c.integers.empty() &&
         std::all_of(c.inputs.begin(), c.inputs.end(),
                     [&](const Dims& dims) {
                       return dims == out || reference::Product(dims) == 1;
                     }) &&
         std::all_of(c.fixed.begin(), c.fixed.end(), [](const auto& input) {
           return reference::Product(input.dims) == 1;
         });
}

// Either it knows of blocks, which a row of its own shows, or the order of
// elements is nothing to it.
TEST(OpTableTest, WhatIsGivenBlocksDoesNotCareForTheOrder) {
  const std::vector<OpCase> cases = testing::AllOpCases();
  for (const OpEntry& entry : OpTable()) {
    const std::string op_type(entry.op_type);
    if (!IsGivenBlocks(op_type)) continue;
    SCOPED_TRACE(op_type);
    int shown = 0;
    for (const OpCase& c : cases) {
      if (c.op_type == op_type && c.input_block > 1) ++shown;
    }
    if (shown > 0) continue;
    for (const OpCase& c : cases) {
      if (c.op_type != op_type || !IsElementwise(c)) continue;
      Bench bench(c, Expected(c), std::vector<bool>(c.inputs.size(), true),
                  /*reordered=*/true);
      ASSERT_NO_FATAL_FAILURE(bench.Create());
      bench.Forward();
      bench.Backward(/*accumulate=*/false);
      ++shown;
    }
    EXPECT_GT(shown, 0) << "no row shows what it does with blocks";
  }
  EXPECT_TRUE(IsGivenBlocks("Relu"));
  EXPECT_FALSE(IsGivenBlocks("Softmax"));
}

}  // namespace
}  // namespace syncline::worker
