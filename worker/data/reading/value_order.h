#ifndef SYNCLINE_WORKER_DATA_READING_VALUE_ORDER_H_
#define SYNCLINE_WORKER_DATA_READING_VALUE_ORDER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/job_spec.pb.h"

namespace syncline::worker {

// Shapes are of one sample, without the batch dimension.
using SampleDims = std::vector<int64_t>;

// True if values of shape `from` are those of shape `to` in the same order, and
// mean the same: both are equal apart from dimensions of 1, or `to` is flat.
bool SameOrder(absl::Span<const int64_t> from, absl::Span<const int64_t> to);

// "[32, 32, 3]".
std::string DimsText(absl::Span<const int64_t> dims);

// Where the values of a graph input of shape `input` are in a sample's values
// of the field that `feed` reads: input[i] = field[order[i]]. Empty: in the
// same order. `field` is the field's own shape, of as many elements; nullopt:
// its source knows none. Errors: InvalidArgument: shapes that do not fit, with
// what would make them fit.
absl::StatusOr<std::vector<int32_t>> FindValueOrder(
    const Feed& feed, const std::optional<SampleDims>& field,
    const SampleDims& input);

// Brings rows of order.size() values each into that order.
template <typename T>
void ReorderRows(absl::Span<const int32_t> order, std::vector<T>* values) {
  if (order.empty()) return;
  std::vector<T> row(order.size());
  for (size_t at = 0; at < values->size(); at += row.size()) {
    row.assign(values->begin() + at, values->begin() + at + row.size());
    for (size_t i = 0; i < row.size(); ++i) (*values)[at + i] = row[order[i]];
  }
}

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_DATA_READING_VALUE_ORDER_H_
