#ifndef SYNCLINE_WORKER_CLIENT_ROUTED_EXCHANGE_H_
#define SYNCLINE_WORKER_CLIENT_ROUTED_EXCHANGE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/mutex.h"
#include "worker/client/current_routing.h"
#include "worker/exchange/parameter_exchange.h"

namespace syncline::worker {

// The exchange of a rank with a job's shards wherever the job's routing puts
// them. It hands every call to a client for one version of the routing. When a
// shard refuses a call because the routing is a later one, a client for that
// takes its place, and the call is made again; of a step, all of it: the shards
// know by clock and block what has already come.
//
// The cuts that are announced move with the state of the shards, and a client
// hands on to the next one which of them are this rank's (CarryOver).
class RoutedExchange final : public ParameterExchange {
 public:
  struct Options {
    // Outlives this, and the clients.
    std::shared_ptr<CurrentRouting> routing;
    // A client for one version.
    std::function<std::unique_ptr<ParameterExchange>(
        const std::shared_ptr<const RoutedJob>& job)>
        make_client;
    // Told of each later routing before a client for it is made: rows of
    // batches that are under way have to be assigned to their shards again. May
    // be null.
    std::function<void(const RoutingTable& routing)> on_routing = nullptr;
  };
  explicit RoutedExchange(const Options& options);

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
  absl::Status AwaitCut(uint64_t cut_id, int64_t clock) override;
  absl::Status CommitRegime(uint64_t cut_id, int64_t clock) override;
  bool has_regime_news() const override { return client_->has_regime_news(); }
  absl::StatusOr<RegimeSchedule> FollowRegimes(int64_t clock) override;
  std::unique_ptr<CheckpointWriting> OpenCheckpoint(uint64_t cut_id) override;
  void BeginStep(const Step& step) override;
  void PullEarly(absl::Span<RowBatch* const> next_rows,
                 int64_t min_clock) override;
  void AbandonStep(bool own_values) override;
  bool step_abandoned() const override { return client_->step_abandoned(); }
  bool was_skipped(int64_t clock) const override {
    return client_->was_skipped(clock);
  }
  int64_t open_clock() const override { return client_->open_clock(); }
  int64_t leased_clock() const override { return client_->leased_clock(); }
  std::vector<LostWorker> lost_workers() const override {
    return client_->lost_workers();
  }
  std::vector<ReturnedClock> TakeReturned() override {
    return client_->TakeReturned();
  }
  void UseReturned(std::function<absl::Status()> make) override {
    make_returned_ = std::move(make);
    client_->UseReturned(make_returned_);
  }
  bool was_left_behind(int64_t clock) const override {
    return client_->was_left_behind(clock);
  }
  void OnGradientReady(uint32_t tensor) override;
  void EndBackward(absl::Span<RowBatch* const> next_rows) override;
  absl::Status Wait() override;
  WaitTimes wait_times() const override { return client_->wait_times(); }

 private:
  // A step, as far as it has been handed over.
  struct StepSoFar {
    bool open = false;  // until Wait has returned
    bool abandoned = false;
    bool ended = false;  // EndBackward
    Step step;
    absl::Span<RowBatch* const> early_rows;
    int64_t early_clock = 0;
    std::vector<uint32_t> tensors;  // in the order in which they came
    absl::Span<RowBatch* const> next_rows;
  };

  // Makes `call` with the client, and again with the next one while that ends
  // with a later routing.
  template <typename Call>
  auto Routed(Call call) -> decltype(call());
  // Puts a client for the routing that `refusal` tells of into the place of the
  // present one. Errors: CurrentRouting::Follow's.
  absl::Status GoOnElsewhere(const absl::Status& refusal);
  // Brings the client to where the open step is.
  void HandOverStep();

  const Options options_;
  std::shared_ptr<ParameterExchange> client_;  // the calling thread's
  StepSoFar step_;
  std::function<absl::Status()> make_returned_;  // UseReturned's
  Mutex mu_;
  absl::Status cancelled_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<ParameterExchange> to_cancel_ ABSL_GUARDED_BY(mu_);
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_CLIENT_ROUTED_EXCHANGE_H_
