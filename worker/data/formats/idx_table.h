#ifndef SYNCLINE_WORKER_DATA_FORMATS_IDX_TABLE_H_
#define SYNCLINE_WORKER_DATA_FORMATS_IDX_TABLE_H_

#include <memory>

#include "proto/job_spec.pb.h"
#include "worker/data/reading/memory_budget.h"
#include "worker/data/reading/sample_table.h"

namespace syncline::worker {

// Loads IDX files of unsigned bytes, MNIST's format:
//
//   0  2  zero
//   2  1  0x08, unsigned byte
//   3  1  number of dimensions, 1..8
//   4  4  size of the first dimension (samples), big-endian; then the others
//   .  .  the bytes, row-major
//
// Fields: "image" (all dimensions but the first) and "label" (one dimension),
// both also as integers.
// With globs, the k-th image file goes with the k-th label file. One byte per
// value is kept.
// Source: LeCun, Cortes and Burges, "The MNIST database", file formats.
absl::StatusOr<std::unique_ptr<SampleTable>> LoadIdx(
    const IdxSource& source, absl::Span<const FieldRequest> fields,
    const DataRoot& data_root, const MemoryBudget& memory = MemoryBudget());

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_DATA_FORMATS_IDX_TABLE_H_
