#ifndef SYNCLINE_WORKER_EXCHANGE_GRADIENT_NORM_H_
#define SYNCLINE_WORKER_EXCHANGE_GRADIENT_NORM_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/element_type.h"
#include "common/wire/block_map.h"
#include "kernels/optimizer/finite.h"
#include "worker/embedding/row_batch.h"

namespace syncline::worker {

// One step's gradient: of dense tensors, and of rows of tables.
struct StepGradient {
  const BlockMap& map;
  // By tensor of `map`.
  absl::Span<const absl::Span<const float>> gradients;
  const std::vector<std::string>& names;   // for messages; empty: by index
  const std::vector<bool>& running_means;  // empty: no tensor is one
  absl::Span<RowBatch* const> rows;        // by table
  // The gradient is finite if it is after it was narrowed to this.
  ElementType wire_type;
  int64_t clock;
};

// The sum of squares of all blocks and rows, but for running means and for
// those that the servers will drop because they are not finite.
// Errors: FailedPrecondition: `policy` is to fail the job and something is not
// finite, which the message names.
absl::StatusOr<double> SquaredNorm(const StepGradient& step,
                                   OnNonFinite policy);

// True if the gradients of all rows are finite as `wire_type`.
bool RowsAreFinite(absl::Span<RowBatch* const> rows, ElementType wire_type);

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_EXCHANGE_GRADIENT_NORM_H_
