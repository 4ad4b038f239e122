#ifndef SYNCLINE_WORKER_JOB_COMPRESSION_OPTIONS_H_
#define SYNCLINE_WORKER_JOB_COMPRESSION_OPTIONS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "common/model/training_graph.h"
#include "common/regime/regime_schedule.h"
#include "proto/job_spec.pb.h"
#include "worker/exchange/gradient_compressor.h"

namespace syncline::worker {

// How a rank of the job compresses its gradients as it begins; kNone where it
// does not.
// REQUIRES: `spec` has its defaults; `regimes` and `training` are the job's.
GradientCompressor::Options CompressorOptionsOf(const JobSpec& spec,
                                                const RegimeSchedule& regimes,
                                                const TrainingGraph& training,
                                                uint32_t rank);

// Bytes of the host that compression takes of a rank of the job, at most, as it
// begins and where its rules lead; 0 where the job does not compress. REQUIRES:
// as above.
uint64_t CompressionBytes(const JobSpec& spec, const RegimeSchedule& regimes,
                          const TrainingGraph& training);

// Errors: InvalidArgument: of the largest tensor of the model not one element
// would leave by compression.fraction, so that the fraction says nothing: each
// tensor sends one; with the least fraction that does. The default is taken for
// any model.
absl::Status CheckFraction(const JobSpec& spec, const TrainingGraph& training);

// A warning for people where a job of so many clocks, known once its data is
// read, compresses nothing by its compression.warmup_clocks. Empty: it does.
// The validator refuses what training.max_clocks show.
std::string WarmupWarning(const JobSpec& spec, int64_t clocks_total);

// The largest norm of a step's gradient, which ranks see to before they
// compress theirs (GradientCompressor::Clip): those that have the job's
// momentum. 0: any.
double ClipBeforeCompression(const JobSpec& spec);

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_JOB_COMPRESSION_OPTIONS_H_
