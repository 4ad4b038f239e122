#ifndef SYNCLINE_WORKER_DATA_LIBSVM_TABLE_H_
#define SYNCLINE_WORKER_DATA_LIBSVM_TABLE_H_

#include <memory>
#include <string>

#include "proto/job_spec.pb.h"
#include "worker/data/sample_table.h"

namespace syncline {

// Loads lines of "label index:value index:value ...", with ascending indices
// from 1; "#" begins a comment, blank lines are skipped. Fields: "features"
// (dense, `dimension` wide, absent indices are 0) and "label". Kept sparse, 8
// bytes per value in the file.
// Source: Chang and Lin, "LIBSVM", README.
absl::StatusOr<std::unique_ptr<SampleTable>> LoadLibsvm(
    const LibsvmSource& source, absl::Span<const std::string> fields,
    absl::string_view data_root);

}  // namespace syncline

#endif  // SYNCLINE_WORKER_DATA_LIBSVM_TABLE_H_
