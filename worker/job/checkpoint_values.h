#ifndef SYNCLINE_WORKER_JOB_CHECKPOINT_VALUES_H_
#define SYNCLINE_WORKER_JOB_CHECKPOINT_VALUES_H_

#include "absl/status/status.h"
#include "common/system/memory_claim.h"
#include "proto/job.pb.h"
#include "worker/job/prepared_job.h"

namespace syncline::worker {

// Reads the values of a checkpoint, of this job or of another one with the same
// model, from its files into the executor's parameters, whoever wrote it and
// whatever the number of shards. Every byte is read and its checksum compared;
// after an error the parameters have some of the values. Needs the memory of a
// record. Blocks on the disk; `go_on` is asked every few MiB, its error ends
// the reading; may be null. REQUIRES: `job` is complete and has no tables.
// Errors: StartFiles' (worker/peers/start_files.h): they name the checkpoint
// and the file; FailedPrecondition: it is of another clock.
absl::Status ReadCheckpointValues(const PreparedJob& job,
                                  const CheckpointInfo& checkpoint,
                                  const GoOnCheck& go_on);

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_JOB_CHECKPOINT_VALUES_H_
