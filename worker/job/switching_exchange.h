#ifndef SYNCLINE_WORKER_JOB_SWITCHING_EXCHANGE_H_
#define SYNCLINE_WORKER_JOB_SWITCHING_EXCHANGE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/base/mutex.h"
#include "common/regime/regime_schedule.h"
#include "worker/client/state_client.h"
#include "worker/exchange/parameter_exchange.h"
#include "worker/peers/peer_exchange.h"

namespace syncline::worker {

// The exchange of a rank of a job whose strategy may change while it runs, and
// by ALL_REDUCE its wire type: hands every call to the exchange of the present
// regime, and at the clock of a change brings the state from one to the next.
//
//   the chief announces the change: a cut at the shards, or a word in its facts
//   every rank comes to the clock, prepares its part of the other strategy, and
//   says to the chief that it has it
//   the chief: all have it -> the change is in force, and each rank goes on by
//   it; one has not, or did not say so in time -> the strategy before stays
//
// From ps to ranks: while the shards hold the cut, each rank forms the group
// and reads the state of the blocks that it owns; values are in its tensors.
// Where all ranks are to have all state, they hand it to each other then. The
// shards' commit decides. From ranks to ps: each rank
// writes the blocks that it owns to the shards, which are away until the chief
// has them take the state back. Among ranks: a new group, into which the state
// is copied; where an owner alone has it, the owner sends it.
//
// The ranks that are done wait for the others in the exchange before, for the
// step timeout. So `join` and each call of `state` give up after half of it.
// While the state moves to or from the shards, the rank says so about once a
// second. A rank that has the new group and cannot go on ends it at once.
//
// The exchange before is kept until the first step of the next one is made: a
// rank that leaves its group would end it for ranks that have not heard yet.
class SwitchingExchange final : public ParameterExchange {
 public:
  using Strategy = TrainingRegime::Strategy;

  struct Options {
    std::string label;  // "job j-0001 on worker:1", for messages
    uint32_t rank = 0;
    // Of the job; `join` and `state` give up after half of it.
    absl::Duration step_timeout = absl::Seconds(60);
    RegimeSchedule regimes;
    int64_t start_clock = 0;
    uint32_t arrays = 1;  // of a block: values, and the optimizer's slots
    // The exchange with ps that begins with these regimes; null: the job has
    // none.
    std::function<std::unique_ptr<ParameterExchange>(const RegimeSchedule&)>
        make_ps;
    // A group of all ranks for the clocks from `clock` on. Blocks until it has
    // formed. Errors: JoinPeers'.
    std::function<absl::StatusOr<std::shared_ptr<PeerLink>>(int64_t clock)>
        join;
    // The exchange in it, by the last of the regimes. Takes its memory. Errors:
    // PeerExchange::Create's.
    std::function<absl::StatusOr<std::unique_ptr<PeerExchange>>(
        const RegimeSchedule&, std::shared_ptr<PeerLink>)>
        make_peers;
    // Where there are ps.
    std::unique_ptr<StateClient> state;
  };
  // `first`: the exchange of the strategy that the job begins with; `peers`:
  // the same where it is without ps, else null.
  SwitchingExchange(Options options, std::unique_ptr<ParameterExchange> first,
                    PeerExchange* peers);

  void Cancel(const absl::Status& reason) override ABSL_LOCKS_EXCLUDED(mu_);
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
  absl::Status PrepareRegime(uint64_t cut_id, int64_t clock) override;
  absl::Status CommitRegime(uint64_t cut_id, int64_t clock) override;
  bool has_regime_news() const override { return active_->has_regime_news(); }
  absl::StatusOr<RegimeSchedule> FollowRegimes(int64_t clock) override;
  absl::Status AwaitCut(uint64_t cut_id, int64_t clock) override;
  std::unique_ptr<CheckpointWriting> OpenCheckpoint(uint64_t cut_id) override;
  std::optional<int64_t> OwnClock() const override;
  std::unique_ptr<CheckpointWriting> SaveAlone(uint64_t cut_id) override;
  void BeginStep(const Step& step) override;
  void PullEarly(absl::Span<RowBatch* const> next_rows,
                 int64_t min_clock) override;
  void AbandonStep(bool own_values) override;
  bool step_abandoned() const override { return active_->step_abandoned(); }
  // The ps have told a new exchange nothing yet.
  bool was_skipped(int64_t clock) const override {
    const bool is_before = former_ != nullptr && here_ == clock + 1;
    return (is_before ? former_ : active_)->was_skipped(clock);
  }
  int64_t open_clock() const override { return active_->open_clock(); }
  int64_t leased_clock() const override { return active_->leased_clock(); }
  std::vector<LostWorker> lost_workers() const override {
    return active_->lost_workers();
  }
  bool was_left_behind(int64_t clock) const override {
    return active_->was_left_behind(clock);
  }
  std::optional<LeftOut> left_out() const override ABSL_LOCKS_EXCLUDED(mu_);
  void OnGradientReady(uint32_t tensor) override;
  void EndBackward(absl::Span<RowBatch* const> next_rows) override;
  absl::Status Wait() override;
  WaitTimes wait_times() const override { return active_->wait_times(); }
  absl::Status Leave(int64_t clock) override;

 private:
  // The change that this rank's cut, or the chief's, is about.
  struct Change {
    uint64_t cut_id = 0;
    TrainingRegime regime;
    RegimeSchedule regimes;  // with it
  };

  const TrainingRegime& now() const { return regimes_.regimes().back(); }
  // `next` needs another exchange. Through the ps one follows the wire type.
  bool IsSwitch(const TrainingRegime& next) const {
    return next.strategy != now().strategy ||
           (!next.has_ps() && next.wire_type != now().wire_type);
  }
  bool is_chief() const { return options_.rank == 0; }
  absl::StatusOr<Change> ChangeTo(uint64_t cut_id, TrainingRegime regime) const;
  // This rank's part of the state, for the other strategy; next_ then has it,
  // or the shards do. After an error among ranks the new group has ended.
  absl::Status PreparePart(const Change& change, int64_t clock);
  absl::Status PrepareFromPs(const Change& change, int64_t clock);
  absl::StatusOr<ShardStateHeader> JoinAndRead(const Change& change,
                                               uint64_t cut_id, int64_t clock);
  absl::Status PrepareFromPeers(const Change& change, int64_t clock);
  // The chief's: what all ranks say.
  absl::Status AwaitOthers(const absl::Status& own, int64_t clock);
  // FollowRegimes of a rank that is not the chief.
  absl::StatusOr<RegimeSchedule> FollowChief(int64_t clock);
  // The change that the shards have announced at `clock`, if it is one of the
  // strategy.
  absl::StatusOr<std::optional<StateClient::Proposal>> AwaitProposal(
      int64_t clock);
  // Tells the others that the state is on its way: `what` is "writing the
  // state", of all arrays of `blocks`.
  StateClient::Progress ReportsOf(int64_t clock, std::string what,
                                  size_t blocks);
  void GiveUp() ABSL_LOCKS_EXCLUDED(mu_);
  // The chief's, of ranks that go on with ps: the shards take the state, and
  // have the cuts that are announced.
  absl::Status HandToPs(int64_t clock);
  // Goes on by the change that was prepared.
  absl::Status Activate(const RegimeSchedule& regimes, int64_t clock);
  absl::Status Join(const Change& change, int64_t clock);
  // Shows the present exchanges to Cancel, which ends them, and to left_out.
  void ShowMembers() ABSL_LOCKS_EXCLUDED(mu_);

  const Options options_;
  RegimeSchedule regimes_;
  std::shared_ptr<ParameterExchange> active_;
  PeerExchange* peers_;  // the same; null: with ps
  std::shared_ptr<ParameterExchange> next_;
  PeerExchange* next_peers_ = nullptr;   // the same; null: with ps
  std::shared_ptr<PeerLink> next_link_;  // its group
  std::shared_ptr<ParameterExchange> former_;
  std::optional<Change> change_;  // the chief's, from BeginCut on
  uint64_t found_ = 0;            // by other ranks: AwaitOthers
  std::map<uint64_t, Cut> cuts_;  // announced by this rank and not ended
  std::optional<int64_t> here_;   // the clock whose values have come already
  bool has_values_ = true;        // those behind the last step

  mutable Mutex mu_;
  absl::Status cancelled_ ABSL_GUARDED_BY(mu_);
  // active_, next_, former_ and next_link_, for other threads.
  std::vector<std::shared_ptr<ParameterExchange>> shown_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<PeerLink> shown_link_ ABSL_GUARDED_BY(mu_);
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_JOB_SWITCHING_EXCHANGE_H_
