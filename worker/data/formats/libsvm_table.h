#ifndef SYNCLINE_WORKER_DATA_FORMATS_LIBSVM_TABLE_H_
#define SYNCLINE_WORKER_DATA_FORMATS_LIBSVM_TABLE_H_

#include <memory>

#include "proto/job_spec.pb.h"
#include "worker/data/reading/memory_budget.h"
#include "worker/data/reading/sample_table.h"

namespace syncline::worker {

// Loads lines of "label index:value index:value ...", with ascending indices
// from 1; "#" begins a comment, blank lines are skipped. Fields:
//   features  dense, `dimension` wide, absent indices are 0
//   label
//   indices   int64: the line's indices, as in the file, then padding
//   values    the values that go with them, then 0 (whatever the offset), so
//             that rows of an embedding times values leave padding out of a sum
// A line with more values than indices or values are padded to is an error.
// `dimension` may be 0, no bound, where "features" is not asked for. Kept
// sparse, 12 bytes per value in the file.
// Source: Chang and Lin, "LIBSVM", README.
absl::StatusOr<std::unique_ptr<SampleTable>> LoadLibsvm(
    const LibsvmSource& source, absl::Span<const FieldRequest> fields,
    const DataRoot& data_root, const MemoryBudget& memory = MemoryBudget());

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_DATA_FORMATS_LIBSVM_TABLE_H_
