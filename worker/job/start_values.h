#ifndef SYNCLINE_WORKER_JOB_START_VALUES_H_
#define SYNCLINE_WORKER_JOB_START_VALUES_H_

#include <string>
#include <vector>

#include "worker/job/prepared_job.h"

namespace syncline::worker {

// Reads StartSpec.weights from the file at `path` into the executor's
// parameters; what is read is filled by no rule of model.initialize any more.
// Appends one line per problem to *problems: those of MatchWeights
// (common/model/start_weights.h) and of the disk; then some parameters may have
// been read. Logs what the file has beside. Blocks on the disk. REQUIRES: `job`
// is complete.
void FillFromWeights(const std::string& path, PreparedJob* job,
                     std::vector<std::string>* problems);

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_JOB_START_VALUES_H_
