#ifndef SYNCLINE_WORKER_PEERS_PEER_LINK_H_
#define SYNCLINE_WORKER_PEERS_PEER_LINK_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/base/mutex.h"
#include "worker/collectives/peer_transport.h"

namespace syncline::worker {

// The kinds of messages between the ranks of a job without ps.
enum PeerMessage : uint32_t {
  kFacts = PeerTag::kFirstFreeKind,  // one a step, to every rank
  kGradient,                         // of a bucket, to its owner
  kGradientNorms,                    // of an owner's blocks, to every rank
  kTrustNorms,                       // likewise
  kResult,                           // of a bucket, to every rank
  kInitHead,                         // the chief's, before its values
  kInit,                             // of a bucket
  kCounts,                           // after the last step, to rank 0 and back
  kActivity,                         // numbered from 0, at clock 0
  kFoldHead,                         // of a fold of statistics
  kFoldBody,
  kCheckpointPart,  // of the clock of its cut, to rank 0
  // With the evaluator, of the clock of a cut.
  kCutHead,    // the chief's, before its values
  kCutValues,  // of a bucket
  kCutRead,    // the evaluator has them, and wants the cut at a later clock
  // Where the strategy changes, of that clock (worker/peers/switch_talk.h).
  // To the chief, or to every rank: this rank has its part of the state.
  kSwitchReady,
  kSwitchVerdict,  // the chief's, to every rank
  kSwitchUpdates,  // of an owner's blocks, to every rank
  kSwitchState,    // an array of one of them
  // Where values are at their owners alone.
  kUnitValues,   // an owner's part of a unit of the step, to every rank
  kOwnedValues,  // of a bucket, of the clock of a cut, to rank 0
  // In front of what is compressed (worker/peers/compressed_bucket.h).
  kGradientSizes,
  kResultSizes,
};

// One rank's transport with what all its waits have in common: a wait ends when
// no rank has moved for the step timeout, and says who is missing. A rank that
// reports its activity moves.
//
// Await and ReportActivity: one thread at a time. The rest is thread-safe.
class PeerLink {
 public:
  struct Options {
    std::string label;  // "job j-0001 on worker:0 at ...", for messages
    absl::Duration step_timeout = absl::Seconds(60);
    // The first ranks of the group, those that train; one more evaluates. 0:
    // all train.
    uint32_t ranks = 0;
  };
  PeerLink(Options options, std::unique_ptr<PeerTransport> transport);
  // Cancels, and returns when no callback runs any more.
  ~PeerLink();

  // Not after Close.
  PeerTransport& transport() { return *transport_; }
  const PeerGroup& group() const { return group_; }
  uint32_t rank() const { return group_.rank; }
  // Those that train.
  uint32_t ranks() const {
    return options_.ranks > 0 ? options_.ranks : group_.ranks();
  }
  bool has_evaluator() const { return ranks() < group_.ranks(); }
  uint32_t evaluator() const { return ranks(); }
  const std::string& label() const { return options_.label; }
  absl::Duration step_timeout() const { return options_.step_timeout; }

  // Something has come forward: the callbacks of messages say so.
  void Moved();
  // Waits until done() is true. Errors: DeadlineExceeded: no rank has moved for
  // the step timeout; `missing` says what and whose, for the message, and the
  // group has ended; else the one that ended the group.
  absl::Status Await(absl::FunctionRef<bool()> done,
                     absl::FunctionRef<std::string()> missing);
  // The same for the last messages of a job. A rank that leaves has all that it
  // needs, and so has this one: that some rank is gone is no error, and
  // status() does not have it.
  absl::Status AwaitLast(absl::FunctionRef<bool()> done,
                         absl::FunctionRef<std::string()> missing);

  // Sends a report to all other ranks, and to the evaluator; does not wait for
  // them.
  absl::Status ReportActivity(int64_t clock, absl::string_view what,
                              uint64_t done, uint64_t total);
  // ", which is evaluating clock 12, 3 of 7"; empty: nothing is known.
  std::string ActivityText(uint32_t rank) const ABSL_LOCKS_EXCLUDED(mu_);

  // Ends all messages; the first reason is kept.
  void Cancel(const absl::Status& reason) ABSL_LOCKS_EXCLUDED(mu_);
  // OK while the group goes on.
  absl::Status status() const ABSL_LOCKS_EXCLUDED(mu_);
  // Cancels, and returns when no callback runs any more: the owners of the
  // memory of messages call it before they free it.
  void Close();

 private:
  struct Report;  // the message
  struct Heard {
    std::unique_ptr<Report> next;  // being received
    uint32_t number = 0;           // of it
    int64_t clock = -1;
    uint64_t done = 0;
    uint64_t total = 0;
    std::string what;
  };
  absl::Status AwaitGroup(absl::FunctionRef<bool()> done,
                          absl::FunctionRef<std::string()> missing, bool last);
  void ReceiveReport(uint32_t rank);
  void OnReport(uint32_t rank) ABSL_LOCKS_EXCLUDED(mu_);

  const Options options_;
  const PeerGroup group_;
  std::atomic<int64_t> moved_at_nanos_;
  uint32_t reports_ = 0;  // sent

  mutable Mutex mu_;
  absl::Status status_ ABSL_GUARDED_BY(mu_);
  std::vector<Heard> heard_;  // by rank; `next` and `number`: the callback's
  PeerTransport* const transport_;
  std::unique_ptr<PeerTransport> owned_;  // last: its callbacks use the rest
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_PEERS_PEER_LINK_H_
