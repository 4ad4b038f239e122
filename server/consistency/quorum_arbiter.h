#ifndef SYNCLINE_SERVER_CONSISTENCY_QUORUM_ARBITER_H_
#define SYNCLINE_SERVER_CONSISTENCY_QUORUM_ARBITER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

namespace syncline::ps {

// Fixes with which workers a clock is applied, for all shards of a job:
// SYNC_WITH_BACKUPS and SYNC_WITH_TIMEOUT, and SYNC whose workers may be lost.
// It is at shard 0; each shard says which workers have closed the clock there.
// A worker that has closed it on all shards counts. The set is fixed when
// `needed` workers count, or, with a timeout, when all do, or `needed` do and
// the timeout has passed since the first close. Where workers may be lost it is
// fixed when all that are not removed count; one that is removed and counts is
// in it, too. A set that is fixed never changes.
//
// A pure state machine. Each call ends in exactly one answer, at the latest at
// the first OnTick after its deadline. Thread-compatible.
//
// Source: Chen et al. 2016, "Revisiting distributed synchronous SGD", sec. 3.
class QuorumArbiter {
 public:
  struct Shard {
    uint64_t incarnation = 0;
    std::string name;        // "ps:1 at 10.0.0.5:4000", for messages
    bool takes_part = true;  // false: no worker sends it anything
  };
  struct Options {
    uint32_t needed = 1;                    // 1 to the number of workers
    std::optional<absl::Duration> timeout;  // none: SYNC_WITH_BACKUPS
    bool loses_workers = false;             // ConsistencyOptions::Quorum's
    std::vector<Shard> shards;              // by number; the first takes part
    std::vector<std::string> workers;       // names by rank
    std::string label;  // "job j-0001 on ps:0 at 10.0.0.5:4000"
  };
  struct Answer {
    uint64_t token = 0;
    absl::Status status = absl::OkStatus();
    std::vector<uint32_t> ranks = {};  // the set, ascending
    // All that have no part in the clocks behind this one, ascending.
    std::vector<uint32_t> removed = {};
  };
  using Answers = std::vector<Answer>;

  explicit QuorumArbiter(Options options);

  // These workers have closed `clock` on the shard. Answered with the clock's
  // set once it is fixed. Errors: InvalidArgument: no such shard, ranks that
  // are not ascending ones of workers, a clock that the shards are not at;
  // FailedPrecondition: the shard is another process; DeadlineExceeded: the
  // message names the workers that are missing, and where.
  void OnCloses(uint64_t token, uint32_t shard, uint64_t incarnation,
                int64_t clock, absl::Span<const uint32_t> ranks,
                absl::Time deadline, absl::Time now, Answers* answers);
  // No clock waits for this worker any more, from the one on whose set is fixed
  // next. A repeat changes nothing. Errors: FailedPrecondition: the job waits
  // for all its workers; InvalidArgument: no such worker, or the chief.
  absl::Status OnRemoved(uint32_t rank, absl::Time now, Answers* answers);
  // This process was frozen for so long: deadlines and the timeout move.
  void OnFrozen(absl::Duration frozen);
  void OnTick(absl::Time now, Answers* answers);
  // Ends what waits, and every later call, with `status`.
  void Close(const absl::Status& status, Answers* answers);

  // The clock whose set comes next; none: no shard has told of one.
  std::optional<int64_t> clock() const { return clock_; }
  size_t waiting() const { return waiting_.size(); }

 private:
  struct Waiting {
    uint64_t token = 0;
    absl::Time deadline;
  };

  absl::Status Check(uint32_t shard, uint64_t incarnation, int64_t clock,
                     absl::Span<const uint32_t> ranks) const;
  // No shard has told of a close of clock_. The job may come back at a later
  // one then: the workers had the state meanwhile.
  bool IsIdle() const;
  // Workers that have closed the clock on all shards, ascending.
  std::vector<uint32_t> Common() const;
  bool IsFixed(const std::vector<uint32_t>& common, absl::Time now) const;
  void FixIfPossible(absl::Time now, Answers* answers);
  std::string MissingText() const;

  const Options options_;
  std::optional<int64_t> clock_;
  absl::Time first_close_ = absl::InfiniteFuture();  // of clock_
  std::vector<std::vector<bool>> closed_;  // of clock_, by shard and rank
  // Of the clock before, for shards that ask late; empty: none.
  std::vector<uint32_t> last_set_;
  std::vector<uint32_t> last_removed_;  // as it was answered with last_set_
  std::vector<uint32_t> removed_;       // ascending
  std::vector<Waiting> waiting_;        // for clock_'s set
  absl::Status ended_;
};

}  // namespace syncline::ps

#endif  // SYNCLINE_SERVER_CONSISTENCY_QUORUM_ARBITER_H_
