#ifndef SYNCLINE_WORKER_JOB_JOB_RESIDUALS_H_
#define SYNCLINE_WORKER_JOB_JOB_RESIDUALS_H_

#include <memory>

#include "common/system/memory_claim.h"
#include "worker/exchange/gradient_compressor.h"
#include "worker/job/prepared_job.h"
#include "worker/job/residual_files.h"

namespace syncline::worker {

// A rank's residuals and momentum in the checkpoints of its job.

// Null: the rank saves none (SavesResiduals).
std::shared_ptr<ResidualWriter> MakeResidualWriter(const PreparedJob& job);

// The rank's residuals and momentum of the checkpoint that the attempt starts
// from. Null: none; where the checkpoint should have some, the log says why.
// Blocks as long as the disk does.
std::shared_ptr<KeptGradients> KeptAtStart(const PreparedJob& job,
                                           const GoOnCheck& go_on);

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_JOB_JOB_RESIDUALS_H_
