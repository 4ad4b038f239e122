#include "common/model/inference/constant_folding.h"

#include <algorithm>
#include <utility>

#include "common/base/status_macros.h"
#include "common/model/inference/node_folding.h"
#include "common/model/inference/tensor_elements.h"

namespace syncline {

NodeFolding::NodeFolding(const Node& node, absl::Span<const FoldInput> inputs,
                         DType dtype, const Dims& dims)
    : node_(node), inputs_(inputs), dtype_(dtype), dims_(dims) {
  for (const FoldInput& input : inputs) {
    values_.push_back(input.value == nullptr ? TensorElements()
                                             : ReadElements(*input.value));
  }
}

ConstantTensor NodeFolding::Result() const {
  ConstantTensor tensor;
  tensor.dtype = dtype_;
  tensor.dims = dims_;
  for (int64_t i = 0; i < count(); ++i) {
    AppendElement(dtype_, out_, i, &tensor.bytes);
  }
  return tensor;
}

void NodeFolding::SetInts(std::vector<int64_t> ints) {
  out_.is_float = false;
  out_.ints = std::move(ints);
}

void NodeFolding::SetFloats(std::vector<double> floats) {
  out_.is_float = true;
  out_.floats = std::move(floats);
}

absl::StatusOr<bool> NodeFolding::Run() {
  SYNCLINE_ASSIGN_OR_RETURN(const bool done, Compute());
  const size_t made = out_.is_float ? out_.floats.size() : out_.ints.size();
  return done && fits_ && static_cast<int64_t>(made) == count();
}

absl::StatusOr<bool> NodeFolding::Compute() {
  if (MoveElements() || ReadShape() || Compare() || Unary() || Reduce() ||
      Clip()) {
    return true;
  }
  if (op() == "Gather") return Gather();
  if (op() == "CumSum") return CumSum();
  if (op() == "Range") {
    SYNCLINE_RETURN_IF_ERROR(Range());
    return true;
  }
  return Arithmetic();
}

// Nodes that compute from shapes alone.
bool NodeFolding::ReadShape() {
  if (op() == "Shape") {
    const Dims& dims = inputs_[0].dims;
    const int64_t rank = static_cast<int64_t>(dims.size());
    const auto clamped = [&](int64_t at) {
      return std::clamp<int64_t>(at < 0 ? at + rank : at, 0, rank);
    };
    const int64_t begin = clamped(node_.Int("start", 0));
    const int64_t end = clamped(node_.Int("end", rank));
    SetInts(Dims(dims.begin() + begin, dims.begin() + std::max(begin, end)));
  } else if (op() == "Size") {
    SetInts({ElementCount(inputs_[0].dims)});
  } else if (op() == "ConstantOfShape") {
    const auto value = node_.attributes.find("value");
    TensorElements one;
    one.floats = {0};
    one.is_float = true;
    if (value != node_.attributes.end()) {
      one = ReadElements(std::get<ConstantTensor>(value->second));
    }
    if (one.floats.size() + one.ints.size() != 1) return false;
    out_.is_float = one.is_float;
    if (one.is_float) {
      out_.floats.assign(count(), one.floats[0]);
    } else {
      out_.ints.assign(count(), one.ints[0]);
    }
  } else {
    return false;
  }
  return true;
}

absl::Status NodeFolding::Range() {
  const bool floats = values_[0].is_float;
  std::vector<int64_t> ints;
  std::vector<double> numbers;
  for (const TensorElements& number : values_) {
    if (ElementCount(number.dims) != 1) return absl::OkStatus();
  }
  if (values_[2].AsFloat(0) == 0) {
    return absl::InvalidArgumentError("a step of 0 goes nowhere");
  }
  for (int64_t i = 0; i < count(); ++i) {
    if (floats) {
      numbers.push_back(values_[0].floats[0] + i * values_[2].floats[0]);
    } else {
      ints.push_back(values_[0].ints[0] + i * values_[2].ints[0]);
    }
  }
  out_.is_float = floats;
  out_.ints = std::move(ints);
  out_.floats = std::move(numbers);
  return absl::OkStatus();
}

absl::StatusOr<std::optional<ConstantTensor>> FoldNode(
    const Node& node, absl::Span<const FoldInput> inputs, DType dtype,
    const Dims& dims) {
  const std::optional<ConstantTensor> unknown;
  if (ElementCount(dims) > kFoldedElementsMax || inputs.empty()) {
    return unknown;
  }
  const bool from_shape = node.op_type == "Shape" || node.op_type == "Size";
  // Of what CastLike is cast like, the type counts.
  const size_t read = node.op_type == "CastLike" ? 1 : inputs.size();
  for (const FoldInput& input : inputs.first(read)) {
    if (from_shape || !input.present) continue;
    if (input.value == nullptr ||
        ElementCount(input.dims) > kFoldedElementsMax) {
      return unknown;
    }
  }
  NodeFolding folding(node, inputs, dtype, dims);
  SYNCLINE_ASSIGN_OR_RETURN(const bool done, folding.Run());
  if (!done) return unknown;
  return std::optional<ConstantTensor>(folding.Result());
}

}  // namespace syncline
