#ifndef SYNCLINE_WORKER_PEERS_PEER_FOLDS_H_
#define SYNCLINE_WORKER_PEERS_PEER_FOLDS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "worker/exchange/step_folds.h"
#include "worker/peers/peer_link.h"

namespace syncline::worker {

// Folds of statistics without a ps: each rank sends its part to every other
// one, and each adds up all parts in the order of ranks, in fp64, which are the
// bits of StatisticsReducer. A fold costs one way between two ranks.
//
// A part is a head, with the number of values, and the values. After its last
// fold of a clock a rank sends a head without values, where the next fold would
// be, to all that have not done so before. Each rank takes what the others have
// sent at that place, be it such a head or a part in a fold that it has no part
// in: so no message is left over.
class PeerFolds : public StepFolds {
 public:
  // Of the same job as the link's exchange, which goes after this.
  explicit PeerFolds(std::shared_ptr<PeerLink> link);
  ~PeerFolds() override;

  void BeginStep(int64_t clock, StepRecorder* recorder) override;
  absl::Status Fold(absl::Span<double> values) override;
  absl::Status Leave() override;
  absl::Duration waited() const override { return waited_; }
  bool spoilt_by_others() const override { return spoilt_by_others_; }
  const absl::Status& status() const override { return status_; }
  void Cancel(const absl::Status& reason) override { link_->Cancel(reason); }

 private:
  struct Parts;  // of one fold; its callbacks share it
  // Sends this rank's part in the next fold; empty: it takes part no more.
  void Send(absl::Span<const double> values, const std::shared_ptr<Parts>& of);
  // Receives the others' parts in it.
  void Receive(const std::shared_ptr<Parts>& of);
  absl::Status Reduce(absl::Span<double> values);
  absl::Status ReducePiece(absl::Span<double> values);
  // The last part of the clock, if it has begun and not ended yet.
  void EndClock();

  const std::shared_ptr<PeerLink> link_;
  int64_t clock_ = -1;
  bool left_ = true;  // the clock
  uint32_t fold_ = 0;
  std::vector<bool> absent_;  // by rank, in this clock's later folds
  StepRecorder* recorder_ = nullptr;
  absl::Duration waited_;
  bool spoilt_by_others_ = false;
  absl::Status status_;
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_PEERS_PEER_FOLDS_H_
