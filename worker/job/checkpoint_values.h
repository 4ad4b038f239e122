#ifndef SYNCLINE_WORKER_JOB_CHECKPOINT_VALUES_H_
#define SYNCLINE_WORKER_JOB_CHECKPOINT_VALUES_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/system/memory_claim.h"
#include "proto/job.pb.h"
#include "worker/job/prepared_job.h"

namespace syncline::worker {

// Reads the values of a checkpoint, of this job or of another one with the same
// model, from its files into the executor's parameters, and what is wanted of
// its tables into job.checkpoint_rows, whoever wrote it and whatever the number
// of shards. Every byte is read and its checksum compared; after an error the
// parameters have some of the values. Needs the memory of a record, and of the
// keys of changed rows. Blocks on the disk; `go_on` is asked every few MiB, its
// error ends the reading; may be null. Adds to *read the bytes that it has read
// so far, on the caller's thread; may be null. REQUIRES: `job` is complete, and
// evaluates checkpoints.
// Errors: StartFiles' (worker/peers/start_files.h): they name the checkpoint
// and the file; FailedPrecondition: it is of another clock; CheckpointRows'.
absl::Status ReadCheckpointValues(const PreparedJob& job,
                                  const CheckpointInfo& checkpoint,
                                  const GoOnCheck& go_on,
                                  uint64_t* read = nullptr);

// Reads every row of a table of a checkpoint likewise, and nothing else.
absl::Status ScanCheckpointTable(
    const PreparedJob& job, const CheckpointInfo& checkpoint, uint32_t table,
    absl::FunctionRef<absl::Status(absl::Span<const int64_t> keys,
                                   absl::Span<const float> values)>
        sink,
    const GoOnCheck& go_on, uint64_t* read = nullptr);

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_JOB_CHECKPOINT_VALUES_H_
