#ifndef SYNCLINE_WORKER_PEERS_SWITCH_TALK_H_
#define SYNCLINE_WORKER_PEERS_SWITCH_TALK_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/peers/peer_link.h"

namespace syncline::worker {

// The messages between the ranks of a job before its strategy changes at a
// clock: each rank says to the chief whether it has its part of the state, and
// the chief says to each whether the change comes about. So a change that one
// rank cannot make is made by none.
//
//   ranks but the chief: SendReady  ->            AwaitVerdict
//   the chief:           AwaitReady  ->  ...  ->  SendVerdict
//
// Where each rank has a part of the state that all are to have, all call
// AwaitParts before that, and the ranks go on to hand their parts to each other
// only if every rank has its.
//
// Each once for a clock and a link. One thread at a time. Errors are
// PeerLink::Await's, and end the group; what a rank could not do does not.
class SwitchTalk {
 public:
  // The message of a rank to the chief.
  struct Ready {
    absl::Status status;  // why it cannot go on with the other strategy
    uint64_t found = 0;   // StepReduction::found()
  };

  SwitchTalk(std::shared_ptr<PeerLink> link, int64_t clock)
      : link_(std::move(link)), clock_(clock) {}

  // `own`: why this rank has no part; OK: it has. Returns when all ranks have
  // said so to each other. Errors: `own`, else that of a rank without its part,
  // which is named: the link goes on then, at all ranks.
  absl::Status AwaitParts(const absl::Status& own);
  // Returns when the chief has it.
  absl::Status SendReady(const Ready& own);
  // By rank; none at the chief's own place. A rank's status names it.
  absl::StatusOr<std::vector<Ready>> AwaitReady();
  // Returns when all ranks have it.
  absl::Status SendVerdict(bool commits);
  absl::StatusOr<bool> AwaitVerdict();

 private:
  const std::shared_ptr<PeerLink> link_;
  const int64_t clock_;
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_PEERS_SWITCH_TALK_H_
