#ifndef SYNCLINE_COMMON_MODEL_INFERENCE_TENSOR_ELEMENTS_H_
#define SYNCLINE_COMMON_MODEL_INFERENCE_TENSOR_ELEMENTS_H_

// The elements of a small tensor as numbers, and where an index of a broadcast
// result lies in an operand. For constant folding; internal to this folder.

#include <cstdint>
#include <string>
#include <vector>

#include "common/model/graph/tensor.h"

namespace syncline {

// In row-major order, in one of the two lists: floating-point types are held
// in double, all others in int64. Both are exact.
struct TensorElements {
  bool is_float = false;
  Dims dims;
  std::vector<int64_t> ints;
  std::vector<double> floats;

  double AsFloat(int64_t i) const {
    return is_float ? floats[i] : static_cast<double>(ints[i]);
  }
};

TensorElements ReadElements(const ConstantTensor& tensor);

// Appends element `i` of `elements` to *bytes, as one of `dtype`. From floating
// point to an integer it is the nearest that the type has; NaN becomes 0.
void AppendElement(DType dtype, const TensorElements& elements, int64_t i,
                   std::string* bytes);

Dims RowMajorStrides(const Dims& dims);

// Calls visit(i, index) for each element of an array of shape `dims`, in
// row-major order.
template <typename Visit>
void ForEachIndex(const Dims& dims, Visit visit) {
  Dims index(dims.size(), 0);
  const int64_t count = ElementCount(dims);
  for (int64_t i = 0; i < count; ++i) {
    visit(i, index);
    for (size_t d = dims.size(); d-- > 0;) {
      if (++index[d] < dims[d]) break;
      index[d] = 0;
    }
  }
}

// The place, in an array of shape `dims`, of the element at `index` of the
// shape that it is broadcast to. -1: `index` has too few dimensions.
int64_t BroadcastAt(const Dims& index, const Dims& dims);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_MODEL_INFERENCE_TENSOR_ELEMENTS_H_
