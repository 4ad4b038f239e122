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
  kFixClock,
  kFoldStatistics,
  kGetShardStatus,
  kScanTable,
  kOfferMemory,
  kAttachMemory,
  kGetRouting,
  kGetRegimes,
  kAwaitCheckpoint,
  kCommitCheckpoint,
};
inline constexpr int kPsRpcCount = 18;

// The counters and samples of a ps; common/daemon/metrics_catalogue.cc says
// what each metric means. The series of jobs are in job_metrics.h. Thread-safe.
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
  void SkippedClocks(uint64_t clocks) { skipped_clocks_->Add(clocks); }
  // Of checkpoints, since the last call.
  struct CheckpointEvents {
    uint64_t written = 0;
    uint64_t failed = 0;
    uint64_t bytes = 0;
    absl::Duration took;
    uint64_t copies = 0;
    uint64_t waits = 0;
    absl::Duration block_waits;
    absl::Duration table_waits;
  };
  void Checkpoints(const CheckpointEvents& events);
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
  Counter* checkpoints_written_;
  Counter* checkpoints_failed_;
  Counter* checkpoint_bytes_;
  Counter* checkpoint_seconds_;
  Counter* checkpoint_copies_;
  Counter* checkpoint_waits_;
  Counter* checkpoint_block_seconds_;
  Counter* checkpoint_table_seconds_;
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
