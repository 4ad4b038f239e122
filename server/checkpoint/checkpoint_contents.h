#ifndef SYNCLINE_SERVER_CHECKPOINT_CHECKPOINT_CONTENTS_H_
#define SYNCLINE_SERVER_CHECKPOINT_CHECKPOINT_CONTENTS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/checkpoint.pb.h"

namespace syncline::ps {

// Rows of a table, by its index in the manifest: keys [n], values [n, dim]. In
// no order that means anything; borrowed until it returns.
using RowVisitor =
    std::function<absl::Status(uint32_t table, absl::Span<const int64_t> keys,
                               absl::Span<const float> values)>;

// Values by tensor, as CheckpointManifest.parameters has them.
using TensorValues = std::vector<std::vector<float>>;

// Reads every byte of the files of the checkpoint in the folder `path`, without
// a job: values are kept in *values, rows handed to `rows`; either may be null.
// Older files that they need are read as well, each byte. `manifest` is that of
// ReadManifest. Needs the memory of a record, of the values if they are kept,
// and of changed keys if rows are handed on. Blocks on the disk.
// Errors, with the file's path: NotFound: a file is missing; DataLoss: damaged,
// or not what the manifest says; Unavailable: the disk; those of `rows`.
absl::Status ReadCheckpoint(const std::string& path,
                            const CheckpointManifest& manifest,
                            TensorValues* values, const RowVisitor& rows);

}  // namespace syncline::ps

#endif  // SYNCLINE_SERVER_CHECKPOINT_CHECKPOINT_CONTENTS_H_
