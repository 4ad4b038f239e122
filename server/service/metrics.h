#ifndef SYNCLINE_SERVER_SERVICE_METRICS_H_
#define SYNCLINE_SERVER_SERVICE_METRICS_H_

#include <array>
#include <atomic>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/daemon/metrics.h"

namespace syncline::ps {

enum class PsRpc {
  kInit,
  kPushPull,
  kPush,
  kPull,
  kBeginCut,
  kEndCut,
  kReportActivity,
  kFoldNorm,
  kFoldStatistics,
  kGetShardStatus,
  kScanTable,
  kOfferMemory,
  kAttachMemory,
  kGetRouting,
};
inline constexpr int kPsRpcCount = 14;

// All metrics of a ps. Thread-safe.
//
//   syncline_ps_requests_total{rpc, code}          answered calls
//   syncline_ps_request_duration_seconds{rpc}      arrival to answer, parking
//                                                  included
//   syncline_ps_received_bytes_total               payload
//   syncline_ps_sent_bytes_total                   payload
//   syncline_ps_shared_memory_payload_bytes_total{direction}
//                                                  of these, by shared memory
//   syncline_ps_shared_memory_bytes, .._limit_bytes
//                                                  workers' memory mapped
//   syncline_ps_in_flight_bytes, .._limit_bytes    requests and responses held
//   syncline_ps_parked_calls{kind}                 push, pull, statistics
//   syncline_ps_parameter_bytes                    values held
//   syncline_ps_slot_bytes                         optimizer state held
//   syncline_ps_fold_bytes                         gradients held for others
//   syncline_ps_jobs                               open ones
//   syncline_ps_clock_spread_clocks                fastest less slowest active
//                                                  worker, largest over jobs
//   syncline_ps_duplicate_blocks_total             pushed again, not applied
//   syncline_ps_abandoned_cuts_total               held for too long
//   syncline_ps_non_finite_total{worker}           blocks and rows of gradients
//                                                  that were not finite
//   syncline_ps_skipped_clocks_total               with nothing applied, of
//   them
class PsMetrics {
 public:
  // Values that are sampled from time to time, not counted.
  struct Sample {
    double in_flight_bytes = 0;
    double in_flight_limit_bytes = 0;
    double shared_memory_bytes = 0;
    double shared_memory_limit_bytes = 0;
    double parked_pushes = 0;
    double parked_pulls = 0;
    double parked_statistics = 0;
    double parameter_bytes = 0;
    double slot_bytes = 0;
    double fold_bytes = 0;
    double jobs = 0;
    double clock_spread = 0;
  };

  // `registry` may be null: nothing is exported then. It outlives this object.
  explicit PsMetrics(MetricsRegistry* registry);

  void Answered(PsRpc rpc, absl::StatusCode code, absl::Duration duration);
  // How a payload travels.
  enum class Path { kNetwork, kSharedMemory };
  void Received(size_t payload_bytes, Path path) {
    received_bytes_->Add(payload_bytes);
    if (path == Path::kSharedMemory) shared_received_->Add(payload_bytes);
  }
  void Sent(size_t payload_bytes, Path path) {
    sent_bytes_->Add(payload_bytes);
    if (path == Path::kSharedMemory) shared_sent_->Add(payload_bytes);
  }
  void Duplicates(uint64_t blocks) { duplicates_->Add(blocks); }
  void AbandonedCuts(uint64_t cuts) { abandoned_cuts_->Add(cuts); }
  void NonFinite(const std::string& worker, uint64_t count);
  void SkippedClocks(uint64_t clocks) { skipped_clocks_->Add(clocks); }
  void Set(const Sample& sample);

 private:
  static constexpr int kCodeCount = 17;
  Counter* RequestCounter(PsRpc rpc, absl::StatusCode code);

  const std::unique_ptr<MetricsRegistry> own_registry_;
  MetricsRegistry* const registry_;
  // Filled when first used: most codes never are.
  std::array<std::array<std::atomic<Counter*>, kCodeCount>, kPsRpcCount>
      requests_{};
  std::array<Histogram*, kPsRpcCount> durations_;
  Counter* received_bytes_;
  Counter* sent_bytes_;
  Counter* shared_received_;
  Counter* shared_sent_;
  Counter* duplicates_;
  Counter* abandoned_cuts_;
  Counter* skipped_clocks_;
  Gauge* in_flight_bytes_;
  Gauge* in_flight_limit_bytes_;
  Gauge* shared_memory_bytes_;
  Gauge* shared_memory_limit_bytes_;
  Gauge* parked_pushes_;
  Gauge* parked_pulls_;
  Gauge* parked_statistics_;
  Gauge* parameter_bytes_;
  Gauge* slot_bytes_;
  Gauge* fold_bytes_;
  Gauge* jobs_;
  Gauge* clock_spread_;
};

}  // namespace syncline::ps

#endif  // SYNCLINE_SERVER_SERVICE_METRICS_H_
