#ifndef SYNCLINE_COMMON_MODEL_INFERENCE_NODE_FOLDING_H_
#define SYNCLINE_COMMON_MODEL_INFERENCE_NODE_FOLDING_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/model/inference/constant_folding.h"
#include "common/model/inference/tensor_elements.h"

namespace syncline {

// The computation of one node for FoldNode. Its operators stand in three
// files: constant_folding.cc has those that read shapes alone and the choice
// among all, fold_movement.cc those that move elements, fold_arithmetic.cc
// those that compute new ones. Used once, by one thread.
class NodeFolding {
 public:
  // `node` and `inputs` must outlive it.
  NodeFolding(const Node& node, absl::Span<const FoldInput> inputs, DType dtype,
              const Dims& dims);

  // False: not one of the operators, or its result cannot be told.
  absl::StatusOr<bool> Run();

  // REQUIRES: Run() returned true.
  ConstantTensor Result() const;

 private:
  const std::string& op() const { return node_.op_type; }
  int64_t count() const { return ElementCount(dims_); }
  bool Has(size_t i) const { return i < inputs_.size() && inputs_[i].present; }
  std::vector<int64_t> Ints(size_t i) const { return values_[i].ints; }

  void SetInts(std::vector<int64_t> ints);
  void SetFloats(std::vector<double> floats);

  // False: the node is not one of these operators. The same holds for the
  // groups below that return bool. Operands that do not fit the shape of the
  // result clear fits_.
  absl::StatusOr<bool> Compute();

  bool ReadShape();
  absl::Status Range();

  bool MoveElements();
  absl::StatusOr<bool> Gather();
  void Slice();
  void Concat();
  void Select();
  void KeepTriangle();
  // Appends element `at` of `input` to the result. A shape that a file declares
  // where none could be inferred may lead outside of the input.
  void Take(const TensorElements& input, int64_t at);
  // out[i] = input[from(index of i)].
  template <typename From>
  void Move(const TensorElements& input, From from);

  // OK if integers have a result with the second operands.
  absl::Status CheckSecondOperands() const;
  absl::StatusOr<bool> Arithmetic();
  bool Compare();
  bool Unary();
  bool Reduce();
  bool Clip();
  absl::StatusOr<bool> CumSum();

  const Node& node_;
  const absl::Span<const FoldInput> inputs_;
  const DType dtype_;
  const Dims dims_;
  std::vector<TensorElements> values_;  // by input; empty where not known
  TensorElements out_;
  bool fits_ = true;
};

}  // namespace syncline

#endif  // SYNCLINE_COMMON_MODEL_INFERENCE_NODE_FOLDING_H_
