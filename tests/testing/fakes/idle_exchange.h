#ifndef SYNCLINE_TESTS_TESTING_FAKES_IDLE_EXCHANGE_H_
#define SYNCLINE_TESTS_TESTING_FAKES_IDLE_EXCHANGE_H_

#include <cstdint>
#include <vector>

#include "worker/exchange/parameter_exchange.h"

namespace syncline::worker {

// An exchange whose calls are all OK and do nothing: values and gradients stay
// as they are, and a cut gets the clocks that it was announced with. Tests
// derive from it and override the calls that they look at. Thread-compatible.
class IdleExchange : public ParameterExchange {
 public:
  void Cancel(const absl::Status&) override {}
  absl::Status Init(int64_t) override { return absl::OkStatus(); }
  absl::Status Pull(int64_t) override { return absl::OkStatus(); }
  absl::Status PullRows(int64_t, uint64_t,
                        absl::Span<RowBatch* const>) override {
    return absl::OkStatus();
  }
  absl::Status ReportActivity(int64_t, absl::string_view, uint64_t,
                              uint64_t) override {
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<int64_t>> BeginCut(const Cut& cut) override {
    return cut.clocks;
  }
  absl::Status PullCut(uint64_t, int64_t) override { return absl::OkStatus(); }
  absl::Status ScanTable(uint32_t, int64_t, uint64_t, int64_t,
                         RowSink) override {
    return absl::OkStatus();
  }
  absl::Status EndCut(uint64_t, int64_t) override { return absl::OkStatus(); }
  absl::Status AwaitCut(uint64_t, int64_t) override { return absl::OkStatus(); }
  void BeginStep(const Step&) override {}
  void PullEarly(absl::Span<RowBatch* const>, int64_t) override {}
  void AbandonStep(bool) override {}
  bool step_abandoned() const override { return false; }
  bool was_skipped(int64_t) const override { return false; }
  void OnGradientReady(uint32_t) override {}
  void EndBackward(absl::Span<RowBatch* const>) override {}
  absl::Status Wait() override { return absl::OkStatus(); }
  WaitTimes wait_times() const override { return {}; }
};

}  // namespace syncline::worker

#endif  // SYNCLINE_TESTS_TESTING_FAKES_IDLE_EXCHANGE_H_
