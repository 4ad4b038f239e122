#ifndef SYNCLINE_TESTS_TESTING_COPY_GATHERER_H_
#define SYNCLINE_TESTS_TESTING_COPY_GATHERER_H_

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "worker/compute/executor.h"
#include "worker/compute/parameter_gatherer.h"

namespace syncline::testing {

// Gathers the values of an executor's steps from copies. Whatever no unit may
// read is NaN: its memory from Begin to Await, and after Release. It writes
// down the calls, as "B0 A0 B1 R0 ...".
class CopyGatherer final : public worker::ParameterGatherer {
 public:
  // `values`: by parameter. Becomes the executor's; outlives its steps.
  CopyGatherer(worker::Executor* executor,
               std::vector<std::vector<float>> values)
      : executor_(*executor), values_(std::move(values)) {
    to_.resize(executor_.gather_units().size());
    executor_.UseGatherer(this);
  }

  void Begin(int unit, absl::Span<float* const> to) override {
    Say("B", unit);
    to_[unit].assign(to.begin(), to.end());
    Poison(unit);
  }
  absl::Status Await(int unit) override {
    Say("A", unit);
    if (unit == fails_at_) return absl::UnavailableError("rank 1 is gone");
    const std::vector<int>& parameters = executor_.gather_units()[unit];
    for (size_t i = 0; i < parameters.size(); ++i) {
      const std::vector<float>& from = values_[parameters[i]];
      std::copy(from.begin(), from.end(), to_[unit][i]);
    }
    return absl::OkStatus();
  }
  void Release(int unit) override {
    Say("R", unit);
    Poison(unit);
  }

  void FailAt(int unit) { fails_at_ = unit; }
  const std::string& calls() const { return calls_; }
  void Forget() { calls_.clear(); }

 private:
  void Say(const char* what, int unit) {
    absl::StrAppend(&calls_, calls_.empty() ? "" : " ", what, unit);
  }
  void Poison(int unit) {
    const std::vector<int>& parameters = executor_.gather_units()[unit];
    for (size_t i = 0; i < parameters.size(); ++i) {
      std::fill_n(to_[unit][i], values_[parameters[i]].size(),
                  std::numeric_limits<float>::quiet_NaN());
    }
  }

  worker::Executor& executor_;
  const std::vector<std::vector<float>> values_;
  std::vector<std::vector<float*>> to_;  // by unit
  int fails_at_ = -1;
  std::string calls_;
};

}  // namespace syncline::testing

#endif  // SYNCLINE_TESTS_TESTING_COPY_GATHERER_H_
