#ifndef SYNCLINE_WORKER_DATA_FORMATS_NPY_TABLE_H_
#define SYNCLINE_WORKER_DATA_FORMATS_NPY_TABLE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/job_spec.pb.h"
#include "worker/data/reading/memory_budget.h"
#include "worker/data/reading/sample_table.h"

namespace syncline::worker {

// Loads .npy files, one per field (NpySource). Elements are kept as the files
// have them. Errors besides those of SampleTable's loaders: InvalidArgument
// (ReadNpyHeader's, uint64, an array without a dimension of samples, fields of
// different length, a value that is not finite in float32).
absl::StatusOr<std::unique_ptr<SampleTable>> LoadNpy(
    const NpySource& source, absl::Span<const FieldRequest> fields,
    const DataRoot& data_root, const MemoryBudget& memory = MemoryBudget());

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_DATA_FORMATS_NPY_TABLE_H_
