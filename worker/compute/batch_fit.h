#ifndef SYNCLINE_WORKER_COMPUTE_BATCH_FIT_H_
#define SYNCLINE_WORKER_COMPUTE_BATCH_FIT_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "common/model/model.h"
#include "common/model/training_graph.h"
#include "worker/compute/executor.h"

namespace syncline::worker {

// The largest n in [1, n_max] for which fits(n), which holds for all below one
// for which it holds; 0: not even for 1. Asks about log2(n_max) times.
int64_t LargestThatFits(int64_t n_max, absl::FunctionRef<bool(int64_t)> fits);

// For a job whose executor does not fit into `available_bytes` of its device's
// memory: which settings
// would, as the end of an error message: "training.micro_batches: 4 or
// training.batch_size: 96 would fit"; of an executor that does not train, its
// training.eval_batch_size. Plans the model some 20 times; takes no
// other memory.
std::string DescribeFit(std::shared_ptr<const Model> model,
                        const TrainingGraph& training,
                        const Executor::Options& options,
                        uint64_t available_bytes);

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_COMPUTE_BATCH_FIT_H_
