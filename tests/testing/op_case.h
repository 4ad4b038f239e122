#ifndef SYNCLINE_TESTS_TESTING_OP_CASE_H_
#define SYNCLINE_TESTS_TESTING_OP_CASE_H_

// An operator with its settings, and the reference it is held against: a row of
// the table that worker/ops is tested with. Builders for the common kinds.

#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/model/graph/node.h"
#include "common/model/graph/tensor.h"
#include "kernels/reference/reference.h"
#include "kernels/reference/reference_loss.h"
#include "kernels/reference/reference_matrix.h"
#include "kernels/reference/reference_movement.h"
#include "tests/testing/arrays.h"

namespace syncline::testing {

// Not using-declarations: syncline has a Dims too, the same type.
using Inputs = std::vector<DoubleArray>;
using Gradients = std::vector<DoubleArray>;

// An input that is not float32, at a position among the inputs.
struct IntegerInput {
  size_t position;
  Dims dims;
  std::vector<int64_t> values;
  DType dtype = DType::kInt64;
};

// A float32 input without gradient, likewise; constant.
struct FixedInput {
  size_t position;
  Dims dims;
  std::vector<float> values;
};

struct OpCase {
  std::string op_type;
  int version;
  std::map<std::string, Attribute> attributes;
  std::vector<Dims> inputs;  // of the differentiable ones
  std::function<DoubleArray(const Inputs&)> forward;
  std::function<Gradients(const Inputs&, const DoubleArray& dy)> gradient;
  std::vector<IntegerInput> integers = {};
  bool positive = false;  // inputs are drawn above 0
  std::vector<FixedInput> fixed = {};
  bool training = false;
  // Channels of a block of the first input and of the output.
  int64_t input_block = 1;
  int64_t output_block = 1;
  // Drawn values are multiplied by this, and then the next is added.
  double drawn_factor = 1;
  double drawn_offset = 0;

  // Where differentiable input `i` is among all inputs.
  size_t Position(size_t i) const {
    std::set<size_t> given;
    for (const IntegerInput& input : integers) given.insert(input.position);
    for (const FixedInput& input : fixed) given.insert(input.position);
    for (const size_t position : given) i += position <= i;
    return i;
  }

  Inputs DrawInputs() const {
    Inputs in;
    for (const Dims& dims : inputs) {
      in.push_back(RandomArray(dims, 10 + in.size()));
      for (double& v : in.back().values) {
        if (positive) v = std::fabs(v);
        v = static_cast<float>(v * drawn_factor + drawn_offset);
      }
    }
    return in;
  }
};

// The same with channels in blocks.
inline OpCase InBlocks(OpCase c, int64_t input_block, int64_t output_block) {
  c.input_block = input_block;
  c.output_block = output_block;
  return c;
}

// For OpCase::gradient: by central differences.
inline Gradients DifferencesOf(
    const std::function<DoubleArray(const Inputs&)>& forward,
    const Inputs& given, const DoubleArray& dy) {
  Inputs in = given;
  Gradients dx;
  for (DoubleArray& x : in) {
    dx.emplace_back(x.dims);
    dx.back().values = FiniteDifferences(
        x.values, [&] { return Dot(forward(in).values, dy.values); });
  }
  return dx;
}

using Terms = std::vector<reference::Term>;

inline OpCase LinearCase(std::string op_type, int version,
                         std::map<std::string, Attribute> attributes,
                         std::vector<Dims> inputs,
                         std::vector<IntegerInput> integers, Terms terms,
                         Dims out) {
  return {std::move(op_type),
          version,
          std::move(attributes),
          std::move(inputs),
          [=](const Inputs& in) { return reference::Linear(terms, out, in); },
          [=](const Inputs& in, const DoubleArray& dy) {
            return reference::LinearGradient(terms, in, dy);
          },
          std::move(integers)};
}

template <typename F, typename FA, typename FB>
OpCase BinaryCase(std::string op_type, Dims a, Dims b, F f, FA fa, FB fb,
                  bool positive = false) {
  return {std::move(op_type),
          14,
          {},
          {std::move(a), std::move(b)},
          [=](const Inputs& in) { return reference::Binary(in[0], in[1], f); },
          [=](const Inputs& in, const DoubleArray& dy) {
            return reference::BinaryGradient(in[0], in[1], dy, fa, fb);
          },
          {},
          positive};
}

template <typename F>
OpCase UnaryCase(std::string op_type,
                 std::map<std::string, Attribute> attributes = {},
                 bool positive = false) {
  return {std::move(op_type),
          20,
          std::move(attributes),
          {{5, 7}},
          [](const Inputs& in) { return reference::Unary<F>(in[0]); },
          [](const Inputs& in, const DoubleArray& dy) {
            return reference::UnaryGradient<F>(in[0], dy);
          },
          {},
          positive};
}

inline OpCase ViewCase(std::string op_type, Dims from, Dims to,
                       std::map<std::string, Attribute> attributes = {}) {
  const auto reshaped = [](const DoubleArray& x, const Dims& dims) {
    DoubleArray y(dims);
    y.values = x.values;
    return y;
  };
  return {std::move(op_type),
          13,
          std::move(attributes),
          {from},
          [=](const Inputs& in) { return reshaped(in[0], to); },
          [=](const Inputs&, const DoubleArray& dy) {
            return Gradients{reshaped(dy, from)};
          }};
}

// By what the operators are for.
std::vector<OpCase> ArithmeticCases();
std::vector<OpCase> LayoutCases();
std::vector<OpCase> MatrixCases();
std::vector<OpCase> AxisCases();
std::vector<OpCase> AttentionCases();
std::vector<OpCase> ImageCases();
std::vector<OpCase> SequenceCases();
std::vector<OpCase> WindowCases();
std::vector<OpCase> PlaneNormCases();
std::vector<OpCase> ActivationCases();
std::vector<OpCase> CombinationCases();
std::vector<OpCase> RecurrentCases();
std::vector<OpCase> ReductionCases();
std::vector<OpCase> ScatterCases();
std::vector<OpCase> ClassLossCases();

// All of them.
inline std::vector<OpCase> AllOpCases() {
  std::vector<OpCase> cases;
  for (const auto& kind :
       {ArithmeticCases, LayoutCases, MatrixCases, AxisCases, ClassLossCases,
        CombinationCases, ImageCases, RecurrentCases, ReductionCases,
        ScatterCases, SequenceCases, WindowCases, AttentionCases,
        PlaneNormCases, ActivationCases}) {
    for (OpCase& c : kind()) cases.push_back(std::move(c));
  }
  return cases;
}

}  // namespace syncline::testing

#endif  // SYNCLINE_TESTS_TESTING_OP_CASE_H_
