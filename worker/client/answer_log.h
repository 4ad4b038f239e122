#ifndef SYNCLINE_WORKER_CLIENT_ANSWER_LOG_H_
#define SYNCLINE_WORKER_CLIENT_ANSWER_LOG_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "proto/parameter_server.pb.h"
#include "worker/client/transport/client_telemetry.h"
#include "worker/exchange/parameter_exchange.h"

namespace syncline::worker {

// The news in the answers of one worker's calls besides the values: when a
// step's gradients had left, when its values could be read, which clock was
// skipped, and how many of the worker's gradients a shard has found not to be
// finite. Thread-safe.
class AnswerLog {
 public:
  // Counts pulled_bytes and non_finite of `telemetry`. `non_finite` outlives
  // this: CarryOver's.
  AnswerLog(uint32_t shards, const ClientTelemetry& telemetry,
            std::optional<uint64_t>* non_finite);

  // Forgets the times of the step before, and its checkpoint.
  void BeginStep() ABSL_LOCKS_EXCLUDED(mu_);
  // A push that pulls nothing was answered; its request had left at `left`.
  void OnPushed(absl::Time left) ABSL_LOCKS_EXCLUDED(mu_);
  // `bytes` of values came from `shard`, for a request that had left at `left`.
  void OnValues(uint32_t shard, const PullResponseHeader& header, size_t bytes,
                absl::Time left) ABSL_LOCKS_EXCLUDED(mu_);

  // The time from `begin` to `end` by cause, as the latest of the step's
  // answers say.
  ParameterExchange::WaitTimes TimesOf(absl::Time begin, absl::Time end) const
      ABSL_LOCKS_EXCLUDED(mu_);

  // The largest PullResponseHeader.regimes since ForgetRegimes.
  uint32_t Regimes() const ABSL_LOCKS_EXCLUDED(mu_);
  void ForgetRegimes() ABSL_LOCKS_EXCLUDED(mu_);

  // The largest PullResponseHeader.open_clock; 0: none has come. And, in modes
  // that leave workers behind, 1 + the latest of this worker's clocks that was
  // applied, as these answers say.
  int64_t OpenClock() const ABSL_LOCKS_EXCLUDED(mu_);
  int64_t AppliedClocks() const ABSL_LOCKS_EXCLUDED(mu_);

  // PullResponseHeader.lost_workers of the answer that has most of them.
  std::vector<ParameterExchange::LostWorker> Lost() const
      ABSL_LOCKS_EXCLUDED(mu_);

  // PullResponseHeader.returned of the answers since the last call, each once.
  std::vector<ParameterExchange::ReturnedClock> TakeReturned()
      ABSL_LOCKS_EXCLUDED(mu_);
  bool HasReturned() const ABSL_LOCKS_EXCLUDED(mu_);

  // The latest PullResponseHeader.skipped_through.
  int64_t SkippedThrough() const ABSL_LOCKS_EXCLUDED(mu_);

  // PullResponseHeader.checkpoint_cut of the answers since BeginStep; 0: none.
  uint64_t CheckpointCut() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void Mark(absl::Time left, absl::Time readable)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Only a larger sum over the shards than before is news. Where the shards
  // change, their counts go to any of the new ones.
  void TakeNonFinite(uint32_t shard, uint64_t count)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const ClientTelemetry telemetry_;
  mutable Mutex mu_;
  absl::Time left_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  absl::Time readable_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  int64_t skipped_through_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t checkpoint_cut_ ABSL_GUARDED_BY(mu_) = 0;
  uint32_t regimes_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t open_clock_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t applied_clocks_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<ParameterExchange::LostWorker> lost_ ABSL_GUARDED_BY(mu_);
  std::vector<ParameterExchange::ReturnedClock> returned_ ABSL_GUARDED_BY(mu_);
  const bool passes_over_first_;  // CarryOver's non_finite was none
  // By shard; none: it has not answered.
  std::vector<std::optional<uint64_t>> non_finite_ ABSL_GUARDED_BY(mu_);
  std::optional<uint64_t>& told_ ABSL_GUARDED_BY(mu_);
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_CLIENT_ANSWER_LOG_H_
