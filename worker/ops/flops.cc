#include "worker/ops/flops.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "common/model/graph/einsum.h"
#include "common/model/graph/fusion.h"

namespace syncline::worker {
namespace {

double Count(const TensorType& type) {
  return type.present ? static_cast<double>(type.count()) : 0;
}

// Numbers that go through an operator as they are.
bool OnlyMoves(const std::string& op_type) {
  static constexpr absl::string_view kMoves[] = {
      "Concat",          "ConstantOfShape",
      "Expand",          "Flatten",
      "Gather",          "GatherElements",
      "GatherND",        "Identity",
      "OneHot",          "Pad",
      "Range",           "Reshape",
      "ScatterElements", "ScatterND",
      "Shape",           "Size",
      "Slice",           "Split",
      "Squeeze",         "Tile",
      "Transpose",       "Trilu",
      "Unsqueeze",       "Where"};
  return absl::c_linear_search(kMoves, op_type);
}

// Of a product whose gradient by each of the first `operands` inputs is one as
// large, and which adds what other inputs there are.
OpFlops Product(const OpSpec& spec, double flops, size_t operands) {
  OpFlops result{.forward = flops};
  for (size_t i = 0; i < spec.inputs.size(); ++i) {
    const bool added = i >= operands && spec.input(i).present;
    if (added) result.forward += Count(spec.output(0));
    if (!spec.WantsGradient(i)) continue;
    result.backward += added ? Count(spec.output(0)) : flops;
  }
  return result;
}

// Numbers of a weight [outputs or inputs, ...] that one number of that
// dimension meets.
double PerChannel(const TensorType& weight) {
  return Count(weight) / static_cast<double>(weight.dims[0]);
}

// Both products, with the queries' and with the values' width.
OpFlops AttentionFlops(const OpSpec& spec) {
  const TensorType& keys = spec.input(1);
  const TensorType& past = spec.input(4);
  const std::vector<int64_t> rows_first = spec.node->Ints(kRowsFirst);
  const bool first = rows_first.size() > 1 && rows_first[1] != 0;
  const auto rows =
      static_cast<double>(keys.dims[first ? 1 : keys.dims.size() - 2] +
                          (past.present ? past.dims[2] : 0));
  OpFlops result;
  result.forward = 2 * rows * (Count(spec.input(0)) + Count(spec.output(0)));
  // Each has a gradient by both of its operands.
  result.backward = spec.WantsAnyGradient() ? 2 * result.forward : 0;
  return result;
}

// Every step of every sample meets the input's and the state's weights, those
// of all directions. Backwards the state's are met again, whatever is wanted.
OpFlops RecurrentFlops(const OpSpec& spec) {
  const Dims& x = spec.input(0).dims;
  const double rows = static_cast<double>(x[0] * x[1]);
  const double of_input = 2 * rows * Count(spec.input(1));
  const double of_state = 2 * rows * Count(spec.input(2));
  OpFlops result{.forward = of_input + of_state};
  if (!spec.WantsAnyGradient()) return result;
  result.backward = of_state;
  if (spec.WantsGradient(0)) result.backward += of_input;
  if (spec.WantsGradient(1)) result.backward += of_input;
  if (spec.WantsGradient(2)) result.backward += of_state;
  return result;
}

// The sum over all labels of products of all operands.
OpFlops EinsumFlops(const OpSpec& spec) {
  std::vector<Dims> operands;
  for (const TensorType& input : spec.inputs) operands.push_back(input.dims);
  const auto labels = ParseEinsum(spec.node->String("equation", ""), operands);
  if (!labels.ok()) return {};
  double terms = 1;
  for (const auto& [label, size] : labels->sizes) {
    terms *= static_cast<double>(size);
  }
  return Product(spec, terms * static_cast<double>(operands.size()),
                 operands.size());
}

// Null: not a product.
std::optional<OpFlops> ProductFlops(const OpSpec& spec) {
  const std::string& type = spec.node->op_type;
  const double outputs = Count(spec.output(0));
  if (type == "Gemm" || type == "MatMul") {
    const Dims& a = spec.input(0).dims;
    const bool transposed = type == "Gemm" && spec.node->Int("transA", 0) != 0;
    const auto depth = static_cast<double>(transposed ? a[0] : a.back());
    return Product(spec, 2 * outputs * depth, 2);
  }
  if (type == "Conv") {
    return Product(spec, 2 * outputs * PerChannel(spec.input(1)), 2);
  }
  if (type == "ConvTranspose") {
    return Product(spec, 2 * Count(spec.input(0)) * PerChannel(spec.input(1)),
                   2);
  }
  if (type == "Attention") return AttentionFlops(spec);
  if (type == "Einsum") return EinsumFlops(spec);
  if (type == "LSTM" || type == "GRU" || type == "RNN") {
    return RecurrentFlops(spec);
  }
  return std::nullopt;
}

}  // namespace

OpFlops FlopsOf(const OpSpec& spec) {
  if (OnlyMoves(spec.node->op_type)) return {};
  if (const auto product = ProductFlops(spec)) return *product;
  OpFlops result;
  // One operation for each element of the input or the output, whichever is
  // larger: a reduction reads all of its input.
  result.forward = std::max(Count(spec.input(0)), Count(spec.output(0)));
  for (size_t i = 0; i < spec.inputs.size(); ++i) {
    if (spec.WantsGradient(i)) {
      result.backward += std::max(Count(spec.input(i)), Count(spec.output(0)));
    }
  }
  return result;
}

}  // namespace syncline::worker
