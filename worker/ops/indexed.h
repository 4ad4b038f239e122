#ifndef SYNCLINE_WORKER_OPS_INDEXED_H_
#define SYNCLINE_WORKER_OPS_INDEXED_H_

#include <cstdint>
#include <functional>

#include "worker/ops/op.h"

namespace syncline {

// An operator whose output is runs of its first input, each at a place that the
// second input, of int64 or int32, says in each step. Any dtype. In the
// gradient what repeats adds up in order.
struct IndexedShape {
  int64_t runs = 0;
  int64_t run_length = 1;  // elements
  // Where in input 0 run `i` begins, in elements; -1: nowhere, because of index
  // number *bad. `indices` are all of input 1.
  std::function<int64_t(const int64_t* indices, int64_t i, int64_t* bad)> begin;
};

absl::StatusOr<std::unique_ptr<Op>> MakeIndexed(const OpSpec& spec,
                                                IndexedShape shape);

}  // namespace syncline

#endif  // SYNCLINE_WORKER_OPS_INDEXED_H_
