#ifndef SYNCLINE_WORKER_EXCHANGE_RESIDUAL_SAVER_H_
#define SYNCLINE_WORKER_EXCHANGE_RESIDUAL_SAVER_H_

#include <cstdint>

#include "worker/exchange/gradient_compressor.h"

namespace syncline::worker {

// Takes what a rank's compressor keeps from step to step to the checkpoints of
// its job. One thread.
class ResidualSaver {
 public:
  virtual ~ResidualSaver() = default;
  // The cut is at `clock`, before the step that begins; all ranks are at it.
  // Copies what is kept, and blocks for nothing else.
  virtual void Save(uint64_t cut_id, int64_t clock,
                    const GradientCompressor& compressor) = 0;
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_EXCHANGE_RESIDUAL_SAVER_H_
