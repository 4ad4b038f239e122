#ifndef SYNCLINE_SERVER_SHARD_ANSWER_WINDOW_H_
#define SYNCLINE_SERVER_SHARD_ANSWER_WINDOW_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <utility>

#include "absl/time/time.h"
#include "server/consistency/consistency_controller.h"
#include "server/consistency/shard_call.h"

namespace syncline::ps {

// A pull that the consistency mode allows to be answered.
struct WaitingRead {
  CallToken token = 0;
  int64_t clock = 0;  // of the pull
  int64_t min_clock = 0;
  int64_t max_clock = 0;
  int64_t skipped_through = 0;              // ShardAction's
  int64_t open_clock = 0;                   // likewise
  uint32_t regimes = 0;                     // PullResponseHeader's
  ConsistencyController::LostWorkers lost;  // likewise
  std::vector<ReturnedLease> returned;      // likewise
  uint64_t checkpoint_cut = 0;              // PullResponseHeader's
  absl::Duration waited;
};

// Answers to one worker: the bytes that are on their way, and the pulls whose
// values are read when earlier answers are sent. So the memory of answers is
// bounded. Thread-compatible.
class AnswerWindow {
 public:
  // Once a worker has left this many bytes of answers untaken, no more are read
  // for it, so nearly twice as many can be on their way. It is enough to keep a
  // network busy.
  static constexpr uint64_t kUnsentBytesMax = 4 << 20;

  void Enqueue(const WaitingRead& read) { waiting_.push_back(read); }
  // The pull to read next, in order of arrival. Nothing: none waits, or the
  // window is full.
  std::optional<WaitingRead> Next() {
    if (waiting_.empty() || unsent_bytes_ >= kUnsentBytesMax) return {};
    const WaitingRead read = waiting_.front();
    waiting_.pop_front();
    return read;
  }
  // An answer of so many bytes is on its way, or has been sent.
  void OnStarted(uint64_t bytes) { unsent_bytes_ += bytes; }
  void OnSent(uint64_t bytes) { unsent_bytes_ -= bytes; }

  // The pulls that wait, in order; none waits afterwards.
  std::deque<WaitingRead> TakeWaiting() { return std::exchange(waiting_, {}); }

 private:
  uint64_t unsent_bytes_ = 0;
  std::deque<WaitingRead> waiting_;
};

}  // namespace syncline::ps

#endif  // SYNCLINE_SERVER_SHARD_ANSWER_WINDOW_H_
