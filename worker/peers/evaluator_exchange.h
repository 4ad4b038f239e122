#ifndef SYNCLINE_WORKER_PEERS_EVALUATOR_EXCHANGE_H_
#define SYNCLINE_WORKER_PEERS_EVALUATOR_EXCHANGE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/wire/block_map.h"
#include "worker/exchange/dense_tensors.h"
#include "worker/exchange/parameter_exchange.h"
#include "worker/peers/block_owners.h"
#include "worker/peers/peer_link.h"
#include "worker/peers/peer_messages.h"

namespace syncline::worker {

// The exchange of the evaluator of a job without ps: it is the last rank of the
// group, and trains nothing. In SYNC every rank has all values between two
// steps, so the chief gives it those of the cuts that it asks for:
//
//   PullCut   <- head and values, from the chief, which waits meanwhile
//   BeginCut  the clock that is wanted next; the chief knows the first one
//   EndCut    -> "read", with that clock: the chief goes on
//
// At the job's last clock PullCut says that itself, and the group may go.
// Makes no step. As ParameterExchange says of threads and errors.
class EvaluatorExchange : public ParameterExchange {
 public:
  // `map` and `buckets` as the ranks have them, of `tensors`.
  EvaluatorExchange(BlockMap map, const BucketSizes& sizes,
                    DenseTensors tensors, std::shared_ptr<PeerLink> link);
  ~EvaluatorExchange() override;  // ends the group

  void Cancel(const absl::Status& reason) override { link_->Cancel(reason); }
  absl::Status Init(int64_t total_clocks) override;
  absl::Status Pull(int64_t clock) override;
  absl::Status PullRows(int64_t clock, uint64_t cut_id,
                        absl::Span<RowBatch* const> rows) override;
  absl::Status ReportActivity(int64_t clock, absl::string_view what,
                              uint64_t done, uint64_t total) override;
  absl::StatusOr<std::vector<int64_t>> BeginCut(const Cut& cut) override;
  absl::Status PullCut(uint64_t cut_id, int64_t clock) override;
  absl::Status ScanTable(uint32_t table, int64_t dim, uint64_t cut_id,
                         int64_t clock, RowSink sink) override;
  absl::Status EndCut(uint64_t cut_id, int64_t clock) override;

  // It trains nothing: none of these is called.
  void BeginStep(const Step& step) override;
  void PullEarly(absl::Span<RowBatch* const>, int64_t) override {}
  void AbandonStep(bool) override {}
  bool step_abandoned() const override { return false; }
  bool was_skipped(int64_t) const override { return false; }
  void OnGradientReady(uint32_t) override {}
  void EndBackward(absl::Span<RowBatch* const>) override {}
  absl::Status Wait() override;
  WaitTimes wait_times() const override { return {}; }

 private:
  // Tells the chief that the values of `clock` are here, and which are wanted
  // next; 0: none.
  absl::Status SayRead(int64_t clock, int64_t next);

  const BlockMap map_;
  const std::vector<Bucket> buckets_;
  const uint64_t layout_hash_;
  const DenseTensors tensors_;
  const std::shared_ptr<PeerLink> link_;
  int64_t next_ = 0;       // of BeginCut
  bool finished_ = false;  // nobody waits for this rank any more
  FactsMessage head_;
  FactsMessage read_;
  std::atomic<size_t> left_{0};  // messages under way
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_PEERS_EVALUATOR_EXCHANGE_H_
