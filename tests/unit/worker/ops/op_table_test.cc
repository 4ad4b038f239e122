// Goal: every operator computes what its reference says, forward and backward,
// in every way the executor may call it. Method: one row per operator and
// setting; for each row
//  - the reference gradient, in double, against central differences;
//  - the float32 Op against the reference: overwriting, accumulating, with each
//    subset of wanted gradients, in place where the Op offers it, and with all
//    it has not declared as read replaced by NaN before Backward;
//  - one that may be given channels in blocks, on elements in another order.
// A new operator adds one row, here or in the file of its kind.

#include "worker/ops/op_table.h"

#include <algorithm>
#include <limits>
#include <list>
#include <random>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "common/base/aligned_buffer.h"
#include "common/model/graph/operator_list.h"
#include "common/model/model.h"
#include "tests/testing/arrays.h"
#include "tests/testing/op_case.h"
#include "worker/compute/layout_assignment.h"

namespace syncline::worker {
namespace {

using reference::Dims;
using testing::BinaryCase;
using testing::Dot;
using testing::DoubleArray;
using testing::ExpectNear;
using testing::FiniteDifferences;
using testing::Gradients;
using testing::Inputs;
using testing::IntegerInput;
using testing::LinearCase;
using testing::OpCase;
using testing::RandomArray;
using testing::ToFloats;
using testing::UnaryCase;
using testing::ViewCase;

OpCase GatherCase(Dims data, int64_t axis, Dims index_dims,
                  std::vector<int64_t> indices, bool narrow = false) {
  const size_t at = axis < 0 ? axis + data.size() : axis;
  return LinearCase(
      "Gather", 13, {{"axis", axis}}, {data},
      {{1, index_dims, indices, narrow ? DType::kInt32 : DType::kInt64}},
      reference::GatherTerms(data, at, index_dims, indices),
      reference::Replaced(data, at, index_dims));
}

// Axes as an attribute, or from a version on as an input.
OpCase ReduceCase(std::string op_type, Dims data, std::vector<int64_t> axes,
                  bool keep, bool as_input) {
  Dims kept = data;
  for (size_t d = 0; d < data.size(); ++d) {
    for (int64_t axis : axes) {
      if (axis == static_cast<int64_t>(d) ||
          axis + data.size() == static_cast<size_t>(d)) {
        kept[d] = 1;
      }
    }
    if (axes.empty()) kept[d] = 1;
  }
  Dims out = kept;
  if (!keep) {
    out.clear();
    for (size_t d = 0; d < data.size(); ++d) {
      if (kept[d] == data[d] && data[d] != 1) out.push_back(data[d]);
    }
  }
  const double count = reference::Product(data) / reference::Product(kept);
  const double weight = op_type == "ReduceMean" ? 1 / count : 1;
  std::map<std::string, Attribute> attributes = {{"keepdims", int64_t{keep}}};
  std::vector<IntegerInput> integers;
  if (as_input) {
    integers.push_back({1, {static_cast<int64_t>(axes.size())}, axes});
  } else if (!axes.empty()) {
    attributes["axes"] = axes;
  }
  return LinearCase(std::move(op_type), as_input ? 18 : 11, attributes, {data},
                    integers, reference::ReduceTerms(data, kept, weight), out);
}

OpCase ConcatCase(int64_t axis, std::vector<Dims> inputs, Dims out) {
  const size_t at = axis < 0 ? axis + out.size() : axis;
  return LinearCase("Concat", 13, {{"axis", axis}}, inputs, {},
                    reference::ConcatTerms(inputs, at, out), out);
}

OpCase TransposeCase(Dims data, std::vector<int64_t> permutation,
                     bool given = true) {
  Dims out;
  for (int64_t d : permutation) out.push_back(data[d]);
  std::map<std::string, Attribute> attributes;
  if (given) attributes["perm"] = permutation;
  return LinearCase("Transpose", 13, attributes, {data}, {},
                    reference::TransposeTerms(data, permutation, out), out);
}

OpCase ScatterAddCase(Dims data, Dims index_dims, std::vector<int64_t> indices,
                      Dims updates) {
  return LinearCase(
      "ScatterND", 16, {{"reduction", std::string("add")}}, {data, updates},
      {{1, index_dims, indices}},
      reference::ScatterAddTerms(data, index_dims.back(), indices), data);
}

OpCase AddCase(Dims a, Dims b) {
  return BinaryCase(
      "Add", a, b, [](double p, double q) { return p + q; },
      [](double, double) { return 1.0; }, [](double, double) { return 1.0; });
}
OpCase SubCase(Dims a, Dims b) {
  return BinaryCase(
      "Sub", a, b, [](double p, double q) { return p - q; },
      [](double, double) { return 1.0; }, [](double, double) { return -1.0; });
}
OpCase MulCase(Dims a, Dims b) {
  return BinaryCase(
      "Mul", a, b, [](double p, double q) { return p * q; },
      [](double, double q) { return q; }, [](double p, double) { return p; });
}
OpCase DivCase(Dims a, Dims b) {
  return BinaryCase(
      "Div", a, b, [](double p, double q) { return p / q; },
      [](double, double q) { return 1 / q; },
      [](double p, double q) { return -p / (q * q); });
}

OpCase ModCase(Dims a, Dims b) {
  OpCase c = BinaryCase(
      "Mod", a, b, [](double p, double q) { return std::fmod(p, q); },
      [](double, double) { return 1.0; },
      [](double p, double q) { return -std::trunc(p / q); });
  c.attributes["fmod"] = int64_t{1};
  return c;
}

OpCase GemmCase(const reference::GemmAttributes& g, std::vector<Dims> inputs) {
  return {"Gemm",
          13,
          {{"transA", int64_t{g.transpose_a}},
           {"transB", int64_t{g.transpose_b}},
           {"alpha", static_cast<float>(g.alpha)},
           {"beta", static_cast<float>(g.beta)}},
          std::move(inputs),
          [=](const Inputs& in) {
            return reference::Gemm(g, in[0], in[1],
                                   in.size() > 2 ? &in[2] : nullptr);
          },
          [=](const Inputs& in, const DoubleArray& dy) {
            return reference::GemmGradient(
                g, in[0], in[1], in.size() > 2 ? &in[2] : nullptr, dy);
          }};
}

OpCase MatMulCase(Dims a, Dims b) {
  return {"MatMul",
          13,
          {},
          {std::move(a), std::move(b)},
          [](const Inputs& in) { return reference::MatMul(in[0], in[1]); },
          [](const Inputs& in, const DoubleArray& dy) {
            return reference::MatMulGradient(in[0], in[1], dy);
          }};
}

// Normalised over dimensions [begin, end) of [2, 3, 4].
OpCase SoftmaxCase(int version, std::map<std::string, Attribute> attributes,
                   int64_t begin, int64_t end) {
  return {
      "Softmax",
      version,
      std::move(attributes),
      {{2, 3, 4}},
      [=](const Inputs& in) { return reference::Softmax(in[0], begin, end); },
      [=](const Inputs& in, const DoubleArray& dy) {
        return reference::SoftmaxGradient(in[0], begin, end, dy);
      }};
}
OpCase LogSoftmaxCase(int version, std::map<std::string, Attribute> attributes,
                      int64_t begin, int64_t end) {
  return {"LogSoftmax",
          version,
          std::move(attributes),
          {{2, 3, 4}},
          [=](const Inputs& in) {
            return reference::LogSoftmax(in[0], begin, end);
          },
          [=](const Inputs& in, const DoubleArray& dy) {
            return reference::LogSoftmaxGradient(in[0], begin, end, dy);
          }};
}

std::vector<OpCase> Cases() {
  std::vector<OpCase> cases = {
      AddCase({4, 5}, {4, 5}),
      AddCase({4, 5}, {5}),
      AddCase({5}, {4, 5}),
      SubCase({4, 5}, {4, 5}),
      SubCase({2, 1, 3}, {4, 1}),
      SubCase({}, {4, 5}),
      MulCase({4, 5}, {4, 5}),
      MulCase({4, 5}, {4, 1}),
      MulCase({3}, {2, 3}),
      ModCase({4, 5}, {4, 5}),
      ModCase({4, 5}, {5}),
      DivCase({4, 5}, {4, 5}),
      DivCase({4, 5}, {}),
      DivCase({2, 3}, {4, 2, 3}),
      UnaryCase<reference::Relu>("Relu"),
      UnaryCase<reference::Sigmoid>("Sigmoid"),
      UnaryCase<reference::Tanh>("Tanh"),
      UnaryCase<reference::Gelu>("Gelu"),
      UnaryCase<reference::Gelu>("Gelu",
                                 {{"approximate", std::string("none")}}),
      UnaryCase<reference::GeluTanh>("Gelu",
                                     {{"approximate", std::string("tanh")}}),
      ViewCase("Flatten", {2, 3, 4}, {2, 12}),
      ViewCase("Flatten", {2, 3, 4}, {6, 4}, {{"axis", int64_t{2}}}),
      ViewCase("Reshape", {2, 3, 4}, {4, 6}),
      ViewCase("Squeeze", {2, 1, 3}, {2, 3}),
      ViewCase("Unsqueeze", {2, 3}, {2, 1, 3, 1}),
      ViewCase("Cast", {2, 3}, {2, 3}),  // to the same type
      ViewCase("Identity", {2, 3}, {2, 3}),
      ViewCase("Dropout", {2, 3}, {2, 3}),  // in inference
      GatherCase({5, 3}, 0, {4}, {0, 4, 4, 2}),
      GatherCase({5, 3}, 0, {2, 3}, {-1, 0, -5, 4, 4, 1}),
      GatherCase({2, 4, 3}, 1, {3}, {3, -4, 3}),
      GatherCase({2, 4, 3}, -1, {2, 2}, {0, 2, 1, 2}),
      GatherCase({4}, 0, {}, {2}),
      GatherCase({5, 3}, 0, {3}, {1, -1, 1}, /*narrow=*/true),
      ScatterAddCase({4, 3}, {3, 1}, {2, 0, 2}, {3, 3}),
      ScatterAddCase({4, 3}, {2, 2, 1}, {3, -1, 0, 3}, {2, 2, 3}),
      ScatterAddCase({2, 3, 2}, {3, 2}, {1, 2, 0, 0, 1, -1}, {3, 2}),
      ScatterAddCase({5}, {0, 1}, {}, {0}),
      ConcatCase(0, {{2, 3}, {1, 3}}, {3, 3}),
      ConcatCase(-1, {{2, 3}, {2, 1}, {2, 2}}, {2, 6}),
      ConcatCase(1, {{2, 3, 2}, {2, 0, 2}}, {2, 3, 2}),
      ConcatCase(1, std::vector<Dims>(70, {2, 1}), {2, 70}),
      TransposeCase({3, 4}, {1, 0}, /*given=*/false),
      TransposeCase({2, 3, 4}, {0, 2, 1}),
      TransposeCase({2, 3, 4, 2}, {3, 1, 0, 2}),
      TransposeCase({2, 3, 4}, {0, 1, 2}),
      MatMulCase({3, 4}, {4, 2}),
      MatMulCase({4}, {4}),
      MatMulCase({4}, {4, 2}),
      MatMulCase({3, 4}, {4}),
      MatMulCase({2, 3, 4}, {4, 2}),
      MatMulCase({2, 3, 4}, {2, 4, 5}),
      MatMulCase({3, 4}, {2, 4, 5}),
      MatMulCase({2, 1, 3, 4}, {3, 4, 2}),
      MatMulCase({2, 1, 2, 3}, {1, 2, 3, 2}),
      MatMulCase({2, 3, 4}, {4}),
      SoftmaxCase(13, {}, 2, 3),
      SoftmaxCase(13, {{"axis", int64_t{0}}}, 0, 1),
      SoftmaxCase(13, {{"axis", int64_t{-2}}}, 1, 2),
      SoftmaxCase(11, {}, 1, 3),
      SoftmaxCase(11, {{"axis", int64_t{0}}}, 0, 3),
      SoftmaxCase(11, {{"axis", int64_t{-1}}}, 2, 3),
      LogSoftmaxCase(13, {}, 2, 3),
      LogSoftmaxCase(13, {{"axis", int64_t{1}}}, 1, 2),
      LogSoftmaxCase(11, {}, 1, 3),
  };
  for (const std::string op : {"ReduceSum", "ReduceMean"}) {
    for (const bool keep : {false, true}) {
      for (const bool as_input : {false, true}) {
        const auto reduce = [&](Dims data, std::vector<int64_t> axes) {
          cases.push_back(ReduceCase(op, data, axes, keep, as_input));
        };
        reduce({4, 5}, {1});
        reduce({4, 5}, {0});
        reduce({2, 3, 4}, {1});
        reduce({2, 3, 4}, {0, -1});
        reduce({2, 3, 4, 5}, {1, 3});
        reduce({2, 3}, {});
      }
    }
  }
  for (const bool ta : {false, true}) {
    for (const bool tb : {false, true}) {
      const Dims a = ta ? Dims{4, 3} : Dims{3, 4};
      const Dims b = tb ? Dims{2, 4} : Dims{4, 2};
      const auto gemm = [&](double alpha, double beta, std::vector<Dims> c) {
        std::vector<Dims> inputs = {a, b};
        inputs.insert(inputs.end(), c.begin(), c.end());
        cases.push_back(GemmCase({ta, tb, alpha, beta}, inputs));
      };
      gemm(1, 1, {{2}});  // the fused bias
      gemm(1, 1, {});
      gemm(0.5, 1, {{2}});
      gemm(0.5, -2, {{3, 2}});
      gemm(1, 1, {{3, 1}});
      gemm(1, 1, {{}});
      gemm(1, 0, {{2}});
    }
  }
  for (OpCase& c : testing::ClassLossCases()) cases.push_back(std::move(c));
  for (OpCase& c : testing::CombinationCases()) cases.push_back(std::move(c));
  for (OpCase& c : testing::ImageCases()) cases.push_back(std::move(c));
  for (OpCase& c : testing::RecurrentCases()) cases.push_back(std::move(c));
  for (OpCase& c : testing::ReductionCases()) cases.push_back(std::move(c));
  for (OpCase& c : testing::ScatterCases()) cases.push_back(std::move(c));
  for (OpCase& c : testing::SequenceCases()) cases.push_back(std::move(c));
  for (OpCase& c : testing::WindowCases()) cases.push_back(std::move(c));
  for (OpCase& c : testing::AttentionCases()) cases.push_back(std::move(c));
  for (OpCase& c : testing::PlaneNormCases()) cases.push_back(std::move(c));
  for (OpCase& c : testing::ActivationCases()) cases.push_back(std::move(c));
  return cases;
}

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
    ASSERT_TRUE(op_->Forward(Tensors(y_.data())).ok());
    ExpectNear(y_, want_y_.values, kTolerance);
  }

  void ForwardInPlace() {
    const int i = op_->traits().in_place_input;
    if (i < 0) return;
    std::vector<float>& x = floats_[i];
    ASSERT_EQ(x.size(), y_.size());
    ASSERT_TRUE(op_->Forward(Tensors(x.data())).ok());
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
    ASSERT_TRUE(op_->Backward(Tensors(y_.data()), {.outputs = output_gradients,
                                                   .inputs = dx,
                                                   .accumulates = accumulates})
                    .ok());
  }

  const std::vector<bool> wants_;
  Inputs in_;
  DoubleArray want_y_, dy_;
  Gradients want_dx_;
  Node node_;
  OpSpec spec_;
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

INSTANTIATE_TEST_SUITE_P(Operators, OpTableTest, ::testing::ValuesIn(Cases()),
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
  const std::vector<OpCase> cases = Cases();
  for (const OpEntry& entry : OpTable()) {
    if (entry.differentiable_inputs == 0) continue;
    EXPECT_TRUE(std::any_of(cases.begin(), cases.end(), [&](const OpCase& c) {
      return c.op_type == entry.op_type;
    })) << entry.op_type;
  }
}

TEST(OpTableTest, DifferentiableInputsAreThoseOfTheReference) {
  for (const OpCase& c : Cases()) {
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
  const std::vector<OpCase> cases = Cases();
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

// The error with which a factory refuses a node.
absl::Status Refused(const std::string& op_type, std::vector<TensorType> inputs,
                     std::map<std::string, Attribute> attributes = {}) {
  Node node;
  node.name = "it";
  node.op_type = op_type;
  node.since_version = 13;
  node.attributes = std::move(attributes);
  OpSpec spec;
  spec.node = &node;
  spec.outputs = {inputs[0]};
  spec.inputs = std::move(inputs);
  return CreateOp(spec).status();
}

// Runs a node without gradients.
template <typename T>
absl::Status RunOnce(const std::string& op_type, const TensorType& data,
                     const void* values, const TensorType& output,
                     std::vector<T>* y, const TensorType& indices = {},
                     const void* index_values = nullptr) {
  Node node;
  node.name = "it";
  node.op_type = op_type;
  OpSpec spec;
  spec.node = &node;
  spec.inputs = {data, indices};
  spec.outputs = {output};
  auto op = CreateOp(spec);
  if (!op.ok()) return op.status();
  const std::vector<const void*> inputs = {values, index_values};
  const std::vector<void*> outputs = {y->data()};
  return (*op)->Forward({.inputs = inputs, .outputs = outputs});
}

TensorType Typed(DType dtype, Dims dims) {
  return {.present = true, .dtype = dtype, .dims = std::move(dims)};
}

TEST(OpTableTest, AnIndexOutsideTheDimensionIsRefused) {
  const std::vector<float> x = {1, 2, 3};
  std::vector<float> y(2);
  for (const int64_t bad : {int64_t{3}, int64_t{-4}, int64_t{1} << 40}) {
    const std::vector<int64_t> indices = {0, bad};
    EXPECT_EQ(RunOnce("Gather", Typed(DType::kFloat32, {3}), x.data(),
                      Typed(DType::kFloat32, {2}), &y,
                      Typed(DType::kInt64, {2}), indices.data()),
              absl::InvalidArgumentError(
                  absl::StrCat("index ", bad,
                               ", number 1 of 2, is outside a dimension of "
                               "3")));
  }
}

TEST(OpTableTest, GatherMovesAnyType) {
  const std::vector<int64_t> x = {int64_t{1} << 60, -7, 3};
  const std::vector<int64_t> indices = {2, 0};
  std::vector<int64_t> y(2);
  ASSERT_TRUE(RunOnce("Gather", Typed(DType::kInt64, {3}), x.data(),
                      Typed(DType::kInt64, {2}), &y, Typed(DType::kInt64, {2}),
                      indices.data())
                  .ok());
  EXPECT_EQ(y, std::vector<int64_t>({3, int64_t{1} << 60}));
}

TEST(OpTableTest, CastConvertsAndSaturates) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const std::vector<float> x = {1.9f, -1.9f, 3e30f, -kInf, std::nanf("")};
  std::vector<int64_t> whole(5);
  ASSERT_TRUE(RunOnce("Cast", Typed(DType::kFloat32, {5}), x.data(),
                      Typed(DType::kInt64, {5}), &whole)
                  .ok());
  EXPECT_EQ(whole,
            std::vector<int64_t>({1, -1, std::numeric_limits<int64_t>::max(),
                                  std::numeric_limits<int64_t>::min(), 0}));
  const std::vector<int64_t> ids = {-3, 0, 1 << 20};
  std::vector<float> y(3);
  ASSERT_TRUE(RunOnce("Cast", Typed(DType::kInt64, {3}), ids.data(),
                      Typed(DType::kFloat32, {3}), &y)
                  .ok());
  EXPECT_EQ(y, std::vector<float>({-3, 0, 1 << 20}));
  std::vector<uint8_t> flags(3);
  ASSERT_TRUE(RunOnce("Cast", Typed(DType::kInt64, {3}), ids.data(),
                      Typed(DType::kBool, {3}), &flags)
                  .ok());
  EXPECT_EQ(flags, std::vector<uint8_t>({1, 0, 1}));
}

TEST(OpTableTest, ComparisonsBroadcastAndNanIsNothing) {
  const std::vector<float> a = {1, 2, std::nanf("")};
  const std::vector<float> b = {2};
  const auto compare = [&](const std::string& op) {
    std::vector<uint8_t> y(3, 7);
    EXPECT_TRUE(RunOnce(op, Typed(DType::kFloat32, {3}), a.data(),
                        Typed(DType::kBool, {3}), &y,
                        Typed(DType::kFloat32, {1}), b.data())
                    .ok())
        << op;
    return y;
  };
  using Flags = std::vector<uint8_t>;
  EXPECT_EQ(compare("Equal"), (Flags{0, 1, 0}));
  EXPECT_EQ(compare("Less"), (Flags{1, 0, 0}));
  EXPECT_EQ(compare("LessOrEqual"), (Flags{1, 1, 0}));
  EXPECT_EQ(compare("Greater"), (Flags{0, 0, 0}));
  EXPECT_EQ(compare("GreaterOrEqual"), (Flags{0, 1, 0}));
}

TEST(OpTableTest, IntegersAreComparedExactly) {
  const std::vector<int64_t> a = {(int64_t{1} << 60) + 1, -1};
  const std::vector<int64_t> b = {int64_t{1} << 60, -1};
  std::vector<uint8_t> y(2);
  ASSERT_TRUE(RunOnce("Greater", Typed(DType::kInt64, {2}), a.data(),
                      Typed(DType::kBool, {2}), &y, Typed(DType::kInt64, {2}),
                      b.data())
                  .ok());
  EXPECT_EQ(y, (std::vector<uint8_t>{1, 0}));
}

TEST(OpTableTest, FlagsAreCombined) {
  const std::vector<uint8_t> a = {0, 0, 1, 1};
  const std::vector<uint8_t> b = {0, 1, 0, 1};
  const auto combined = [&](const std::string& op) {
    std::vector<uint8_t> y(4, 7);
    EXPECT_TRUE(RunOnce(op, Typed(DType::kBool, {4}), a.data(),
                        Typed(DType::kBool, {4}), &y, Typed(DType::kBool, {4}),
                        b.data())
                    .ok());
    return y;
  };
  EXPECT_EQ(combined("And"), (std::vector<uint8_t>{0, 0, 0, 1}));
  EXPECT_EQ(combined("Or"), (std::vector<uint8_t>{0, 1, 1, 1}));
  EXPECT_EQ(combined("Xor"), (std::vector<uint8_t>{0, 1, 1, 0}));
  EXPECT_EQ(combined("Not"), (std::vector<uint8_t>{1, 1, 0, 0}));
}

TEST(OpTableTest, ShapesAreNumbers) {
  std::vector<int64_t> y(2);
  ASSERT_TRUE(RunOnce("Shape", Typed(DType::kFloat32, {3, 5}), nullptr,
                      Typed(DType::kInt64, {2}), &y)
                  .ok());
  EXPECT_EQ(y, (std::vector<int64_t>{3, 5}));
  ASSERT_TRUE(RunOnce("Size", Typed(DType::kFloat32, {3, 5}), nullptr,
                      Typed(DType::kInt64, {}), &y)
                  .ok());
  EXPECT_EQ(y[0], 15);
}

TEST(OpTableTest, TheFirstOfEqualsIsTheLargest) {
  const std::vector<float> x = {1, 3, 3, 2, 5, -1};
  std::vector<int64_t> y(2);
  ASSERT_TRUE(RunOnce("ArgMax", Typed(DType::kFloat32, {3, 2}), x.data(),
                      Typed(DType::kInt64, {1, 2}), &y)
                  .ok());
  EXPECT_EQ(y, (std::vector<int64_t>{2, 0}));
}

TEST(OpTableTest, OneHotCountsFromTheEndAndForgetsWhatIsOutside) {
  Node node;
  node.op_type = "OneHot";
  const std::vector<float> values = {-1, 4};
  const std::vector<int64_t> indices = {1, -1, 3};
  OpSpec spec;
  spec.node = &node;
  spec.inputs = {Typed(DType::kInt64, {3}), Typed(DType::kInt64, {}),
                 Typed(DType::kFloat32, {2})};
  spec.outputs = {Typed(DType::kFloat32, {3, 3})};
  auto op = CreateOp(spec);
  ASSERT_TRUE(op.ok()) << op.status();
  std::vector<float> y(9);
  const std::vector<const void*> inputs = {indices.data(), nullptr,
                                           values.data()};
  const std::vector<void*> outputs = {y.data()};
  ASSERT_TRUE((*op)->Forward({.inputs = inputs, .outputs = outputs}).ok());
  EXPECT_EQ(y, (std::vector<float>{-1, 4, -1, -1, -1, 4, -1, -1, -1}));
}

TEST(OpTableTest, RefusalsNameTheNode) {
  const TensorType matrix = {.present = true, .dims = {2, 3}};
  const TensorType cube = {.present = true, .dims = {2, 3, 4}};
  TensorType integers = matrix;
  integers.dtype = DType::kInt64;
  const std::vector<std::pair<absl::Status, std::string>> cases = {
      {Refused("Loop", {matrix}),
       "node \"it\" (Loop): the operator is not supported"},
      {Refused("Conv", {matrix, cube}),
       "node \"it\" (Conv): input 0 is [2,3]; it must be [batch, channels] "
       "and 1 to 3 spatial dimensions"},
      {Refused("Conv", {cube, matrix}),
       "node \"it\" (Conv): the weights are [2,3]; they must have 2 dimensions "
       "and those of the window"},
      {Refused("Conv", {cube, cube},
               {{"kernel_shape", std::vector<int64_t>{5}}}),
       "node \"it\" (Conv): kernel_shape is [5], but the weights are [2,3,4]"},
      {Refused("Conv", {cube, cube}, {{"strides", std::vector<int64_t>{0}}}),
       "node \"it\" (Conv): strides has 0; it must be in [1, 16777216]"},
      {Refused("Conv", {cube, cube}, {{"pads", std::vector<int64_t>{1}}}),
       "node \"it\" (Conv): pads has 1 numbers; it must have 2"},
      {Refused("Conv", {cube, cube}),
       "node \"it\" (Conv): 1 windows fit into a dimension of 4, but the "
       "output [2,3,4] has 4"},
      {Refused("Conv", {cube, {.present = true, .dims = {4, 3, 1}}}),
       "node \"it\" (Conv): weights [4,3,1] in 1 groups do not lead from "
       "[2,3,4] to [2,3,4]"},
      {Refused("ConvTranspose", {cube, {.present = true, .dims = {3, 3, 1}}},
               {{"pads", std::vector<int64_t>{1, 1}},
                {"output_padding", std::vector<int64_t>{2}}}),
       "node \"it\" (ConvTranspose): a dimension of 4 ends 1 behind what the "
       "input's last window reaches, with a stride of 1; it must be less than "
       "the stride"},
      {Refused("MaxPool", {cube}),
       "node \"it\" (MaxPool): kernel_shape is missing"},
      {Refused("AveragePool", {cube},
               {{"auto_pad", std::string("SAME")},
                {"kernel_shape", std::vector<int64_t>{2}}}),
       "node \"it\" (AveragePool): auto_pad is \"SAME\"; it must be NOTSET, "
       "VALID, SAME_UPPER or SAME_LOWER"},
      {Refused("GlobalMaxPool", {matrix}),
       "node \"it\" (GlobalMaxPool): input 0 is [2,3]; it must have at least "
       "one spatial dimension"},
      {Refused("Add", {matrix, integers}),
       "node \"it\" (Add): input 1 is int64; only float32 is computed"},
      {Refused("Add", {integers, matrix}),
       "node \"it\" (Add): inputs 0 and 1 are int64 and float32; they must be "
       "of one integer type"},
      {Refused("Mod", {matrix, matrix}),
       "node \"it\" (Mod): fmod is 0, which ONNX defines for integers only"},
      {Refused("IsNaN", {integers}),
       "node \"it\" (IsNaN): input 0 is int64; it must be float"},
      {Refused("Add", {matrix, {.present = true, .dims = {2}}}),
       "node \"it\" (Add): shapes [2,3] and [2] do not broadcast"},
      {Refused("Gemm", {matrix, matrix}),
       "node \"it\" (Gemm): the inner dimensions differ"},
      {Refused("MatMul", {matrix, {.present = true, .dims = {}}}),
       "node \"it\" (MatMul): a scalar has no matrix product"},
      {Refused("Gelu", {matrix}, {{"approximate", std::string("cube")}}),
       "node \"it\" (Gelu): approximate is \"cube\"; it must be \"none\" or "
       "\"tanh\""},
      {Refused("Gather", {matrix, matrix}),
       "node \"it\" (Gather): indices are float32; they must be int32 or "
       "int64"},
      {Refused("Gather", {matrix, integers}, {{"axis", int64_t{-3}}}),
       "node \"it\" (Gather): axis -3 is outside the input's 2 dimensions"},
      {Refused("ReduceSum", {matrix, integers}),
       "node \"it\" (ReduceSum): axes must be constant, of type int64"},
      {Refused("ReduceMean", {integers}),
       "node \"it\" (ReduceMean): input 0 is int64; only float32 is computed"},
      {Refused("Concat", {matrix, integers}),
       "node \"it\" (Concat): int64[2,3] cannot be a part of float32[2,3]"},
      {Refused("Transpose", {matrix}, {{"perm", std::vector<int64_t>{1, 1}}}),
       "node \"it\" (Transpose): perm is no permutation of 2 dimensions"},
      {Refused("ScatterND",
               {cube,
                {.present = true, .dtype = DType::kInt64, .dims = {2, 1}},
                cube},
               {{"reduction", std::string("mean")}}),
       "node \"it\" (ScatterND): reduction is \"mean\"; it must be none, add, "
       "mul, max or min"},
      {Refused("ScatterElements", {matrix, integers, cube}),
       "node \"it\" (ScatterElements): updates [2,3,4] are not of the "
       "indices' shape [2,3]"},
      {Refused("PRelu", {matrix, cube}),
       "node \"it\" (PRelu): shapes [2,3] and [2,3,4] do not broadcast"},
      {Refused("PRelu", {{.present = true, .dims = {3}}, matrix}),
       "node \"it\" (PRelu): the slope is [2,3], which cannot be repeated to "
       "[3]"},
      {Refused("Clip", {matrix, matrix}),
       "node \"it\" (Clip): min is [2,3]; it must be a scalar"},
      {Refused("Pad", {matrix, integers}),
       "node \"it\" (Pad): pads must be constant, of type int64 or int32"},
      {Refused("Pad", {matrix, integers}, {{"mode", std::string("mirror")}}),
       "node \"it\" (Pad): mode is \"mirror\"; it must be constant, edge, "
       "reflect or wrap"},
      {Refused("SoftmaxCrossEntropyLoss", {matrix, matrix}),
       "node \"it\" (SoftmaxCrossEntropyLoss): scores are float32 and labels "
       "float32; they must be float32 and int32 or int64"},
      {Refused("NegativeLogLikelihoodLoss", {matrix, integers}),
       "node \"it\" (NegativeLogLikelihoodLoss): scores [2,3] and labels "
       "[2,3]; they must be [N,classes,...] and [N,...]"},
      {Refused("ScatterND", {matrix, integers, matrix},
               {{"reduction", std::string("add")}}),
       "node \"it\" (ScatterND): data [2,3], indices [2,3] and updates [2,3] "
       "do not fit"},
      {Refused("Softmax", {matrix}, {{"axis", int64_t{2}}}),
       "node \"it\" (Softmax): axis 2 is outside the input's 2 dimensions"},
  };
  for (const auto& [status, message] : cases) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message(), message);
  }
}

}  // namespace
}  // namespace syncline::worker
