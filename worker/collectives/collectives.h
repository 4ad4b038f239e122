#ifndef SYNCLINE_WORKER_COLLECTIVES_COLLECTIVES_H_
#define SYNCLINE_WORKER_COLLECTIVES_COLLECTIVES_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/base/aligned_buffer.h"
#include "common/base/mutex.h"
#include "worker/collectives/collective_model.h"
#include "worker/collectives/collective_schedule.h"
#include "worker/collectives/peer_transport.h"

namespace syncline::worker {

// Measures what a message costs between the ranks of a group. Every rank calls
// it at the same time, once, before other messages; all get the same. Blocks
// for some milliseconds. Errors: those of PeerTransport.
absl::StatusOr<CollectiveModel> MeasureModel(PeerTransport* transport,
                                             absl::Time deadline);

// Reduce-scatter, all-gather and all-reduce of float32 among the ranks of a
// group. Every rank starts the same collectives, each named by its clock and
// bucket, in any order; a name is used once of each kind. Thread-safe.
class Collectives {
 public:
  using Done = PeerTransport::Done;
  static constexpr uint32_t kBucketsMax = 1 << 16;
  static constexpr absl::Duration kRunMax = absl::Minutes(1);

  struct Options {
    CollectiveModel model;  // the same at all ranks
    CollectiveBits bits = CollectiveBits::kRankOrder;
    // In place of what the model chooses; of tests and measurements.
    std::optional<CollectiveAlgorithm> algorithm = {};
  };

  // `transport` outlives this, and is cancelled or idle when this is destroyed.
  Collectives(PeerTransport* transport, const Options& options);

  struct Collective {
    CollectiveKind kind = CollectiveKind::kAllReduce;
    int64_t clock = 0;
    uint32_t bucket = 0;
    // [n] of this rank, replaced by the result; n is the same at all ranks.
    // After kReduceScatter all but the own part (PartOf) is left as it was.
    // The collective's until `done`.
    absl::Span<float> values = {};
    // Of MonotonicNow(). Run takes InfiniteFuture for kRunMax from now.
    absl::Time deadline = absl::InfiniteFuture();
  };
  // Does not block. `done` runs as callbacks of the transport do. Errors: those
  // of PeerTransport, with which the values are undefined; InvalidArgument: too
  // many elements or buckets.
  void Start(const Collective& collective, Done done) ABSL_LOCKS_EXCLUDED(mu_);
  // Blocks until it is done; the fastest way for what is short. All ranks Run a
  // collective, or all of them Start it.
  absl::Status Run(const Collective& wanted);

  // Pure: what Start would use.
  CollectiveAlgorithm AlgorithmFor(CollectiveKind kind, size_t count) const;

 private:
  class Running;

  // The longest kAllReduce that Run makes by SwapAll.
  size_t SwappedElementsMax() const;
  absl::Status RunSwap(const Collective& collective) ABSL_LOCKS_EXCLUDED(mu_);
  std::shared_ptr<const CollectiveSchedule> ScheduleFor(CollectiveKind kind,
                                                        size_t count)
      ABSL_LOCKS_EXCLUDED(mu_);
  AlignedFloats TakeScratch(size_t elements) ABSL_LOCKS_EXCLUDED(mu_);
  void ReturnScratch(AlignedFloats scratch) ABSL_LOCKS_EXCLUDED(mu_);

  PeerTransport* const transport_;
  const Options options_;
  const size_t swapped_elements_max_;
  Mutex mu_;
  // Those of the sizes that were used last: a job has few.
  absl::flat_hash_map<std::pair<int, size_t>,
                      std::shared_ptr<const CollectiveSchedule>>
      schedules_ ABSL_GUARDED_BY(mu_);
  std::vector<AlignedFloats> scratch_ ABSL_GUARDED_BY(mu_);
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_COLLECTIVES_COLLECTIVES_H_
