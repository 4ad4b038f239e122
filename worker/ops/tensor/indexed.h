#ifndef SYNCLINE_WORKER_OPS_TENSOR_INDEXED_H_
#define SYNCLINE_WORKER_OPS_TENSOR_INDEXED_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "worker/ops/op.h"

namespace syncline::worker {

// Runs of an array, each at a place that indices of int64 or int32 say in each
// step.
struct IndexedShape {
  int64_t runs = 0;
  int64_t run_length = 1;  // elements
  // Where in the array run `i` begins, in elements; -1: nowhere, because of
  // index number *bad. `indices` are all there are.
  std::function<int64_t(const int64_t* indices, int64_t i, int64_t* bad)> begin;
};

// Single elements: an index is a place along `axis`, and its own place among
// the indices one along the others.
absl::StatusOr<IndexedShape> ElementsAlong(const Dims& data,
                                           const Dims& indices, int64_t axis);
// The last dimension of the indices is one place in the data's dimensions after
// the `batch_dims` first ones, which both have.
absl::StatusOr<IndexedShape> PartsByTuple(const Dims& data, const Dims& indices,
                                          int64_t batch_dims);

// Bytes of scratch memory that RunPlaces::Add wants.
int64_t AddingScratchBytes(const IndexedShape& shape);

// The second input of an operator, as the runs' places.
class RunPlaces {
 public:
  // Errors: InvalidArgument: the indices are neither int32 nor int64.
  static absl::Status Check(const TensorType& indices);
  // REQUIRES: Check passes.
  RunPlaces(const TensorType& indices, IndexedShape shape);

  int64_t runs() const { return shape_.runs; }
  int64_t run_length() const { return shape_.run_length; }
  // Writes where each run begins. Errors: InvalidArgument: an index is outside.
  absl::Status Find(const void* indices, int64_t* begins);
  // Adds runs, [runs * run_length], to those of `to`, `count` elements, that
  // begin there; what goes to one place in order (kernels/named_rows.h).
  // `scratch` has AddingScratchBytes. REQUIRES: places of runs are multiples of
  // their length.
  void Add(const int64_t* begins, int64_t count, const float* from, float* to,
           void* scratch) const;

 private:
  const IndexedShape shape_;
  const bool narrow_;
  std::vector<int64_t> widened_;
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_OPS_TENSOR_INDEXED_H_
