#ifndef SYNCLINE_WORKER_EXCHANGE_TRANSFER_COUNTS_H_
#define SYNCLINE_WORKER_EXCHANGE_TRANSFER_COUNTS_H_

#include <atomic>
#include <cstdint>

namespace syncline::worker {

// Payload bytes of dense tensors of one rank's steps: as they travelled, and as
// they would have in float32. A call that is repeated counts once; a step that
// is sent again, because the job's routing has changed, counts again. Values of
// cuts and initial values are not among them. Thread-safe.
struct TransferCounts {
  std::atomic<uint64_t> gradient_bytes = 0;
  std::atomic<uint64_t> gradient_float32_bytes = 0;
  std::atomic<uint64_t> value_bytes = 0;
  std::atomic<uint64_t> value_float32_bytes = 0;
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_EXCHANGE_TRANSFER_COUNTS_H_
