#ifndef SYNCLINE_COMMON_CHECKPOINT_CHECKPOINT_CONTENTS_H_
#define SYNCLINE_COMMON_CHECKPOINT_CHECKPOINT_CONTENTS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/system/memory_claim.h"
#include "proto/checkpoint.pb.h"

namespace syncline {

// Rows of a table, by its index in the manifest: keys [n], values [n, dim]. In
// no order that means anything; borrowed until it returns.
using RowVisitor =
    std::function<absl::Status(uint32_t table, absl::Span<const int64_t> keys,
                               absl::Span<const float> values)>;

// The elements of a parameter from `first` on, by its index in the manifest.
// Borrowed likewise.
using ValueVisitor = std::function<void(uint32_t parameter, int64_t first,
                                        absl::Span<const float> values)>;
// True if the row of a key is wanted. Null: all are.
using KeyFilter = std::function<bool(uint32_t table, int64_t key)>;
// Values by tensor, as CheckpointManifest.parameters has them.
using TensorValues = std::vector<std::vector<float>>;

// Reads every byte of the files of the checkpoint in the folder `path`, without
// a job, and hands on each value once and each row that is in it once; either
// visitor may be null. A row that has expired by clocks or score, and was not
// removed yet, is not in it, as for a ps; what is too old by time goes when it
// is removed. Older files that they need are read as well, each byte.
// `manifest` is that of ReadManifest. Rows that `wants` does not want are left
// out. Needs the memory of a record, and of the wanted keys of changes in a
// shard if rows are handed on. Blocks on the disk; `go_on` is asked
// every few MiB, its error ends the reading; may be null. Errors, with the
// file's path: NotFound: a file is missing; DataLoss: damaged, or not what the
// manifest says; Unavailable: the disk; those of `rows` and `go_on`.
// Adds to *read the bytes that it has read so far, on the caller's thread; may
// be null.
absl::Status VisitCheckpoint(const std::string& path,
                             const CheckpointManifest& manifest,
                             const ValueVisitor& values, const RowVisitor& rows,
                             const KeyFilter& wants, const GoOnCheck& go_on,
                             uint64_t* read = nullptr);

// The same, with the values kept in *values, which needs their memory. Null:
// they are not.
absl::Status ReadCheckpoint(const std::string& path,
                            const CheckpointManifest& manifest,
                            TensorValues* values, const RowVisitor& rows);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_CHECKPOINT_CHECKPOINT_CONTENTS_H_
