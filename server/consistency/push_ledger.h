#ifndef SYNCLINE_SERVER_CONSISTENCY_PUSH_LEDGER_H_
#define SYNCLINE_SERVER_CONSISTENCY_PUSH_LEDGER_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "server/consistency/shard_call.h"

namespace syncline::ps {

// The exactly-once record of one worker's pushes on one shard. A worker has one
// open clock, whose number is that of the clocks it has closed. The open clock
// closes when all the blocks that the worker announced have arrived, and with
// it those before the clock that the worker makes next. Pure;
// thread-compatible.
class PushLedger {
 public:
  explicit PushLedger(uint32_t block_count) : received_(block_count, -1) {}

  // Checks a push of the open clock against what earlier messages of the clock
  // announced and against the number of blocks. Changes nothing.
  // Errors: InvalidArgument: it contradicts itself or them.
  absl::Status CheckOpenPush(const PushFacts& push) const;

  // Takes over what `push` says of the open clock; true for the first message
  // of the clock. REQUIRES: CheckOpenPush is OK.
  bool Open(const PushFacts& push);
  // False: a duplicate. REQUIRES: the clock is open (Open was called).
  bool Receive(BlockIndex block);
  // All announced blocks have arrived. REQUIRES: as Receive.
  bool complete() const { return received_count_ == expected_count_; }
  void Close();
  // The open clock ends without the worker, whatever has arrived of it; the
  // rest of it will be a duplicate. `finishes`: it is the job's last clock.
  void Forgo(bool finishes) {
    finishes_ = finishes;
    next_ = closed_ + 1;
    Close();
  }

  // The worker has no part in the job any more; nothing is expected of it.
  // REQUIRES: what has arrived of the open clock has been dropped.
  void Leave() {
    started_ = false;
    finished_ = true;
  }

  // The worker is lost: its open clock ends with what has arrived of it.
  void Abandon() {
    if (started_) Close();
  }
  // Of a lost worker: of its clocks this one comes next, in its place.
  // REQUIRES: Abandon, and nothing of the clock or a later one has arrived.
  void GoOnAt(int64_t clock) {
    closed_ = clock;
    finished_ = false;
  }

  // Clocks of this worker that are in the shard as far as `block` goes.
  int64_t clocks_of(BlockIndex block) const {
    return started_ && received_in(block, closed_) ? next_ : closed_;
  }
  bool received_in(BlockIndex block, int64_t clock) const {
    return received_[block] == clock;
  }

  // The state between two clocks of the worker: it has closed so many clocks,
  // and nothing of the next has arrived. Pushes of the closed clocks are
  // duplicates.
  // REQUIRES: nothing was received yet.
  void Import(int64_t closed, bool finished) {
    closed_ = closed;
    pushed_ = closed;
    finished_ = finished;
  }
  // The same of a worker whose first clock is a later one: those from `closed`
  // on are closed without it.
  void ImportAhead(int64_t closed, int64_t first, bool finished) {
    Import(closed, finished);
    closed_ = first;
  }

  int64_t closed() const { return closed_; }
  // 1 + the latest clock that it has closed by a push of its own. Below
  // closed() where clocks behind that were closed with it.
  int64_t pushed() const { return pushed_; }
  // The latest clock whose values the worker may have.
  int64_t readable() const { return started_ ? next_ : closed_; }
  // The smallest clock at which the worker's pushes can be cut: all that have
  // arrived are below it.
  int64_t cut_from() const { return started_ ? closed_ + 1 : pushed_; }
  // Something of the open clock has arrived.
  bool started() const { return started_; }
  bool finished() const { return finished_; }
  // Of the open clock; REQUIRES: started().
  uint64_t sample_count() const { return sample_count_; }
  uint64_t new_samples() const { return new_samples_; }
  uint32_t received_count() const { return received_count_; }
  uint32_t expected_count() const { return expected_count_; }

 private:
  // The latest clock whose gradient of a block has arrived; -1: none.
  std::vector<int64_t> received_;
  int64_t closed_ = 0;
  int64_t pushed_ = 0;
  bool finished_ = false;

  // Of the open clock; meaningful while started_.
  bool started_ = false;
  int64_t next_ = 0;  // the worker's clock after it
  bool finishes_ = false;
  uint64_t sample_count_ = 0;
  uint64_t new_samples_ = 0;  // PushFacts'
  double squared_norm_ = 0;
  uint32_t expected_count_ = 0;
  uint32_t received_count_ = 0;
};

}  // namespace syncline::ps

#endif  // SYNCLINE_SERVER_CONSISTENCY_PUSH_LEDGER_H_
